// Numbers as the program has them: bfloat16, float32, whole numbers of a few bits. The first of the scripts, which are joined
// into one for the page and for its worker: its strictness is that of all.

"use strict";

const f32 = Math.fround;

/** bfloat16, the upper half of a float32, as float32. */
function widened(halves) {
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < bits.length; i++) bits[i] = halves[i] << 16;
  return new Float32Array(bits.buffer);
}

/** From 2^52 on a number has no room for a fraction: added and taken away again, this rounds, ties to the even neighbour. */
const NO_FRACTIONS = 1.5 * 2 ** 52;
const nearest = (x) => x + NO_FRACTIONS - NO_FRACTIONS;

/** The place of the largest value; of equal ones the first. */
function placeOfLargest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** e to the power of each value, the largest of which becomes 1: what probabilities are shares of. Rounded to float32. */
function weightsOf(values) {
  const largest = values[placeOfLargest(values)];
  return values.map((value) => Math.exp(f32(value - largest)));
}

/** The softmax in float32, its sum in float64. */
function softmax(logits) {
  const weights = weightsOf(logits);
  const total = f32(weights.reduce((sum, weight) => sum + weight, 0));
  return weights.map((weight) => weight / total);
}
