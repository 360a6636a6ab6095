// Tests the page that contains a model: its engine against ember-generate, and the page in headless Chromium.
//
// EMBER_TRAIN and EMBER_GENERATE are the programs, EMBER_SHARE_RUNS a folder of runs made by share-runs.mjs, EMBER_BROWSER a Chromium;
// tests whose part is missing are skipped with a note.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { engine, generated, missing, open, runNames, sameTokens, written } from "./share-engine.mjs";

const WEIGHTS = ["int8", "bf16"];
const GREEDY = { temperature: 0, topK: 0, topP: 1, seed: 0 };
const PROMPTS = ["the cat", "s", "under bright morning light while"];

for (const run of runNames) {
  for (const weights of WEIGHTS) {
    test(`${run} in ${weights}: greedy text is the program's, past the context's end too`, { skip: missing }, async () => {
      const writer = open(run, weights);
      const theirs = generated(run, weights, PROMPTS, ["--strategy", "greedy", "--max-new-tokens", "64"]);
      for (const [place, prompt] of PROMPTS.entries()) {
        const ours = await written(writer, prompt, GREEDY, 64);
        if (sameTokens(ours.ids, theirs[place].ids, ours.emitted, prompt)) assert.equal(ours.text, theirs[place].text);
      }
    });
  }
}

const SAMPLED = [
  { temperature: 0.8, topK: 0, topP: 0.95, seed: 7 },
  { temperature: 1, topK: 5, topP: 1, seed: 123456789012 },
  { temperature: 1.3, topK: 40, topP: 0.7, seed: 0 },
];

for (const run of runNames) {
  test(`${run}: a seed writes what it writes in the program, with the same draws and probabilities`, { skip: missing }, async () => {
    for (const weights of WEIGHTS) {
      const writer = open(run, weights);
      for (const settings of SAMPLED) {
        const { temperature, topK, topP, seed } = settings;
        const flags = ["--temperature", temperature, "--top-k", topK, "--top-p", topP, "--seed", seed, "--max-new-tokens", 60].map(String);
        const { answers: [theirs], choices } = generated(run, weights, ["the cat"], flags, true);
        const ours = await written(writer, "the cat", settings, 60);
        const what = `${weights} ${JSON.stringify(settings)}`;
        assert.deepEqual(ours.ids, theirs.ids, what);
        assert.equal(ours.text, theirs.text, what);
        choices.forEach(({ draw, candidates }, step) => {
          assert.equal(engine.uniform(seed, step), draw, `${what}: draw ${step}`);
          for (const { id, before: { probability } } of candidates) {
            const stored = ours.emitted[step].top.find((one) => one.id === id);
            if (stored) assert.ok(Math.abs(stored.before - probability) < 1e-4, `${what}: probability of ${id} at ${step}`);
          }
        });
      }
    }
  });
}

const ODD = [
  "", "a", "  ", "The cat", "The  cat\n\n sat", "I'll say it's 42!", "'rest ''s don't", "x<|endoftext|>y", "<|endoftext|>The cat", "<|endof", "中文 naïve élan",
  "🙂🙂 👩‍👧", "e\u0301 é", "\u00a0space\u3000wide", "\u0085next", "tab\tand\r\n", "½ Ⅷ 7a7", "ǅ Ω_Ω", "\ufeffmark", "a\u200bb", "\u0000nul", "....", "!?!? !",
  "   three", "trail   ", "A\u2028B", "\u180e vowel", "ß STRASSE", "1234567890 12", "don\u2019t", "👨‍💻 code", "\u1680ogham", "the the\nthe\n", "ﬁ \ufb01", "\u{10ffff}",
];

