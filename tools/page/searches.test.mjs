// Compares the other sections with JSON from the program: the strategies side by side, the beams' tree, attention and the lens, noise.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { close, near, noBrowser, onPage } from "./browser.mjs";
import { missing, read } from "./program.mjs";

after(close);
const skip = noBrowser;
const explained = missing ? null : read("page.json");
const minus = (x, digits) => x.toFixed(digits).replace("-", "\u2212");
const withoutEnds = (ids) => ids.every((id) => !explained.end_tokens.includes(id) && !explained.tokens[id].includes("\ufffd"));

/** Every path of the beams, from the JSON alone: ids, score, outcome. */
function nodesOf(steps) {
  let live = new Map([[0, []]]);
  return steps.flatMap(({ candidates }) => {
    const nodes = candidates.filter((one) => one.score > -1e8).map((one) => ({ ...one, ids: [...live.get(one.parent), one.token] }));
    live = new Map(nodes.filter((node) => node.fate.fate === "goes-on").map((node) => [node.fate.beam, node.ids]));
    return nodes;
  });
}

test("every way has its text, its log-probability and its repetition", { skip }, () => onPage("page.html", {}, async (page) => {
  const cards = page.locator("#ways .way");
  assert.deepEqual(await cards.evaluateAll((all) => all.map((card) => card.dataset.way)), explained.ways.map((way) => way.name));
  assert.ok(explained.ways.length >= 7);
  for (const [place, { text, logprob_sum: sum, tokens, repetition, config }] of explained.ways.entries()) {
    const shown = await cards.nth(place).textContent();
    for (const part of [text, minus(sum, 2), `tokens${tokens}`, ...Object.values(config).filter((value) => value !== "sample").map(String)]) {
      assert.ok(shown.includes(part), `${part} in ${shown}`);
    }
    assert.equal(shown.includes("loops"), repetition.loops);
    assert.ok(shown.includes(`different pairs${(100 * repetition.distinct_2).toFixed(1)}%`), shown);
  }
}));

test("the tree has a node for each candidate, by its fate, and grows with its slider", { skip }, () => onPage("page.html", {}, async (page) => {
  const { steps, greedy, results } = explained.beams;
  const expected = nodesOf(steps);
  const shown = () => page.locator("#beams svg .node:not(.root)").evaluateAll((all) => all.map((node) => ({
    ids: node.dataset.ids, kinds: node.getAttribute("class").split(/\s+/), score: node.querySelector(".score").textContent })));
  const nodes = await shown();
  assert.deepEqual(nodes.map((node) => node.ids), expected.map((node) => node.ids.join(",")));
  assert.equal(await page.locator("#beams svg .edge").count(), expected.length);
  const starts = (ids, node) => `${ids.join(",")},`.startsWith(`${node.ids},`);
  for (const [place, node] of nodes.entries()) {
    assert.ok(node.kinds.includes(expected[place].fate.fate), `${node.ids}: ${node.kinds}`);
    assert.equal(node.score, minus(expected[place].score, 2));
    assert.equal(node.kinds.includes("best"), starts(results[0].ids, node), `${node.ids}: the way to the best`);
    assert.equal(node.kinds.includes("greedy"), starts(greedy.ids, node), `${node.ids}: greedy's way`);
  }
  await page.locator("#beams-step").press("Home");
  assert.equal((await shown()).length, steps[0].candidates.filter((one) => one.score > -1e8).length);
  assert.ok((await shown()).every((node) => !node.kinds.includes("best")), "what is best is not known yet");
}));

test("the length penalty ranks the finished texts", { skip }, () => onPage("page.html", {}, async (page) => {
  const { steps, results, length_penalty: original } = explained.beams;
  const finished = nodesOf(steps).filter((node) => node.fate.fate === "finished");
  const table = () => page.locator("#beams tr[data-ids]").evaluateAll((all) => all.map((row) => ({
    ids: row.dataset.ids, score: Number(row.querySelector("[data-score]").dataset.score) })));
  const first = await table();
  assert.deepEqual(first.slice(0, results.length).map((row) => row.ids), results.map((result) => result.ids.join(",")));
  for (const [place, result] of results.entries()) near(first[place].score, result.score, "the program's score");
  for (const [key, times] of [["ArrowLeft", 30], ["ArrowRight", 55]]) {
    for (let i = 0; i < times; i++) await page.locator("#beams-penalty").press(key);
    const penalty = Number(await page.locator("#beams-penalty").inputValue());
    assert.notEqual(penalty, original);
    const expected = finished.map((node) => node.score / node.ids.length ** penalty).sort((a, b) => b - a).slice(0, 8);
    const rows = await table();
    assert.equal(rows.length, expected.length);
    for (const [place, row] of rows.entries()) near(row.score, expected[place], `penalty ${penalty}, place ${place + 1}`);
    const best = await page.locator("#beams svg .node.best").last().getAttribute("data-ids");
    assert.equal(best, rows[0].ids, "the tree shows the way to the first");
  }
}));

