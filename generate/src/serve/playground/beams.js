// Beams as a tree: the most probable texts that a beam search found, joined where they begin alike.

function drawBeams() {
  const count = element("input", { type: "number", id: "beam-count", min: 2, max: 64, step: 1, inputmode: "numeric", onchange: () => { app.beamCount = Math.max(2, Math.round(Number(count.value)) || 2); count.value = app.beamCount; } });
  count.value = app.beamCount;
  const press = element("button", { type: "button", class: "primary", id: "beams-search", text: "Search", onclick: () => busyWith(press, searchBeams) });
  byId("view-beams").replaceChildren(element("div", { class: "wide" },
    element("h2", { text: "Beams" }),
    element("p", { class: "hint", text: "The most probable texts that grow side by side. Nothing is drawn: temperature and seed play no part." }),
    promptShown(),
    element("div", { class: "presses" }, element("label", { class: "field" }, "Beams", count), press),
    element("p", { class: "hint live", id: "beams-words", role: "status" }),
    element("div", { id: "beam-tree" }, app.beams ? beamList(app.beams) : null)));
}

async function searchBeams(signal) {
  const request = beamRequest(app.beamCount);
  const from = app.current;
  const prompt = promptToSend(tokensTo(app.tree, from));
  byId("beams-words").textContent = "Searching…";
  byId("beam-tree").replaceChildren();
  try {
    const { choices } = await ask("/v1/completions", { ...request, prompt, ...TELLING }, signal);
    const found = choices.map((choice, rank) => ({ rank, score: choice.score, end: choice.finish_reason, tokens: tokensOfChoice(choice, joiner()) }));
    app.beams = { request, from, found };
    byId("beam-tree").replaceChildren(beamList(app.beams));
    byId("beams-words").textContent = `${plural(found.length, "text")}, the best first.`;
  } catch (error) {
    byId("beams-words").textContent = "";
    throw error;
  }
}

const beamList = (beams) => beamBranches(beams, beams.found, 0);

/** The ways in which texts go on that are alike up to `at`. */
function beamBranches(beams, texts, at) {
  const ways = new Map();
  for (const text of texts) {
    const id = text.tokens[at]?.id ?? null;
    ways.set(id, [...(ways.get(id) ?? []), text]);
  }
  return element("ul", { class: "branches beams" }, [...ways.values()].map((group) => beamBranch(beams, group, at)));
}

/** What a group of texts has in common from `at` on, and how each goes on after it. */
function beamBranch(beams, group, at) {
  const [first] = group;
  let end = at;
  while (first.tokens[end] && group.every(({ tokens }) => tokens[end]?.id === first.tokens[end].id)) end += 1;
  const words = element("span", { class: "prose small tokens" }, first.tokens.slice(at, end).map((token, place) => tokenSpan(token, at + place)));
  tellsAlternatives(words, (place) => first.tokens[place], (place, one) => {
    const before = tokensTo(app.tree, beams.from).length;
    takeBeam(beams, first);
    branch(before + place, one);
  });
  if (group.length > 1) return element("li", {}, element("div", { class: "run" }, words), beamBranches(beams, group, end));
  const score = element("span", { class: "score", "data-score": first.score, title: String(first.score), text: `${first.rank + 1}. score ${first.score?.toFixed(3) ?? "not told"}` });
  const taking = element("button", { type: "button", text: "Take", "aria-label": `Take text ${first.rank + 1}`, onclick: () => takeBeam(beams, first) });
  return element("li", { class: first.rank === 0 ? "taken" : null, "data-rank": first.rank }, element("div", { class: "run" }, words), element("div", { class: "leaf" }, score, taking));
}

function takeBeam({ request, from }, { rank, tokens, end }) {
  if (!nodeOf(app.tree, from)) return mishap("The text that this was written for was removed.");
  const known = nodeOf(app.tree, from).children.find((id) => nodeOf(app.tree, id).how?.index === rank && isSame(nodeOf(app.tree, id).how, request));
  const copies = tokens.map((token) => ({ ...token }));
  const id = known ?? addChild(app.tree, from, copies, { how: { request, index: rank, from: 0 }, by: request.model, end }).id;
  showView("text");
  show(known === undefined ? id : leafUnder(app.tree, id));
}
