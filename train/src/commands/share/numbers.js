// Number formats of the program: bfloat16, float32, small integers. The first of the scripts, which are joined into one for the
// page and for its worker, so its "use strict" applies to all.

"use strict";

const f32 = Math.fround;

/** Converts bfloat16, the upper half of a float32, to float32. */
function widened(halves) {
  const bits = new Uint32Array(halves.length);
  for (let i = 0; i < bits.length; i++) bits[i] = halves[i] << 16;
  return new Float32Array(bits.buffer);
}

/** From 2^52 on a float64 has no fraction bits: adding this and subtracting it again rounds, ties to even. */
const NO_FRACTIONS = 1.5 * 2 ** 52;
const nearest = (x) => x + NO_FRACTIONS - NO_FRACTIONS;

/** The index of the largest value; of equal ones the first. */
function placeOfLargest(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** Unnormalized softmax weights: e to the power of each value minus the largest, which becomes 1. Rounded to float32. */
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
