// Writing: the ids of a text go through the model, and one token after another is chosen and told. Runs in the worker, and gives
// way between tokens, so that a page can ask it to stop.

/** Tokens that are told at each place. */
const TOLD = 10;

/** Milliseconds after which the worker listens for what it was sent. */
const LISTEN = 30;

/**
 * The logits after `ids`; null when `pause`, which is waited for between tokens, says to stop. What the cache has of the window stays,
 * so that going on, or another text that begins alike, reads only what is new. Throws where a logit is no finite number.
 */
async function logitsAfter(model, ids, settings, pause) {
  const window = windowOf(ids, model.config.context_length, settings);
  truncate(model, commonLength(model.read, window.slice(0, -1)));
  let stream = null;
  while (model.read.length < window.length) {
    if (await pause()) return null;
    stream = readToken(model, window[model.read.length]);
  }
  const logits = logitsOf(model, stream);
  if (!logits.every(Number.isFinite)) throw new Error("What this model computes is no number any more: its weights are damaged, or its training diverged.");
  return logits;
}

/**
 * What the model looks back on. Past the context it slides by a token, as in ember-generate: each then has another place, and all of
 * it is read again. By half a context at once is another text, in a fraction of the time.
 */
function windowOf(ids, context, { byHalves = false }) {
  const [beyond, stride] = [Math.max(0, ids.length - context), byHalves ? Math.ceil(context / 2) : 1];
  return ids.slice(Math.ceil(beyond / stride) * stride);
}

function commonLength(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}

/**
 * Goes on after `prompt` and the ids `written` after it, by `count` tokens at most, and tells each: `{id, text, end, p, top, slides}`,
 * in which `p` is its probability to the model, `top` what was likeliest, and `slides` whether the text is now longer than what the
 * model can look back on. The first may be `taken`: picked by the reader, and not by the model. A draw is named by its place after
 * the prompt, so that a text that is gone on with is the one that would have been written at once. Resolves to why it ended, and to
 * what is left of a character that never became whole.
 */
async function write({ model, tokenizer, endTokens }, { prompt, written, taken = null, settings, count }, tell, pause) {
  const ids = [...promptIds(tokenizer, prompt), ...written];
  const join = joiner(tokenizer);
  const slides = () => ids.length > model.config.context_length;
  const ended = (reason) => ({ reason, rest: join.finish(), slides: slides() });
  written.forEach(join.push);
  for (let step = written.length; step < written.length + count; step++) {
    const logits = await logitsAfter(model, ids, settings, pause);
    if (!logits) return ended("stopped");
    const left = chooseFrom(logits, settings);
    const id = step === written.length && taken !== null ? taken : chosen(left, settings, step);
    const end = endTokens.includes(id);
    ids.push(id);
    tell({ id, text: end ? "" : join.push(id), end, p: softmax(logits)[id], top: named(tokenizer, likeliest(logits, left, TOLD, id)), slides: slides() });
    if (end) return ended("end");
  }
  return ended("length");
}

/** The best of what is left, or a draw. */
function chosen(left, { temperature, seed }, step) {
  return temperature === 0 ? placeOfLargest(left) : drawn(softmax(left), uniform(seed, step));
}

/** What is likeliest to come after a text; null when it was stopped. */
async function lookAhead({ model, tokenizer }, { prompt, written, settings }, pause) {
  const logits = await logitsAfter(model, [...promptIds(tokenizer, prompt), ...written], settings, pause);
  return logits && named(tokenizer, likeliest(logits, chooseFrom(logits, settings), TOLD));
}

const named = (tokenizer, top) => top.map((one) => ({ ...one, text: tokenText(tokenizer, one.id) }));

/** Gives way when the last time is a while ago; then says whether to stop. */
function pauseUntil(isStopped) {
  let last = performance.now();
  return async () => {
    if (performance.now() - last > LISTEN) {
      await new Promise((go) => { setTimeout(go); });
      last = performance.now();
    }
    return isStopped();
  };
}

/** What writing needs, made of the page's two parts. */
function newWriter(head, buffer) {
  return { model: newModel(head.config, tensorsOf(head.tensors, buffer)), tokenizer: newTokenizer(head.tokenizer), endTokens: head.end_tokens };
}
