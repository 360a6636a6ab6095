// Trains tiny runs, in seconds, with every kind of model and tokenizer that the page must read, for its tests.
//
//     node tools/page/share-runs.mjs EMBER_TRAIN FOLDER

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";

const [program, folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node tools/page/share-runs.mjs EMBER_TRAIN FOLDER");
  process.exit(2);
}

/** Names and settings. They include widths that are not multiples of 32, grouped-query attention, and untied heads. */
const RUNS = [
  ["gpt2-chars", "architecture=gpt2 tokenizer=chars n_head=4 n_embd=96"],
  ["gpt2-exact-chars", "architecture=gpt2 tokenizer=chars mlp=exact-gelu n_head=4 n_embd=64"],
  ["gpt2-nobias-bpe", "architecture=gpt2 tokenizer=bpe:300 bias=false tied_head=false n_head=5 n_embd=80"],
  ["llama-bytes", "architecture=llama tokenizer=bytes n_head=4 n_kv_head=2 n_embd=96"],
  ["llama-bias", "architecture=llama tokenizer=chars bias=true n_head=6 n_kv_head=3 n_embd=84 n_inner=100"],
  ["qwen3-bpe", "architecture=qwen3 tokenizer=bpe:300 tied_head=false n_head=4 n_kv_head=1 n_embd=96"],
  ["stories", "stories=2000 n_head=4 n_embd=128"],
];

const WORDS = "the cat dog house river mountain walked slowly under bright morning light while children sang old songs about ships and islands".split(" ");
const ENDS = [".", " — élan!", "? 42 naïve 中文 🙂.", " It's what they'll say: \"don't\".", "..."];

/** A text in which only word frequencies can be learned. */
function madeUp() {
  let state = 12345;
  const below = (n) => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return Math.floor(state / 0x80000000 * n);
  };
  const words = () => Array.from({ length: 4 + below(8) }, () => WORDS[below(WORDS.length)]).join(" ");
  return Array.from({ length: 1500 }, () => `${words()}${ENDS[below(ENDS.length)]}${below(3) === 0 ? "\n\n" : " "}`).join("");
}

mkdirSync(folder, { recursive: true });
const text = path.join(folder, "text.txt");
writeFileSync(text, madeUp());
for (const [name, keys] of RUNS) {
  const out = path.join(folder, name);
  if (existsSync(out)) continue;
  const set = `max_steps=20 n_layer=2 context_length=48 batch_size=4 ${keys}`.split(" ").flatMap((pair) => ["--set", pair]);
  execFileSync(program, ["run", ...(name === "stories" ? [] : [text]), "--out", out, ...set, "--device", "cpu", "--threads", "1", "--quiet"]);
}
