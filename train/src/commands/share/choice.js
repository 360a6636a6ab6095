// Choosing the next token: the knobs and the draw. Order and rules are those of ember-generate (docs/decoding.md): temperature,
// then top-k, then top-p.

const IMPOSSIBLE = -Infinity;

/** The logits after the knobs; removed ones are -Infinity. Temperature 0 keeps only the best, top-k 0 and top-p 1 keep all. */
function chooseFrom(logits, { temperature, topK, topP }) {
  if (temperature === 0) return bestAlone(logits);
  const left = logits.map((logit) => logit / f32(temperature));
  if (topK > 0 && topK < left.length) keepBest(left, topK);
  if (topP < 1) keepMass(left, topP);
  return left;
}

function bestAlone(logits) {
  const best = placeOfLargest(logits);
  return logits.map((logit, id) => (id === best ? logit : IMPOSSIBLE));
}

/** Keeps the k highest logits, and ties with the k-th. */
function keepBest(logits, k) {
  const least = logits.slice().sort().at(-k);
  for (let id = 0; id < logits.length; id++) if (logits[id] < least) logits[id] = IMPOSSIBLE;
}

/** Removes tokens from the least probable up while their total probability is at most 1 - p; of equals the lower ids first. The
 * best always stays. Logits are sorted, not ids: a vocabulary can be large, and only the threshold is needed. */
function keepMass(logits, p) {
  const sorted = logits.filter((logit) => logit > IMPOSSIBLE).sort();
  const probabilities = softmax(sorted);
  let [gone, place] = [0, 0];
  for (; place < sorted.length - 1; place++) {
    gone += probabilities[place];
    if (f32(gone) > f32(1 - p)) break;
  }
  const least = sorted[place];
  let equals = place - sorted.indexOf(least);
  for (let id = 0; id < logits.length; id++) {
    if (logits[id] < least || (logits[id] === least && equals-- > 0)) logits[id] = IMPOSSIBLE;
  }
}

/** The id whose share of the unit interval contains `number`; shares are in the order of ids. */
function drawn(probabilities, number) {
  const wanted = number * probabilities.reduce((sum, p) => sum + p, 0);
  let [below, last] = [0, 0];
  for (let id = 0; id < probabilities.length; id++) {
    if (probabilities[id] === 0) continue;
    last = id;
    below += probabilities[id];
    if (wanted < below) break;
  }
  return last;
}

/** The most probable ids, and `more` if it is not among them, with their probabilities under the model alone and after the
 * knobs. */
function likeliest(logits, left, count, more = null) {
  const [before, after] = [softmax(logits), softmax(left)];
  const best = [];
  for (let id = 0; id < before.length; id++) {
    if (best.length === count && before[id] <= before[best.at(-1)]) continue;
    const place = best.findIndex((other) => before[other] < before[id]);
    best.splice(place < 0 ? best.length : place, 0, id);
    if (best.length > count) best.pop();
  }
  if (more !== null && !best.includes(more)) best.push(more);
  return best.map((id) => ({ id, before: before[id], after: after[id] }));
}
