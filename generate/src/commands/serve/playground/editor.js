// The text editor, which colours every token by its surprise. The browser edits; soon after, the server tokenizes the new text and
// scores it.

/** After how many milliseconds without typing the text is tokenized. */
const TYPING_PAUSE = 250;

/** Draws the text of the current node and keeps the selection. */
function drawText(marked = selectionAt()) {
  const text = byId("text");
  text.replaceChildren(...tokensTo(app.tree, app.current).map(tokenSpan));
  endLine();
  if (marked !== null && document.activeElement === text) mark(marked);
}

/** Adds a `<br>` after a final line end, which would be invisible otherwise. */
function endLine() {
  const text = byId("text");
  text.querySelector("br")?.remove();
  if (text.textContent.endsWith("\n")) text.append(element("br"));
  text.classList.toggle("empty", text.textContent === "");
}

/** Appends generated tokens, and scrolls along if the reader was at the end. */
function appendTokens(tokens, from) {
  const [text, view] = [byId("text"), byId("view-text")];
  const follows = view.scrollTop + view.clientHeight > view.scrollHeight - 80;
  text.append(...tokens.map((token, place) => tokenSpan(token, from + place)));
  endLine();
  if (follows) view.scrollTop = view.scrollHeight;
}

/** The number of characters before a DOM position in the text. */
function charactersBefore(node, offset) {
  const before = document.createRange();
  before.selectNodeContents(byId("text"));
  before.setEnd(node, offset);
  return before.toString().length;
}

/** The selection's anchor and focus in characters; null if it is outside the text. */
function selectionAt() {
  const { anchorNode, anchorOffset, focusNode, focusOffset } = getSelection();
  const text = byId("text");
  if (!text.contains(anchorNode) || !text.contains(focusNode)) return null;
  return { anchor: charactersBefore(anchorNode, anchorOffset), focus: charactersBefore(focusNode, focusOffset) };
}

const caretAt = () => selectionAt()?.focus ?? null;

/** The DOM position after `offset` characters of the text. */
function placeAt(offset) {
  const text = byId("text");
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
  let seen = 0;
  for (let node = walker.nextNode(); node; seen += node.length, node = walker.nextNode()) {
    if (seen + node.length >= offset) return [node, offset - seen];
  }
  return [text, text.childNodes.length];
}

const mark = ({ anchor, focus }) => getSelection().setBaseAndExtent(...placeAt(anchor), ...placeAt(focus));
const putCaret = (offset) => mark({ anchor: offset, focus: offset });

const isTyped = ({ given, picked }) => given && !picked;

/** Whether a token begins a character that a later one completes: alone it cannot be seen. */
const isPartial = ({ id, text }) => text === "" && !isEnd(pieces.get(id));

/** How many tokens at the start of a text an edit leaves unchanged: typed tokens directly before the edit are tokenized again
 * with it, and no part of a deleted character stays. */
function untouched(tokens, text) {
  let [at, count] = [0, 0];
  for (const token of tokens) {
    if (!text.startsWith(token.text, at)) break;
    at += token.text.length;
    count += 1;
  }
  if (count === tokens.length && at === text.length) return count;
  while (count > 0 && (isTyped(tokens[count - 1]) || isPartial(tokens[count - 1]))) count -= 1;
  return count;
}

/** What the text waits for: "tokens" of typed text, their "scores", or "words" of the model. */
const awaited = new Set();

function awaits(what, on) {
  if (on) awaited.add(what);
  else awaited.delete(what);
  byId("text").setAttribute("aria-busy", awaited.size > 0);
}

/** Resolves when the last tokenizing has ended; the next one waits for it. */
let tokenizingEnded = Promise.resolve();

/** Tokenizes typed text. Await it before using the text's tokens. */
function tokenizeTyped() {
  tokenizeSoon.cancel();
  const own = tokenizingEnded.then(tokenizeNow).catch((error) => mishap(error.message)).finally(() => {
    // Unless more text was typed meanwhile.
    if (tokenizingEnded === own && !tokenizeSoon.isPending()) awaits("tokens", false);
  });
  tokenizingEnded = own;
  return own;
}
const tokenizeSoon = later(() => { tokenizeTyped().then(scoreTokens); }, TYPING_PAUSE);

async function tokenizeNow() {
  const text = byId("text").textContent;
  const tokens = tokensTo(app.tree, app.current);
  const kept = untouched(tokens, text);
  const rest = text.slice(textOf(tokens.slice(0, kept)).length);
  if (kept === tokens.length && rest === "") return;
  const made = rest === "" ? [] : await tokensOf(rest, kept === 0);
  // If the text changed meanwhile, tokenize it again: these tokens are out of date.
  if (byId("text").textContent !== text) return tokenizeNow();
  app.current = typedNode(app.current, kept, made, kept === 0 ? rest : null);
  markSeen(app.tree, app.current);
  drawText();
  changed();
}

/** The node of a text whose first `kept` tokens are unchanged and whose rest was typed. */
function typedNode(leaf, kept, tokens, typed) {
  const node = nodeOf(app.tree, leaf);
  const isOpen = node.id !== 0 && node.how === null && node.children.length === 0 && node.tokens.every(isTyped);
  const start = tokensTo(app.tree, leaf).length - node.tokens.length;
  if (isOpen && start === kept) {
    if (tokens.length > 0) Object.assign(node, { tokens, typed, by: null });
    else removeNode(app.tree, leaf);
    return tokens.length > 0 ? leaf : node.parent;
  }
  const parent = cutAt(app.tree, leaf, kept);
  if (tokens.length === 0) return parent;
  const same = childWith(app.tree, parent, idsOf(tokens));
  if (same !== undefined && nodeOf(app.tree, same).tokens.length === tokens.length) return same;
  return addChild(app.tree, parent, tokens, { typed }).id;
}