test("greedy's story and the exact search's verdict are told", { skip }, () => onPage("page.html", {}, async (page) => {
  const { greedy } = explained.beams;
  // The progress of the exact search within its time limit differs between runs: use the page's own.
  const { exact } = JSON.parse(await page.locator("#explanation").textContent()).beams;
  assert.ok((await page.locator("#beams-greedy").textContent()).includes(minus(greedy.logprob_sum, 2)));
  const shown = await page.locator("#beams-body").textContent();
  for (const search of [exact, exact.greedy, exact.beam]) assert.ok(shown.includes(minus(search.logprob_sum, 2)), minus(search.logprob_sum, 2));
  assert.ok(shown.includes(exact.nodes.toLocaleString("en")));
  assert.equal(shown.includes("proved that no other is more probable"), exact.proven);
  assert.ok(exact.logprob_sum >= exact.beam.logprob_sum - 1e-3 || !exact.proven);
}));

test("attention shows each layer's, head's and query's weights", { skip }, () => onPage("page.html", {}, async (page) => {
  const selects = page.locator("#attention select");
  const tiles = () => page.locator("#attention .token.look").evaluateAll((all) => all.map((tile) => Number(tile.dataset.weight)));
  for (const [which, { layers, ids, first_query: first }] of explained.attention.entries()) {
    await selects.nth(0).selectOption({ value: String(which) });
    assert.equal((await tiles()).length, ids.length);
    for (const [layer, heads] of layers.entries()) {
      await selects.nth(1).selectOption({ value: String(layer) });
      for (const head of [0, heads.length - 1, -1]) {
        await selects.nth(2).selectOption({ value: String(head) });
        for (const [key, query] of [["Home", first], ["End", ids.length - 1]]) {
          await page.locator("#attention-query").press(key);
          const rows = head === -1 ? heads.map((one) => one[query - first]) : [heads[head][query - first]];
          const shown = await tiles();
          for (const [place, weight] of shown.entries()) {
            const expected = place > query ? 0 : rows.reduce((sum, row) => sum + row[place], 0) / rows.length / 1000;
            near(weight, expected, `layer ${layer}, head ${head}, query ${query}, key ${place}`);
          }
        }
      }
    }
  }
  const canvas = page.locator("#attention canvas");
  const painted = () => canvas.evaluate((map) => map.getContext("2d").getImageData(0, 0, map.width, map.height).data.some((byte) => byte > 0));
  assert.ok(await painted(), "the picture of all weights is drawn");
  await canvas.click({ position: { x: 20, y: 20 } });
  assert.ok(Number(await page.locator("#attention-query").inputValue()) < explained.attention.at(-1).ids.length - 1, "a click picks its row");
}));

test("the lens tells each layer's best and the pick's rank", { skip }, () => onPage("page.html", {}, async (page) => {
  for (const [which, { layers }] of explained.lens.entries()) {
    await page.locator("#lens select").selectOption({ value: String(which) });
    const rows = page.locator("#lens tbody tr");
    assert.equal(await rows.count(), layers.length);
    for (const [place, { name, top, chosen }] of layers.entries()) {
      assert.equal(await rows.nth(place).locator("th").textContent(), name);
      assert.equal(await rows.nth(place).locator("td.shaded").count(), top.length);
      assert.match(await rows.nth(place).locator("td").first().textContent(), new RegExp(`no\\. ${chosen.rank.toLocaleString("en")}$`));
    }
  }
}));

test("the same draw falls to two tokens when a knob has moved the borders", { skip }, () => onPage("page.html", {}, async (page) => {
  const { noise } = explained;
  const texts = await page.locator("#noise .card .text").allTextContents();
  for (const [place, { ids, text }] of [noise.a, noise.b].entries()) {
    if (withoutEnds(ids)) assert.equal(texts[place], explained.prompt.text + text);
  }
  if (noise.parts_at === null) return;
  const lines = await page.locator("#noise .parting").evaluateAll((all) => all.map((line) => ({
    draw: Number(line.querySelector(".draw").dataset.draw),
    start: parseFloat(line.querySelector(".picked").style.left) / 100,
    width: parseFloat(line.querySelector(".picked").style.width) / 100,
  })));
  for (const [place, interval] of [noise.a_interval, noise.b_interval].entries()) {
    near(lines[place].draw, noise.draw, "the draw is the same");
    near(lines[place].start, interval[0], "the share's beginning", 1e-5);
    near(lines[place].width, interval[1] - interval[0], "its length", 1e-5);
    assert.ok(interval[0] <= noise.draw && noise.draw < interval[1]);
  }
  assert.equal(await page.locator("#noise tbody tr").count(), noise.candidates.length);
}));
