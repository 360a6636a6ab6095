// Section 2: the knobs applied to the stored logits of one step, and draws from the result.

const knobs = runKnobs();
const view = { rows: matchMedia("(max-width: 40rem)").matches ? 8 : 15, made: null, draw: null, counts: null, recent: [] };
const MAX_RECENT = 16;

/** The stops of the top-k slider, denser for small values. */
const TOP_K = [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000, 10000, 20000]
  .filter((k) => k < data.model.vocab_size);

/** Each knob with the value at which it is off, and what its slider and its field take. Top-k's slider takes places in TOP_K. */
const KNOBS = [
  { name: "repetition_penalty", label: "Repetition penalty", off: 1,
    slider: { min: 0.5, max: 2, step: 0.01 }, field: { min: 0.01, max: 100, step: "any" },
    help: "Makes what was said before less likely." },
  { name: "temperature", label: "Temperature", off: 1,
    slider: { min: 0, max: 2, step: 0.01 }, field: { min: 0, max: 100, step: "any" },
    help: "Below 1 sharpens, above 1 flattens; at 0 the best one always wins." },
  { name: "top_k", label: "Top-k", off: 0,
    slider: { min: 0, max: TOP_K.length - 1, step: 1 }, field: { min: 0, max: data.model.vocab_size, step: 1 },
    help: "Only the k most probable stay. 0 is off." },
  { name: "top_p", label: "Top-p", off: 1,
    slider: { min: 0.01, max: 1, step: 0.01 }, field: { min: 0.000001, max: 1, step: "any" },
    help: "Only as many stay as make up this probability. 1 is off." },
  { name: "min_p", label: "Min-p", off: 0,
    slider: { min: 0, max: 1, step: 0.01 }, field: { min: 0, max: 1, step: "any" },
    help: "Only those stay that have this share of the best one's probability. 0 is off." },
];

const PRESETS = [
  ["As in the run", () => runKnobs()],
  ["Everything off", () => EmberArithmetic.OFF],
  ["Greedy: temperature 0", () => ({ ...EmberArithmetic.OFF, temperature: 0 })],
  ["Careful: 0.7, top-p 0.9", () => ({ ...EmberArithmetic.OFF, temperature: 0.7, top_p: 0.9 })],
  ["No guardrails: temperature 2", () => ({ ...EmberArithmetic.OFF, temperature: 2 })],
];

/** The nearest stop to a value of top-k. */
const topKStop = (k) => TOP_K.reduce((best, stop, place) => (Math.abs(stop - k) < Math.abs(TOP_K[best] - k) ? place : best), 0);
const toSlider = (knob, value) => (knob.name === "top_k" ? topKStop(value) : value);
const fromSlider = (knob, value) => (knob.name === "top_k" ? TOP_K[value] : value);

/** A slider for exploring and a field for exact values. */
function knobControl(knob) {
  const id = `knob-${knob.name.replace("_", "-")}`;
  const range = element("input", { type: "range", id: `${id}-slider`, ...knob.slider,
    "aria-label": `${knob.label}, slider`, "aria-describedby": `${id}-help` });
  const field = element("input", { type: "number", id, ...knob.field, inputmode: "decimal" });
  range.addEventListener("input", () => setKnobs({ ...knobs, [knob.name]: fromSlider(knob, Number(range.value)) }));
  field.addEventListener("input", () => {
    const value = Number(field.value);
    if (field.value !== "" && field.checkValidity()) setKnobs({ ...knobs, [knob.name]: value });
  });
  knob.show = (value) => {
    range.value = toSlider(knob, value);
    range.setAttribute("aria-valuetext", value === knob.off ? `${value}, off` : String(value));
    if (document.activeElement !== field || Number(field.value) !== value) field.value = value;
    box.classList.toggle("off", value === knob.off);
  };
  const box = element("div", { class: "knob" },
    element("div", { class: "knob-head" }, element("label", { for: id, text: knob.label }), field),
    range, element("p", { class: "hint", id: `${id}-help`, text: knob.help }));
  return box;
}

/** Sets knobs, and clears the draws, which belong to the old settings. */
function setKnobs(settings) {
  Object.assign(knobs, settings);
  Object.assign(view, { draw: null, counts: null, recent: [] });
  for (const knob of KNOBS) knob.show(knobs[knob.name]);
  processNow();
}

