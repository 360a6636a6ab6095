// The transformer, one token at a time: GPT-2, Llama or Qwen3, by the configuration. It computes the same as model/src/gpt.rs,
// with the same names of tensors and configuration keys.

/** A model with an empty cache: `read` are the ids in its cache. `tensor` returns a tensor by its name. */
function newModel(config, tensor) {
  const wte = tensor("wte.weight");
  const parts = {
    config, wte, wpe: tensor("wpe.weight"),
    layers: Array.from({ length: config.n_layer }, (_, i) => layerOf((name) => tensor(`h.${i}.${name}`))),
    final: normOf(tensor, "ln_f"),
    head: tensor("lm_head.weight") ?? wte,
    rotary: config.positions === "rotary" ? frequenciesOf(config) : null,
  };
  return { config, parts, read: [] };
}

const normOf = (tensor, name) => ({ weight: tensor(`${name}.weight`), bias: tensor(`${name}.bias`) });
const linearOf = (tensor, name) => ({ matrix: tensor(`${name}.weight`), bias: tensor(`${name}.bias`) });

function layerOf(tensor) {
  return {
    before: normOf(tensor, "ln_1"), project: linearOf(tensor, "attn.c_attn"), mix: linearOf(tensor, "attn.c_proj"),
    query: tensor("attn.q_norm.weight"), key: tensor("attn.k_norm.weight"),
    between: normOf(tensor, "ln_2"), widen: linearOf(tensor, "mlp.c_fc"), narrow: linearOf(tensor, "mlp.c_proj"),
    keys: new Float32Array(0), values: new Float32Array(0),
  };
}

/** Truncates the cache to its first `length` tokens. */
function truncate({ read }, length) {
  read.length = Math.min(read.length, length);
}

/** Processes one more token and returns its final residual stream. The cache grows by the token. */
function readToken(model, id) {
  const { config, parts, read } = model;
  const position = read.length;
  const x = outputOf(parts.wte, id).slice();
  if (parts.wpe) addTo(x, outputOf(parts.wpe, position));
  const turn = parts.rotary && anglesAt(position, parts.rotary);
  for (const layer of parts.layers) {
    addTo(x, attention(layer, normalised(x, layer.before, config), turn, position, config));
    addTo(x, mlp(layer, normalised(x, layer.between, config), config));
  }
  read.push(id);
  return x;
}

/** The logits of the next token, from a residual stream. */
const logitsOf = ({ config, parts }, x) => product(parts.head, normalised(x, parts.final, config));

function addTo(sum, part) {
  for (let i = 0; i < sum.length; i++) sum[i] += part[i];
}

function linear({ matrix, bias }, x) {
  const y = product(matrix, x);
  if (bias) addTo(y, bias);
  return y;
}

// Norms

function normalised(x, { weight, bias }, { norm, norm_epsilon }) {
  const y = new Float32Array(x.length);
  if (norm === "rmsnorm") scaleToUnit(x, weight, norm_epsilon, y);
  else centre(x, weight, bias, norm_epsilon, y);
  return y;
}

/** RMSNorm; `y` may be the same array as `x`. */
function scaleToUnit(x, weight, epsilon, y) {
  let squares = 0;
  for (const value of x) squares += value * value;
  const scale = 1 / Math.sqrt(squares / x.length + epsilon);
  for (let i = 0; i < x.length; i++) y[i] = x[i] * scale * weight[i];
}

