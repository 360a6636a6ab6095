// Shared by the sections: the explanation's data, tokens, bars, and the line from 0 to 1.

const data = JSON.parse(document.getElementById("explanation").textContent);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const decoder = () => new TextDecoder("utf-8", { ignoreBOM: true });

/** A token's bytes; an end token is shown as [end]. */
function tokenBytes(id) {
  const piece = data.end_tokens.includes(id) ? "[end]" : data.tokens[id] ?? `#${id}`;
  return Array.isArray(piece) ? Uint8Array.from(piece) : new TextEncoder().encode(piece);
}

/** A token's text by itself. */
const tokenText = (id) => decoder().decode(tokenBytes(id));

/** A token's text with its spaces and line ends visible. */
const visibleToken = (id) => visible(tokenText(id)) || `#${id}`;

/** A token in a sentence, in quotation marks. */
const quoted = (id) => `\u201c${visibleToken(id)}\u201d`;

/** A token as a small tile. */
const chip = (id, kind = "") => element("span", { class: `token ${kind}`, text: visibleToken(id) });

/** The texts of consecutive lists of tokens; without a tokenizer their ids. A character spread over several tokens is in the
 * part of the last of them. */
function textsOf(parts) {
  if (Object.keys(data.tokens).length === 0) return parts.map((ids) => ids.map(tokenText).join(" "));
  const whole = decoder();
  const texts = parts.map((ids) => ids.map((id) => whole.decode(tokenBytes(id), { stream: true })).join(""));
  return [...texts.slice(0, -1), texts.at(-1) + whole.decode()];
}

/** The text of several tokens. */
const textOf = (ids) => textsOf([ids])[0];

/** The prompt's text. */
const promptText = () => element("span", { class: "prompt", text: data.prompt.text ?? textOf(data.prompt.ids) });

const nats = (x) => x.toFixed(2).replace("-", "\u2212");

/** A row of a bar chart: token, bar, number and a note. `p` fills the bar, a thin mark shows `was`; both are relative to `full`.
 * The exact values are in `data-` attributes for checks. */
function barRow({ label, p, was = null, full, note = "", kind = "", ...facts }) {
  const width = (value) => `${Math.min(100, (100 * value) / full)}%`;
  const bar = element("span", { class: "bar", "aria-hidden": "true" }, styled(element("span", { class: "fill" }), { width: width(p) }));
  if (was !== null) bar.append(styled(element("span", { class: "was" }), { left: width(was) }));
  const row = element("li", { class: kind, "data-probability": p }, label, bar, element("span", { class: "value", text: percent(p) }));
  if (note) row.append(element("span", { class: "note", text: note }));
  for (const [name, value] of Object.entries(facts)) row.setAttribute(`data-${name}`, value);
  return row;
}

/** The line from 0 to 1 with the survivors' shares. `segments` are {start, end, id, picked}; the id is null for many tokens.
 * Adjacent segments too narrow to see are merged. `draw` is the random number or null. */
function unitLine(segments, draw, label) {
  const narrow = 0.004;
  const merged = [];
  for (const segment of segments) {
    const last = merged[merged.length - 1];
    const small = !segment.picked && (segment.id === null || segment.end - segment.start < narrow);
    if (small && last?.small && last.end === segment.start) last.end = segment.end;
    else merged.push({ ...segment, small });
  }
  const line = element("div", { class: "line" });
  let dark = false;
  for (const { start, end, id, picked, small } of merged) {
    const part = element("span", { class: `share ${small ? "small" : (dark = !dark) ? "odd" : "even"} ${picked ? "picked" : ""}` });
    if (id !== null && !small) part.append(element("span", { text: visibleToken(id) }));
    line.append(styled(part, { left: `${100 * start}%`, width: `${100 * (end - start)}%` }));
  }
  const whole = element("div", { class: "unit", role: "img", "aria-label": label }, line);
  if (draw !== null) {
    const picked = segments.find((segment) => segment.picked)?.id ?? null;
    const flag = element("span", { class: "flag", text: draw.toFixed(4) }, picked === null ? null : chip(picked));
    const place = `${100 * draw}%`;
    whole.append(styled(element("div", { class: `draw ${draw > 0.5 ? "left" : ""}`, "data-draw": draw }, flag), { left: place }));
  }
  whole.append(element("div", { class: "ends" }, element("span", { text: "0" }), element("span", { text: "1" })));
  return whole;
}

/** A table cell with a bar behind its text, `share` from 0 to 1. */
function shaded(tag, share, ...children) {
  return styled(element(tag, { class: "shaded" }, ...children), { "--share": share.toFixed(4) });
}

/** A section's text if its data was not requested. */
const absent = (what) => element("p", { class: "card absent", text: `${what} is not in this file: the program was not asked for it.` });

/** A labelled select box: `options` are [value, text] pairs. */
function choice(label, options, onchange) {
  const select = element("select", { onchange: () => onchange(Number(select.value)) });
  for (const [value, text] of options) select.append(element("option", { value, text }));
  return { select, field: element("label", { class: "field" }, label, select) };
}

/** A labelled slider that shows its value in words. */
function slider({ label, min, max, step, value, words, oninput, id }) {
  const output = element("output", { for: id, text: words(value) });
  const input = element("input", { type: "range", id, min, max, step });
  input.value = value;
  const show = (now) => {
    output.textContent = words(now);
    input.setAttribute("aria-valuetext", words(now));
  };
  show(value);
  input.addEventListener("input", () => { show(Number(input.value)); oninput(Number(input.value)); });
  return { input, field: element("label", { class: "field grow", for: id }, element("span", {}, label, " ", output), input),
    set: (now) => { input.value = now; show(now); } };
}
