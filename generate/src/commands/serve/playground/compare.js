// Two texts side by side with the same noise: two checkpoints, two steps of a run, or two settings of a knob. A side without a
// value uses the page's.

const sides = ["A", "B"].map((name) => ({ name, model: null, knob: "temperature", value: "", card: null }));

/** Knobs for counts, which both sides share. */
const COUNTS = ["max_new_tokens", "num_return_sequences", "max_nodes"];

function drawCompare() {
  const view = byId("view-compare");
  const both = mainPress("Write both", "compare-write", () => busyWith(both, compare));
  view.replaceChildren(element("div", { class: "wide" },
    element("h2", { text: "Side by side" }),
    hint("Both continue your text with the same seed, so they draw with the same noise. Change one thing, and see where they part."),
    promptShown(),
    element("div", { class: "presses" }, both),
    element("p", { class: "hint live", id: "compare-words", role: "status" }),
    element("div", { class: "pair" }, sides.map(drawSide))));
}

function drawSide(side) {
  side.card ??= sampleCard(side.name);
  side.model = props.models.includes(side.model) ? side.model : settings.model;
  const knobs = props.knobs.filter(({ name, heading }) => heading !== "Beams" && !COUNTS.includes(name));
  const value = element("label", { class: "field" }, "Value", valueControl(side));
  const pick = (knob) => {
    Object.assign(side, { knob, value: "" });
    value.lastChild.replaceWith(valueControl(side));
  };
  return element("div", { class: "side-of-pair" },
    element("div", { class: "fields" },
      choice("Model", props.models.map((model) => [model, model]), side.model, (model) => { side.model = model; }),
      choice("Knob", knobs.map(({ name }) => [name, labelOf(name)]), side.knob, pick),
      value),
    side.card.whole);
}

function valueControl(side) {
  const knob = knobNamed(side.knob);
  const control = knobControl(knob, `compare-value-${side.name}`);
  if (control.tagName === "SELECT") control.prepend(element("option", { value: "", text: "as set" }));
  else control.placeholder = fieldText(side.knob === "temperature" ? settings.temperature : settings.knobs[side.knob] ?? knob.default);
  control.value = side.value;
  control.addEventListener("input", () => { side.value = control.value; });
  return control;
}

/** A side's request: the page's settings with the side's model and knob. */
function sideRequest({ model, knob, value }) {
  if (value === "") return requestFor({ model, count: 1 });
  const set = { [knob]: valueOf(knobNamed(knob), value) };
  return requestFor({ model, count: 1, ...(knob === "temperature" ? set : { knobs: set }) });
}

const compareCommands = () => sides.map((side) => cardCommand(side.card, side.name, sideRequest(side)));

async function compare(signal) {
  byId("compare-words").textContent = "";
  await Promise.all(sides.map(({ model }) => ensureSameTokens(model)));
  await Promise.all(sides.map((side) => fill(side.card, sideRequest(side), signal)));
  const same = inCommon(...sides.map(({ card }) => card.tokens));
  byId("compare-words").textContent = partingWords(same);
  for (const { card } of sides) card.words.querySelectorAll(".token")[same]?.classList.add("parts");
}

const inCommon = (one, other) => {
  const parting = one.findIndex(({ id }, place) => other[place]?.id !== id);
  return parting < 0 ? one.length : parting;
};

function partingWords(same) {
  const [one, other] = sides.map(({ card }) => card.tokens.length);
  if (same === one && same === other) return `The same text, all ${plural(same, "token")} of it.`;
  return same === 0 ? "They part at the first token." : `The same for ${plural(same, "token")}; then they part.`;
}
