// Section 4: the beam search as a tree. A column is a step, its rows are the ranked candidates.

const COLUMN = 148;
const ROW = 30;
const BOX = { width: 118, height: 24 };
const IMPOSSIBLE = -1e8; // scores below it mark beams that do not exist yet

/** The candidates of every step as nodes {ids, step, row, score, parent, fate}, and the root. */
function beamTree(steps) {
  const root = { ids: [], step: -1, row: 0, score: 0, parent: null, fate: "root" };
  let live = new Map([[0, root]]);
  const nodes = [];
  for (const [step, { candidates }] of steps.entries()) {
    const next = new Map();
    const possible = candidates.filter((one) => one.score > IMPOSSIBLE && live.has(one.parent));
    for (const [row, one] of possible.entries()) {
      const parent = live.get(one.parent);
      const node = { ids: [...parent.ids, one.token], step, row, score: one.score, logprob: one.logprob, parent, token: one.token,
        fate: one.fate.fate, reason: one.fate.reason, kept: one.fate.kept };
      nodes.push(node);
      if (one.fate.fate === "goes-on") next.set(one.fate.beam, node);
    }
    live = next;
  }
  return { root, nodes };
}

const sameIds = (a, b) => a.length === b.length && a.every((id, place) => id === b[place]);
const startsWith = (ids, start) => start.length <= ids.length && start.every((id, place) => id === ids[place]);

/** A text's score with a length penalty: its sum divided by its length to the power of the penalty. */
const lengthScore = (node, penalty) => node.score / node.ids.length ** penalty;

const FATES = { "goes-on": "goes on", finished: "finished", dropped: "ended too far down to count", pruned: "pruned" };

function fateOf(node) {
  if (node.fate === "finished" && node.kept === false) return "finished, but others are better";
  return FATES[node.fate] ?? node.fate;
}

const at = (node) => ({ x: 24 + (node.step + 1) * COLUMN, y: 30 + node.row * ROW });

function drawEdge(node, kinds) {
  const [from, to] = [at(node.parent), at(node)];
  const [x, y] = [from.x + (node.parent.fate === "root" ? 64 : BOX.width), from.y + BOX.height / 2];
  const middle = (x + to.x) / 2;
  const end = to.y + BOX.height / 2;
  return element("path", { class: `edge ${kinds}`, d: `M${x} ${y}C${middle} ${y} ${middle} ${end} ${to.x} ${end}` });
}

function drawNode(node, kinds) {
  const { x, y } = at(node);
  const token = visibleToken(node.token);
  const name = sliced(token, 0, 8) === token ? token : `${sliced(token, 0, 7)}\u2026`;
  return element("g", { class: `node ${kinds}`, transform: `translate(${x} ${y})`, "data-ids": node.ids.join(",") },
    element("title", { text: `${textOf(node.ids)}\nsum ${nats(node.score)}, this token ${nats(node.logprob)}: ${fateOf(node)}` }),
    element("rect", { width: BOX.width, height: BOX.height, rx: 6 }),
    element("text", { x: 8, y: 16, text: name }),
    element("text", { class: "score", x: BOX.width - 8, y: 16, "text-anchor": "end", text: nats(node.score) }));
}

/** The tree up to a step, with the paths of the best and the greedy text. */
function drawTree(tree, until, best, greedy) {
  const shown = tree.nodes.filter((node) => node.step < until);
  const kinds = (node) => [node.fate, node.kept === false ? "beaten" : "", best && startsWith(best.ids, node.ids) ? "best" : "",
    startsWith(greedy, node.ids) ? "greedy" : ""].join(" ");
  const rows = EmberArithmetic.highest(tree.nodes.map((node) => node.row + 1), 1);
  const columns = EmberArithmetic.highest(tree.nodes.map((node) => node.step + 1), 0);
  const [width, height] = [24 + (columns + 1) * COLUMN, 40 + rows * ROW];
  const heads = Array.from({ length: columns }, (_, step) => element("text", { class: "head", x: 24 + (step + 1) * COLUMN, y: 18, text: `step ${step + 1}` }));
  const start = at(tree.root);
  const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "The tree of the beam search; the same as a list is below" }, heads,
    shown.map((node) => drawEdge(node, kinds(node))),
    element("g", { class: "node root", transform: `translate(${start.x} ${start.y})` },
      element("rect", { width: 64, height: BOX.height, rx: 6 }), element("text", { x: 8, y: 16, text: "prompt" })),
    shown.map((node) => drawNode(node, kinds(node))));
  return svg;
}

