// Tests the display of tokens on the page that `ember-generate explain` writes, without a browser.

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
