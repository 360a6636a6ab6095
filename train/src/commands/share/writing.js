// Generation: runs a text's ids through the model, then chooses and reports one token after another. Runs in the worker, and
// yields between tokens, so that the page can stop it.

/** Most probable tokens reported at each position. */
const TOLD = 10;

/** Milliseconds between checks for new messages. */
const LISTEN = 30;

/** The logits after `ids`; null if `pause`, awaited between tokens, says to stop. The cache keeps the window's common prefix, so
 * that continuing, or another text with the same beginning, processes only new tokens. Throws if a logit is not finite. */
async function logitsAfter(model, ids, settings, pause) {
  const window = windowOf(ids, model.config.context_length, settings);
  truncate(model, commonLength(model.read, window.slice(0, -1)));
  let stream = null;
  while (model.read.length < window.length) {
    if (await pause()) return null;
    stream = readToken(model, window[model.read.length]);
  }
  const logits = logitsOf(model, stream);
  if (!logits.every(Number.isFinite)) throw new Error("The model's output is not a number: its weights are damaged, or its training diverged.");
  return logits;
}

/** The context window. Past the context length it slides by a token, as in ember-generate: all positions change, and the whole
 * window is processed again. Sliding by half a context gives a different text in a fraction of the time. */
function windowOf(ids, context, { byHalves = false }) {
  const [beyond, stride] = [Math.max(0, ids.length - context), byHalves ? Math.ceil(context / 2) : 1];
  return ids.slice(Math.ceil(beyond / stride) * stride);
}

function commonLength(a, b) {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}

/** Continues `prompt` and the ids `written` after it by at most `count` tokens, and reports each: `{id, text, end, p, top,
 * slides}`, where `p` is its probability under the model, `top` the most probable tokens, and `slides` whether the text is now
 * longer than the context. The first token may be `taken`: picked by the reader. A draw depends on its position after the
 * prompt, so that a continued text equals one generated in one go. Resolves to the reason for the end, and the rest of an
 * incomplete character. */
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

/** The best remaining token, or a draw. */
function chosen(left, { temperature, seed }, step) {
  return temperature === 0 ? placeOfLargest(left) : drawn(softmax(left), uniform(seed, step));
}

/** The most probable next tokens after a text; null if stopped. */
async function lookAhead({ model, tokenizer }, { prompt, written, settings }, pause) {
  const logits = await logitsAfter(model, [...promptIds(tokenizer, prompt), ...written], settings, pause);
  return logits && named(tokenizer, likeliest(logits, chooseFrom(logits, settings), TOLD));
}

const named = (tokenizer, top) => top.map((one) => ({ ...one, text: tokenText(tokenizer, one.id) }));

/** A function that yields to the event loop every LISTEN milliseconds, and returns whether to stop. */
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

/** The model, tokenizer and end tokens, from the page's two parts. */
function newWriter(head, buffer) {
  return { model: newModel(head.config, tensorsOf(head.tensors, buffer)), tokenizer: newTokenizer(head.tokenizer), endTokens: head.end_tokens };
}
