// The files that tools/check-page has made with ember-generate, in the folder EMBER_PAGE_WORK: NAME.json for each of SETTINGS,
// pages with their JSON: page, greedy, long (longer than a small model's window), awkward (a prompt meant to break a page).

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";

export const work = process.env.EMBER_PAGE_WORK ?? "";
export const file = (name) => path.join(work, name);
export const read = (name) => JSON.parse(readFileSync(file(name), "utf8"));

/** The reason to skip tests with the program, or false. */
export const missing = existsSync(file("page.json")) ? false : "needs pages made by the program: run tools/check-page";

/** The runs' knobs as flags; all runs have the prompt and the seed of the page. */
export const SETTINGS = readFileSync(new URL("settings.txt", import.meta.url), "utf8").split("\n")
  .filter((line) => line !== "" && !line.startsWith("#"))
  .map((line) => ({ name: line.split(" ")[0], flags: line.split(" ").slice(1).join(" ") }));

/** The page's knobs that correspond to a run of the program. */
export function knobsOf({ run }) {
  return run.strategy === "greedy" ? { ...run.knobs, temperature: 0, top_k: 0, top_p: 1, min_p: 0 } : run.knobs;
}

/** Rewrites the page with other numbers. */
export function writePage(name, explained) {
  const json = JSON.stringify(explained).replace(/</g, "\\u003c");
  const html = readFileSync(file("page.html"), "utf8");
  writeFileSync(file(name), html.replace(/(<script type="application\/json" id="explanation">)[^<]*(<\/script>)/, (_, open, end) => open + json + end));
}

/** The softmax in float64, for the page's probabilities of the model alone. */
export function modelsWord({ ids, values, tail }) {
  const highest = Math.max(...values);
  const terms = values.map((value) => Math.exp(value - highest));
  const rest = tail.counts.reduce((sum, count, group) => sum + count * Math.exp(tail.logits[group] - highest), 0);
  const total = terms.reduce((sum, term) => sum + term, rest);
  return new Map(ids.map((id, place) => [id, terms[place] / total]));
}
