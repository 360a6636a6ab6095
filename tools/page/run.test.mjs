// Compares the run on the page, step by step, and its knobs with JSON from the program with the same knobs.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { close, near, noBrowser, onPage, rows, setKnob, setKnobs, showAll, unitLine } from "./browser.mjs";
import { knobsOf, missing, modelsWord, read, SETTINGS, writePage } from "./program.mjs";

after(close);
const skip = noBrowser;
const OFF = { repetition_penalty: 1, temperature: 1, top_k: 0, top_p: 1, min_p: 0 };
const explained = missing ? null : read("page.json");

test("the page holds what the program says", { skip }, () => onPage("page.html", {}, async (page) => {
  const embedded = JSON.parse(await page.locator("#explanation").textContent());
  // The progress of the exact search within its time limit differs between runs.
  delete embedded.beams.exact;
  const { exact: _, ...beams } = explained.beams;
  assert.deepEqual(embedded, { ...explained, beams });
}));

test("each step shows the text, the window, the model's word and the pick", { skip }, () => onPage("page.html", {}, async (page) => {
  for (const [step, { window, logits, chosen, draw, interval }] of explained.steps.entries()) {
    const word = modelsWord(logits);
    const shown = await rows(page, "#loop-bars");
    assert.deepEqual(shown.slice(0, 10).map((row) => row.id), logits.ids.slice(0, 10));
    for (const row of shown) near(row.probability, word.get(row.id), `step ${step}, token ${row.id}`);
    near(shown[1].width / shown[0].width, shown[1].probability / shown[0].probability, "bars are as long as they say", 1e-4);
    assert.deepEqual(shown.filter((row) => row.picked).map((row) => row.id), [chosen]);

    const tokens = explained.prompt.ids.length + step;
    assert.equal(await page.locator("#loop-tokens .token:not(.next)").count(), tokens);
    assert.equal(await page.locator("#loop-tokens .unseen").count(), tokens - (window[1] - window[0]));
    const line = await unitLine(page, "#loop-pick");
    near(line.draw.number, draw, "the draw");
    near(line.draw.place, draw, "its place", 1e-5);
    near(line.picked.start, interval[0], "the share's beginning", 1e-5);
    near(line.picked.width, interval[1] - interval[0], "the share's length", 1e-5);
    near(line.covered, 1, "the line is full", 1e-4);
    assert.match(await page.locator("#loop-live").textContent(), new RegExp(`^Step ${step + 1} of ${explained.steps.length}: `));
    if (step + 1 < explained.steps.length) await page.locator("#loop-forward").click();
  }
  assert.ok(await page.locator("#loop-forward").isDisabled());
  const written = await page.locator("#loop-text").textContent();
  const textless = new Set(explained.end_tokens);
  if (!explained.run.ids.some((id) => textless.has(id))) {
    assert.equal(written, explained.prompt.text + explained.run.text);
  }
}));

test("buttons, slider, arrow keys and the clock move through the steps", { skip }, () => onPage("page.html", { reducedMotion: "no-preference" }, async (page) => {
  const at = async () => Number(await page.locator("#loop-step").inputValue());
  await page.locator("#loop-forward").click();
  await page.locator("#loop-back").click();
  assert.equal(await at(), 0);
  assert.ok(await page.locator("#loop-back").isDisabled());
  await page.locator("body").press("ArrowRight");
  await page.locator("body").press("ArrowRight");
  await page.locator("body").press("ArrowLeft");
  assert.equal(await at(), 1);
  await page.locator("#loop-step").press("End");
  assert.equal(await at(), explained.steps.length - 1);
  assert.equal(await page.locator("#knobs-step").inputValue(), await page.locator("#loop-step").inputValue(), "the knobs are at the same step");
  await page.locator("#knobs-step").press("Home");
  assert.equal(await at(), 0);

  await page.clock.install();
  await page.locator("#loop-play").click();
  assert.equal(await page.locator("#loop-play").textContent(), "Pause");
  await page.clock.runFor(3100);
  assert.equal(await at(), 2);
  await page.locator("#loop-play").click();
  await page.clock.runFor(5000);
  assert.equal(await at(), 2, "paused");
  await page.locator("#loop-play").click();
  await page.clock.runFor(1500 * explained.steps.length);
  assert.equal(await at(), explained.steps.length - 1);
  assert.equal(await page.locator("#loop-play").textContent(), "Play", "stops at the end");
}));