function processNow() {
  view.made = EmberArithmetic.process(data.steps[state.step].logits, knobs, seenBefore(state.step));
  const { tokens, vocabulary, mass, choices } = EmberArithmetic.summary(view.made);
  const uncertainty = tokens === 1 ? "There is nothing to choose." : `As uncertain as a fair choice among ${choices.toFixed(1)}.`;
  const [are, they] = tokens === 1 ? ["is", "it"] : ["are", "they"];
  byId("knobs-live").textContent = `${plural(tokens, "token")} of ${number(vocabulary)} ${are} left; by the model alone `
    + `${they} had ${percent(Math.min(1, mass))} of the probability. ${uncertainty}`;
  drawBars();
  drawLine();
}

const KNOB_NAMES = { temperature: "temperature 0", "top-k": "top-k", "top-p": "top-p", "min-p": "min-p" };

/** Rows in the order of the model's probabilities, so that they stay in place while knobs change; then drawn tokens, and all
 * others in one row. */
function drawBars() {
  const { made } = view;
  const shown = bestEntries(made, view.rows);
  const drawn = [view.draw?.id, ...(view.counts?.keys() ?? []), data.steps[state.step].chosen];
  for (const id of drawn) {
    const entry = id === null || id === undefined ? -1 : made.ids.indexOf(id);
    if (entry >= 0 && !shown.includes(entry) && shown.length < view.rows + 10) shown.push(entry);
  }
  const full = Math.max(...shown.map((entry) => Math.max(made.before[entry], made.after[entry])));
  const rows = shown.map((entry) => {
    const id = made.ids[entry];
    const removed = made.removedBy[entry];
    const drawnNow = view.draw?.id === id;
    const count = view.counts?.get(id);
    const notes = [
      removed && `removed by ${KNOB_NAMES[removed]}`,
      made.penalised[entry] && "said before",
      id === data.steps[state.step].chosen && "the run's pick",
      count && `drawn ${count} of 100`,
      drawnNow && "drawn",
    ];
    return barRow({ label: chip(id), p: made.after[entry], was: made.before[entry], full, id, note: notes.filter(Boolean).join(", "),
      kind: `${removed ? "removed" : ""} ${drawnNow ? "picked" : ""}`, "removed-by": removed ?? "" });
  });
  byId("knobs-bars").replaceChildren(...rows, ...restRow(new Set(shown), full));
  byId("knobs-more").hidden = view.rows >= Math.min(500, made.ids.length);
}

/** One row for all tokens without a row of their own. */
function restRow(shown, full) {
  const { made } = view;
  let [tokens, left, before, after] = [0, 0, 0, 0];
  for (let entry = 0; entry < made.ids.length; entry++) {
    if (shown.has(entry)) continue;
    tokens += made.counts[entry];
    left += made.left[entry];
    before += made.counts[entry] * made.before[entry];
    after += made.left[entry] * made.after[entry];
  }
  if (tokens === 0) return [];
  const label = element("span", { class: "rest", text: `${plural(tokens, "other")}` });
  const note = left === 0 ? "all removed" : left < tokens ? `${number(left)} left` : "";
  return [barRow({ label, p: after, was: before, full: Math.max(full, after, before), note, kind: `others ${left === 0 ? "removed" : ""}`, left })];
}

function drawLine() {
  const picked = view.draw;
  const segments = EmberArithmetic.shares(view.made).map((share) => ({ ...share, picked: picked !== null && share.entry === picked.entry }));
  const label = picked ? `The draw ${picked.uniform.toFixed(4)} falls to ${nameOf(picked)}` : `The shares of ${plural(segments.length, "survivor")}`;
  byId("knobs-line").replaceChildren(unitLine(segments, picked?.uniform ?? null, label));
  byId("knobs-draw").textContent = picked
    ? `The draw ${picked.uniform.toFixed(4)} falls between ${picked.start.toFixed(4)} and ${picked.end.toFixed(4)}: ${nameOf(picked)}.`
    : "";
  byId("knobs-draws").hidden = view.recent.length === 0;
  byId("knobs-draws").replaceChildren("The last draws: ", ...view.recent.map((share) => (share.id === null ? element("span", { class: "token", text: "rare" }) : chip(share.id))));
}