/** The finished texts, ranked by a length penalty. */
const ranked = (tree, penalty) => tree.nodes.filter((node) => node.fate === "finished")
  .sort((a, b) => lengthScore(b, penalty) - lengthScore(a, penalty));

function rankingTable(finished, penalty, count) {
  const row = (node, place) => element("tr", { class: place === 0 ? "best" : place < count ? "" : "beaten", "data-ids": node.ids.join(",") },
    element("td", { text: place + 1 }), element("th", { scope: "row", class: "text", text: textOf(node.ids) }),
    element("td", { text: nats(node.score) }), element("td", { text: node.ids.length }),
    element("td", { class: "score", "data-score": lengthScore(node, penalty), text: lengthScore(node, penalty).toFixed(3).replace("-", "\u2212") }));
  const heads = ["", "finished text", "sum", "tokens", "score"];
  return element("table", {}, element("caption", { text: `Finished texts at length penalty ${penalty.toFixed(2)}: sum \u00f7 tokens to the power of it` }),
    element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", text })))),
    element("tbody", {}, ...finished.slice(0, 8).map(row)));
}

/** Why a search stops while beams still run. */
const WHY_STOPPED = { "pool-full": "enough texts had finished", "no-improvement": "no running text was expected to beat the finished ones" };

/** What became of the greedy text in the tree, in words. */
function greedyStory(tree, { greedy, steps }) {
  const way = tree.nodes.filter((node) => startsWith(greedy.ids, node.ids));
  const last = way[way.length - 1];
  const sum = `Its log-probability is ${nats(greedy.logprob_sum)}.`;
  if (!last) return `Greedy search never shared a beam with this one. ${sum}`;
  if (last.fate === "finished") return `The greedy text is among the finished ones: no beam had to give it up. ${sum}`;
  const step = last.step + 1;
  if (last.fate === "goes-on" && step === steps.length) {
    const why = WHY_STOPPED[steps.at(-1).stopped?.why] ?? "it was cut short";
    return `The greedy text was still among the beams when the search stopped at step ${step}: ${why}. ${sum}`;
  }
  if (last.fate === "goes-on") {
    return `The greedy text was among the beams up to step ${step}; after that it was not even among the candidates. ${sum}`;
  }
  return `At step ${step} the greedy text, which always takes the best next token, was only number ${last.row + 1} of the candidates `
    + `and ${last.fate === "pruned" ? "was pruned" : fateOf(last)}. ${sum}`;
}

/** How far a search fell short of the exact search, in words. */
function shortfall(name, exact, { logprob_sum: sum }) {
  const gap = exact.logprob_sum - sum;
  if (gap < -1e-4) return `${name} found a text that is ${Math.exp(-gap).toFixed(1)} times more probable, which exact search had not reached yet.`;
  return gap > 1e-4 ? `${name} missed it by ${nats(gap)} nats: its text is ${Math.exp(gap).toFixed(1)} times less probable.` : `${name} found it, too.`;
}

/** What the exact search proved, and how far the others fell short of it. With a repetition penalty all three search by penalised
 * probabilities, of which the sums of the table, the model's own, are no measure. */
function searchNotes({ exact, num_beams: beams }, penalty) {
  const limit = plural(exact.max_new_tokens, "token");
  const effort = `Exact search looked at ${plural(exact.nodes, "beginning")} of texts of up to ${limit}`;
  const by = penalty === 1 ? "" : ` under the repetition penalty of ${penalty}`;
  const proof = exact.proven ? `${effort} and proved that no other is more probable${by}.`
    : `${effort} and gave up there: a text still more probable${by} is possible.`;
  if (penalty !== 1) return [proof, "The log-probabilities are the model's own, without the penalty: they do not rank the searches."];
  return [proof, shortfall("Greedy search", exact, exact.greedy), shortfall(`Beam search with ${plural(beams, "beam")}`, exact, exact.beam)];
}