// All runs have the same prompt, so the page's first step with a run's knobs must equal that run's first step.
for (const { name, flags } of SETTINGS) {
  test(`the knobs at ${flags} leave what the program leaves`, { skip }, () => onPage("page.html", {}, async (page) => {
    const other = read(`${name}.json`);
    const { processed, chosen } = other.steps[0];
    const greedy = other.run.strategy === "greedy";
    await setKnobs(page, knobsOf(other));
    await showAll(page);
    const shown = (await rows(page, "#knobs-bars")).filter((row) => row.id !== null);
    const expected = new Map(processed.ids.map((id, rank) => [id, processed.probabilities[rank]]));
    const complete = processed.survivors === processed.ids.length;
    let compared = 0;
    for (const row of shown) {
      assert.equal(row.grey, row.removedBy !== "", `token ${row.id}: grey is what a knob removed`);
      assert.equal(row.grey, row.note.includes(`removed by ${row.removedBy}`) && row.removedBy !== "", `token ${row.id} says which: ${row.note}`);
      if (row.grey) near(row.probability, 0, `token ${row.id}, removed`);
      if (greedy) assert.equal(row.grey, row.id !== chosen);
      else if (complete) assert.equal(row.grey, !expected.has(row.id), `token ${row.id}`);
      if (!greedy && expected.has(row.id)) {
        near(row.probability, expected.get(row.id), `token ${row.id}`);
        assert.equal(row.value, row.probability < 1e-4 ? "<0.01%" : row.probability > 0.9999 ? row.value
          : `${(100 * row.probability).toFixed(row.probability < 0.01 || (row.probability >= 0.9995 && row.probability < 1) ? 2 : 1)}%`);
        compared += 1;
      }
    }
    if (!greedy) assert.equal(compared, processed.ids.length, "every survivor that the program names has a row");
    const survivors = greedy ? 1 : processed.survivors;
    assert.match(await page.locator("#knobs-live").textContent(), new RegExp(`^${survivors.toLocaleString("en")} tokens? of `));
  }));
}

test("each knob by itself names itself, and its slider moves its field", { skip }, () => onPage("page.html", {}, async (page) => {
  await setKnobs(page, OFF);
  assert.equal((await rows(page, "#knobs-bars")).filter((row) => row.grey).length, 0);
  for (const [knob, value, says] of [["top_k", 3, "top-k"], ["top_p", 0.001, "top-p"], ["min_p", 0.99, "min-p"], ["temperature", 0, "temperature 0"]]) {
    await setKnobs(page, { ...OFF, [knob]: value });
    const removed = (await rows(page, "#knobs-bars")).filter((row) => row.grey && row.id !== null);
    assert.ok(removed.length > 0, `${knob} ${value} removes nothing: the test needs another value`);
    assert.ok(removed.every((row) => row.note.includes(`removed by ${says}`)), `${knob}: ${removed[0].note}`);
  }
  await setKnobs(page, OFF);
  for (const [knob, key, moved] of [["temperature", "ArrowLeft", 0.99], ["top_k", "ArrowRight", 1], ["top_p", "ArrowLeft", 0.99], ["min_p", "ArrowRight", 0.01],
    ["repetition_penalty", "ArrowRight", 1.01]]) {
    const name = knob.replace("_", "-");
    await page.locator(`#knob-${name}-slider`).press(key);
    near(Number(await page.locator(`#knob-${name}`).inputValue()), moved, knob);
    await setKnob(page, knob, OFF[knob]);
  }
  await setKnob(page, "repetition_penalty", 1.5);
  await page.locator("#knobs-step").press("End");
  await showAll(page);
  const penalised = (await rows(page, "#knobs-bars")).filter((row) => row.note.includes("said before"));
  const seen = new Set([...explained.prompt.ids, ...explained.run.ids.slice(0, -1)]);
  assert.ok(penalised.length > 0 && penalised.every((row) => seen.has(row.id)));
}));

