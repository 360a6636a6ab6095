// The tree of all texts tried. A node holds tokens; the path from the root to a node is a text. Nothing is ever overwritten except
// typed leaves.
//
// A node: {id, parent, children, tokens, typed, how, by, end, last}. `typed`: the text that was tokenized at once to its tokens,
// or null. `how`: the request that generated it, {request, index, from}: the request without its prompt, the number of the text,
// and how many of that text's tokens precede this node. `by`: the model that scored its tokens. `end`: the finish reason. `last`:
// the child seen last.

function newTree() {
  return { nodes: { 0: newNode(0, null, []) }, next: 1 };
}

function newNode(id, parent, tokens, facts = {}) {
  return { id, parent, children: [], tokens, typed: null, how: null, by: null, end: null, last: null, ...facts };
}

const nodeOf = (tree, id) => tree.nodes[id];

/** The nodes from the root to `id`. */
function pathTo(tree, id) {
  const path = [];
  for (let node = nodeOf(tree, id); node; node = nodeOf(tree, node.parent)) path.unshift(node);
  return path;
}

const tokensTo = (tree, id) => pathTo(tree, id).flatMap((node) => node.tokens);

function addChild(tree, parent, tokens, facts) {
  const node = newNode(tree.next++, parent, tokens, facts);
  tree.nodes[node.id] = node;
  nodeOf(tree, parent).children.push(node.id);
  nodeOf(tree, parent).last = node.id;
  return node;
}

/** Splits a node in two; the first half keeps its id, the second gets the children. */
function split(tree, id, at) {
  const node = nodeOf(tree, id);
  const { children, last, how, by, end } = node;
  const rest = newNode(tree.next++, id, node.tokens.splice(at), { children, last, by, end, how: how && { ...how, from: how.from + at } });
  tree.nodes[rest.id] = rest;
  children.forEach((child) => { nodeOf(tree, child).parent = rest.id; });
  Object.assign(node, { children: [rest.id], last: rest.id, typed: null, end: null });
  return rest;
}

/** The node on the path to `leaf` that ends after `count` tokens; splits a node if necessary. */
function cutAt(tree, leaf, count) {
  let before = 0;
  for (const node of pathTo(tree, leaf)) {
    if (before + node.tokens.length === count) return node.id;
    if (before + node.tokens.length > count) {
      split(tree, node.id, count - before);
      return node.id;
    }
    before += node.tokens.length;
  }
  return leaf;
}

/** Removes a node and its descendants. */
function removeNode(tree, id) {
  const node = nodeOf(tree, id);
  node.children.slice().forEach((child) => removeNode(tree, child));
  const parent = nodeOf(tree, node.parent);
  parent.children = parent.children.filter((child) => child !== id);
  if (parent.last === id) parent.last = parent.children.at(-1) ?? null;
  delete tree.nodes[id];
}

/** The leaf below `id` that was seen last. */
function leafUnder(tree, id) {
  let node = nodeOf(tree, id);
  while (node.children.length > 0) node = nodeOf(tree, node.last ?? node.children[0]);
  return node.id;
}

/** Marks the path to `id` as seen last. */
function markSeen(tree, id) {
  const path = pathTo(tree, id);
  path.slice(1).forEach((node, place) => { path[place].last = node.id; });
}

/** The nearest fork on the path to `id`: its branches, and which of them the path takes. */
function waysAround(tree, id) {
  const taken = pathTo(tree, id).slice(1).reverse().find((node) => nodeOf(tree, node.parent).children.length > 1);
  if (!taken) return { ways: [], place: 0 };
  const ways = nodeOf(tree, taken.parent).children;
  return { ways, place: ways.indexOf(taken.id) };
}

/** The child of `parent` that begins with these ids, if any. */
function childWith(tree, parent, ids) {
  return nodeOf(tree, parent).children.find((child) => {
    const own = idsOf(nodeOf(tree, child).tokens);
    return own.length >= ids.length && ids.every((id, place) => own[place] === id);
  });
}

/** How a node was written, and how many tokens of its text came before: {request, index, start}, or null. */
function madeBy(tree, id) {
  const node = nodeOf(tree, id);
  if (!node.how) return null;
  const start = tokensTo(tree, node.parent).length - node.how.from;
  return { request: node.how.request, index: node.how.index, start };
}
