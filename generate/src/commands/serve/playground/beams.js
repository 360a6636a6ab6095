// Beams as a tree: the most probable texts that a beam search found, joined at common prefixes, and the branches that it pruned.

function drawBeams() {
  const search = mainPress("Search", "beams-search", () => busyWith(search, searchBeams));
  byId("view-beams").replaceChildren(element("div", { class: "wide" },
    element("h2", { text: "Beams" }),
    hint("The most probable texts that a beam search finds. Nothing is drawn: temperature and seed have no effect."),
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
  const { tree, current: from } = app;
  const prompt = promptFor(tree, from);
  app.beams = null;
  byId("beams-words").textContent = "Searching…";
  byId("beam-tree").replaceChildren();
  try {
    const isTraced = isTraceable(request);
    const body = { ...request, prompt: promptToSend(tokensTo(tree, from)), ...WITH_LOGPROBS, ...(isTraced ? { trace: 1 } : {}) };
    const { choices, beams } = await ask("/v1/completions", body, signal);
    const steps = beams ?? [];
    const found = choices.map((choice, rank) => {
      const { score, finish_reason: end, text } = choice;
      const tokens = tokensOfChoice(choice, joiner());
      cutToText(tokens, request, text);
      return { rank, score, end, tokens };
    });
    const pruned = prunedBeams(steps, found);
    const shown = pruned.slice(-MAX_PRUNED);
    for (const { id, token } of steps.flatMap((step) => step.beams.flat())) learn(id, token);
    await nameAll(shown.flatMap(({ tokens }) => idsOf(tokens)));
    app.beams = { request, tree, from, prompt, texts: [...found, ...shown.map(withTexts)] };
    byId("beam-tree").replaceChildren(beamList(app.beams));
    byId("beams-words").textContent = `${plural(found.length, "text")}, the best first${wordsOfPruned(pruned.length, isTraced)}.`;
  } catch (error) {
    byId("beams-words").textContent = "";
    throw error;
  }
}

function beamCommands() {
  if (!app.beams) return [{ words: "What Search would find:", command: nextCommand(beamRequest(app.beamCount)) }];
  return [{ words: "Finds these texts again, to the last bit:", command: commandFor(app.beams.request, app.beams.prompt) }];
}

/** Most pruned branches shown, so that the tree stays readable: those that got furthest. */
const MAX_PRUNED = 60;

/** Most candidates in a search's trace: each takes some hundred bytes. */
const MAX_TRACE = 1 << 16;

const isTraceable = ({ max_tokens: tokens, num_beams: beams }) => tokens * beams * 2 * beams <= MAX_TRACE;

function wordsOfPruned(count, isTraced) {
  if (!isTraced) return "; with fewer beams or tokens, pruned branches are shown";
  if (count > MAX_PRUNED) return `; in grey the last ${MAX_PRUNED} of ${number(count)} pruned branches`;
  return count > 0 ? `; in grey ${plural(count, "pruned branch", "pruned branches")}` : "";
}

/** Beams that led to none of the texts `found`, in the order of pruning, by the trace of the search: texts without a rank, whose
 * score is the sum of their log-probabilities. Their tokens have no texts yet. */
function prunedBeams(steps, found) {
  const running = new Map();
  const pruned = [];
  for (const { group, candidates } of steps) {
    const before = running.get(group) ?? [{ rank: null, score: 0, tokens: [] }];
    const goOn = candidates.filter(({ fate }) => fate.fate === "goes-on");
    const ended = candidates.filter(({ fate }) => fate.fate === "finished" && fate.kept);
    const parents = new Set([...goOn, ...ended].map(({ parent }) => parent));
    pruned.push(...before.filter((beam, place) => !parents.has(place)));
    const after = [];
    for (const { parent, token: id, model_logprob: logprob, score, fate } of goOn) {
      const token = { id, logprob, top: null, given: false };
      after[fate.beam] = { rank: null, score, tokens: [...before[parent].tokens, token] };
    }
    running.set(group, after);
  }
  // At a time limit running beams are ended, and may be among the texts found.
  const known = new Set(found.map(({ tokens }) => idsOf(tokens).join()));
  const cutShort = [...running.values()].flat().filter(({ tokens }) => !known.has(idsOf(tokens).join()));
  return [...pruned, ...cutShort];
}

/** The same beam with the texts of its tokens, which are all known. */
function withTexts(beam) {
  const join = joiner();
  return { ...beam, tokens: beam.tokens.map((token) => ({ ...token, text: textOfPiece(pieces.get(token.id), join) })) };
}

const beamList = (beams) => beamBranches(beams, beams.texts, 0);

/** The branches of texts that share their first `at` tokens. */
function beamBranches(beams, texts, at) {
  const ways = new Map();
  for (const text of texts) {
    const way = text.tokens[at]?.id ?? text; // a text that ends here is its own branch: stop strings may make texts equal
    ways.set(way, [...(ways.get(way) ?? []), text]);
  }
  return element("ul", { class: "branches beams" }, [...ways.values()].map((group) => beamBranch(beams, group, at)));
}

/** The common part of a group of texts from `at` on, and the branches after it. */
function beamBranch(beams, group, at) {
  const [first] = group;
  let end = at;
  while (first.tokens[end] && group.every(({ tokens }) => tokens[end]?.id === first.tokens[end].id)) end += 1;
  const spans = first.tokens.slice(at, end).map((token, place) => tokenSpan(token, at + place));
  const words = element("span", { class: "prose small tokens" }, spans);
  const isPruned = first.rank === null; // found texts come first
  if (!isPruned) tellsAlternatives(words, (place) => first.tokens[place], (place, one) => {
    if (takeBeam(beams, first)) branch(tokensTo(app.tree, beams.from).length + place, one);
  });
  const common = element("div", { class: "run" }, words);
  const kind = isPruned ? "pruned" : null;
  if (group.length > 1) return element("li", { class: kind }, common, beamBranches(beams, group, end));
  return element("li", { class: first.rank === 0 ? "taken" : kind, "data-rank": first.rank }, common, beamEnd(beams, first));
}

/** The end of a branch: the text's rank and score, or that it was pruned. */
function beamEnd(beams, text) {
  const { rank, score } = text;
  if (rank === null) {
    const words = `pruned at ${score.toFixed(3)}`;
    return element("div", { class: "leaf" }, element("span", { class: "score", "data-score": score, title: "The sum of its log-probabilities", text: words }));
  }
  const words = `${rank + 1}. score ${score?.toFixed(3) ?? "unknown"}`;
  return element("div", { class: "leaf" }, element("span", { class: "score", "data-score": score, title: String(score), text: words }),
    press("Take", () => takeBeam(beams, text), { "aria-label": `Take text ${rank + 1}` }));
}

const takeBeam = (beams, text) => takeText(beams, text, text.rank);