test("nearer to temperature 0 the best takes all, and at 2 without guardrails it is lost among many", { skip }, () => onPage("page.html", {}, async (page) => {
  const best = async (temperature) => {
    await setKnobs(page, { ...OFF, temperature });
    return (await rows(page, "#knobs-bars"))[0].probability;
  };
  let last = await best(2);
  for (const temperature of [1, 0.5, 0.1, 0.02, 0.001]) {
    const now = await best(temperature);
    assert.ok(now >= last, `${now} at ${temperature} is less than ${last}`);
    last = now;
  }
  assert.ok(last > 0.999, `${last} at 0.001`);
  await setKnob(page, "temperature", 1);
  await page.locator("#knob-temperature-slider").press("Home");
  const greedy = await rows(page, "#knobs-bars");
  assert.deepEqual(greedy.filter((row) => !row.grey).map((row) => [row.id, row.value]), [[explained.steps[0].logits.ids[0], "100.0%"]]);
  await page.getByRole("button", { name: "No guardrails" }).click();
  assert.equal((await rows(page, "#knobs-bars")).filter((row) => row.grey).length, 0);
  const choices = Number(/among ([\d.]+)\.$/.exec(await page.locator("#knobs-live").textContent())[1]);
  await page.getByRole("button", { name: "Everything off" }).click();
  assert.ok(choices > Number(/among ([\d.]+)\.$/.exec(await page.locator("#knobs-live").textContent())[1]));
}));

test("the run's own draw is the run's pick at every step", { skip }, () => onPage("page.html", {}, async (page) => {
  for (const [step, { draw, chosen, interval, logits }] of explained.steps.entries()) {
    await page.locator("#knobs-run-draw").click();
    const line = await unitLine(page, "#knobs-line");
    if (logits.tail.counts.length === 0) {
      near(line.draw.number, draw, `step ${step}`);
      near(line.picked.start, interval[0], `step ${step}`, 1e-5);
    }
    near(line.picked.width, interval[1] - interval[0], `step ${step}`, 1e-5);
    assert.ok((await page.locator("#knobs-draw").textContent()).includes(draw.toFixed(4)));
    assert.deepEqual((await rows(page, "#knobs-bars")).filter((row) => row.picked).map((row) => row.id), [chosen]);
    await page.locator("#knobs-step").press("ArrowRight");
  }
}));

test("a draw falls where the shares say, and a hundred are a hundred", { skip }, () => onPage("page.html", {}, async (page) => {
  const other = read("top-k.json");
  const { ids, probabilities } = other.steps[0].processed;
  await setKnobs(page, knobsOf(other));
  const order = ids.map((id, rank) => ({ id, p: probabilities[rank] })).sort((a, b) => a.id - b.id);
  for (const uniform of [0, 0.137, 0.5, 0.731, 0.9999]) {
    await page.evaluate((number) => { Math.random = () => number; }, uniform);
    await page.locator("#knobs-sample").click();
    let end = 0;
    const expected = order.find(({ p }) => uniform < (end += p)) ?? order[order.length - 1];
    const line = await unitLine(page, "#knobs-line");
    near(line.draw.place, uniform, "its place", 1e-5);
    assert.ok(line.picked.start <= uniform + 1e-6 && uniform <= line.picked.start + line.picked.width + 1e-6);
    assert.deepEqual((await rows(page, "#knobs-bars")).filter((row) => row.picked).map((row) => row.id), [expected.id], `at ${uniform}`);
    assert.match(await page.locator("#knobs-draw").textContent(), new RegExp(`^The draw ${uniform.toFixed(4)} falls between`));
  }
  await page.evaluate(() => { let next = 0; Math.random = () => (next++ % 100) / 100; });
  await page.locator("#knobs-many").click();
  const counts = (await rows(page, "#knobs-bars")).map((row) => Number(/drawn (\d+) of 100/.exec(row.note)?.[1] ?? 0));
  assert.equal(counts.reduce((sum, count) => sum + count, 0), 100);
  await setKnob(page, "temperature", 0.5);
  assert.ok(!(await rows(page, "#knobs-bars")).some((row) => row.note.includes("drawn")), "other knobs, other draws");
}));

