// Validates saved data from a file or the browser: it may come from anywhere, and invalid data could break the page for good.

const isWhole = (value, least = 0) => Number.isSafeInteger(value) && value >= least;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isListOf = (is) => (value) => Array.isArray(value) && value.every((one) => is(one));
const isAbsentOr = (is) => (value) => value === null || value === undefined || is(value);
const isText = (value) => typeof value === "string";

/** Whether it is a valid tree of tree.js: each node is reachable from the root exactly once, and the next id is unused. */
function isTree(tree) {
  if (!isObject(tree?.nodes) || !isWhole(tree.next, 1) || tree.nodes[0]?.parent !== null) return false;
  const reached = new Set([0]);
  for (const id of reached) {
    const node = tree.nodes[id];
    if (id >= tree.next || node?.id !== id || !isNode(node)) return false;
    for (const child of node.children) {
      if (reached.has(child) || tree.nodes[child]?.parent !== id) return false;
      reached.add(child); // the loop visits it too
    }
  }
  return reached.size === Object.keys(tree.nodes).length;
}

/** Whether a node is valid by itself. */
function isNode({ children, tokens, typed, how, by, end, last }) {
  const isHow = ({ request, index, from }) => isObject(request) && isWhole(index) && isWhole(from);
  return isListOf(isWhole)(children) && isListOf(isToken)(tokens) && isAbsentOr((id) => children.includes(id))(last)
    && [typed, by, end].every(isAbsentOr(isText)) && isAbsentOr(isHow)(how);
}

function isToken(token) {
  const isAlternative = (one) => Array.isArray(one) && isWhole(one[0]) && isAbsentOr(Number.isFinite)(one[1]);
  return isWhole(token?.id) && isText(token.text) && isAbsentOr(Number.isFinite)(token.logprob) && isAbsentOr(isListOf(isAlternative))(token.top);
}

/** Checks for each setting. */
const SETTINGS = {
  model: isText,
  tokens: (value) => isWhole(value, 1),
  temperature: (value) => Number.isFinite(value) && value >= 0,
  seed: (value) => isWhole(value),
  count: (value) => isWhole(value, 1),
  knobs: isObject,
  grammar: (value) => isObject(value) && isText(value.text) && (value.kind === "" || Object.hasOwn(GRAMMARS, value.kind)),
};

/** The valid ones of the saved settings; an older format has the grammar as `form`. */
function settingsOf(kept) {
  const all = Object.entries({ grammar: kept?.form, ...kept });
  return Object.fromEntries(all.filter(([name, value]) => Object.hasOwn(SETTINGS, name) && SETTINGS[name](value)));
}

/** A tokenizer's tree with its shown node and token names; invalid parts are dropped. */
function textsOf({ tree, current, names }) {
  const isPiece = (piece) => isText(piece) || isListOf((byte) => isWhole(byte) && byte < 256)(piece);
  const usable = Object.entries(names ?? {}).filter(([id, piece]) => /^\d+$/.test(id) && isPiece(piece));
  return { tree, current: isWhole(current) && Object.hasOwn(tree.nodes, current) ? current : 0, names: Object.fromEntries(usable) };
}