for (const run of runNames) {
  test(`${run}: ids of odd texts are the program's`, { skip: missing }, () => {
    const { tokenizer } = open(run, "int8");
    const readable = ODD.filter((text) => { try { return engine.promptIds(tokenizer, text); } catch { return false; } });
    assert.ok(readable.length === ODD.length || run.includes("chars") || run.includes("bias"), "only characters are unknown to some");
    const theirs = generated(run, "int8", readable, ["--strategy", "greedy", "--max-new-tokens", "1"]);
    readable.forEach((text, place) => assert.deepEqual(engine.promptIds(tokenizer, text), theirs[place].prompt_ids, JSON.stringify(text)));
  });
}

test("what is gone on with is what would have been written at once, and what was taken stands", { skip: missing }, async () => {
  const writer = open("llama-bytes", "int8");
  const settings = SAMPLED[0];
  const whole = await written(writer, "dog", settings, 40);
  const half = await written(writer, "dog", settings, 20);
  const rest = await written(writer, "dog", settings, 20, { written: half.ids });
  assert.deepEqual([...half.ids, ...rest.ids], whole.ids);
  const other = await written(writer, "dog", settings, 3, { written: whole.ids.slice(0, 5), taken: 122 });
  assert.equal(other.ids[0], 122);
});

test("forgetting by halves reads a fraction, and is the same text up to the context's end", { skip: missing }, async () => {
  const writer = open("gpt2-chars", "int8");
  const tokens = writer.model.config.context_length;
  const [slid, halved] = [await written(writer, "s", GREEDY, 2 * tokens), await written(writer, "s", { ...GREEDY, byHalves: true }, 2 * tokens)];
  assert.deepEqual(halved.ids.slice(0, tokens), slid.ids.slice(0, tokens));
  assert.ok(writer.model.read.length <= tokens && halved.ids.length === 2 * tokens);
});

test("special tokens are found whatever their names are made of", () => {
  const special = new Map([["<|fim-middle|>", 300], ["[a.(b)*/]", 301], ["\\^$?+{}", 302]]);
  const tokenizer = { before: [], opening: null, special, encode: (text) => Array.from(text, (letter) => letter.codePointAt(0)) };
  assert.deepEqual(engine.promptIds(tokenizer, "x<|fim-middle|>y[a.(b)*/]\\^$?+{}"), [120, 300, 121, 301, 302]);
});

test("a byte without a token is dropped, and what stood beside it is merged", () => {
  const model = { type: "BPE", vocab: { a: 0, b: 1, ab: 2 }, merges: ["a b"] };
  const json = { model, pre_tokenizer: { type: "ByteLevel", use_regex: true }, added_tokens: [{ content: "<|endoftext|>", id: 3 }] };
  const tokenizer = engine.newTokenizer({ json, before: [], opening: 3 });
  assert.deepEqual(engine.promptIds(tokenizer, "aéb<|endoftext|>b?a"), [2, 3, 1, 0]);
  assert.deepEqual(engine.promptIds(tokenizer, "é"), [3]);
});

/** A tokenizer of byte pairs that does not split texts into words. */
function unsplit(merges) {
  const tokens = [..."abcd", ...merges.map((pair) => pair.join(""))];
  const model = { type: "BPE", vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), merges };
  const json = { model, pre_tokenizer: { type: "ByteLevel", use_regex: false }, added_tokens: [] };
  return { tokens, tokenizer: engine.newTokenizer({ json, before: [], opening: null }) };
}

/** The rule in its simplest form: merges the leftmost pair of lowest rank, until there is none. */
function mergedSlowly(letters, merges) {
  const pieces = [...letters];
  const isAt = (place) => ([one, other]) => pieces[place] === one && pieces[place + 1] === other;
  for (;;) {
    const ranks = pieces.map((_, place) => merges.findIndex(isAt(place)));
    const best = Math.min(...ranks.filter((rank) => rank >= 0));
    if (best === Infinity) return pieces;
    pieces.splice(ranks.indexOf(best), 2, merges[best].join(""));
  }
}

