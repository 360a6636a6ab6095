// Tests the page's arithmetic: examples that can be followed by hand, the same as in generate/lib/src/processors, and the groups in
// which a large vocabulary's tail is stored.

import assert from "node:assert/strict";
import { test } from "node:test";
import "../../explain/src/page/arithmetic.js";

const { OFF, highest, process, shares, shareAt, summary } = globalThis.EmberArithmetic;
const NO_TAIL = { counts: [], logits: [] };
const NOTHING_SEEN = new Set();

const logits = (values) => ({ ids: values.map((_, id) => id), values, tail: NO_TAIL });
const SIX = logits([0.4, 0.3, 0.2, 0.05, 0.03, 0.02].map(Math.log));
const kept = (knobs, of = SIX, seen = NOTHING_SEEN) => {
  const made = process(of, { ...OFF, ...knobs }, seen);
  return made.ids.filter((_, entry) => made.left[entry] > 0);
};
const near = (actual, expected, tolerance = 1e-6) => {
  assert.equal(actual.length, expected.length);
  for (const [place, value] of [...actual].entries()) {
    assert.ok(Math.abs(value - expected[place]) <= tolerance, `${value} is not ${expected[place]}`);
  }
};

test("without a knob nothing changes", () => {
  const made = process(SIX, OFF, new Set([0, 1, 2]));
  near(made.after, [0.4, 0.3, 0.2, 0.05, 0.03, 0.02]);
  near(made.before, made.after, 0);
  assert.deepEqual(made.removedBy, Array(6).fill(null));
});

test("temperature squares the odds at a half, and at 0 the lowest of the best ids stays", () => {
  near(process(SIX, { ...OFF, temperature: 0.5 }, NOTHING_SEEN).after.slice(0, 2), [0.16 / 0.2938, 0.09 / 0.2938]);
  const greedy = process({ ids: [5, 3, 4], values: [2, 2, 1], tail: NO_TAIL }, { ...OFF, temperature: 0 }, NOTHING_SEEN);
  assert.deepEqual([...greedy.left], [0, 1, 0]);
  assert.deepEqual(greedy.removedBy, ["temperature", null, "temperature"]);
});

test("top-k keeps what ties with the k-th", () => {
  const ties = logits([1, 3, 2, 2, 0]);
  for (const [k, ids] of [[1, [1]], [2, [1, 2, 3]], [3, [1, 2, 3]], [4, [0, 1, 2, 3]], [9, [0, 1, 2, 3, 4]]]) {
    assert.deepEqual(kept({ top_k: k }, ties), ids, `k = ${k}`);
  }
});

test("top-p keeps the token that crosses it, and of equal ones the higher ids", () => {
  const cases = [[0.9, 3], [0.91, 4], [0.41, 2], [0.39, 1], [1e-6, 1]];
  for (const [p, count] of cases) assert.deepEqual(kept({ top_p: p }), [0, 1, 2, 3].slice(0, count), `p = ${p}`);
  assert.deepEqual(kept({ top_p: 1e-9 }), [0], "1 - p is 1 in float32: the best one stays even so");
  assert.deepEqual(kept({ top_p: 0.5 }, logits([1, 1, 1, 1])), [2, 3]);
  assert.deepEqual(kept({ top_p: 0.1 }, logits([1, 1, 1, 1])), [3]);
});

test("min-p is a share of the best one", () => {
  for (const [share, count] of [[0, 6], [0.1, 4], [0.7, 2], [0.8, 1]]) {
    assert.deepEqual(kept({ min_p: share }), [0, 1, 2, 3, 4, 5].slice(0, count), `share ${share}`);
  }
  assert.deepEqual(kept({ min_p: 1 }, logits([0, 2, 2])), [1, 2]);
});

test("the repetition penalty minds the sign", () => {
  const made = process(logits([2, 2, -1, -1]), { ...OFF, repetition_penalty: 2, temperature: 0.5 }, new Set([1, 2]));
  assert.deepEqual([...made.values], [4, 2, -4, -2]);
  assert.deepEqual(made.penalised, [false, true, true, false]);
});