let scoring = null;

/** Scores the tokens that are unscored, or were scored by another model. Waits while the model generates, unless `whileWriting`. */
async function scoreTokens({ whileWriting = false } = {}) {
  const { model } = settings;
  const path = pathTo(app.tree, app.current).filter(({ tokens }) => tokens.length > 0);
  const nodes = path.slice(0, path.findLastIndex(({ by }) => by !== model) + 1);
  if (nodes.length === 0 || (app.writing && !whileWriting)) return;
  scoring?.abort();
  const own = scoring = new AbortController();
  awaits("scores", true);
  try {
    const all = nodes.flatMap(({ tokens, by }) => tokens.map((token) => ({ token, stands: by === model })));
    const scores = await scoresOf(all.map(({ token }) => token), model, own.signal);
    // Scores from generation are kept: scoring as a prompt rounds the last bits differently.
    all.slice(-scores.length).forEach(({ token, stands }, place) => {
      const { logprob, top } = scores[place];
      const isFirst = place === 0 && scores.length < all.length; // of the context window
      if (!stands && !isFirst) Object.assign(token, { logprob, top });
    });
    // Meanwhile a node may have been split or edited: it counts as scored if all its current tokens were.
    const asked = new Set(all.map(({ token }) => token));
    nodes.filter(({ tokens }) => tokens.every((token) => asked.has(token))).forEach((node) => { node.by = model; });
    dressText();
    changed();
  } catch (error) {
    if (error.name !== "AbortError") mishap(error.message);
  } finally {
    if (scoring === own) awaits("scores", false);
  }
}

/** Updates the colours without touching the characters or the caret. */
function dressText() {
  const tokens = tokensTo(app.tree, app.current);
  const spans = byId("text").querySelectorAll(".token");
  if (spans.length !== tokens.length || byId("text").textContent !== textOf(tokens)) return;
  spans.forEach((span, place) => dress(span, tokens[place]));
}

/** The undo history: the browser's own is lost when the text is redrawn. */
const past = { before: [], after: [] };

/** What undo brings back. */
function snapshot() {
  return { node: app.current, text: byId("text").textContent, marked: selectionAt() };
}

function noteHistory() {
  const last = past.before.at(-1);
  const now = snapshot();
  if (last && last.node === now.node && last.text === now.text) return;
  past.before.push(now);
  past.before.splice(0, past.before.length - 200);
  past.after = [];
}

const undo = () => moveInHistory(past.before, past.after);
const redo = () => moveInHistory(past.after, past.before);

/** Shows the last snapshot of `from`, and adds one of the present to `to`. */
async function moveInHistory(from, to) {
  if (from.length === 0) return;
  to.push(snapshot());
  const { node, text, marked } = from.pop();
  if (nodeOf(app.tree, node) && textOf(tokensTo(app.tree, node)) === text) {
    app.current = node;
    drawText(marked);
  } else {
    byId("text").textContent = text;
    endLine();
    if (marked !== null) mark(marked);
    await tokenizeTyped();
  }
  changed();
  scoreTokens();
}

/** Inserts text at the caret, as typing would. */
function insert(words) {
  const range = getSelection().getRangeAt(0);
  range.deleteContents();
  range.insertNode(document.createTextNode(words));
  range.collapse(false);
  const caret = caretAt();
  endLine();
  putCaret(caret);
  typedInto();
}

/** Whether Backspace would delete an end token, which has no characters that the browser could delete. */
function removesEnd() {
  const last = tokensTo(app.tree, app.current).at(-1);
  return last?.text === "" && getSelection().isCollapsed && caretAt() === byId("text").textContent.length;
}

function typedInto() {
  byId("text").classList.toggle("empty", byId("text").textContent === "");
  hideAlternatives();
  awaits("tokens", true);
  tokenizeSoon();
}

/** Undo and redo by keyboard: browsers send no `beforeinput` for them if their own history is empty. */
function undoKeys(event) {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
  const key = event.key.toLowerCase();
  const back = key === "z" && !event.shiftKey;
  if (!back && key !== "y" && key !== "z") return;
  event.preventDefault();
  if (back) undo();
  else redo();
}

function startEditor() {
  const text = byId("text");
  if (text.contentEditable !== "plaintext-only") text.contentEditable = "true";
  text.addEventListener("beforeinput", (event) => {
    if (app.writing) stopWriting();
    if (event.inputType.startsWith("history")) {
      event.preventDefault();
      if (event.inputType === "historyUndo") undo();
      else redo();
      return;
    }
    noteHistory();
    if (event.inputType === "deleteContentBackward" && removesEnd()) {
      event.preventDefault();
      show(cutAt(app.tree, app.current, tokensTo(app.tree, app.current).length - 1));
      return;
    }
    if (event.inputType === "insertParagraph" || event.inputType === "insertLineBreak") {
      event.preventDefault();
      insert("\n");
    }
  });
  text.addEventListener("input", (event) => { if (!event.isComposing) typedInto(); });
  text.addEventListener("compositionend", typedInto);
  text.addEventListener("keydown", undoKeys);
  text.addEventListener("paste", (event) => {
    event.preventDefault();
    noteHistory();
    insert(event.clipboardData.getData("text/plain").replaceAll("\r\n", "\n"));
  });
}