test("pairs are merged in the order of their ranks, from the left, also where a later merge makes an earlier one possible", () => {
  let seed = 7;
  const below = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let round = 0; round < 300; round++) {
    const known = [..."abcd"];
    const pairs = Array.from({ length: 8 }, () => {
      const pair = [known[below(known.length)], known[below(known.length)]];
      known.push(pair.join(""));
      return pair;
    });
    // In any order: tokens then come from merges of higher rank, too.
    const merges = [...new Map(pairs.map((pair) => [pair.join(""), pair])).values()].sort(() => below(3) - 1);
    const { tokens, tokenizer } = unsplit(merges);
    const text = Array.from({ length: 1 + below(40) }, () => "abcd"[below(4)]).join("");
    assert.deepEqual(engine.promptIds(tokenizer, text).map((id) => tokens[id]), mergedSlowly(text, merges), `${text} by ${merges}`);
  }
});

test("a long text without words is read at once", () => {
  const { tokenizer } = unsplit([["a", "b"], ["c", "d"], ["ab", "cd"]]);
  const started = performance.now();
  assert.equal(engine.promptIds(tokenizer, "abcdabd".repeat(30000)).length, 90000);
  assert.ok(performance.now() - started < 10000, "200 kB in seconds");
});

/** A model without layers, whose norm has these weights. */
function layerless(norm) {
  const config = { n_layer: 0, n_embd: 2, context_length: 8, norm: "rmsnorm", norm_epsilon: 1e-5, positions: "rotary", rope_theta: 10000, head_size: 2 };
  const tensors = { "wte.weight": engine.readMatrix(Float32Array.of(1, 2, 3, 4).buffer, 0, "f32", [2, 2]), "ln_f.weight": Float32Array.of(...norm) };
  const json = { model: { type: "WordLevel", vocab: { a: 0, b: 1 } }, pre_tokenizer: {}, added_tokens: [] };
  return { model: engine.newModel(config, (name) => tensors[name] ?? null), tokenizer: engine.newTokenizer({ json, before: [], opening: null }), endTokens: [] };
}

test("a model that computes no numbers is said to, in place of a text", async () => {
  assert.deepEqual((await written(layerless([1, 1]), "a", GREEDY, 3)).ids, [1, 1, 1]);
  for (const wrong of [NaN, Infinity]) await assert.rejects(written(layerless([1, wrong]), "a", GREEDY, 3), /is not a number/);
  await assert.rejects(engine.lookAhead(layerless([NaN, 1]), { prompt: "a", written: [], settings: GREEDY }, async () => false), /is not a number/);
});

test("each token is told with whether the text has outgrown the context", async () => {
  const { emitted } = await written(layerless([1, 1]), "a", GREEDY, 10);
  assert.deepEqual(emitted.map(({ slides }) => slides), Array.from({ length: 10 }, (_, step) => step >= 7));
});

test("half a character waits for its other half", { skip: missing }, () => {
  const { tokenizer } = open("llama-bytes", "int8");
  const join = engine.joiner(tokenizer);
  assert.deepEqual([...new TextEncoder().encode("a€b")].map(join.push), ["a", "", "", "€", "b"]);
  assert.deepEqual([join.push(0xe2), join.finish()], ["", "\ufffd"]);
});

test("GELU by the error function is as Python has it, by math.erfc", () => {
  const known = [[-30, 0], [-4, -0.00012668496733247986], [-1, -0.15865525393145707], [-0.5, -0.15426876936299344], [0.001, 0.000500398942213911], [0.5, 0.34573123063700656], [1, 0.8413447460685429], [2.5, 2.4844758366855597], [5, 4.99999856674214], [30, 30]];
  for (const [x, y] of known) assert.ok(Math.abs(engine.exactGelu(x) - y) < 1e-14, `${x}: ${engine.exactGelu(x)}`);
});

