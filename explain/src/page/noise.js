// Section 6: two runs with the same random numbers and one knob changed, and the step at which they diverge.

/** One run's unit line at the diverging step, with the draw that both runs share. */
function partingLine(knob, value, side, chosen, interval, candidates, draw) {
  const known = candidates.map((one) => ({ id: one.id, span: one[`${side}_interval`] })).filter((one) => one.span);
  if (!known.some((one) => one.id === chosen)) known.push({ id: chosen, span: interval });
  known.sort((a, b) => a.span[0] - b.span[0]);
  const segments = [];
  let end = 0;
  for (const { id, span } of known) {
    if (span[0] > end) segments.push({ start: end, end: span[0], id: null });
    segments.push({ start: span[0], end: span[1], id, picked: id === chosen });
    end = span[1];
  }
  if (end < 1) segments.push({ start: end, end: 1, id: null });
  const words = `At ${knob} ${value} the draw ${draw.toFixed(4)} falls between ${interval[0].toFixed(4)} and ${interval[1].toFixed(4)}: ${quoted(chosen)}.`;
  return element("div", { class: "parting" }, element("h4", { text: `${knob} ${value}` }), unitLine(segments, draw, words),
    element("p", { text: words }));
}

/** A text with its shared prefix, and its own part marked. */
function partedText(title, ids, parts) {
  const [shared, own] = textsOf([ids.slice(0, parts), ids.slice(parts)]);
  return element("article", { class: "card" }, element("h3", { text: title }),
    element("p", { class: "text" }, promptText(), shared, element("mark", { text: own })));
}

function partingTable(noise, knob) {
  const row = (one) => element("tr", {}, element("th", { scope: "row" }, chip(one.id)),
    shaded("td", one.a_probability, percent(one.a_probability)), shaded("td", one.b_probability, percent(one.b_probability)));
  return element("table", {}, element("caption", { text: "The candidates at that step" }),
    element("thead", {}, element("tr", {}, element("th", { scope: "col", text: "token" }),
      element("th", { scope: "col", text: `${knob} ${noise.from}` }), element("th", { scope: "col", text: `${knob} ${noise.to}` }))),
    element("tbody", {}, ...noise.candidates.map(row)));
}

function startNoise() {
  const body = byId("noise-body");
  const { noise } = data;
  if (!noise) return body.append(absent("The comparison with the noise held fixed"));
  const knob = noise.knob.replace(/_/g, " ");
  const parts = noise.parts_at ?? Math.max(noise.a.ids.length, noise.b.ids.length);
  body.append(element("p", { class: "hint", text: `Seed ${data.run.seed_digits} in both; ${knob} ${noise.from} in one and ${noise.to} in the other.` }),
    element("div", { class: "grid two" }, partedText(`${knob} ${noise.from}`, noise.a.ids, parts), partedText(`${knob} ${noise.to}`, noise.b.ids, parts)));
  if (noise.parts_at === null || noise.parts_at === undefined) {
    return body.append(element("p", { text: "The two never part: no random number fell on a border that moved." }));
  }
  body.append(element("h3", { text: `Where they part: step ${noise.parts_at + 1}` }));
  if (noise.draw === null || noise.draw === undefined) {
    return body.append(element("p", { text: `One takes ${quoted(noise.a_chosen)}, the other ${quoted(noise.b_chosen)}.` }));
  }
  body.append(element("p", { text: `The same random number, ${noise.draw.toFixed(4)}, at the same step. The knob has moved the borders under it.` }),
    partingLine(knob, noise.from, "a", noise.a_chosen, noise.a_interval, noise.candidates, noise.draw),
    partingLine(knob, noise.to, "b", noise.b_chosen, noise.b_interval, noise.candidates, noise.draw),
    element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Candidates" }, partingTable(noise, knob)));
  return undefined;
}
