// What the scripts of our pages share: elements, numbers in words, waiting.

const byId = (id) => document.getElementById(id);

/**
 * An element with attributes (`class`, `text` and `on*` among them) and children, nulls left out. Children may come as lists: a
 * call takes no more than some 125,000 arguments.
 */
function element(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}

/** Sets styles that the content decides: positions and widths. */
function styled(made, styles) {
  for (const [name, value] of Object.entries(styles)) made.style.setProperty(name, value);
  return made;
}

/** A text with its spaces and line ends visible. */
const visible = (text) => text.replace(/ /g, "·").replace(/\r/g, "␍").replace(/\n/g, "↵").replace(/\t/g, "⇥");

/** `slice` by characters: no emoji is cut in half. */
const sliced = (text, from, to) => [...text].slice(from, to).join("");

/** With two decimals near 0 and 1, else with one. */
function percent(p) {
  if (p === 0) return "0%";
  if (p < 0.0001) return "<0.01%";
  if (p > 0.9999 && p < 1) return ">99.99%";
  return `${(100 * p).toFixed(p < 0.01 || (p >= 0.9995 && p < 1) ? 2 : 1)}%`;
}

const number = (n) => Number(n).toLocaleString("en");
const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** Calls `act` once nothing has asked for it for a while. */
function later(act, milliseconds) {
  let timer = null;
  const wait = () => { wait.cancel(); timer = setTimeout(() => { timer = null; act(); }, milliseconds); };
  wait.cancel = () => { clearTimeout(timer); timer = null; };
  wait.isPending = () => timer !== null;
  return wait;
}
