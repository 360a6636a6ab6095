// The text: typed into as any text, every token of it coloured by surprise. The browser edits; soon after, the server makes tokens
// of what is new, and tells how surprising they are.

const SETTLING = 250;

/** Draws the text of the current node; what is marked stays marked. */
function drawText(marked = selectionAt()) {
  const text = byId("text");
  text.replaceChildren(...tokensTo(app.tree, app.current).map(tokenSpan));
  endLine();
  if (marked !== null && document.activeElement === text) mark(marked);
}

/** A line end at the end of a text is not seen without something behind it. */
function endLine() {
  const text = byId("text");
  text.querySelector("br")?.remove();
  if (text.textContent.endsWith("\n")) text.append(element("br"));
  text.classList.toggle("empty", text.textContent === "");
}

/** Adds tokens that were just written, and follows them where the reader was at the end. */
function appendTokens(tokens, from) {
  const [text, view] = [byId("text"), byId("view-text")];
  const follows = view.scrollTop + view.clientHeight > view.scrollHeight - 80;
  text.append(...tokens.map((token, place) => tokenSpan(token, from + place)));
  endLine();
  if (follows) view.scrollTop = view.scrollHeight;
}

/** How many characters come before a place in the text. */
function charactersBefore(node, offset) {
  const before = document.createRange();
  before.selectNodeContents(byId("text"));
  before.setEnd(node, offset);
  return before.toString().length;
}

/** Where the caret is in the text, and where what is marked begins, in characters; null where the caret is elsewhere. */
function selectionAt() {
  const { anchorNode, anchorOffset, focusNode, focusOffset } = getSelection();
  const text = byId("text");
  if (!text.contains(anchorNode) || !text.contains(focusNode)) return null;
  return { anchor: charactersBefore(anchorNode, anchorOffset), focus: charactersBefore(focusNode, focusOffset) };
}

const caretAt = () => selectionAt()?.focus ?? null;

/** The place in the text before which so many characters come. */
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

/** How many tokens at the beginning of a text an edit leaves alone: typed ones before it are made anew together with it. */
function untouched(tokens, text) {
  let [at, count] = [0, 0];
  for (const token of tokens) {
    if (!text.startsWith(token.text, at)) break;
    at += token.text.length;
    count += 1;
  }
  if (count === tokens.length && at === text.length) return count;
  while (count > 0 && isTyped(tokens[count - 1])) count -= 1;
  return count;
}

/** What the text waits for: tokens of what was typed, their numbers, or words of the model. */
const awaited = new Set();

function awaits(what, on) {
  if (on) awaited.add(what);
  else awaited.delete(what);
  byId("text").setAttribute("aria-busy", awaited.size > 0);
}

let settling = Promise.resolve();

/** Makes tokens of what was typed. Whoever needs the tokens of the text waits for it. */
function settle() {
  settled.cancel();
  const own = settling.then(settleNow).catch((error) => mishap(error.message)).finally(() => {
    // Unless there is something to settle again.
    if (settling === own && !settled.isPending()) awaits("tokens", false);
  });
  settling = own;
  return own;
}
const settled = later(() => { settle().then(measure); }, SETTLING);

async function settleNow() {
  const text = byId("text").textContent;
  const tokens = tokensTo(app.tree, app.current);
  const kept = untouched(tokens, text);
  const rest = text.slice(textOf(tokens.slice(0, kept)).length);
  if (kept === tokens.length && rest === "") return;
  const made = rest === "" ? [] : await tokenized(rest, kept === 0);
  // Whoever went on typing meanwhile will be settled again; these tokens are of a text that is gone.
  if (byId("text").textContent !== text) return settleNow();
  app.current = typedNode(app.current, kept, made, kept === 0 ? rest : null);
  remember(app.tree, app.current);
  drawText();
  changed();
}

/** The node of a text whose first `kept` tokens stand and whose rest was typed. */
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

let measuring = null;

