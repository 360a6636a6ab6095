// Matrix-vector products, which take nearly all the time. In 8 bits they use the program's arithmetic
// (kernels/src/packed/int8.rs): GROUP weights of an output share a scale, as many inputs are rounded to 16 bits, their products
// are summed in integers, and the sums of groups are added in float32. The other types sum in float64, which is closer to the
// exact result than any order of float32 sums.

/** Weights of an output that share a scale. */
const GROUP = 32;

/** Outputs computed together, so that an input is read once for all of them; 8-bit matrices are padded to a multiple of it. */
const TOGETHER = 4;

const upTo = (multiple, n) => Math.ceil(n / multiple) * multiple;

/** A matrix `[outputs, inputs]` that begins at `at` in `buffer`. */
function readMatrix(buffer, at, type, [outputs, inputs]) {
  const matrix = { outputs, inputs, room: outputs };
  if (type === "f32") return { ...matrix, values: new Float32Array(buffer, at, outputs * inputs) };
  if (type === "bf16") return { ...matrix, values: widened(new Uint16Array(buffer, at, outputs * inputs)) };
  const [room, groups] = [upTo(TOGETHER, outputs), Math.ceil(inputs / GROUP)];
  const weights = new Int8Array(buffer, at, room * groups * GROUP);
  const scales = widened(new Uint16Array(buffer, at + weights.length, room * groups));
  return { ...matrix, room, groups, weights, scales };
}

/** The weights of one output; in an embedding, the vector of an id. */
function outputOf({ inputs, values, weights, scales, groups }, output) {
  if (values) return values.subarray(output * inputs, (output + 1) * inputs);
  const vector = new Float32Array(inputs);
  for (let i = 0; i < inputs; i++) {
    vector[i] = weights[output * groups * GROUP + i] * scales[output * groups + Math.floor(i / GROUP)];
  }
  return vector;
}

/** `W x` as a new vector of `outputs` values; padding up to `room` is cut off. */
function product(matrix, x) {
  const y = new Float32Array(matrix.room);
  if (matrix.values) productOfFloats(matrix, new Float64Array(x), y);
  else productOfBytes(matrix, roundedInputs(x, matrix.groups), y);
  return matrix.room === matrix.outputs ? y : y.subarray(0, matrix.outputs);
}

/** Four independent sums: with a single one, each addition would wait for the one before. */
function productOfFloats({ values, outputs, inputs }, x, y) {
  const whole = inputs - inputs % 4;
  for (let output = 0, at = 0; output < outputs; output++) {
    let a = 0, b = 0, c = 0, d = 0, i = 0;
    for (; i < whole; i += 4, at += 4) {
      a += values[at] * x[i];
      b += values[at + 1] * x[i + 1];
      c += values[at + 2] * x[i + 2];
      d += values[at + 3] * x[i + 3];
    }
    for (; i < inputs; i++, at++) a += values[at] * x[i];
    y[output] = a + b + (c + d);
  }
}

/** Quantizes a vector to integers from -32,767 to 32,767, with a scale per group. */
function roundedInputs(x, groups) {
  const values = new Int32Array(groups * GROUP);
  const scales = new Float32Array(groups);
  for (let group = 0; group < groups; group++) {
    const [begin, end] = [group * GROUP, Math.min((group + 1) * GROUP, x.length)];
    let largest = 0;
    for (let i = begin; i < end; i++) largest = Math.max(largest, Math.abs(x[i]));
    if (largest === 0) continue;
    scales[group] = largest / 32767;
    const inverse = f32(32767 / largest);
    for (let i = begin; i < end; i++) values[i] = Math.max(-32767, Math.min(32767, nearest(f32(x[i] * inverse))));
  }
  return { values, scales };
}

/** A group's sum stays below 2^27, so it fits in a 32-bit integer. */
function productOfBytes({ weights, scales, groups, room }, { values: x, scales: xScales }, y) {
  const inputs = groups * GROUP;
  const [second, third, fourth] = [inputs, 2 * inputs, 3 * inputs];
  for (let output = 0; output < room; output += TOGETHER) {
    let at = output * inputs;
    let scale = output * groups;
    let sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
    for (let group = 0, i = 0; group < groups; group++, scale++) {
      let a = 0, b = 0, c = 0, d = 0;
      for (const end = i + GROUP; i < end; i++, at++) {
        const value = x[i];
        a = (a + Math.imul(weights[at], value)) | 0;
        b = (b + Math.imul(weights[at + second], value)) | 0;
        c = (c + Math.imul(weights[at + third], value)) | 0;
        d = (d + Math.imul(weights[at + fourth], value)) | 0;
      }
      const xScale = xScales[group];
      sum0 = f32(f32(scales[scale] * xScale) * f32(a) + sum0);
      sum1 = f32(f32(scales[scale + groups] * xScale) * f32(b) + sum1);
      sum2 = f32(f32(scales[scale + 2 * groups] * xScale) * f32(c) + sum2);
      sum3 = f32(f32(scales[scale + 3 * groups] * xScale) * f32(d) + sum3);
    }
    y[output] = sum0;
    y[output + 1] = sum1;
    y[output + 2] = sum2;
    y[output + 3] = sum3;
  }
}