test("each removal names its knob, in the order in which they run", () => {
  const { removedBy } = process(SIX, { ...OFF, top_k: 5, top_p: 0.9, min_p: 0.6 }, NOTHING_SEEN);
  assert.deepEqual(removedBy, [null, null, "min-p", "top-p", "top-p", "top-k"]);
});

test("a draw falls into shares that lie in the order of the ids", () => {
  const made = process({ ids: [7, 2, 5], values: [0.5, 0.3, 0.2].map(Math.log), tail: NO_TAIL }, OFF, NOTHING_SEEN);
  const line = shares(made);
  assert.deepEqual(line.map((share) => share.id), [2, 5, 7]);
  near(line.map((share) => share.end), [0.3, 0.5, 1]);
  for (const [uniform, id] of [[0, 2], [0.299, 2], [0.301, 5], [0.501, 7], [0.9999999, 7]]) assert.equal(shareAt(line, uniform).id, id);
});

test("the summary counts tokens, their share of the model's word, and the choices that are left", () => {
  const all = summary(process(logits([0, 0, 0, 0]), OFF, NOTHING_SEEN));
  assert.deepEqual([all.tokens, all.vocabulary], [4, 4]);
  assert.ok(Math.abs(all.choices - 4) < 1e-6 && Math.abs(all.mass - 1) < 1e-6);
  assert.ok(Math.abs(summary(process(SIX, { ...OFF, top_k: 3 }, NOTHING_SEEN)).mass - 0.9) < 1e-6);
});

/** A large vocabulary's logits, complete and as stored: the best 1000 individually, the others in groups of one 64th. */
function large() {
  let seed = 7;
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
  const values = Array.from({ length: 50257 }, () => Math.fround(2.4 * Math.sqrt(-2 * Math.log(random())) * Math.cos(2 * Math.PI * random())));
  const order = values.map((_, id) => id).sort((a, b) => values[b] - values[a] || a - b);
  const tail = { counts: [], logits: [] };
  let before = 1000;
  while (before < order.length) {
    const group = order.slice(before, before + Math.floor(before / 64)).map((id) => values[id]);
    tail.counts.push(group.length);
    tail.logits.push(Math.fround(group[0] + Math.log(group.reduce((sum, value) => sum + Math.exp(value - group[0]), 0) / group.length)));
    before += group.length;
  }
  const ids = order.slice(0, 1000);
  return { whole: logits(values), stored: { ids, values: ids.map((id) => values[id]), tail } };
}

test("the groups of a large vocabulary's tail leave every knob's arithmetic right", () => {
  const { whole, stored } = large();
  const settings = [{}, { temperature: 0.5 }, { temperature: 2 }, { top_k: 40 }, { top_k: 20000 }, { top_p: 0.5 }, { top_p: 0.95 }, { min_p: 0.05 },
    { temperature: 0 }, { repetition_penalty: 1.5, temperature: 1.2, top_p: 0.9, min_p: 0.001 }];
  const seen = new Set(stored.ids.slice(0, 5));
  for (const setting of settings) {
    const [exact, made] = [whole, stored].map((of) => process(of, { ...OFF, ...setting }, seen));
    const name = JSON.stringify(setting);
    for (const [entry, id] of stored.ids.entries()) {
      assert.ok(Math.abs(made.after[entry] - exact.after[id]) < 1e-6, `${name}: token ${id} has ${made.after[entry]}, not ${exact.after[id]}`);
      assert.equal(made.removedBy[entry], exact.removedBy[id], `${name}: token ${id}`);
    }
    const [exactly, summed] = [exact, made].map(summary);
    assert.equal(summed.vocabulary, 50257);
    assert.ok(Math.abs(summed.tokens - exactly.tokens) <= exactly.tokens / 50, `${name}: ${summed.tokens} of ${exactly.tokens} survivors`);
    assert.ok(Math.abs(summed.mass - exactly.mass) < 1e-3, `${name}: ${summed.mass} of ${exactly.mass}`);
  }
});

test("the highest of a million values is found, and of none the least", () => {
  assert.equal(highest(Array.from({ length: 1e6 }, (_, n) => n % 1000), 1), 999);
  assert.equal(highest([], 1), 1);
});
