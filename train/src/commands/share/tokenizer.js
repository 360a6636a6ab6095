// Tokenizers read from a `tokenizer.json`: characters, bytes, and GPT-2's byte-level byte pair encoding. Names of special tokens
// in a text are parsed as these tokens, as in ember-generate. Everything else in a tokenizer.json is refused when the page is made
// (share.rs).

/** GPT-2's pre-tokenizer: bytes are merged only within these words. Uses Unicode's white space, from which `\s` differs. */
const WORDS = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

const END_OF_TEXT = "<|endoftext|>";

const utf8 = new TextEncoder();

/** The characters that represent bytes: printable Latin-1 represents itself, the other 68 bytes map to U+0100 on. */
const BYTE_CHARACTERS = (() => {
  let next = 0x100;
  const isItself = (byte) => (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isItself(byte) ? byte : next++));
})();
const BYTE_OF = new Map(BYTE_CHARACTERS.map((character, byte) => [character, byte]));

const written = (text) => Array.from(utf8.encode(text), (byte) => BYTE_CHARACTERS[byte]);

/** A tokenizer; `before` are the ids put before every text, `opening` is the id that starts a new text, or null. */
function newTokenizer({ json, before, opening }) {
  const { model, pre_tokenizer: split, added_tokens: added } = json;
  const vocabulary = new Map(Object.entries(model.vocab));
  const special = new Map(added.map(({ content, id }) => [content, id]));
  const isCharacters = model.type === "WordLevel";
  const encode = isCharacters ? (text) => characters(text, vocabulary) : bytePairs(model, vocabulary, split.use_regex);
  const bytes = isCharacters ? (token) => utf8.encode(token) : bytesOfWritten;
  const tokens = new Map([...vocabulary].map(([token, id]) => [id, bytes(token)]));
  for (const [name, id] of special) tokens.set(id, utf8.encode(name));
  return { before, opening, special, encode, tokens };
}

/** The bytes of a token in byte characters; a token with any other character is its UTF-8. */
function bytesOfWritten(token) {
  const bytes = Array.from(token, (character) => BYTE_OF.get(character));
  return bytes.includes(undefined) ? utf8.encode(token) : Uint8Array.from(bytes);
}

/** The ids of a prompt; an empty one starts a new text. */
function promptIds(tokenizer, text) {
  const { before, opening, special } = tokenizer;
  const isBegun = before.length === 1 && before[0] === special.get(END_OF_TEXT) && text.startsWith(END_OF_TEXT); // no second one
  const ids = [...(isBegun ? [] : before), ...textIds(tokenizer, text)];
  if (ids.length > 0) return ids;
  if (opening === null) throw new Error("Type at least one character: this model cannot begin by itself.");
  return [opening];
}

/** The ids of a text alone. */
function textIds({ special, encode }, text) {
  return partsOf(text, special).flatMap((part) => (special.has(part) ? [special.get(part)] : encode(part)));
}

/** Splits a text at the names of special tokens; if one name is a prefix of another, the longer one wins. */
function partsOf(text, special) {
  const longestFirst = [...special.keys()].filter((name) => name !== "").sort((a, b) => b.length - a.length);
  if (longestFirst.length === 0) return [text];
  const names = longestFirst.map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
  return text.split(new RegExp(`(${names.join("|")})`, "u")).filter((part) => part !== "");
}

function characters(text, vocabulary) {
  return Array.from(text, (character) => {
    const id = vocabulary.get(character);
    if (id === undefined) throw new Error(`This model does not know the character ${JSON.stringify(character)}: it is not among the ${vocabulary.size} of its training text.`);
    return id;
  });
}

/** A byte pair encoder within words; without merges it encodes single bytes. A byte without a token is dropped, and its
 * neighbours are merged as if adjacent. */
function bytePairs({ merges, ignore_merges: wholeWords }, vocabulary, splits) {
  const pair = (merge) => (Array.isArray(merge) ? merge : merge.split(" "));
  const ranks = new Map(merges.map((merge, rank) => [pair(merge).join(" "), rank]));
  const known = new Map();
  const wordIds = (word) => {
    const letters = written(word);
    const whole = wholeWords ? vocabulary.get(letters.join("")) : undefined;
    if (whole !== undefined) return [whole];
    return merged(letters.filter((letter) => vocabulary.has(letter)), ranks).map((piece) => vocabulary.get(piece));
  };
  const remembered = (word) => {
    if (word.length > MAX_KNOWN) return wordIds(word);
    if (!known.has(word)) known.set(word, wordIds(word));
    return known.get(word);
  };
  return (text) => (splits ? text.match(WORDS) ?? [] : [text]).flatMap(remembered);
}

/** Longest word whose tokens are remembered, in characters: where words are not split, each text that was typed is a new one. */
const MAX_KNOWN = 64;

/** Merges the leftmost pair of lowest rank, until no known pair is left. A word can be as long as the text, so the pairs are in a
 * heap, and the pieces in a linked list: a merged piece is at the place of its first half, and that of the second is empty. */
function merged(letters, ranks) {
  const pieces = [...letters];
  const count = pieces.length;
  const next = pieces.map((_, place) => place + 1);
  const before = pieces.map((_, place) => place - 1);
  const rankAt = (place) => (place >= 0 && next[place] < count ? ranks.get(`${pieces[place]} ${pieces[next[place]]}`) : undefined);
  const pairs = []; // numbers that sort by rank, then by place
  const addPair = (place) => {
    const rank = rankAt(place);
    if (rank !== undefined) pushLeast(pairs, rank * count + place);
  };
  pieces.forEach((_, place) => addPair(place));
  while (pairs.length > 0) {
    const least = popLeast(pairs);
    const place = least % count;
    if (rankAt(place) !== (least - place) / count) continue; // one of the two was merged meanwhile
    const second = next[place];
    pieces[place] += pieces[second];
    next[place] = next[second];
    [pieces[second], next[second]] = ["", count]; // nothing follows it, so it is in no pair
    if (next[place] < count) before[next[place]] = place;
    addPair(before[place]);
    addPair(place);
  }
  return pieces.filter((piece) => piece !== "");
}

/** A decoder for consecutive tokens: a character spread over several tokens is returned with the last of them. */
function joiner({ tokens }) {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return {
    push: (id) => decoder.decode(tokens.get(id) ?? utf8.encode("\ufffd"), { stream: true }),
    finish: () => decoder.decode(),
  };
}

/** A single token as text. */
const tokenText = ({ tokens }, id) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(tokens.get(id) ?? utf8.encode("\ufffd"));
