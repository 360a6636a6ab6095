// What the parts of the page share: buttons, fields, bars, surprise in words.

/** A button; `facts` are further attributes. */
const press = (text, onclick, facts = {}) => element("button", { type: "button", text, onclick, ...facts });

/** The button that a view is there for. */
const mainPress = (text, id, onclick) => press(text, onclick, { id, class: "primary" });

/** A line that explains. */
const hint = (text, facts = {}) => element("p", { class: "hint", text, ...facts });

/** Bits of surprise: how often a probability has to be halved to get there. */
const bitsOf = (logprob) => -logprob / Math.LN2;

const bits = (n) => `${n.toFixed(2)} bits`;

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
