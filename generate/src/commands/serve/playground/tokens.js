// Tokens: {id, text, logprob, top, given, picked}. `text` is what it adds to the text, `logprob` its log-probability under the
// model in nats (null: it is the first token; undefined: not scored yet), `top` the most probable tokens [id, logprob], `given`
// whether it was not generated: typed, or `picked` among alternatives.

/** Surprise in bits at which each colour begins. */
const HEATS = [1, 2, 3.5, 5, 7, 10];
const ALTERNATIVES = 10;

/** Known texts of ids, for alternatives that come without texts. */
const pieces = new Map();

const bytesOf = (piece) => {
  if (Array.isArray(piece)) return Uint8Array.from(piece);
  if (!piece.startsWith("bytes:")) return new TextEncoder().encode(piece);
  return Uint8Array.from(piece.slice(6).split("\\x").slice(1), (hex) => parseInt(hex, 16));
};

/** Stores a token's text from another source. There an incomplete character may be U+FFFD instead of the token's bytes: such a
 * token stays unknown until its bytes are fetched. */
function learn(id, piece) {
  if (!pieces.has(id) && !piece.includes("\ufffd")) pieces.set(id, piece);
}

/** A decoder for consecutive pieces: a character spread over several pieces is returned with the last of them. */
function joiner() {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return (piece) => decoder.decode(bytesOf(piece), { stream: true });
}

/** The same after other tokens, the last of which may end in an incomplete character. */
function joinerAfter(tokens) {
  const join = joiner();
  tokens.slice(-4).forEach(({ id }) => join(pieces.get(id) ?? ""));
  return join;
}

/** The end-of-document token adds no characters to the text. */
const isEnd = (piece) => piece === props.eos_token;

/** What a piece adds to a text; `join` continues from the pieces before it. */
const textOfPiece = (piece, join) => (isEnd(piece) ? "" : join(piece));

/** The tokens of an API choice; `join` continues from the choice's previous chunk. */
function tokensOfChoice({ logprobs, token_ids: ids, top_token_ids: tops }, join) {
  if (!logprobs) return [];
  return logprobs.tokens.map((piece, place) => {
    pieces.set(ids[place], piece);
    const top = alternatives(tops?.[place], logprobs.top_logprobs?.[place]);
    return { id: ids[place], text: textOfPiece(piece, join), logprob: logprobs.token_logprobs[place], top, given: false };
  });
}

/** Ids matched by logprob to the texts that the API returns; if two logprobs are equal, the text stays unknown until it is
 * needed. */
function alternatives(top, texts) {
  if (!top || top.length === 0) return null;
  const named = Object.entries(texts ?? {});
  return top.slice(0, ALTERNATIVES).map(([id, logprob]) => {
    const same = named.filter(([, other]) => other === logprob);
    if (same.length === 1 && top.filter(([, other]) => other === logprob).length === 1) learn(id, same[0][0]);
    return [id, logprob];
  });
}

/** Most prompts per request. */
const MAX_PROMPTS = 128;

/** Fetches the texts of unknown tokens: each is echoed as a prompt of its own, which returns the bytes of incomplete characters. */
async function nameAll(ids) {
  const unknown = [...new Set(ids)].filter((id) => !pieces.has(id));
  while (unknown.length > 0) {
    const prompt = unknown.splice(0, MAX_PROMPTS).map((id) => [id]);
    const body = { model: settings.model, prompt, max_tokens: 0, n: 1, echo: true, logprobs: 0, return_token_ids: true };
    const { choices } = await ask("/v1/completions", body);
    choices.forEach((choice) => tokensOfChoice(choice, joiner()));
  }
}

/** A token's name, with spaces and line ends visible. */
function nameOf(id) {
  const piece = pieces.get(id);
  if (piece === undefined) return `#${id}`;
  if (isEnd(piece)) return "[end]";
  const alone = new TextDecoder().decode(bytesOf(piece)); // an incomplete character is U+FFFD
  return visible(alone) || `#${id}`;
}

/** The tokens of a typed text; at the beginning with the tokens that the tokenizer puts before texts. */
async function tokensOf(text, isBeginning) {
  const { tokens } = await ask("/tokenize", { content: text, with_pieces: true, add_special: isBeginning, model: settings.model });
  tokens.forEach(({ id, piece }) => pieces.set(id, piece));
  const texts = partsOfText(text, tokens.map(({ piece }) => piece));
  return tokens.map(({ id }, place) => ({ id, text: texts[place], logprob: undefined, top: null, given: true }));
}

/** The part of a typed text that each of its pieces is: tokens or a leading space that the tokenizer added are not in the text. */
function partsOfText(text, tokenPieces) {
  const join = joiner();
  let at = 0;
  const parts = tokenPieces.map(join).map((piece) => {
    const own = [piece, piece.trimStart(), ""].find((form) => text.startsWith(form, at));
    at += own.length;
    return own;
  });
  if (at < text.length) parts[parts.length - 1] += text.slice(at);
  return parts;
}

const textOf = (tokens) => tokens.map(({ text }) => text).join("");
const idsOf = (tokens) => tokens.map(({ id }) => id);

/** Removes the tokens of a stop string, the request's or its model's own, which is not part of the text. Returns whether the text
 * had to be cut. */
function cutToText(tokens, { model, stop_strings: asked }, text) {
  const stops = asked ?? knobNamed("stop_strings", knobsOf(model))?.default;
  if (!stops?.length || textOf(tokens).length <= text.length) return false;
  while (tokens.length > 0 && textOf(tokens.slice(0, -1)).length >= text.length) tokens.pop();
  return true;
}

/** The mean surprise of the scored tokens in bits, or null. */
function meanBits(tokens) {
  const known = tokens.filter(({ logprob }) => typeof logprob === "number");
  return known.length === 0 ? null : known.reduce((sum, { logprob }) => sum + bitsOf(logprob), 0) / known.length;
}

/** A token's element: its text, coloured by surprise except for the space before a word; `data-logprob` has the exact number. */
function tokenSpan(token, place) {
  const [, space, word] = token.text.match(/^(\s*)(.*)$/s);
  const parts = word === "" ? [element("span", { class: "word", text: space })] : [space, element("span", { class: "word", text: word })];
  const made = element("span", { "data-place": place, "data-id": token.id }, parts.filter((part) => part !== ""));
  dress(made, token);
  return made;
}

function dress(span, { id, logprob, given }) {
  const isScored = typeof logprob === "number";
  const heat = isScored ? HEATS.filter((from) => bitsOf(logprob) >= from).length : 0;
  const kinds = { given, end: isEnd(pieces.get(id)) };
  span.className = ["token", `heat-${heat}`, ...Object.keys(kinds).filter((kind) => kinds[kind])].join(" ");
  if (isScored) span.dataset.logprob = logprob;
  else delete span.dataset.logprob;
}
