// What all parts of the page share: elements, numbers in words, waiting. The first of the scripts, which are joined into one:
// its strictness is that of all.

"use strict";

const byId = (id) => document.getElementById(id);

/** An element with attributes (`class`, `text` and `on*` among them) and children; nulls are left out. */
function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "circle", "line"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets styles that the content decides: positions and widths. */
function styled(made, styles) {
  for (const [name, value] of Object.entries(styles)) made.style.setProperty(name, value);
  return made;
}

/** A button; `facts` are further attributes. */
const press = (text, onclick, facts = {}) => element("button", { type: "button", text, onclick, ...facts });

/** The button that a view is there for. */
const mainPress = (text, id, onclick) => press(text, onclick, { id, class: "primary" });

/** A line that explains. */
const hint = (text, facts = {}) => element("p", { class: "hint", text, ...facts });

/** A text with its spaces and line ends visible. */
const visible = (text) => text.replace(/ /g, "·").replace(/\r/g, "␍").replace(/\n/g, "↵").replace(/\t/g, "⇥");

/** Bits of surprise: how often a probability has to be halved to get there. */
const bitsOf = (logprob) => -logprob / Math.LN2;

function percent(p) {
  if (p === 0) return "0%";
  if (p < 0.0001) return "<0.01%";
  if (p > 0.9999 && p < 1) return ">99.99%";
  return `${(100 * p).toFixed(p < 0.01 ? 2 : 1)}%`;
}

const number = (n) => Number(n).toLocaleString("en");
const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
const bits = (n) => `${n.toFixed(2)} bits`;

/** Calls `act` once nothing has asked for it for a while. */
function later(act, milliseconds) {
  let timer = null;
  const wait = () => { wait.cancel(); timer = setTimeout(() => { timer = null; act(); }, milliseconds); };
  wait.cancel = () => { clearTimeout(timer); timer = null; };
  wait.isPending = () => timer !== null;
  return wait;
}

/** A labelled choice among [value, text] pairs. */
function choice(label, options, value, onchange) {
  const select = element("select", { onchange: () => onchange(select.value) });
  for (const [name, text] of options) select.append(element("option", { value: name, text }));
  select.value = value;
  return element("label", { class: "field" }, label, select);
}

/** A bar of a probability, with a thin mark for what it was before; both are relative to `full`. */
function bar(p, full, was = null) {
  const share = (value) => `${(100 * value) / full}%`;
  const fill = styled(element("span", { class: "fill" }), { width: share(p) });
  const mark = was === null ? null : styled(element("span", { class: "was" }), { left: share(was) });
  return element("span", { class: "bar-line", "aria-hidden": "true" }, fill, mark);
}
