// Section 1: the loop, one step at a time. The step chosen here is also the one for the knobs section.

const state = { step: 0 };
const stepListeners = [];
const SHOWN = 10; // candidates
const MAX_CHIPS = 160; // tiles of the text so far; earlier tokens are only counted

/** The prompt's ids and those generated before this step. */
const idsBefore = (step) => [...data.prompt.ids, ...data.run.ids.slice(0, step)];

/** The tokens that the repetition penalty applies to at this step. */
const seenBefore = (step) => new Set(idsBefore(step));

/** The run's knobs; greedy is temperature 0. */
function runKnobs() {
  const knobs = { ...EmberArithmetic.OFF, ...data.run.knobs };
  return data.run.strategy === "greedy" ? { ...knobs, temperature: 0 } : knobs;
}

/** A step's logits processed with the run's knobs. */
const processedStep = (step) => EmberArithmetic.process(data.steps[step].logits, runKnobs(), seenBefore(step));

function goTo(step) {
  state.step = Math.max(0, Math.min(data.steps.length - 1, step));
  for (const listener of stepListeners) listener(state.step);
}

/** The entries of a step, by the model's probability, best first; without groups. */
function bestEntries(made, count) {
  const order = made.ids.map((_, entry) => entry).filter((entry) => made.ids[entry] !== null);
  return order.sort((a, b) => made.before[b] - made.before[a] || made.ids[a] - made.ids[b]).slice(0, count);
}

/** The text so far as tiles, marked as prompt or generated, and as in or out of the context window. */
function textTiles(step) {
  const [begin, end] = data.steps[step].window;
  const ids = idsBefore(step);
  const from = Math.max(0, ids.length - MAX_CHIPS);
  const tiles = [];
  if (from > 0) tiles.push(element("span", { class: "hint", text: `${plural(from, "earlier token")} \u2026 ` }));
  ids.slice(from).forEach((id, place) => {
    const position = from + place;
    const kinds = [position < begin || position >= end ? "unseen" : "seen", position < data.prompt.ids.length ? "prompt" : "generated"];
    tiles.push(chip(id, kinds.join(" ")));
  });
  tiles.push(element("span", { class: "token next", text: "?", title: "the next token" }));
  return tiles;
}

/** How the run picked: the best token, or the share that its random number fell into. */
function pickOf(step, made) {
  const { chosen, draw, interval, logprob } = data.steps[step];
  const facts = element("p", { class: "pick" }, "The pick: ", chip(chosen, "picked"),
    ` The model alone gave it ${percent(Math.exp(logprob))}, a log-probability of ${nats(logprob)}.`);
  if (draw === null) return [facts, element("p", { class: "hint", text: "No luck involved: the best one is taken." })];
  const [from, to] = interval;
  const where = `The random number ${draw.toFixed(4)} falls between ${from.toFixed(4)} and ${to.toFixed(4)}, the share of ${quoted(chosen)}.`;
  return [facts, unitLine(runSegments(step, made), draw, where), element("p", { class: "hint", text: where })];
}

/** The shares of the run's draw. If groups survive, their tokens' positions are unknown here; then only the chosen token's
 * stored share is drawn. */
function runSegments(step, made) {
  const { chosen, interval } = data.steps[step];
  const shares = EmberArithmetic.shares(made);
  if (shares.every((share) => share.id !== null)) return shares.map((share) => ({ ...share, picked: share.id === chosen }));
  const [start, end] = interval;
  return [{ start: 0, end: start, id: null }, { start, end, id: chosen, picked: true }, { start: end, end: 1, id: null }];
}

function drawStep(step) {
  const { window: [begin, end], chosen, logprob } = data.steps[step];
  const ids = idsBefore(step);
  const made = processedStep(step);
  byId("loop-step").value = step;
  byId("loop-step-value").textContent = `${step + 1} of ${data.steps.length}`;
  byId("loop-step").setAttribute("aria-valuetext", `step ${step + 1} of ${data.steps.length}`);
  byId("loop-back").disabled = step === 0;
  byId("loop-forward").disabled = step === data.steps.length - 1;

  const unseen = begin > 0 ? `; the first ${number(begin)} are outside the context` : "";
  byId("loop-window").textContent = `${plural(ids.length, "token")} so far. The model sees ${plural(end - begin, "token")}, `
    + `at most ${number(data.model.context_length)}${unseen}.`;
  byId("loop-tokens").replaceChildren(...textTiles(step));
  byId("loop-tokens").scrollTop = byId("loop-tokens").scrollHeight;

  const shown = bestEntries(made, SHOWN);
  if (!shown.some((entry) => made.ids[entry] === chosen)) shown.push(made.ids.indexOf(chosen));
  const full = Math.max(...shown.map((entry) => made.before[entry]));
  byId("loop-candidates-hint").textContent = `The ${Math.min(SHOWN, data.model.vocab_size)} most probable of ${number(data.model.vocab_size)}, `
    + "by the model alone.";
  byId("loop-bars").replaceChildren(...shown.filter((entry) => entry >= 0).map((entry) => barRow({
    label: chip(made.ids[entry]), p: made.before[entry], full, id: made.ids[entry],
    kind: made.ids[entry] === chosen ? "picked" : "", note: made.ids[entry] === chosen ? "picked" : "",
  })));
  byId("loop-pick").replaceChildren(...pickOf(step, made));
  const [generated, arrived] = textsOf([data.run.ids.slice(0, step), [chosen]]);
  byId("loop-text").replaceChildren(promptText(), generated, element("mark", { class: "arrive", text: arrived }));
  byId("loop-live").textContent = `Step ${step + 1} of ${data.steps.length}: picks ${quoted(chosen)}, which the model gave ${percent(Math.exp(logprob))}.`;
}

/** Play and pause: a step every 1.5 s (3 s with reduced motion); restarts after the end. */
function player() {
  const button = byId("loop-play");
  let timer = null;
  const pause = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "Play";
  };
  button.addEventListener("click", () => {
    if (timer !== null) return pause();
    if (state.step === data.steps.length - 1) goTo(0);
    button.textContent = "Pause";
    timer = setInterval(() => {
      goTo(state.step + 1);
      if (state.step === data.steps.length - 1) pause();
    }, calm.matches ? 3000 : 1500);
  });
  return pause;
}

function startLoop() {
  const pause = player();
  const by = (difference) => { pause(); goTo(state.step + difference); };
  byId("loop-step").max = data.steps.length - 1;
  byId("loop-step").addEventListener("input", (event) => { pause(); goTo(Number(event.target.value)); });
  byId("loop-back").addEventListener("click", () => by(-1));
  byId("loop-forward").addEventListener("click", () => by(1));
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.target.closest("input, select, textarea, .scroll, .tokens");
    if (elsewhere || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.key === "ArrowLeft") by(-1);
    if (event.key === "ArrowRight") by(1);
  });
  stepListeners.push(drawStep);
}
