// The knobs of the command line, and what they do to the next token before it is drawn: the model's probability as a thin mark,
// what the knobs leave as a bar, and the knob that removed a token by its name.

const CANDIDATES = 10;

/** The headings that come first; all others are shut until they are opened. */
const HEADINGS_FIRST = ["Sampling", "Penalties and bans"];

const knobsOpen = () => !byId("drawer-knobs").hidden && !byId("panel").hidden;
const refreshKnobs = later(() => { if (knobsOpen() && !app.writing) drawNext(); }, 150);

let tracing = null;

/** Asks for one step and shows it. The draw is the one that Write would make. */
async function drawNext() {
  const place = byId("next");
  await settle();
  tracing?.abort();
  const { signal } = (tracing = new AbortController());
  // What may not end yet may not end with the next token: the one that is asked for cannot be more.
  const least = settings.knobs.min_new_tokens ?? knobNamed("min_new_tokens")?.default;
  const request = requestFor({ tokens: 1, count: 1, knobs: least > 1 ? { min_new_tokens: 1 } : {} });
  try {
    const body = { ...request, prompt: promptToSend(tokensTo(app.tree, app.current)), trace: CANDIDATES, ...TELLING };
    const answer = await ask("/v1/completions", body, signal);
    const step = answer.choices[0].trace?.[0];
    step?.candidates.forEach(({ id, token }) => learn(id, token));
    await nameAll((step?.candidates ?? []).map(({ id }) => id));
    if (signal.aborted) return; // a later one is asked for
    place.classList.remove("wrong");
    place.replaceChildren(...(step ? nextToken(step) : [hint("The server told nothing about this step.")]));
  } catch (error) {
    if (error.name === "AbortError") return;
    place.classList.add("wrong");
    place.replaceChildren(hint(error.message));
  }
}

function nextToken({ id, draw, interval, candidates }) {
  const words = draw === null ? `The most probable one that is left is taken: “${nameOf(id)}”.`
    : `The draw ${draw.toFixed(4)} falls between ${interval[0].toFixed(4)} and ${interval[1].toFixed(4)}: “${nameOf(id)}”.`;
  const full = Math.max(...candidates.map((one) => Math.max(one.before.probability, leftOf(one))));
  const rows = candidates.map((one) => candidateRow(one, full, one.id === id));
  return [element("ol", { class: "rows" }, rows), hint(words, { id: "draw", "data-draw": draw })];
}

/** What is left of a candidate's probability after the last knob that touched it. */
const leftOf = ({ before, changes, removed_by: removed }) => (removed ? 0 : changes.at(-1)?.after?.probability ?? before.probability);

function candidateRow(candidate, full, isDrawn) {
  const { id, before, removed_by: removed } = candidate;
  const after = leftOf(candidate);
  const label = removed ? labelOf(removed) : percent(after);
  const facts = { "data-id": id, "data-before": before.probability, "data-after": after, "data-removed-by": removed };
  const kinds = ["row", removed ? "removed" : "", isDrawn ? "own" : ""].filter(Boolean).join(" ");
  const words = `${nameOf(id)}: ${percent(before.probability)}, ${removed ? `removed by ${label}` : `then ${label}`}`;
  const onclick = () => branch(tokensTo(app.tree, app.current).length, [id, Math.log(before.probability)]);
  return element("li", {}, element("button", { type: "button", class: kinds, "aria-label": words, ...facts, onclick },
    chip(id), bar(after, full, before.probability), value(label)));
}

const labelOf = (name) => name.replaceAll("_", "-");

function drawKnobs() {
  const shown = props.knobs.filter(({ name }) => !ELSEWHERE.includes(name));
  const headings = [...new Set([...HEADINGS_FIRST, ...shown.map(({ heading }) => heading ?? "Others")])];
  byId("drawer-knobs").replaceChildren(
    element("section", { class: "next-token" }, element("h2", { text: "The next token" }), element("div", { id: "next", role: "status" }),
      hint("Thin mark: the model alone. Bar: what the knobs leave.")),
    ...headings.map((heading) => element("details", { open: HEADINGS_FIRST.includes(heading) }, element("summary", { text: heading }),
      shown.filter((knob) => (knob.heading ?? "Others") === heading).map(knobField))));
  refreshKnobs();
}

/** A knob's control, by what kind of value it takes. */
function knobField(knob) {
  const { name, meaning, range, default: usual } = knob;
  const id = `knob-${name.replaceAll("_", "-")}`;
  const control = knobControl(knob, id);
  const words = [meaning.replace(/\s*\[default: .*\]/, ""), range].filter(Boolean).join("; ");
  const whole = element("div", { class: "knob" }, element("label", { for: id, text: labelOf(name) }), control, hint(words));
  const mark = () => whole.classList.toggle("turned", name in settings.knobs);
  control.value = written(settings.knobs[name] ?? usual);
  control.addEventListener("input", () => {
    turn(knob, control.value);
    mark();
  });
  mark();
  return whole;
}

const isNumber = ({ kind }) => /number/.test(kind);

function knobControl(knob, id) {
  const option = (word) => element("option", { value: String(word), text: String(word) });
  if (knob.words.length > 0) return element("select", { id }, knob.words.map(option));
  if (isNumber(knob)) return element("input", { id, type: "number", step: /whole/.test(knob.kind) ? 1 : "any", inputmode: "decimal" });
  return element("input", { id, type: "text", spellcheck: "false", placeholder: "off" });
}

/** A value as it stands in a field; nothing where there is none. */
function written(value) {
  if (value === null || value === undefined || (Array.isArray(value) && value.length === 0)) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Takes a knob's value over; its usual one, or none, is the same as not turning it. */
function turn(knob, text) {
  const value = valueOf(knob, text);
  if (text.trim() === "" || written(value) === written(knob.default)) delete settings.knobs[knob.name];
  else settings.knobs[knob.name] = value;
  keep();
  refreshKnobs();
  drawOpenDrawer(["command"]);
}

/** What was typed, as the kind that the knob takes; where it is none, the server says what it must be. */
function valueOf(knob, text) {
  const word = knob.words.find((one) => String(one) === text); // true and false are no texts there
  if (word !== undefined) return word;
  if (isNumber(knob)) return Number(text);
  try {
    const value = JSON.parse(text);
    return typeof value === "object" ? value : text;
  } catch {
    return text;
  }
}
