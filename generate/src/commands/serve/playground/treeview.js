// The tree of all texts tried, as a list: nodes with a single child share a line with it, and forks are indented.

const treeOpen = () => !byId("drawer-tree").hidden && !byId("panel").hidden;
const drawTreeSoon = (() => {
  let asked = false;
  return () => {
    if (asked || !treeOpen()) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; drawTree(); });
  };
})();

function drawTree() {
  const texts = nodeOf(app.tree, 0).children;
  const onPath = new Set(pathTo(app.tree, app.current).map(({ id }) => id));
  byId("drawer-tree").replaceChildren(
    element("h2", { text: "What was tried" }),
    countField(),
    texts.length === 0 ? hint("Nothing yet. Every text that is written is kept here.") : branchList(texts, onPath));
}

/** The field for the number of texts that Write starts at once. */
function countField() {
  const input = element("input", { type: "number", id: "count", min: 1, max: 64, step: 1, inputmode: "numeric", onchange: () => {
    settings.count = Math.max(1, Math.min(64, Math.round(Number(input.value)) || 1));
    input.value = settings.count;
    keep();
  } });
  input.value = settings.count;
  return element("label", { class: "field side" }, "Texts at once", input);
}

const branchList = (ids, onPath) => element("ul", { class: "branches" }, ids.map((id) => branchItem(id, onPath)));

/** A node with its chain of single children, and below it the branches. */
function branchItem(id, onPath) {
  const chain = [nodeOf(app.tree, id)];
  while (chain.at(-1).children.length === 1) chain.push(nodeOf(app.tree, chain.at(-1).children[0]));
  const end = chain.at(-1);
  const taken = onPath.has(id);
  const buttons = chain.map((node) => press(preview(node), () => goTo(node.id), {
    class: `piece${onPath.has(node.id) ? " taken" : ""}${node.how ? "" : " given"}`, "aria-current": node.id === app.current,
  }));
  const remove = press("×", () => removeBranch(id), { class: "quiet remove", "aria-label": `Remove ${preview(chain[0])}` });
  const run = element("div", { class: "run" }, element("span", { class: "pieces" }, buttons), remove);
  return element("li", { class: taken ? "taken" : null }, run,
    end.children.length > 0 ? branchList(end.children, onPath) : null);
}

const MAX_PREVIEW = 90;

function preview({ tokens, how }) {
  const text = textOf(tokens);
  const line = text.replace(/\s+/g, " ");
  const begin = sliced(line, 0, MAX_PREVIEW);
  if (line.trim() !== "") return begin === line ? line : `${begin}…`;
  if (text !== "") return visible(text); // nothing but spaces
  return how && tokens.length === 0 ? "…" : "(empty)"; // nothing written yet, or at all
}

function removeBranch(id) {
  stopWriting();
  const parent = nodeOf(app.tree, id).parent;
  const shown = pathTo(app.tree, app.current).some((node) => node.id === id);
  removeNode(app.tree, id);
  show(shown ? parent : app.current);
}

/** The branch selector: which of how many branches is shown, and buttons to the next. */
function drawSiblings() {
  const { ways, place } = waysAround(app.tree, app.current);
  byId("siblings").classList.toggle("absent", ways.length < 2);
  byId("sibling-before").disabled = byId("sibling-after").disabled = ways.length < 2;
  byId("sibling-place").textContent = ways.length < 2 ? "" : `${place + 1} of ${ways.length}`;
}

async function stepSibling(step) {
  await tokenizeTyped();
  const { ways, place } = waysAround(app.tree, app.current);
  if (ways.length > 1) show(leafUnder(app.tree, ways[(place + step + ways.length) % ways.length]));
}

/** Steps to the parent node, or back down. */
async function stepDepth(down) {
  await tokenizeTyped();
  const node = nodeOf(app.tree, app.current);
  const to = down ? node.last ?? node.children[0] : node.parent;
  if (to !== undefined && to !== null) show(to);
}
