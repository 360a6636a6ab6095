// What all parts of the page share: elements, and numbers in words.

const byId = (id) => document.getElementById(id);

/** An element with attributes (`text` and `on*` among them) and children; nulls are left out. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** A text with its spaces and line ends visible. */
const visible = (text) => text.replace(/ /g, "·").replace(/\r/g, "␍").replace(/\n/g, "↵").replace(/\t/g, "⇥");

function percent(p) {
  if (p === 0) return "0%";
  if (p < 0.0001) return "<0.01%";
  if (p > 0.9999 && p < 1) return ">99.99%";
  return `${(100 * p).toFixed(p < 0.01 ? 2 : 1)}%`;
}

const number = (n) => Number(n).toLocaleString("en");
const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** A count with as many digits as one remembers: 10.6 million. */
function roughly(n) {
  const [size, word] = [[1e9, " billion"], [1e6, " million"], [1e3, " thousand"]].find(([least]) => n >= least) ?? [1, ""];
  return `${Number((n / size).toPrecision(3))}${word}`;
}

function size(bytes) {
  const [unit, name] = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => bytes >= least) ?? [1, "bytes"];
  return `${Number((bytes / unit).toPrecision(3))} ${name}`;
}

function duration(seconds) {
  const [unit, name] = [[86400, "day"], [3600, "hour"], [60, "minute"]].find(([least]) => seconds >= least) ?? [1, "second"];
  return plural(Math.round(seconds / unit), name);
}

/** Calls `act` once nothing has asked for it for a while. */
function later(act, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}