/** Compares greedy, beam and exact search over the same few tokens, by their log-probability sums. */
function verdict(beams) {
  const { exact } = beams;
  // The program always searches, within a time limit.
  if (!exact) return [element("p", { class: "card absent", text: "Exact search ran out of time before it had a whole text." })];
  const notes = searchNotes(beams, data.run.knobs.repetition_penalty);
  const rows = [["greedy", exact.greedy], [`beam, ${beams.num_beams} wide`, exact.beam], ["exact", exact]]
    .map(([name, { ids, logprob_sum: sum }]) => [name, ids, sum]);
  const row = ([name, ids, sum]) => element("tr", {}, element("th", { scope: "row", text: name }),
    element("td", { class: "text", text: textOf(ids) }), element("td", { text: nats(sum) }), element("td", { text: ids.length }));
  return [element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Greedy, beam and exact search" },
    element("table", {}, element("thead", {}, element("tr", {},
      ...["search", "best text", "log-probability", "tokens"].map((text) => element("th", { scope: "col", text })))),
      element("tbody", {}, ...rows.map(row)))), element("p", { text: notes.join(" ") })];
}

/** The tree as text, step by step, for those who cannot see it. */
function treeList(tree) {
  const steps = EmberArithmetic.highest(tree.nodes.map((node) => node.step + 1), 0);
  const item = (node) => element("li", { text: `${textOf(node.ids)} (${nats(node.score)}): ${fateOf(node)}` });
  const list = element("ol", {}, ...Array.from({ length: steps }, (_, step) => element("li", {}, `Step ${step + 1}`,
    element("ul", {}, tree.nodes.filter((node) => node.step === step).map(item)))));
  return element("details", {}, element("summary", { text: "The same as a list" }), list);
}

function startBeams() {
  const body = byId("beams-body");
  const { beams } = data;
  if (!beams?.steps?.length) return body.append(absent("A beam search"));
  const tree = beamTree(beams.steps);
  const shown = { until: beams.steps.length, penalty: beams.length_penalty };
  const picture = element("div", { class: "scroll tree", tabindex: "0", role: "group", "aria-label": "The tree, scrolls sideways" });
  const table = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Finished texts" });
  const live = element("p", { class: "live", role: "status", "aria-live": "polite" });
  const draw = () => {
    const finished = ranked(tree, shown.penalty);
    const best = shown.until === beams.steps.length ? finished[0] : null;
    picture.replaceChildren(drawTree(tree, shown.until, best, beams.greedy.ids));
    table.replaceChildren(rankingTable(finished, shown.penalty, beams.num_beams));
    live.textContent = finished.length === 0 ? "No text has finished."
      : `At length penalty ${shown.penalty.toFixed(2)} the best of ${plural(finished.length, "finished text")} has ${plural(finished[0].ids.length, "token")}.`;
  };
  const steps = slider({ label: "Steps grown", min: 1, max: beams.steps.length, step: 1, value: shown.until, id: "beams-step",
    words: (value) => `${value} of ${beams.steps.length}`,
    oninput: (value) => {
      shown.until = value;
      draw();
      picture.scrollTo({ left: (value + 1.5) * COLUMN - picture.clientWidth, behavior: calm.matches ? "auto" : "smooth" });
    } });
  const penalty = slider({ label: "Length penalty", min: -1, max: 3, step: 0.05, value: shown.penalty, id: "beams-penalty",
    words: (value) => value.toFixed(2), oninput: (value) => { shown.penalty = value; draw(); } });
  const key = [["goes-on", "goes on"], ["finished", "finished"], ["pruned", "pruned"], ["best", "the best in the end"], ["greedy", "the greedy text"]];
  body.append(element("p", { text: `Each column is one step: the candidates, best first by the sum of their log-probabilities. The best `
      + `${beams.num_beams} that have not ended go on.` }), steps.field,
    element("ul", { class: "key", "aria-label": "Key" }, ...key.map(([kind, text]) => element("li", { class: kind, text }))), picture,
    element("p", { id: "beams-greedy", text: greedyStory(tree, beams) }), treeList(tree),
    element("h3", { text: "Which finished text wins?" }),
    element("p", { text: "Every token lowers the sum, so sums favour short texts. The length penalty evens that out: above 0 it favours longer ones. "
      + "It ranks the texts that this search has finished; with another penalty the search might have stopped elsewhere." }),
    penalty.field, live, table, element("h3", { text: "And the best there is?" }), element("p", { text: "All of this looks ahead a little. Looking at every text there could be is possible for a few tokens only, without a length penalty; it says what the others missed." }),
    ...verdict(beams));
  draw();
  return undefined;
}