/** Asks how surprising the tokens are that nobody has measured, or that another model has. What is being written comes first. */
async function measure({ whileWriting = false } = {}) {
  const { model } = settings;
  const path = pathTo(app.tree, app.current).filter(({ tokens }) => tokens.length > 0);
  const nodes = path.slice(0, path.findLastIndex(({ by }) => by !== model) + 1);
  if (nodes.length === 0 || (app.writing && !whileWriting)) return;
  measuring?.abort();
  const own = measuring = new AbortController();
  awaits("numbers", true);
  try {
    const all = nodes.flatMap(({ tokens, by }) => tokens.map((token) => ({ token, stands: by === model })));
    const numbers = await measured(all.map(({ token }) => token), model, own.signal);
    // What was told while it was written stands: reading a text rounds otherwise in the last bits.
    all.slice(-numbers.length).forEach(({ token, stands }, place) => {
      const { logprob, top } = numbers[place];
      const isFirst = place === 0 && numbers.length < all.length; // of what the model can look back on
      if (!stands && !isFirst) Object.assign(token, { logprob, top });
    });
    // Meanwhile a node may have been cut, or typed anew: it is measured if all that it holds now was.
    const asked = new Set(all.map(({ token }) => token));
    nodes.filter(({ tokens }) => tokens.every((token) => asked.has(token))).forEach((node) => { node.by = model; });
    dressText();
    changed();
  } catch (error) {
    if (error.name !== "AbortError") mishap(error.message);
  } finally {
    if (measuring === own) awaits("numbers", false);
  }
}

/** Colours the text anew without touching its letters or the caret. */
function dressText() {
  const tokens = tokensTo(app.tree, app.current);
  const spans = byId("text").querySelectorAll(".token");
  if (spans.length !== tokens.length || byId("text").textContent !== textOf(tokens)) return;
  spans.forEach((span, place) => dress(span, tokens[place]));
}

/** What the text was, for undo: the browser's own memory does not survive that the text is drawn anew. */
const past = { before: [], after: [] };

function remembered() {
  return { node: app.current, text: byId("text").textContent, marked: selectionAt() };
}

function noteHistory() {
  const last = past.before.at(-1);
  const now = remembered();
  if (last && last.node === now.node && last.text === now.text) return;
  past.before.push(now);
  past.before.splice(0, past.before.length - 200);
  past.after = [];
}

async function undo(from, to) {
  if (from.length === 0) return;
  to.push(remembered());
  const { node, text, marked } = from.pop();
  if (nodeOf(app.tree, node) && textOf(tokensTo(app.tree, node)) === text) {
    app.current = node;
    drawText(marked);
  } else {
    byId("text").textContent = text;
    endLine();
    if (marked !== null) mark(marked);
    await settle();
  }
  changed();
  measure();
}

/** Puts words where the caret is, as typing would. */
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

/** Whether Backspace is pressed behind the mark of an end, which has no letters that the browser could take away. */
function removesEnd() {
  const last = tokensTo(app.tree, app.current).at(-1);
  return last?.text === "" && getSelection().isCollapsed && caretAt() === byId("text").textContent.length;
}

function typedInto() {
  byId("text").classList.toggle("empty", byId("text").textContent === "");
  hideAlternatives();
  awaits("tokens", true);
  settled();
}

/** Ctrl + Z and its way back; browsers do not tell of it where they believe that there is nothing to undo. */
function undoKeys(event) {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
  const key = event.key.toLowerCase();
  const back = key === "z" && !event.shiftKey;
  if (!back && key !== "y" && key !== "z") return;
  event.preventDefault();
  if (back) undo(past.before, past.after);
  else undo(past.after, past.before);
}

function startEditor() {
  const text = byId("text");
  if (text.contentEditable !== "plaintext-only") text.contentEditable = "true";
  text.addEventListener("beforeinput", (event) => {
    if (app.writing) stopWriting();
    if (event.inputType.startsWith("history")) {
      event.preventDefault();
      if (event.inputType === "historyUndo") undo(past.before, past.after);
      else undo(past.after, past.before);
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