const nameOf = (share) => (share.id === null ? "one of the rare tokens, of which this page keeps only groups" : quoted(share.id));

function drawOnce(uniform = Math.random(), remember = true) {
  const share = { ...EmberArithmetic.shareAt(EmberArithmetic.shares(view.made), uniform), uniform };
  view.draw = share;
  if (remember) view.recent = [share, ...view.recent].slice(0, MAX_RECENT);
  view.counts = null;
  drawBars();
  drawLine();
}

function drawMany() {
  const shares = EmberArithmetic.shares(view.made);
  const counts = new Map();
  for (let i = 0; i < 100; i++) {
    const share = { ...EmberArithmetic.shareAt(shares, Math.random()) };
    counts.set(share.id, (counts.get(share.id) ?? 0) + 1);
    view.recent = [share, ...view.recent].slice(0, MAX_RECENT);
  }
  view.draw = null;
  view.counts = new Map([...counts].sort((a, b) => b[1] - a[1]));
  drawBars();
  drawLine();
  byId("knobs-draw").textContent = `100 draws gave ${drawnWords(counts)}.`;
}

/** How many different tokens were drawn. Those of groups have no id: how many of them differ is not known. */
function drawnWords(counts) {
  const rare = counts.get(null) ?? 0;
  const known = plural(counts.size - (rare > 0 ? 1 : 0), "different token");
  return rare > 0 ? `${known}, and ${plural(rare, "time")} one of the rare tokens` : known;
}

/** The run's draw in words, for a pick that a knob removes here and did not remove in the program. */
function storedDraw({ draw, interval: [from, to], chosen }) {
  return `The run's draw ${draw.toFixed(4)} fell between ${from.toFixed(4)} and ${to.toFixed(4)}: ${quoted(chosen)}. It is shown as removed, `
    + "because this page keeps the rarest tokens in groups, and cannot tell where in a group a knob's border lies.";
}

/** Applies the run's settings and random number: the same pick as in the run, if all survivors' shares are known. */
function runDraw() {
  const { draw, interval, chosen } = data.steps[state.step];
  setKnobs(runKnobs());
  if (draw === null) {
    byId("knobs-draw").textContent = "The run drew no number: it always took the best one.";
    return;
  }
  const shares = EmberArithmetic.shares(view.made);
  if (shares.every((share) => share.id !== null)) {
    drawOnce(draw, false);
    return;
  }
  // Where the rare tokens' shares lie is not stored, so move the number along with its token's share.
  const share = shares.find((one) => one.id === chosen);
  if (!share) {
    byId("knobs-draw").textContent = storedDraw(data.steps[state.step]);
    return;
  }
  const within = (draw - interval[0]) / (interval[1] - interval[0]);
  drawOnce(share.start + within * (share.end - share.start), false);
  byId("knobs-draw").textContent += ` In the program, where the rare tokens lie between the others, the number was ${draw.toFixed(4)}.`;
}

function startKnobs() {
  byId("knobs-controls").append(...KNOBS.map(knobControl));
  byId("knobs-presets").append(...PRESETS.map(([text, settings]) => element("button", { type: "button", text, onclick: () => setKnobs(settings()) })));
  byId("knobs-step").max = data.steps.length - 1;
  byId("knobs-step").addEventListener("input", (event) => goTo(Number(event.target.value)));
  byId("knobs-sample").addEventListener("click", () => drawOnce());
  byId("knobs-many").addEventListener("click", drawMany);
  byId("knobs-run-draw").addEventListener("click", runDraw);
  byId("knobs-more").addEventListener("click", () => { view.rows += 20; drawBars(); });
  stepListeners.push((step) => {
    byId("knobs-step").value = step;
    byId("knobs-step-value").textContent = `${step + 1} of ${data.steps.length}`;
    byId("knobs-step").setAttribute("aria-valuetext", `step ${step + 1} of ${data.steps.length}`);
    const text = textOf(idsBefore(step));
    const end = sliced(text, -120);
    byId("knobs-text").textContent = `${end === text ? "" : "\u2026"}${end} \u2581`;
    setKnobs({ ...knobs });
  });
}
