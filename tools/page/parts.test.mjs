// Tests the display of tokens and the words about searches and draws on the page that `ember-generate explain` writes, without a browser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

const files = ["page/src/elements.js", "explain/src/page/parts.js"];
const script = files.map((file) => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8")).join("");

/** The page's functions for these tokens. */
function elements(tokens, ends = []) {
  const textContent = JSON.stringify({ tokens, end_tokens: ends });
  const globals = { document: { getElementById: () => ({ textContent }) }, matchMedia: () => ({}), TextDecoder, TextEncoder };
  return runInNewContext(`${script}; ({ textOf, textsOf, tokenText })`, globals);
}

test("a character that is spread over tokens is whole in a text, and none in a tile", () => {
  const { textOf, textsOf, tokenText } = elements({ 1: "a", 2: [0xc3], 3: [0xa9], 4: "<e>" }, [4]);
  assert.equal(textOf([1, 2, 3, 1, 4]), "aéa[end]");
  assert.deepEqual([...textsOf([[1, 2], [3, 1]])], ["a", "éa"], "it stands where its last token does");
  assert.equal(textOf([1, 2]), "a\ufffd");
  assert.equal(textOf([2, 1]), "\ufffda");
  assert.equal(textOf([]), "");
  assert.equal(tokenText(2), "\ufffd");
  assert.equal(tokenText(9), "#9");
});

test("without a tokenizer tokens are their numbers", () => {
  const { textOf, textsOf } = elements({});
  assert.equal(textOf([1, 2]), "#1 #2");
  assert.deepEqual([...textsOf([[1, 2], [3]])], ["#1 #2", "#3"]);
});

/** The page's functions about searches. */
function searches() {
  const beams = readFileSync(new URL("../../explain/src/page/beams.js", import.meta.url), "utf8");
  const document = { getElementById: () => ({ textContent: "{}" }), createElement: () => ({ setAttribute() {} }) };
  return runInNewContext(`${script}${beams}; ({ searchNotes, verdict, beamTree, greedyStory })`, { document, matchMedia: () => ({}), TextDecoder, TextEncoder });
}

test("an exact search that found nothing in its time is not one that was not asked for", () => {
  const [said, ...more] = searches().verdict({ exact: null });
  assert.deepEqual([said.textContent, more.length], ["Exact search ran out of time before it had a whole text.", 0]);
});

test("searches with a repetition penalty are not ranked by sums that are without it", () => {
  const { searchNotes } = searches();
  const found = (sum) => ({ ids: [1], logprob_sum: sum });
  const exact = { ...found(-2), proven: true, nodes: 5, max_new_tokens: 3, greedy: found(-1), beam: found(-2.5) };
  const words = (penalty) => searchNotes({ exact, num_beams: 4 }, penalty).join(" ");
  assert.match(words(1), /no other is more probable\. .*Beam search with 4 beams missed it by 0\.50 nats/);
  assert.match(words(1.2), /no other is more probable under the repetition penalty of 1\.2\. The log-probabilities are the model's own/);
  assert.doesNotMatch(words(1.2), /missed it|found/);
});

test("a greedy text that still ran when the search stopped is not said to have been lost", () => {
  const { beamTree, greedyStory } = searches();
  const step = (token) => ({ candidates: [{ parent: 0, token, score: -1, logprob: -1, fate: { fate: "goes-on", beam: 0 } }], stopped: null });
  const greedy = { ids: [1, 2, 3], logprob_sum: -4 };
  const story = (steps) => greedyStory(beamTree(steps), { greedy, steps });
  const stopped = { ...step(2), stopped: { why: "no-improvement" } };
  assert.match(story([step(1), stopped]), /still among the beams when the search stopped at step 2: no running text was expected to beat/);
  assert.match(story([step(1), step(2), step(9)]), /among the beams up to step 2; after that/);
});

test("a probability near 1 keeps its order, and a text is cut between characters", () => {
  const { percent, sliced } = runInNewContext(`${script}; ({ percent, sliced })`, { document: { getElementById: () => ({ textContent: "{}" }) },
    matchMedia: () => ({}), TextDecoder, TextEncoder });
  assert.deepEqual([0.9994, 0.9997, 0.9999, 0.99991, 1].map(percent), ["99.9%", "99.97%", "99.99%", ">99.99%", "100.0%"]);
  assert.deepEqual([sliced("a😀😀", 0, 2), sliced("a😀😀", -1)], ["a😀", "😀"]);
});

test("draws of rare tokens, which have no number, are not counted as one token", () => {
  const scripts = ["arithmetic", "steps", "knobs"].map((name) => readFileSync(new URL(`../../explain/src/page/${name}.js`, import.meta.url), "utf8"));
  const textContent = JSON.stringify({ tokens: {}, end_tokens: [], model: { vocab_size: 9000 }, run: { strategy: "greedy", knobs: {} } });
  const globals = { document: { getElementById: () => ({ textContent }) }, matchMedia: () => ({}), TextDecoder, TextEncoder };
  const { drawnWords } = runInNewContext(`${script}${scripts.join("")}; ({ drawnWords })`, globals);
  assert.equal(drawnWords(new Map([[7, 60], [3, 40]])), "2 different tokens");
  assert.equal(drawnWords(new Map([[7, 60], [null, 39], [3, 1]])), "2 different tokens, and 39 times one of the rare tokens");
  assert.equal(drawnWords(new Map([[7, 99], [null, 1]])), "1 different token, and 1 time one of the rare tokens");
});
