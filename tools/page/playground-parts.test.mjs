// Tests parts of the playground without a server and a browser: saving and loading, names of checkpoints, and characters that span
// several tokens.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { runInNewContext } from "node:vm";

const root = new URL("../../", import.meta.url);

/** The page's scripts that need no page, with the server replaced by `ask`; returns the values of `names`. */
function parts(names, ask = () => { throw new Error("nothing is to be asked"); }) {
  const own = ["parts", "tokens", "tree", "request", "command", "kept", "editor", "slider", "knobs"].map((name) => `generate/src/commands/serve/playground/${name}.js`);
  const script = ["page/src/elements.js", ...own].map((file) => readFileSync(new URL(file, root), "utf8")).join("");
  const globals = { ask, TextDecoder, TextEncoder };
  return runInNewContext(`${script}; ({ ${names}, setProps: (value) => { props = value; } })`, globals);
}

test("any key reaches the server, as the bytes of its letters", async () => {
  const script = readFileSync(new URL("generate/src/commands/serve/playground/api.js", root), "utf8");
  const keys = ["right", "schlüssel", "zero\u200bwidth", "日本🙂"];
  const sent = [];
  const fetch = async (_, { headers }) => {
    sent.push(new Headers(headers).get("authorization")); // throws if a header cannot carry it
    return { ok: true, json: async () => ({}) };
  };
  for (const key of keys) await runInNewContext(`${script}; ask("/props")`, { fetch, TextEncoder, ofTab: { getItem: () => key } });
  assert.deepEqual(sent, keys.map((key) => Buffer.from(`Bearer ${key}`).toString("latin1")));
});

const node = (id, parent, children = [], facts = {}) => (
  { id, parent, children, tokens: id === 0 ? [] : [{ id: 65, text: "A" }], typed: null, how: null, by: null, end: null, last: null, ...facts });
const tree = (nodes, next = 9) => ({ nodes: Object.fromEntries(nodes.map((one) => [one.id, one])), next });

test("a tree is read whose nodes each hang once from the root, and no other", () => {
  const { isTree } = parts("isTree");
  const token = (facts) => tree([node(0, null, [1]), node(1, 0, [], { tokens: [{ id: 65, text: "A", ...facts }] })]);
  const how = { request: { model: "a" }, index: 0, from: 0 };
  const right = {
    "an empty one": tree([node(0, null)], 1),
    "a branch": tree([node(0, null, [1, 2], { last: 2 }), node(1, 0, [3], { how, typed: "A", by: "a", end: "stop" }), node(2, 0), node(3, 1)], 4),
    "what is told of a token": token({ logprob: -1, top: [[65, -1], [66, null]], given: true }),
    "what is not known of it": token({ logprob: null, top: null }),
  };
  const wrong = {
    "no tree": null,
    "no nodes": { next: 1 },
    "a circle beside the root": tree([node(0, null), node(1, 2, [2]), node(2, 1, [1])]),
    "a node of two parents": tree([node(0, null, [1, 2]), node(1, 0, [3]), node(2, 0, [3]), node(3, 1)]),
    "a child that is there twice": tree([node(0, null, [1, 1]), node(1, 0)]),
    "a node that is its own child": tree([node(0, null, [1]), node(1, 0, [1])]),
    "a child that is not there": tree([node(0, null, [1])]),
    "a node by another's number": { nodes: { 0: node(0, null, [1]), 1: node(2, 0) }, next: 9 },
    "a next one that is there": tree([node(0, null, [1]), node(1, 0)], 1),
    "a way seen last that is none": tree([node(0, null, [1]), node(1, 0, [], { last: 0 })]),
    "alternatives that are no list": token({ top: 5 }),
    "a number that is none": token({ logprob: "-1" }),
    "a request that is none": tree([node(0, null, [1]), node(1, 0, [], { how: { index: 0, from: 0 } })]),
  };
  for (const [name, one] of Object.entries(right)) assert.equal(isTree(one), true, name);
  for (const [name, one] of Object.entries(wrong)) assert.equal(isTree(one), false, name);
});

