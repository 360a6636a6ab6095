// Who made the model, and from what: the head of the page and its last section. Unknown facts are omitted.

const FAMILIES = { learned: "GPT-2", rotary: "Llama" };

/** The facts as [name, words] pairs, in the order of a reader's questions. */
function factsOf(head) {
  const { facts, config, settings } = head;
  const { by, made, program, began, texts, learned, trained, copied } = facts;
  const family = config.qk_norm ? "Qwen3" : FAMILIES[config.positions];
  return [
    ["Made by", by],
    ["Made on", made && [dateOf(made), program].filter(Boolean).join(", with ")],
    ["Began from", began],
    ["Trained on", texts && texts.map(({ name, bytes }) => (bytes ? `${name} (${size(bytes)})` : name)).join(", ")],
    ["Training text", learned && `${roughly(learned.characters ?? learned.bytes)} ${learned.characters ? "characters" : "bytes"}, or ${roughly(learned.tokens)} tokens`],
    ["Trained for", trained && `${duration(trained.seconds)}, in ${plural(trained.steps, "step")}, reading ${roughly(trained.tokens)} tokens`],
    ["How well", trained?.loss && `on text that it never saw, it is as unsure of the next token as if it chose among ${Number(Math.exp(trained.loss).toPrecision(2))} equally likely ones`],
    ["What it copies", copied && copiedWords(copied)],
    ["What it is", `${family}'s architecture: ${plural(config.n_layer, "block")} of ${plural(config.n_head, "head")}, width ${number(config.n_embd)}; a vocabulary of ${plural(config.vocab_size, "token")}, a context of ${number(config.context_length)}`],
    ["Parameters", storageWords(head)],
    ["Its settings", settingsWords(settings)],
  ].filter(([, words]) => words);
}

/** How many parameters there are, and in how many bits: biases, norms and embeddings that are only looked up keep all of theirs. */
function storageWords({ facts, weights, tensors }) {
  const sizes = tensors.filter(({ type }) => type === "f32").map(({ shape }) => shape.reduce((product, length) => product * length, 1));
  const kept = sizes.reduce((sum, one) => sum + one, 0);
  return `${number(facts.parameters)}, of which ${number(kept)} are stored in 32 bits each, the others in ${weights === "int8" ? "8" : "16"}`;
}

/** The knobs as its maker left them. */
function settingsWords({ temperature, top_p: topP, top_k: topK }) {
  if (temperature === 0) return "always the most probable token";
  return [`temperature ${temperature}`, topK > 0 && `top-k ${topK}`, topP < 1 && `top-p ${topP}`].filter(Boolean).join(", ");
}

/** How much of its output is copied from its training text; for comparison, the same for unseen text, which shares phrases too. */
function copiedWords({ share, min_chars: least, characters, unseen_share: unseen }) {
  const beside = unseen === null || unseen === undefined ? "" : `; of validation text that it never saw, ${percent(unseen)}`;
  return `${percent(share)} of ${number(characters)} characters that it wrote are copied word for word from its training text, in spans of ${least} characters or more${beside}`;
}

/** A day in words, whatever the reader's time zone: 22 November 2026. */
function dateOf(day) {
  return new Date(`${day}T12:00:00Z`).toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
}

/** What it learned from: a model that was trained further also knows the text of the one that it began from. */
const learnedWords = ({ began }) => (began ? "It learned this from its training text, and from that of the model that it began from."
  : "It learned this from its training text alone.");

function showFacts(head) {
  const { title, parameters, by, learned } = head.facts;
  byId("title").textContent = title;
  byId("learned").textContent = learnedWords(head.facts);
  const training = (learned ? ` on ${size(learned.bytes)} of text` : "") + (by ? ` by ${by}` : "");
  byId("lead").textContent = `${roughly(parameters)} parameters${training && `, trained${training}`}. The model and the program that runs it are in this page: nothing that you type leaves it.`;
  byId("facts").append(...factsOf(head).flatMap(([name, words]) => [element("dt", { text: name }), element("dd", { text: words })]));
}
