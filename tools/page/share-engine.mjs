// The page's engine without the page: its scripts in Node on the model that `ember-train share` put into a page, and what
// ember-generate says of the same checkpoint.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { after } from "node:test";

const SOURCES = new URL("../../train/src/commands/share/", import.meta.url);
const ENGINE = ["numbers.js", "products.js", "weights.js", "model.js", "random.js", "choice.js", "tokenizer.js", "writing.js"];

const NAMES = ["newWriter", "newModel", "newTokenizer", "write", "lookAhead", "promptIds", "joiner", "readToken", "logitsOf", "uniform", "chooseFrom", "drawn", "softmax",
  "bytesOf", "readMatrix", "outputOf", "product", "exactGelu"];

/** The engine's functions. */
const sources = ENGINE.map((name) => readFileSync(new URL(name, SOURCES), "utf8")).join("");
export const engine = new Function(`${sources}; return { ${NAMES.join(", ")} };`)();

const [trainer, program, runs] = ["EMBER_TRAIN", "EMBER_GENERATE", "EMBER_SHARE_RUNS"].map((name) => process.env[name] ?? "");

/** Why tests beside the programs are skipped, or false. */
export const missing = trainer && program && runs ? false : "needs the programs and runs: EMBER_TRAIN, EMBER_GENERATE and EMBER_SHARE_RUNS";

/** The runs that there are: folders with checkpoints, such as share-runs.mjs makes. */
export const runNames = missing ? [] : readdirSync(runs).filter((name) => statSync(path.join(runs, name)).isDirectory()).sort();

const pages = mkdtempSync(path.join(os.tmpdir(), "ember-shared-"));
after(() => rmSync(pages, { recursive: true }));
const made = new Map();

/** The file of the page that the program writes of a run. */
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

/** What ember-generate writes after some prompts, one answer each, and its trace where that is asked for. */
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

/** What the page writes: its ids, what it told of them, its text and why it ended. */
export async function written(writer, prompt, settings, count, before = {}) {
  const told = [];
  const never = async () => false;
  const { reason, rest } = await engine.write(writer, { prompt, written: [], ...before, settings, count }, (token) => told.push(token), never);
  return { told, ids: told.map(({ id }) => id), text: told.map(({ text }) => text).join("") + rest, reason };
}

/** A difference counts unless the two best logits lie this close, as shares of their probabilities. */
const TIED = 1e-4;

/** That two texts are the same up to a place where two tokens are as likely; says whether they are the same to the end. */
export function sameTokens(ours, theirs, told, what) {
  const place = theirs.findIndex((id, at) => id !== ours[at]);
  if (place < 0) return assert.equal(ours.length, theirs.length, what) ?? true;
  const [best, second] = told[place].top;
  assert.ok(Math.log(best.before / second.before) < TIED, `${what}: token ${place} is ${ours[place]}, not ${theirs[place]}`);
  return false;
}
