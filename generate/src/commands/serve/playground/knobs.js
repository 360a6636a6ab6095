// The knobs of the command line, and their effect on the next token: the model's probability as a thin mark, the probability after
// the knobs as a bar, and the name of the knob that removed a token.

const CANDIDATES = 10;

/** The headings shown first; all others start collapsed. */
const HEADINGS_FIRST = ["Sampling", "Penalties and bans"];

const knobsOpen = () => !byId("drawer-knobs").hidden && !byId("panel").hidden;
const refreshKnobs = later(() => { if (knobsOpen() && !app.writing) drawNext(); }, 150);

let tracing = null;

/** Requests one step and shows it, with the same draw that Write would make. */
async function drawNext() {
  const place = byId("next");
  await tokenizeTyped();
  tracing?.abort();
  const { signal } = (tracing = new AbortController());
  // A minimum above 1 must still forbid an end here, but cannot exceed the one token requested.
  const least = settings.knobs.min_new_tokens ?? knobNamed("min_new_tokens")?.default;
  const request = requestFor({ tokens: 1, count: 1, knobs: least > 1 ? { min_new_tokens: 1 } : {} });
  try {
    const body = { ...request, prompt: promptToSend(tokensTo(app.tree, app.current)), trace: CANDIDATES, ...WITH_LOGPROBS };
    const answer = await ask("/v1/completions", body, signal);
    const step = answer.choices[0].trace?.[0];
    step?.candidates.forEach(({ id, token }) => learn(id, token));
    await nameAll((step?.candidates ?? []).map(({ id }) => id));
    if (signal.aborted) return; // a newer request is running
    place.classList.remove("wrong");
    place.replaceChildren(...(step ? nextToken(step) : [hint("The server returned nothing for this step.")]));
  } catch (error) {
    if (error.name === "AbortError") return;
    place.classList.add("wrong");
    place.replaceChildren(hint(error.message));
  }
}

function nextToken({ id, draw, interval, candidates }) {
  const words = draw === null ? `The most probable remaining token is taken: “${nameOf(id)}”.`
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

/** A knob's control, by the type of its value. */
function knobField(knob) {
  const { name, meaning, range, default: initial } = knob;
  const id = `knob-${name.replaceAll("_", "-")}`;
  const control = knobControl(knob, id);
  const words = [meaning.replace(/\s*\[default: .*\]/, ""), range].filter(Boolean).join("; ");
  const whole = element("div", { class: "knob" }, element("label", { for: id, text: labelOf(name) }), control, hint(words));
  const mark = () => whole.classList.toggle("turned", name in settings.knobs);
  control.value = fieldText(settings.knobs[name] ?? initial);
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

/** A value as shown in a field; empty if there is none. */
function fieldText(value) {
  if (value === null || value === undefined || (Array.isArray(value) && value.length === 0)) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Sets a knob; its default or an empty value unsets it. */
function turn(knob, text) {
  const value = valueOf(knob, text);
  if (text.trim() === "" || fieldText(value) === fieldText(knob.default)) delete settings.knobs[knob.name];
  else settings.knobs[knob.name] = value;
  keep();
  refreshKnobs();
  drawOpenDrawer(["command"]);
}

/** Parses typed text by the knob's type; the server reports invalid values. */
function valueOf(knob, text) {
  const word = knob.words.find((one) => String(one) === text); // true and false are booleans there
  if (word !== undefined) return word;
  if (isNumber(knob)) return Number(text);
  try {
    const value = JSON.parse(text);
    return typeof value === "object" ? value : text;
  } catch {
    return text;
  }
}
