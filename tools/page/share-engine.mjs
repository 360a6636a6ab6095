// The page's engine without the page: its scripts in Node with the model from a page of `ember-train share`, and ember-generate's
// results for the same checkpoint.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { after } from "node:test";

const SOURCES = new URL("../../train/src/commands/share/", import.meta.url);
const ENGINE = ["numbers.js", "products.js", "weights.js", "model.js", "random.js", "choice.js", "heap.js", "tokenizer.js", "writing.js"];

const NAMES = ["newWriter", "newModel", "newTokenizer", "write", "lookAhead", "promptIds", "joiner", "readToken", "logitsOf", "uniform", "chooseFrom", "drawn", "softmax",
  "bytesOf", "readMatrix", "outputOf", "product", "exactGelu"];

/** The engine's functions. */
const sources = ENGINE.map((name) => readFileSync(new URL(name, SOURCES), "utf8")).join("");
export const engine = new Function(`${sources}; return { ${NAMES.join(", ")} };`)();

const [trainer, program, runs] = ["EMBER_TRAIN", "EMBER_GENERATE", "EMBER_SHARE_RUNS"].map((name) => process.env[name] ?? "");

/** The reason to skip tests with the programs, or false. */
export const missing = trainer && program && runs ? false : "needs the programs and runs: EMBER_TRAIN, EMBER_GENERATE and EMBER_SHARE_RUNS";

/** The available runs: folders with checkpoints, as made by share-runs.mjs. */
export const runNames = missing ? [] : readdirSync(runs).filter((name) => statSync(path.join(runs, name)).isDirectory()).sort();

const pages = mkdtempSync(path.join(os.tmpdir(), "ember-shared-"));
after(() => rmSync(pages, { recursive: true }));
const made = new Map();

/** The file of the page that the program writes for a run. */
export function pageOf(run, flags) {
  const key = JSON.stringify([run, flags]);
  if (!made.has(key)) {
    const file = path.join(pages, `${made.size}.html`);
    execFileSync(trainer, ["share", path.join(runs, run), "--html", file, "--threads", "1", "--quiet", ...flags]);
    made.set(key, file);
  }
  return made.get(key);
}

/** A writer of a run's model, from its page. */
export function open(run, weights) {
  const page = readFileSync(pageOf(run, ["--weights", weights, "--skip-copied"]), "utf8");
  const part = (id) => page.match(new RegExp(`<script type="[^"]*" id="${id}">([^<]*)</script>`))[1];
  return engine.newWriter(JSON.parse(part("model")), engine.bytesOf(part("weights")).buffer);
}

/** The last checkpoint of a run. */
function checkpointOf(run) {
  const folder = path.join(runs, run, "checkpoints");
  return path.join(folder, readdirSync(folder).sort().at(-1));
}

/** ember-generate's texts for some prompts, one answer each, and its trace if requested. */
export function generated(run, weights, prompts, flags, traced = false) {
  const work = mkdtempSync(path.join(os.tmpdir(), "ember-share-"));
  try {
    const [file, trace] = [path.join(work, "prompts.jsonl"), path.join(work, "trace.jsonl")];
    writeFileSync(file, prompts.map((prompt) => `${JSON.stringify({ prompt })}\n`).join(""));
    const always = ["--from", checkpointOf(run), "--weights", weights, "--format", "json", "--device", "cpu", "--threads", "1", "--quiet"];
    const out = execFileSync(program, ["text", "--prompts", file, ...always, ...flags, ...(traced ? ["--trace", trace] : [])], { encoding: "utf8", maxBuffer: 1 << 28 });
    const answers = lines(out);
    return traced ? { answers, choices: lines(readFileSync(trace, "utf8")).filter(({ event }) => event === "choice") } : answers;
  } finally {
    rmSync(work, { recursive: true });
  }
}

const lines = (text) => text.trim().split("\n").map((line) => JSON.parse(line));

/** The page's generation: ids, the reports about them, text and finish reason. */
export async function written(writer, prompt, settings, count, before = {}) {
  const emitted = [];
  const never = async () => false;
  const { reason, rest } = await engine.write(writer, { prompt, written: [], ...before, settings, count }, (token) => emitted.push(token), never);
  return { emitted, ids: emitted.map(({ id }) => id), text: emitted.map(({ text }) => text).join("") + rest, reason };
}

/** A difference is ignored if the two best tokens' probabilities are this close, relatively. */
const TIED = 1e-4;

/** Checks that two texts are equal up to a near-tie of two tokens; returns whether they are equal to the end. */
export function sameTokens(ours, theirs, emitted, what) {
  const place = theirs.findIndex((id, at) => id !== ours[at]);
  if (place < 0) return assert.equal(ours.length, theirs.length, what) ?? true;
  const [best, second] = emitted[place].top;
  assert.ok(Math.log(best.before / second.before) < TIED, `${what}: token ${place} is ${ours[place]}, not ${theirs[place]}`);
  return false;
}
