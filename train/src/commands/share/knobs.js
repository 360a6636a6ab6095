// The knobs: how the next token is chosen from the model's probabilities.

const settings = { temperature: 1, topK: 0, topP: 1, seed: 0, tokens: 200, byHalves: false };

/** Each knob's range, and its effect in one line. */
const KNOBS = [
  { name: "temperature", label: "Temperature", type: "range", min: 0, max: 2, step: 0.05, does: "Low: probable tokens. High: more random. 0: always the most probable." },
  { name: "topP", label: "Top-p", type: "range", min: 0.05, max: 1, step: 0.05, does: "Only the most probable tokens with this total probability. 1: all." },
  { name: "topK", label: "Top-k", type: "number", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, does: "Only this many of the most probable tokens. 0: all." },
  { name: "seed", label: "Seed", type: "number", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, does: "The same seed writes the same text." },
  { name: "tokens", label: "Length", type: "number", min: 1, max: 100000, step: 1, does: "The most tokens that Write adds." },
  { name: "byHalves", label: "Forget by halves", type: "checkbox", does: "When the text outgrows the context, half of it is dropped at once: faster, but another text." },
];

/** The value in a knob's field; undefined if invalid. */
function valueOf({ type, min, max, step }, input) {
  if (type === "checkbox") return input.checked;
  const value = Number(input.value);
  const fits = input.value !== "" && value >= min && value <= max && (step < 1 || Number.isInteger(value));
  return fits ? value : undefined;
}

/** Draws the knobs; `changed` is called when one changes. */
function showKnobs(changed) {
  byId("knobs").append(...KNOBS.map((knob) => knobRow(knob, changed)));
}

function knobRow(knob, changed) {
  const { name, label, does, type, ...bounds } = knob;
  const input = element("input", { id: name, type, ...bounds, "aria-describedby": `${name}-does`, inputmode: type === "number" ? "decimal" : null });
  const shown = type === "range" ? element("output", { for: name, id: `${name}-shown` }) : null;
  const take = () => {
    settings[name] = valueOf(knob, input) ?? settings[name];
    showKnob(name);
    changed();
  };
  input.addEventListener(type === "range" ? "input" : "change", take);
  const head = element("div", { class: "knob-head" }, element("label", { for: name, text: label }), shown ?? input);
  return element("div", { class: "knob" }, head, shown ? input : null, element("p", { class: "hint", id: `${name}-does`, text: does }));
}

function showKnob(name) {
  byId(name)[typeof settings[name] === "boolean" ? "checked" : "value"] = settings[name];
  const shown = byId(`${name}-shown`);
  if (shown) shown.textContent = settings[name];
}

/** Sets knobs from outside: the page's own values, another seed. */
function setKnobs(values) {
  Object.assign(settings, values);
  KNOBS.forEach(({ name }) => showKnob(name));
}
