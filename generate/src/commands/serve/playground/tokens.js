// Tokens: {id, text, logprob, top, given, picked}. `text` is what it adds to the text, `logprob` the model's own in nats (null:
// nothing comes before it; undefined: not measured yet), `top` the most probable ones [id, logprob], `given` whether it was not
// written by the model: typed, or `picked` among alternatives.

/** Surprise in bits from which on the next colour begins. */
const HEATS = [1, 2, 3.5, 5, 7, 10];
const ALTERNATIVES = 10;

/** Texts of ids as they were told, for alternatives that come without. */
const pieces = new Map();

const bytesOf = (piece) => {
  if (Array.isArray(piece)) return Uint8Array.from(piece);
  if (!piece.startsWith("bytes:")) return new TextEncoder().encode(piece);
  return Uint8Array.from(piece.slice(6).split("\\x").slice(1), (hex) => parseInt(hex, 16));
};

/** Takes over what a token is called elsewhere. There a part of a character may be U+FFFD, which is not what the token holds: such a
 * one stays unknown until its bytes are asked for. */
function learn(id, piece) {
  if (!pieces.has(id) && !piece.includes("\ufffd")) pieces.set(id, piece);
}

/** Makes text of pieces one after another: a character may be spread over several, and comes with the last of them. */
function joiner() {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return (piece) => decoder.decode(bytesOf(piece), { stream: true });
}

/** The same after other tokens, the last of which may have begun a character. */
function joinerAfter(tokens) {
  const join = joiner();
  tokens.slice(-4).forEach(({ id }) => join(pieces.get(id) ?? ""));
  return join;
}

/** The token that ends a document is a mark, and no letters of the text. */
const isEnd = (piece) => piece === props.eos_token;

const textOfPiece = (piece, join) => (isEnd(piece) ? "" : join(piece));

/** A single piece as far as it is text. */
const pieceText = (piece) => new TextDecoder().decode(bytesOf(piece));

/** The tokens of a choice of the API's; `join` goes on from the choice's chunk before. */
function tokensOfChoice({ logprobs, token_ids: ids, top_token_ids: tops }, join) {
  if (!logprobs) return [];
  return logprobs.tokens.map((piece, place) => {
    pieces.set(ids[place], piece);
    const top = alternatives(tops?.[place], logprobs.top_logprobs?.[place]);
    return { id: ids[place], text: textOfPiece(piece, join), logprob: logprobs.token_logprobs[place], top, given: false };
  });
}

/** Ids with the texts that the API tells by logprob: where two have the same one, the text stays open until it is looked at. */
function alternatives(top, texts) {
  if (!top || top.length === 0) return null;
  const named = Object.entries(texts ?? {});
  return top.slice(0, ALTERNATIVES).map(([id, logprob]) => {
    const same = named.filter(([, other]) => other === logprob);
    if (same.length === 1 && top.filter(([, other]) => other === logprob).length === 1) learn(id, same[0][0]);
    return [id, logprob];
  });
}

/** Texts that the server tells of at once. */
const MOST_PROMPTS = 128;

/** Asks for tokens that are not known yet: each as a text of its own, told again, for there a part of a character has its bytes. */
async function nameAll(ids) {
  const unknown = [...new Set(ids)].filter((id) => !pieces.has(id));
  while (unknown.length > 0) {
    const prompt = unknown.splice(0, MOST_PROMPTS).map((id) => [id]);
    const body = { model: settings.model, prompt, max_tokens: 0, echo: true, logprobs: 0, return_token_ids: true };
    const { choices } = await ask("/v1/completions", body);
    choices.forEach((choice) => tokensOfChoice(choice, joiner()));
  }
}

/** What a token is called, its spaces and line ends visible. */
function nameOf(id) {
  if (!pieces.has(id)) return `#${id}`;
  return isEnd(pieces.get(id)) ? "[end]" : visible(pieceText(pieces.get(id))) || `#${id}`;
}

/** What the server makes of a typed text; at the beginning with what its tokenizer puts before texts. */
async function tokenized(text, isBeginning) {
  const { tokens } = await ask("/tokenize", { content: text, with_pieces: true, add_special: isBeginning, model: settings.model });
  tokens.forEach(({ id, piece }) => pieces.set(id, piece));
  const texts = laid(tokens.map(({ piece }) => piece), text);
  return tokens.map(({ id }, place) => ({ id, text: texts[place], logprob: undefined, top: null, given: true }));
}

/** Shares a text out among its pieces: tokens that the tokenizer adds, or a space that it puts before, are no part of it. */
function laid(tokenPieces, text) {
  const join = joiner();
  let at = 0;
  const texts = tokenPieces.map(join).map((piece) => {
    const own = [piece, piece.trimStart(), ""].find((form) => text.startsWith(form, at));
    at += own.length;
    return own;
  });
  if (at < text.length) texts[texts.length - 1] += text.slice(at);
  return texts;
}

const textOf = (tokens) => tokens.map(({ text }) => text).join("");
const idsOf = (tokens) => tokens.map(({ id }) => id);

/** A stop string is no part of the text: tokens that lie behind its beginning go. Says whether there were any. */
function cutToText(tokens, { stop_strings: stops }, text) {
  if (!stops || textOf(tokens).length <= text.length) return false;
  while (tokens.length > 0 && textOf(tokens.slice(0, -1)).length >= text.length) tokens.pop();
  return true;
}

/** The mean surprise in bits of those that were measured, or null. */
function meanBits(tokens) {
  const known = tokens.filter(({ logprob }) => typeof logprob === "number");
  return known.length === 0 ? null : known.reduce((sum, { logprob }) => sum + bitsOf(logprob), 0) / known.length;
}

/** How a token looks: its text, coloured by surprise but for the space before a word; the exact number stands in `data-logprob`. */
function tokenSpan(token, place) {
  const [, space, word] = token.text.match(/^(\s*)(.*)$/s);
  const parts = word === "" ? [element("span", { class: "word", text: space })] : [space, element("span", { class: "word", text: word })];
  const made = element("span", { "data-place": place, "data-id": token.id }, parts.filter((part) => part !== ""));
  dress(made, token);
  return made;
}

function dress(span, { id, logprob, given }) {
  const measured = typeof logprob === "number";
  const heat = measured ? HEATS.filter((from) => bitsOf(logprob) >= from).length : 0;
  const kinds = { given, unmeasured: !measured, end: isEnd(pieces.get(id)) };
  span.className = ["token", `heat-${heat}`, ...Object.keys(kinds).filter((kind) => kinds[kind])].join(" ");
  if (measured) span.dataset.logprob = logprob;
  else delete span.dataset.logprob;
}