/** LayerNorm; a model without biases has no shift. */
function centre(x, weight, bias, epsilon, y) {
  let [sum, squares] = [0, 0];
  for (const value of x) sum += value;
  const mean = sum / x.length;
  for (const value of x) squares += (value - mean) ** 2;
  const scale = 1 / Math.sqrt(squares / x.length + epsilon);
  for (let i = 0; i < x.length; i++) y[i] = (x[i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
}

// Rotary positions

/** The rotation frequency of each pair of a head's values; in float32, as in the program. */
function frequenciesOf({ head_size, rope_theta }) {
  const frequency = (i) => f32(1 / f32(f32(rope_theta) ** f32(2 * i / head_size)));
  return Float32Array.from({ length: head_size / 2 }, (_, i) => frequency(i));
}

function anglesAt(position, frequencies) {
  const angles = frequencies.map((frequency) => position * frequency);
  return { cos: angles.map(Math.cos), sin: angles.map(Math.sin) };
}

/** Rotates the heads in place: each value of a head's first half with its counterpart in the second. */
function turnHeads(heads, { cos, sin }) {
  const half = cos.length;
  for (let head = 0; head < heads.length; head += 2 * half) {
    for (let i = head; i < head + half; i++) {
      const [a, b, c, s] = [heads[i], heads[i + half], cos[i - head], sin[i - head]];
      heads[i] = a * c - b * s;
      heads[i + half] = b * c + a * s;
    }
  }
}

// Attention

/** Causal attention of one position to itself and those before it. */
function attention(layer, x, turn, position, config) {
  const { n_head, n_kv_head, head_size, norm_epsilon } = config;
  const [queryWidth, keyWidth] = [n_head * head_size, n_kv_head * head_size];
  const all = linear(layer.project, x);
  const queries = all.subarray(0, queryWidth);
  const keys = all.subarray(queryWidth, queryWidth + keyWidth);
  if (layer.query) normaliseHeads(queries, layer.query, norm_epsilon);
  if (layer.key) normaliseHeads(keys, layer.key, norm_epsilon);
  if (turn) turnHeads(all.subarray(0, queryWidth + keyWidth), turn);
  layer.keys = kept(layer.keys, keys, position);
  layer.values = kept(layer.values, all.subarray(queryWidth + keyWidth), position);
  const y = new Float32Array(queryWidth);
  for (let head = 0; head < n_head; head++) {
    const from = Math.floor(head / (n_head / n_kv_head)) * head_size;
    const part = [head * head_size, (head + 1) * head_size];
    attend(queries.subarray(...part), layer, { from, width: keyWidth, count: position + 1 }, y.subarray(...part));
  }
  return linear(layer.mix, y);
}

function normaliseHeads(heads, weight, epsilon) {
  for (let at = 0; at < heads.length; at += weight.length) {
    const head = heads.subarray(at, at + weight.length);
    scaleToUnit(head, weight, epsilon, head);
  }
}

/** The cache with a row written at a position; its size doubles if it was full. */
function kept(cache, row, position) {
  const at = position * row.length;
  let grown = cache;
  if (at + row.length > cache.length) {
    grown = new Float32Array(Math.max(2 * cache.length, 64 * row.length));
    grown.set(cache);
  }
  grown.set(row, at);
  return grown;
}

/** One head's query over the first `count` positions; its keys and values begin at `from` in rows of `width`. */
function attend(query, { keys, values }, { from, width, count }, y) {
  const scores = new Float64Array(count);
  for (let position = 0; position < count; position++) {
    const at = position * width + from;
    let score = 0;
    for (let i = 0; i < query.length; i++) score += query[i] * keys[at + i];
    scores[position] = score / Math.sqrt(query.length);
  }
  const weights = weightsOf(scores);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const sums = new Float64Array(query.length);
  for (let position = 0; position < count; position++) {
    const at = position * width + from;
    const weight = weights[position] / total;
    for (let i = 0; i < sums.length; i++) sums[i] += weight * values[at + i];
  }
  y.set(sums);
}

// The MLP

function mlp({ widen, narrow }, x, config) {
  return linear(narrow, ACTIVATIONS[config.mlp](linear(widen, x)));
}

const ACTIVATIONS = { gelu: (hidden) => hidden.map(gelu), "exact-gelu": (hidden) => hidden.map(exactGelu), swiglu: gated };

/** GPT-2's GELU in its tanh approximation, written with a sigmoid. */
const gelu = (x) => x / (1 + Math.exp(-1.595769 * x * (0.044715 * x * x + 1)));

/** GELU with the error function, as in nanoGPT. */
const exactGelu = (x) => x / 2 * (1 + erf(x * Math.SQRT1_2));

/** The error function, by the series with terms of one sign (Abramowitz and Stegun, 7.1.6); from 6 on it is 1 to the last bit. */
function erf(x) {
  if (Math.abs(x) > 6) return Math.sign(x);
  let [term, sum] = [x, x];
  for (let n = 3; Math.abs(term) > 1e-17 * Math.abs(sum); n += 2) {
    term *= 2 * x * x / n;
    sum += term;
  }
  return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
}

/** SwiGLU: the first half, through SiLU, gates the second. */
function gated(both) {
  const half = both.length / 2;
  const y = new Float32Array(half);
  for (let i = 0; i < half; i++) y[i] = both[i] / (1 + Math.exp(-both[i])) * both[half + i];
  return y;
}