test("a greedy run has no luck to show", { skip }, () => onPage("greedy.html", {}, async (page) => {
  assert.match(await page.locator("#loop-pick").textContent(), /No luck involved/);
  assert.equal(await page.locator("#loop-pick .draw").count(), 0);
  assert.equal(await page.locator("#knob-temperature").inputValue(), "0");
  await page.locator("#knobs-run-draw").click();
  assert.match(await page.locator("#knobs-draw").textContent(), /drew no number/);
}));

test("what the window has left behind is marked", { skip }, () => onPage("long.html", {}, async (page) => {
  const { steps, model } = read("long.json");
  const last = steps[steps.length - 1];
  await page.locator("#loop-step").press("End");
  const unseen = last.window[0];
  assert.equal(unseen > 0, last.window[1] > model.context_length, "the window slides once it is full");
  const shown = await page.locator("#loop-tokens .token:not(.next)").count();
  assert.equal(await page.locator("#loop-tokens .unseen").count(), Math.max(0, unseen - (last.window[1] - shown)));
  assert.equal((await page.locator("#loop-window").textContent()).includes("outside the context"), unseen > 0);
}));

test("a tail that is stored in groups is counted, drawn and named as such", { skip }, async () => {
  const whole = read("off.json");
  const grouped = structuredClone(whole);
  for (const { logits, chosen } of grouped.steps) {
    const alone = logits.ids.map((id, place) => place < 40 || id === chosen);
    const rest = logits.values.filter((_, place) => !alone[place]);
    for (const column of ["ids", "values"]) logits[column] = logits[column].filter((_, place) => alone[place]);
    for (let begin = 0; begin < rest.length; begin += 7) {
      const group = rest.slice(begin, begin + 7);
      logits.tail.counts.push(group.length);
      logits.tail.logits.push(group[0] + Math.log(group.reduce((sum, logit) => sum + Math.exp(logit - group[0]), 0) / group.length));
    }
  }
  writePage("grouped.html", grouped);
  await onPage("grouped.html", {}, async (page) => {
    const { processed, draw, chosen, interval } = whole.steps[0];
    const expected = new Map(processed.ids.map((id, rank) => [id, processed.probabilities[rank]]));
    const shown = await rows(page, "#knobs-bars");
    for (const row of shown.filter((one) => expected.has(one.id))) near(row.probability, expected.get(row.id), `token ${row.id}`);
    near(shown.reduce((sum, row) => sum + row.probability, 0), 1, "with the others it is all there is", 1e-5);
    assert.match(await page.locator("#knobs-live").textContent(), new RegExp(`^${processed.survivors.toLocaleString("en")} tokens of `));

    const run = await unitLine(page, "#loop-pick");
    near(run.draw.place, draw, "the run's draw", 1e-5);
    near(run.picked.start, interval[0], "and its share, as the program had it", 1e-5);
    await page.locator("#knobs-run-draw").click();
    assert.deepEqual((await rows(page, "#knobs-bars")).filter((row) => row.picked).map((row) => row.id), [chosen]);
    assert.ok((await page.locator("#knobs-draw").textContent()).includes(`the number was ${draw.toFixed(4)}`));

    await page.evaluate(() => { Math.random = () => 0.9999999; });
    await page.getByRole("button", { name: "No guardrails" }).click();
    await page.locator("#knobs-sample").click();
    assert.match(await page.locator("#knobs-draw").textContent(), /one of the rare tokens/);
    await setKnobs(page, { ...OFF, top_k: 50 });
    assert.match(await page.locator("#knobs-live").textContent(), /^50 tokens of /);
  });
});