test("of kept settings and names those count that are what they must be", () => {
  const { settingsOf, textsOf } = parts("settingsOf, textsOf");
  const plain = (value) => JSON.parse(JSON.stringify(value)); // without the other context's prototypes
  const right = { model: "a", tokens: 3, temperature: 0, seed: 0, count: 2, knobs: { top_k: 3 }, grammar: { kind: "regex", text: "a" } };
  assert.deepEqual(plain(settingsOf(right)), right);
  const wrong = { model: 1, tokens: 0, temperature: "1", seed: -1, count: 1.5, knobs: [], grammar: null, other: 1 };
  assert.deepEqual(plain(settingsOf(wrong)), {});
  assert.deepEqual(plain(settingsOf({ grammar: { kind: "constructor", text: "" } })), {});
  assert.deepEqual(plain(settingsOf(null)), {});
  // The grammar used to be called the form.
  const [old, now] = [{ kind: "regex", text: "a" }, { kind: "regex", text: "b" }];
  assert.deepEqual(plain(settingsOf({ form: old })), { grammar: old });
  assert.deepEqual(plain(settingsOf({ form: old, grammar: now })), { grammar: now });
  const kept = { tree: tree([node(0, null)]), current: 7, names: { 3: "a", 4: [195], 5: 6, x: "b", 7: [256] } };
  assert.deepEqual(plain(textsOf(kept)), { tree: plain(kept.tree), current: 0, names: { 3: "a", 4: [195] } });
});

test("the steps of a run are found whatever the run is called", () => {
  const { stepsOf, stepName, settings, setProps } = parts("stepsOf, stepName, settings");
  for (const [run, others] of [["mine", []], ["me@home", []], ["mail@2024", ["mail@2024@x"]]]) {
    const steps = [`${run}@5`, `${run}@1000`];
    setProps({ models: [run, ...steps, ...others] });
    for (const model of [run, ...steps]) {
      settings.model = model;
      assert.deepEqual([...stepsOf()], steps, model);
    }
    assert.deepEqual(steps.map(stepName), ["step 5", "step 1,000"]);
  }
  setProps({ models: ["me@home", "me@work"] });
  settings.model = "me@home";
  assert.deepEqual([...stepsOf()], [], "these are runs, not steps of one");
});

test("what is chosen for a knob is sent as the kind that the knob takes", () => {
  const { valueOf } = parts("valueOf");
  const when = { kind: "word", words: [true, false, "never"], default: false };
  assert.deepEqual(["true", "false", "never"].map((text) => valueOf(when, text)), when.words);
  assert.equal(valueOf({ kind: "word", words: ["hf", "mlx"], default: "hf" }, "mlx"), "mlx");
  assert.equal(valueOf({ kind: "whole number", words: [], default: 0 }, "3"), 3);
  assert.equal(valueOf({ kind: "list", words: [], default: [] }, "true"), "true");
});

/** Knobs as the server tells them: what a model's folder sets is their default. */
const knobsWith = (defaults) => Object.entries({ top_p: 1, min_new_tokens: 0, num_return_sequences: 1, stop_strings: [], num_beams: 1, ...defaults })
  .map(([name, value]) => ({ name, default: value, heading: { top_p: "Sampling", num_beams: "Beams" }[name] ?? "Others" }));

test("another model is asked with the knobs that the page shows", () => {
  const { requestFor, settings, knobsByModel, setProps } = parts("requestFor, settings, knobsByModel");
  const [shown, other] = [knobsWith({ top_p: 0.95 }), knobsWith({ num_return_sequences: 2, stop_strings: ["x"], num_beams: 4 })];
  setProps({ knobs: shown });
  knobsByModel.set("a", shown).set("b", other);
  settings.model = "a";
  const sent = (set) => {
    const { top_p, n, stop_strings, num_beams } = requestFor(set);
    return JSON.parse(JSON.stringify({ top_p, n, stop_strings, num_beams }));
  };
  assert.deepEqual(sent({}), {});
  assert.deepEqual(sent({ model: "b" }), { top_p: 0.95, n: 1, stop_strings: [] });
  assert.deepEqual(sent({ model: "b", knobs: { top_p: 0.5 } }), { top_p: 0.5, n: 1, stop_strings: [] });
  assert.deepEqual(sent({ model: "b", temperature: 0 }), { n: 1, stop_strings: [] });
  assert.deepEqual(sent({ model: "not known yet" }), { n: 1 });
});

