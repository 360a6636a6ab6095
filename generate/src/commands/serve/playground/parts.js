// Shared by all parts of the page: buttons, fields, bars, surprise in words.

/** A button; `facts` are additional attributes. */
const press = (text, onclick, facts = {}) => element("button", { type: "button", text, onclick, ...facts });

/** A button for what cannot be undone: the first press asks, if there is something to lose, and a second one acts. A double
 * click and a key that is held are one press. Leaving the button takes the first back. */
function pressTwice(text, question, act, canLose, facts = {}) {
  const onkeydown = (event) => { if (event.repeat) event.preventDefault(); };
  const button = press(text, ({ detail }) => {
    if (detail > 1) return; // a further click of a double click
    const isSure = button.textContent === question || !canLose();
    button.textContent = isSure ? text : question;
    if (isSure) act();
    else button.focus(); // some browsers do not focus what is pressed, and so would never tell that it is left
  }, { ...facts, onkeydown, onblur: () => { button.textContent = text; } });
  return button;
}

/** The main button of a view. */
const mainPress = (text, id, onclick) => press(text, onclick, { id, class: "primary" });

/** A line of explanation. */
const hint = (text, facts = {}) => element("p", { class: "hint", text, ...facts });

/** Surprise in bits: the negative logarithm to base 2 of the probability. */
const bitsOf = (logprob) => -logprob / Math.LN2;

const bits = (n) => `${n.toFixed(2)} bits`;

/** A labelled select box; `options` are [value, text] pairs. */
function choice(label, options, value, onchange) {
  const select = element("select", { onchange: () => onchange(select.value) });
  for (const [name, text] of options) select.append(element("option", { value: name, text }));
  select.value = value;
  return element("label", { class: "field" }, label, select);
}

/** A bar of a probability, with a thin mark for the value before; both are relative to `full`. */
function bar(p, full, was = null) {
  const share = (value) => `${(100 * value) / full}%`;
  const fill = styled(element("span", { class: "fill" }), { width: share(p) });
  const mark = was === null ? null : styled(element("span", { class: "was" }), { left: share(was) });
  return element("span", { class: "bar-line", "aria-hidden": "true" }, fill, mark);
}