test("the knobs leave what the program's leave", () => {
  const kept = (logits, knobs) => [...engine.chooseFrom(Float32Array.from(logits), { temperature: 1, topK: 0, topP: 1, ...knobs }).entries()]
    .filter(([, logit]) => logit > -Infinity).map(([id]) => id);
  const six = [0.40, 0.30, 0.20, 0.05, 0.03, 0.02].map(Math.log);
  for (const [topP, ids] of [[0.9, [0, 1, 2]], [0.91, [0, 1, 2, 3]], [0.41, [0, 1]], [0.39, [0]], [1e-6, [0]]]) assert.deepEqual(kept(six, { topP }), ids, `${topP}`);
  assert.deepEqual(kept([1, 1, 1, 1], { topP: 0.5 }), [2, 3]);
  assert.deepEqual(kept([1, 3, 2, 2, 0], { topK: 2 }), [1, 2, 3]);
  assert.deepEqual(kept([0, 2, 2, 1], { temperature: 0 }), [1]);
  assert.deepEqual([0, 0.499, 0.501, 0.751].map((number) => engine.drawn([0.5, 0, 0.25, 0.25], number)), [0, 0, 2, 3]);
});

test("a number is written in the unit that it reaches when rounded, and a time not rounded by half", () => {
  const files = ["page/src/elements.js", "train/src/commands/share/words.js"];
  const script = files.map((file) => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8")).join("");
  const { roughly, size, duration } = runInNewContext(`${script}; ({ roughly, size, duration })`, {});
  assert.deepEqual([7, 999, 1234, 999_499, 999_500, 10_640_000].map(roughly), ["7", "999", "1.23 thousand", "999 thousand", "1 million", "10.6 million"]);
  assert.deepEqual([999, 999_999, 1_500_000_000].map(size), ["999 bytes", "1 MB", "1.5 GB"]);
  assert.deepEqual([0.34, 1, 59.8, 90, 600, 3590, 3600, 5400, 86_300, 86_400 * 12.4].map(duration),
    ["0.3 seconds", "1 second", "1 minute", "1.5 minutes", "10 minutes", "1 hour", "1 hour", "1.5 hours", "1 day", "12 days"]);
});

test("a model that began from another is not said to know its training text alone", () => {
  const script = readFileSync(new URL("../../train/src/commands/share/facts.js", import.meta.url), "utf8");
  const { learnedWords } = runInNewContext(`${script}; ({ learnedWords })`, {});
  assert.equal(learnedWords({ began: null }), "It learned this from its training text alone.");
  assert.equal(learnedWords({ began: "gpt2" }), "It learned this from its training text, and from that of the model that it began from.");
});

test("the parameters that keep 32 bits are counted", () => {
  const files = ["page/src/elements.js", "train/src/commands/share/facts.js"];
  const script = files.map((file) => readFileSync(new URL(`../../${file}`, import.meta.url), "utf8")).join("");
  const { storageWords } = runInNewContext(`${script}; ({ storageWords })`, {});
  for (const [weights, bits] of [["int8", 8], ["bf16", 16]]) {
    const tensors = [{ type: weights, shape: [300, 8] }, { type: "f32", shape: [16, 8] }, { type: "f32", shape: [8] }];
    const words = storageWords({ facts: { parameters: 2536 }, weights, tensors });
    assert.equal(words, `2,536, of which 136 are stored in 32 bits each, the others in ${bits}`);
  }
});

test("a worker that cannot be loaded is said to, in words", () => {
  const script = readFileSync(new URL("../../train/src/commands/share/worker.js", import.meta.url), "utf8");
  class Worker extends EventTarget {
    postMessage() { this.dispatchEvent(new Event("error")); }
  }
  const newWorker = runInNewContext(`${script}; newWorker`, { Worker, Blob, URL: { createObjectURL: () => "blob:" } });
  const heard = [];
  newWorker("")({ ask: "open" }, (told) => heard.push({ ...told }));
  assert.deepEqual(heard, [{ told: "mishap", words: "this browser starts no worker here" }]);
});