test("a stop string of the model's folder is not part of the text", () => {
  const { cutToText, setProps } = parts("cutToText");
  setProps({ knobs: knobsWith({ stop_strings: ["\n\n"] }) });
  const cut = (request) => {
    const tokens = ["a", "b", "\n", "\n"].map((text, id) => ({ id, text }));
    return [cutToText(tokens, request, "ab"), tokens.length];
  };
  assert.deepEqual(cut({ model: "a" }), [true, 2]);
  assert.deepEqual(cut({ model: "a", stop_strings: ["x"] }), [true, 2]);
  assert.deepEqual(cut({ model: "a", stop_strings: [] }), [false, 4]);
});

test("a command asks for no more tokens at least than at most", () => {
  const { commandFor, setProps } = parts("commandFor");
  const command = (request, least) => {
    setProps({ knobs: knobsWith({ min_new_tokens: least }), models: ["a"], folders: ["a/"] });
    const words = commandFor({ model: "a", max_tokens: 5, strategy: "greedy", overflow: "slide", ...request }, { text: "x", ids: [] });
    return words.match(/--min-new-tokens \d+/)?.[0];
  };
  assert.equal(command({ min_new_tokens: 20 }, 0), "--min-new-tokens 5");
  assert.equal(command({}, 20), "--min-new-tokens 5");
  assert.equal(command({ min_new_tokens: 3 }, 0), "--min-new-tokens 3");
  assert.equal(command({}, 0), undefined);
});

test("a part of a character is its bytes, wherever it was told of first", async () => {
  const asked = [];
  const bytes = { 195: "bytes:\\xc3", 169: "bytes:\\xa9" };
  const ask = async (path, { prompt }) => {
    asked.push(...prompt.flat());
    const choice = ([id]) => ({ token_ids: [id], logprobs: { tokens: [bytes[id]], token_logprobs: [null] } });
    return { choices: prompt.map(choice) };
  };
  const { learn, nameAll, pieces, textOfPiece, joiner, setProps } = parts("learn, nameAll, pieces, textOfPiece, joiner", ask);
  setProps({ eos_token: "<|endoftext|>" });
  learn(195, "\ufffd");
  learn(97, "a");
  learn(97, "b");
  assert.equal(pieces.has(195), false);
  await nameAll([195, 97, 169, 195]);
  assert.deepEqual(asked, [195, 169], "what is known is not asked for");
  const join = joiner();
  assert.equal([97, 195, 169].map((id) => textOfPiece(pieces.get(id), join)).join(""), "aé");
});

test("no part of a deleted character stays in the text", () => {
  const { untouched, pieces, setProps } = parts("untouched, pieces");
  setProps({ eos_token: "<|endoftext|>" });
  pieces.set(0, "<|endoftext|>");
  const token = (text, id = 1, given = false) => ({ id, text, given });
  const [start, a, part, whole, end, typed] = [token("", 2, true), token("a"), token(""), token("中"), token("", 0), token("b", 3, true)];
  for (const [tokens, text, count] of [
    [[a, part, part, whole], "a中", 4],
    [[a, part, part, whole], "a", 1],
    [[a, part, part, whole], "ab", 1],
    [[a, part, part, whole], "a中b", 4],
    [[a, part], "a", 2], // nothing was edited: what comes next may complete it
    [[a, part], "ab", 1],
    [[a, end], "ab", 2],
    [[a, part, typed], "abc", 1],
    [[start, typed, a], "b", 0],
  ]) assert.equal(untouched(tokens, text), count, `${tokens.map((one) => one.text).join("|")} as ${text}`);
});
