// Beams as a tree: the most probable texts that a beam search found, joined where they begin alike.

function drawBeams() {
  const search = mainPress("Search", "beams-search", () => busyWith(search, searchBeams));
  byId("view-beams").replaceChildren(element("div", { class: "wide" },
    element("h2", { text: "Beams" }),
    hint("The most probable texts that grow side by side. Nothing is drawn: temperature and seed play no part."),
    promptShown(),
    element("div", { class: "presses" }, beamCount(), search),
    element("p", { class: "hint live", id: "beams-words", role: "status" }),
    element("div", { id: "beam-tree" }, app.beams ? beamList(app.beams) : null)));
}

function beamCount() {
  const input = element("input", { type: "number", id: "beam-count", min: 2, max: 64, step: 1, inputmode: "numeric", onchange: () => {
    app.beamCount = Math.max(2, Math.round(Number(input.value)) || 2);
    input.value = app.beamCount;
  } });
  input.value = app.beamCount;
  return element("label", { class: "field" }, "Beams", input);
}

async function searchBeams(signal) {
  const request = beamRequest(app.beamCount);
  const from = app.current;
  const prompt = promptToSend(tokensTo(app.tree, from));
  byId("beams-words").textContent = "Searching…";
  byId("beam-tree").replaceChildren();
  try {
    const { choices } = await ask("/v1/completions", { ...request, prompt, ...TELLING }, signal);
    const found = choices.map((choice, rank) => {
      const { score, finish_reason: end, text } = choice;
      const tokens = tokensOfChoice(choice, joiner());
      cutToText(tokens, request, text);
      return { rank, score, end, tokens };
    });
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
    const way = text.tokens[at]?.id ?? text; // what ends here is one of its own, though a stop string may have made several alike
    ways.set(way, [...(ways.get(way) ?? []), text]);
  }
  return element("ul", { class: "branches beams" }, [...ways.values()].map((group) => beamBranch(beams, group, at)));
}

/** What a group of texts has in common from `at` on, and how each goes on after it. */
function beamBranch(beams, group, at) {
  const [first] = group;
  let end = at;
  while (first.tokens[end] && group.every(({ tokens }) => tokens[end]?.id === first.tokens[end].id)) end += 1;
  const spans = first.tokens.slice(at, end).map((token, place) => tokenSpan(token, at + place));
  const words = element("span", { class: "prose small tokens" }, spans);
  tellsAlternatives(words, (place) => first.tokens[place], (place, one) => {
    const before = tokensTo(app.tree, beams.from).length;
    takeBeam(beams, first);
    branch(before + place, one);
  });
  const common = element("div", { class: "run" }, words);
  if (group.length > 1) return element("li", {}, common, beamBranches(beams, group, end));
  return element("li", { class: first.rank === 0 ? "taken" : null, "data-rank": first.rank }, common, beamEnd(beams, first));
}

/** Which of the texts ends here, and how good it is. */
function beamEnd(beams, text) {
  const { rank, score } = text;
  const words = `${rank + 1}. score ${score?.toFixed(3) ?? "not told"}`;
  return element("div", { class: "leaf" }, element("span", { class: "score", "data-score": score, title: String(score), text: words }),
    press("Take", () => takeBeam(beams, text), { "aria-label": `Take text ${rank + 1}` }));
}

function takeBeam({ request, from }, { rank, tokens, end }) {
  if (!nodeOf(app.tree, from)) return mishap("The text that this was written for was removed.");
  const isIt = ({ how }) => how?.index === rank && isSame(how, request);
  const known = nodeOf(app.tree, from).children.find((id) => isIt(nodeOf(app.tree, id)));
  const copies = tokens.map((token) => ({ ...token }));
  const id = known ?? addChild(app.tree, from, copies, { how: { request, index: rank, from: 0 }, by: request.model, end }).id;
  showView("text");
  show(known === undefined ? id : leafUnder(app.tree, id));
}
