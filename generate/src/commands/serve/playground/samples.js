// A text generated outside the tree, in its own card, from which it can be taken into the tree.

/** A card for texts that continue the current one; `tokens` is its content. */
function sampleCard(title) {
  const words = element("div", { class: "prose small tokens" });
  const facts = hint("");
  const taking = press("Take", () => takeSample(card), { disabled: true, title: "Continue with this text" });
  const heading = element("h3", { text: title });
  const card = { tokens: [], tree: null, from: 0, request: null, prompt: null, heading, words, facts, taking,
    whole: element("article", { class: "card" }, element("div", { class: "card-head" }, heading, taking), words, facts) };
  tellsAlternatives(words, (place) => card.tokens[place], (place, one) => {
    if (takeSample(card)) branch(tokensTo(app.tree, card.from).length + place, one);
  });
  return card;
}

/** Generates a continuation of the current text into a card. */
async function fill(card, request, signal) {
  clearCard(card, request);
  const before = tokensTo(app.tree, app.current);
  card.end = null;
  await writeOn(before, request, (index, tokens, reason, text) => {
    addToCard(card, tokens);
    card.end = reason ?? card.end;
    if (reason && cutToText(card.tokens, request, text)) card.words.replaceChildren(...card.tokens.map(tokenSpan));
  }, signal);
  card.taking.disabled = card.tokens.length === 0;
  tellFacts(card);
}

function clearCard(card, request) {
  const { tree, current: from } = app;
  Object.assign(card, { tokens: [], tree, from, request, prompt: promptFor(tree, from) });
  card.words.replaceChildren();
  card.facts.textContent = "";
  card.taking.disabled = true;
}

function addToCard(card, tokens) {
  card.words.append(...tokens.map((token, place) => tokenSpan(token, card.tokens.length + place)));
  card.tokens.push(...tokens);
}

function tellFacts(card) {
  const mean = meanBits(card.tokens);
  const words = `${plural(card.tokens.length, "token")}, ${bits(mean ?? 0)} of surprise each`;
  card.facts.textContent = mean === null ? "The model ends the text here." : words;
}

/** The command for the text of a card; for an empty card, the command for `request`. */
function cardCommand({ tokens, request: made, prompt, end }, name, request) {
  if (tokens.length === 0) return { words: `What ${name} would write:`, command: nextCommand(request) };
  return { words: `Writes the text of ${name} again, to the last bit:`, command: commandAgain(made, prompt, tokens.length, end) };
}

/** Adds the text of a card, or of beams, to the tree, after the text that it continues: node `from` of `tree`. `index` is its
 * number among the request's texts. Returns whether that was possible. */
function takeText({ tree, from, request }, { tokens, end }, index) {
  // The text that it continues may have been removed, or belong to another tokenizer.
  if (tree !== app.tree || !nodeOf(tree, from)) {
    mishap("The text that this continues is no longer here.");
    return false;
  }
  const known = nodeOf(tree, from).children.find((id) => {
    const { how } = nodeOf(tree, id);
    return how?.index === index && isSame(how, request);
  });
  const copies = tokens.map((token) => ({ ...token }));
  const id = known ?? addChild(tree, from, copies, { how: { request, index, from: 0 }, by: request.model, end }).id;
  showView("text");
  show(known === undefined ? id : leafUnder(tree, id));
  return true;
}

const takeSample = (card) => takeText(card, card, 0);

const MAX_PROMPT = 160;

/** Shows the end of the text that a view's texts continue. */
function promptShown() {
  const text = textOf(tokensTo(app.tree, app.current));
  const end = sliced(text, -MAX_PROMPT);
  const shown = end === text ? text : `… ${end.replace(/^\S*\s/, "")}`;
  return element("p", { class: "prose small prompt", text: shown || "An empty text: a document begins." });
}

/** Runs a view's request; a second press, or Esc, stops the first. */
async function busyWith(button, act) {
  app.asking?.abort();
  const asking = new AbortController();
  app.asking = asking;
  button.disabled = true;
  byId("stop").disabled = false;
  try {
    await tokenizeTyped();
    await act(asking.signal);
  } catch (error) {
    if (error.name !== "AbortError") mishap(error.message);
  } finally {
    button.disabled = false;
    if (app.asking === asking) app.asking = null;
    byId("stop").disabled = app.writing === null && app.asking === null;
    drawOpenDrawer(["command"]);
  }
}
