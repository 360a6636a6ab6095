document.querySelectorAll("section").forEach((section, number) => {
  const line = lines[number];
  const [slider, button] = ["input", "button"].map((name) => section.querySelector(name));
  const [figures, text] = [".figures", ".text"].map((name) => section.querySelector(".stage " + name));
  const dots = section.querySelectorAll("circle");
  let playing = null;

  const part = (name, kind, content) => {
    const element = document.createElement(name);
    if (kind) element.className = kind;
    element.textContent = content;
    return element;
  };
  const show = () => {
    const moment = line[slider.value];
    figures.textContent = moment.figures;
    slider.setAttribute("aria-valuetext", moment.figures);
    text.replaceChildren(part("b", "", moment.prompt), part("span", "same", moment.same), part("span", "new", moment.new));
    dots.forEach((dot) => dot.setAttribute("r", dot.dataset.text == slider.value ? 6 : 2.5));
  };
  const pause = () => {
    clearInterval(playing);
    playing = null;
    button.textContent = "Play";
  };
  slider.addEventListener("input", () => { pause(); show(); });
  button.addEventListener("click", () => {
    if (playing) return pause();
    if (Number(slider.value) + 1 >= line.length) slider.value = 0;
    show();
    button.textContent = "Pause";
    playing = setInterval(() => {
      if (Number(slider.value) + 1 >= line.length) return pause();
      slider.value = Number(slider.value) + 1;
      show();
    }, 900);
  });
  show();
});
