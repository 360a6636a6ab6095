// Continues the text, with one or several texts at once, and branches from alternative tokens.

/** Continues a node: adds children, filled as tokens arrive. An identical earlier request is shown instead. */
async function write(parent, request) {
  const known = nodeOf(app.tree, parent).children.find((id) => isSame(nodeOf(app.tree, id).how, request));
  if (known !== undefined) {
    show(leafUnder(app.tree, known));
    say(`This text was written already: ${whySame(request)}`);
    return;
  }
  writingEnded = addTexts(parent, request);
  await writingEnded;
}

/** Why the same request gives the same text, and what gives another. */
const whySame = ({ strategy }) => (strategy === "greedy" ? "temperature 0 always takes the most probable token. Raise it for another text."
  : "the same seed gives the same text. Press Another for the next seed.");

/** Resolves once nothing is being written: what came is in the tree, and the rest is cleared away. */
let writingEnded = Promise.resolve();

async function addTexts(parent, request) {
  const before = tokensTo(app.tree, parent);
  const begin = (_, index) => addChild(app.tree, parent, [], { how: { request, index, from: 0 }, by: request.model });
  const nodes = Array.from({ length: request.n ?? 1 }, begin);
  const atEnd = caretAt() === textOf(before).length;
  const watch = { start: performance.now(), first: null, tokens: 0 };
  app.writing = new AbortController();
  const { signal } = app.writing;
  show(nodes[0].id);
  setBusy(true);
  try {
    const hear = (index, tokens, reason, text) => receive(nodes[index], before.length, { tokens, reason, text }, watch);
    const usage = await writeOn(before, request, hear, signal);
    say(report(watch, usage, nodes));
  } catch (error) {
    if (error.name === "AbortError") say(`Stopped. ${report(watch, null, nodes)}`);
    else mishap(error.message);
  } finally {
    if (app.writing?.signal === signal) app.writing = null;
    setBusy(app.writing !== null); // another request may have started
    clearAway(parent, nodes);
    if (atEnd) putCaret(byId("text").textContent.length);
  }
}

/** Whether a node is the start of a completed text of this request. */
const isSame = (how, request) => how !== null && how.from === 0 && !how.broken && JSON.stringify(how.request) === JSON.stringify(request);

/** Adds received tokens to the node of a text being generated, which `before` tokens precede. */
function receive(node, before, { tokens, reason, text }, watch) {
  const isFirst = watch.first === null && tokens.length > 0;
  if (isFirst) watch.first = performance.now();
  watch.tokens += tokens.length;
  const from = before + node.tokens.length;
  node.tokens.push(...tokens);
  if (app.current === node.id) appendTokens(tokens, from);
  if (reason) {
    node.end = reason;
    if (cutToText(node.tokens, node.how.request, text) && app.current === node.id) drawText();
  }
  if (isFirst) scoreTokens({ whileWriting: true });
  drawTreeSoon();
}

/** Marks unfinished texts as broken; if no text finished, removes those without tokens. */
function clearAway(parent, nodes) {
  for (const node of nodes.filter(({ id }) => nodeOf(app.tree, id))) {
    if (node.end === null) node.how.broken = true;
    if (node.tokens.length > 0 || nodes.some(({ end }) => end !== null)) continue;
    const shown = app.current === node.id;
    removeNode(app.tree, node.id);
    if (shown) app.current = nodes.find((other) => nodeOf(app.tree, other.id))?.id ?? parent;
  }
  show(app.current);
}

function report({ start, first, tokens }, usage, nodes) {
  if (first === null) return nodes.some(({ end }) => end === "stop") ? "The model ends the text here." : "";
  const seconds = (performance.now() - first) / 1000;
  const rate = (tokens - 1) / seconds;
  const rounded = rate < 9.95 ? Number(rate.toPrecision(2)) : Math.round(rate);
  const speed = tokens > 4 && seconds > 0 ? `, ${number(rounded)} per second` : "";
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  const ended = nodes.length === 1 && nodes[0].end === "stop" ? " It ended by itself." : "";
  const reused = cached ? `; ${number(cached)} were in the cache` : "";
  return `${plural(tokens, "token")}, the first after ${Math.round(first - start)} ms${speed}${reused}.${ended}`;
}

function setBusy(busy) {
  byId("stop").disabled = !busy;
  byId("write").disabled = busy;
  byId("another").disabled = busy;
  awaits("words", busy);
}

/** Stops the writing. Await it before another tree is shown: the nodes being filled belong to this one. */
function stopWriting() {
  app.writing?.abort();
  return writingEnded;
}

/** Write: continues the text at its end. */
async function writeHere() {
  if (app.writing) return;
  hideAlternatives();
  say("");
  await tokenizeTyped();
  noteHistory();
  const request = requestFor();
  if (request.n > 1) openDrawer("tree");
  await write(app.current, request);
  scoreTokens();
}

/** Another: from the same place with the next seed. */
async function writeAnother() {
  if (app.writing) return;
  await tokenizeTyped();
  const node = nodeOf(app.tree, app.current);
  const made = madeBy(app.tree, app.current);
  setSeed(settings.seed + 1);
  if (!made) return writeHere();
  const parent = cutAt(app.tree, node.id, made.start);
  await write(parent, requestFor());
  scoreTokens();
}

/** Branches with another token at `place`. */
async function branch(place, [id, logprob]) {
  stopWriting();
  await tokenizeTyped();
  const parent = cutAt(app.tree, app.current, place);
  const same = childWith(app.tree, parent, [id]);
  if (same !== undefined) {
    show(leafUnder(app.tree, same));
    return;
  }
  const text = textOfPiece(pieces.get(id) ?? "", joinerAfter(tokensTo(app.tree, parent)));
  const sibling = tokensTo(app.tree, leafUnder(app.tree, parent))[place];
  const token = { id, text, logprob, top: sibling?.top ?? null, given: true, picked: true };
  const node = addChild(app.tree, parent, [token], { by: settings.model });
  show(node.id);
  await write(node.id, requestFor());
}
