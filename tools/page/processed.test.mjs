// Compares the page's arithmetic with ember-generate's, for every step of every run in settings.txt: the remaining tokens, their
// probabilities to 1e-6, and the position of the draw.

import assert from "node:assert/strict";
import { test } from "node:test";
import "../../explain/src/page/arithmetic.js";
import { knobsOf, missing, modelsWord, read, SETTINGS } from "./program.mjs";

const { process, shares, shareAt } = globalThis.EmberArithmetic;

for (const { name, flags } of SETTINGS) {
  test(`${name}: ${flags}`, { skip: missing }, () => {
    const explained = read(`${name}.json`);
    const knobs = knobsOf(explained);
    const greedy = explained.run.strategy === "greedy";
    assert.equal(explained.steps.length, explained.run.ids.length);
    assert.ok(explained.steps.length > 0);
    for (const [step, { logits, processed, chosen, draw, interval, logprob }] of explained.steps.entries()) {
      const seen = new Set([...explained.prompt.ids, ...explained.run.ids.slice(0, step)]);
      // Greedy picks the best of the program's remaining tokens; temperature 0 on the page leaves only the best.
      const made = process(logits, greedy ? { ...knobs, temperature: 1 } : knobs, seen);
      const where = `step ${step}`;

      const survivors = made.left.reduce((sum, left) => sum + left, 0);
      assert.ok(Math.abs(survivors - processed.survivors) <= (logits.tail.counts.length > 0 ? processed.survivors / 50 : 0),
        `${where}: ${survivors} survivors, not ${processed.survivors}`);
      for (const [rank, id] of processed.ids.entries()) {
        const after = made.after[made.ids.indexOf(id)];
        assert.ok(Math.abs(after - processed.probabilities[rank]) < 1e-6, `${where}: token ${id} has ${after}, not ${processed.probabilities[rank]}`);
      }
      const least = processed.probabilities[processed.probabilities.length - 1];
      const better = made.ids.filter((id, entry) => id !== null && made.after[entry] > least + 1e-6);
      assert.deepEqual(better.filter((id) => !processed.ids.includes(id)), [], `${where}: no others are as probable`);

      const word = modelsWord(logits);
      assert.ok(Math.abs(made.before[made.ids.indexOf(chosen)] - Math.exp(logprob)) < 1e-6, `${where}: the model's word on the pick`);
      assert.ok(Math.abs(word.get(chosen) - Math.exp(logprob)) < 1e-6, `${where}: the stored logits`);

      const line = shares(made);
      assert.equal(draw === null, greedy);
      if (greedy) {
        assert.deepEqual(shares(process(logits, knobs, seen)).map((share) => share.id), [chosen], `${where}: temperature 0`);
      } else if (line.every((share) => share.id !== null)) {
        const share = shareAt(line, draw);
        assert.equal(share.id, chosen, `${where}: whom the draw falls to`);
        assert.ok(Math.abs(share.start - interval[0]) < 1e-6 && Math.abs(share.end - interval[1]) < 1e-6, `${where}: its share`);
      }
    }
  });
}
