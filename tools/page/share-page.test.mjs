// Tests the page that contains a model in headless Chromium: from a file, without a server and a network.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { close, hasBrowser, onQuietPage, screenshots } from "./chromium.mjs";
import { faint } from "./contrast.mjs";
import { generated, missing, open, pageOf, sameTokens, written } from "./share-engine.mjs";

const skip = missing || (hasBrowser ? false : "needs Chromium: EMBER_BROWSER");

const RUN = "stories";
const BEGINNING = "One day Tom";
const AWKWARD = "</script><script>window.broken = 1</script><!-- <b>\u2028 $& {{page}}";
const FLAGS = ["--title", AWKWARD, "--by", "<i>Ana</i>", "--beginning", BEGINNING];

after(close);

/** Runs `check` on a new page; `run` and `flags` select it, the rest are the browser's options. */
async function onPage({ run = RUN, flags = FLAGS, ...options }, check) {
  const url = pathToFileURL(pageOf(run, flags)).href;
  await onQuietPage({ isOurs: (address) => address === url, timeout: 15000, offline: true, ...options }, async (page) => {
    await page.goto(url);
    await page.locator("body[data-ready]").waitFor();
    await check(page);
  });
}

/** Sets knobs as a user would. */
const set = (page, knobs) => page.evaluate((values) => {
  for (const [name, value] of Object.entries(values)) {
    const input = document.getElementById(name);
    input.value = value;
    input.dispatchEvent(new Event(input.type === "range" ? "input" : "change"));
  }
}, knobs);

const idle = (page) => page.locator("#stop:disabled").waitFor();

async function write(page, press = "write") {
  await page.locator(`#${press}`).click();
  await idle(page);
}

const ids = (page) => page.locator("#text .token").evaluateAll((all) => all.map((token) => Number(token.dataset.id)));
const shown = (page) => page.locator("#text .token").evaluateAll((all) => all.map((token) => token.textContent).join(""));
const top = (page) => page.locator("#top .row").evaluateAll((all) => all.map(({ dataset, className }) => (
  { id: Number(dataset.id), before: Number(dataset.before), after: Number(dataset.after), own: className.includes("own") })));

test("it writes what the engine writes: greedily, and by a seed", { skip }, () => onPage({}, async (page) => {
  const writer = open(RUN, "int8");
  for (const settings of [{ temperature: 0, topK: 0, topP: 1, seed: 0 }, { temperature: 0.8, topK: 40, topP: 0.9, seed: 5 }]) {
    await set(page, { ...settings, tokens: 40 });
    await write(page);
    const ours = await written(writer, BEGINNING, settings, 40);
    assert.deepEqual(await ids(page), ours.ids);
    assert.equal(await shown(page), ours.text);
  }
}));

const TWENTY = [
  "the cat", "the dog", "s", "house", "under bright morning light while", "river mountain", "old songs about", "It's what they'll say", "ships and islands.", "the the the", "42",
  "children sang", "naïve", "walked slowly", "中文", "morning\n\n", "...", "— élan!", "the cat dog house river mountain walked slowly under bright morning light", "a",
];

for (const run of ["gpt2-chars", "llama-bytes", "qwen3-bpe"]) {
  test(`${run}: twenty beginnings are gone on with as the program goes on with them`, { skip }, (t) => onPage({ run, flags: ["--skip-copied"] }, async (page) => {
    const theirs = generated(run, "int8", TWENTY, ["--strategy", "greedy", "--max-new-tokens", "60"]);
    const writer = open(run, "int8");
    const settings = { temperature: 0, topK: 0, topP: 1, seed: 0 };
    const rates = [];
    await set(page, { ...settings, tokens: 60 });
    for (const [place, prompt] of TWENTY.entries()) {
      await page.locator("#prompt").fill(prompt);
      await write(page);
      const ours = await written(writer, prompt, settings, 60);
      sameTokens(await ids(page), theirs[place].ids, ours.emitted, prompt);
      rates.push(Number((await page.locator("#status").textContent()).match(/, ([\d,]+) per second/)[1].replaceAll(",", "")));
    }
    t.diagnostic(`on the page, up to ${Math.max(...rates)} tokens a second`);
  }));
}

test("the text comes token by token, and stops when it is told to", { skip }, () => onPage({}, async (page) => {
  await set(page, { temperature: 1, tokens: 100000 });
  await page.locator("#write").click();
  await page.locator("#text .token").nth(3).waitFor();
  const early = (await ids(page)).length;
  await page.waitForFunction((count) => document.querySelectorAll("#text .token").length > count, early);
  await page.keyboard.press("Escape");
  await idle(page);
  const count = (await ids(page)).length;
  await page.waitForTimeout(200);
  assert.equal((await ids(page)).length, count, "nothing comes after");
}));

test("a stop says what this press has written, and whether the model reads all of it again", { skip }, () => onPage({ run: "gpt2-chars", flags: ["--beginning", "the", "--skip-copied"] }, async (page) => {
  const context = open("gpt2-chars", "int8").model.config.context_length;
  await set(page, { temperature: 1, topP: 1, seed: 3, tokens: 10 });
  await write(page);
  const before = (await ids(page)).length;
  await set(page, { tokens: 100000 });
  await page.locator("#go-on").click();
  await page.locator("#text .token").nth(before + context).waitFor();
  await page.keyboard.press("Escape");
  await idle(page);
  const status = await page.locator("#status").textContent();
  const count = (await ids(page)).length - before;
  assert.ok(status.startsWith(`${count.toLocaleString("en")} tokens. Stopped. The context of ${context} tokens`), status);
}));

test("going on is what would have been written at once; another is the next seed's", { skip }, () => onPage({}, async (page) => {
  await set(page, { temperature: 1, topP: 1, seed: 3, tokens: 10 });
  await write(page);
  const half = await ids(page);
  await write(page, "go-on");
  const whole = await ids(page);
  const ours = await written(open(RUN, "int8"), BEGINNING, { temperature: 1, topK: 0, topP: 1, seed: 3 }, 20);
  assert.deepEqual(whole, ours.ids);
  assert.deepEqual(whole.slice(0, half.length), half);
  await write(page, "another");
  assert.equal(await page.locator("#seed").inputValue(), "4");
  assert.notDeepEqual(await ids(page), half);
}));

test("what could come next is shown while one types, with the model's probabilities and what the knobs leave", { skip }, () => onPage({}, async (page) => {
  await set(page, { temperature: 0.5, topK: 3, topP: 1 });
  await page.waitForFunction(() => document.querySelectorAll("#top .row.removed").length === 7);
  const rows = await top(page);
  assert.equal(rows.length, 10);
  const kept = rows.filter(({ after }) => after > 0);
  assert.ok(Math.abs(kept.reduce((sum, { after }) => sum + after, 0) - 1) < 1e-5, "what is left makes up the whole");
  assert.ok(Math.abs((kept[0].after / kept[1].after) - (kept[0].before / kept[1].before) ** 2) < 1e-3, "temperature 0.5 squares the odds");
  await page.locator("#prompt").fill("One day");
  await page.waitForFunction((first) => document.querySelector("#top .row")?.dataset.before !== String(first), rows[0].before);
}));

test("a token is looked at by pointer and by keys, and another is taken in its place", { skip }, () => onPage({}, async (page) => {
  await set(page, { temperature: 1, topP: 1, seed: 1, tokens: 12 });
  await write(page);
  const before = await ids(page);
  await page.locator("#text .token").nth(4).click();
  assert.equal((await top(page)).find(({ own }) => own).id, before[4]);
  await page.locator("#text").focus();
  await page.keyboard.press("ArrowLeft");
  assert.equal((await top(page)).find(({ own }) => own).id, before[3]);
  for (const held of ["Alt", "Shift", "Control"]) await page.keyboard.press(`${held}+ArrowLeft`);
  assert.equal((await top(page)).find(({ own }) => own).id, before[3], "the browser keeps its own keys");
  const other = (await top(page)).find(({ own }) => !own).id;
  await page.locator(`#top .row[data-id="${other}"]`).click();
  await idle(page);
  const now = await ids(page);
  assert.deepEqual(now.slice(0, 4), [...before.slice(0, 3), other]);
}));

test("while it writes, another token of those shown takes the last one's place", { skip }, () => onPage({}, async (page) => {
  await set(page, { temperature: 1, tokens: 100000 });
  await page.locator("#write").click();
  await page.locator("#text .token").nth(3).waitFor({ state: "attached" });
  const seen = await page.evaluate(() => { // at one moment, since tokens keep coming
    const id = ({ dataset }) => Number(dataset.id);
    const [own, other] = [".own", ":not(.own)"].map((kind) => document.querySelector(`#top .row${kind}`));
    const title = document.getElementById("top-title").textContent;
    const before = [...document.querySelectorAll("#text .token")].map(id);
    other.click();
    return { title, before, own: id(own), taken: id(other) };
  });
  await page.locator("#text .token").nth(seen.before.length - 1).waitFor({ state: "attached" });
  await page.keyboard.press("Escape");
  await idle(page);
  assert.equal(seen.title, "What could have come here");
  assert.equal(seen.own, seen.before.at(-1));
  assert.deepEqual((await ids(page)).slice(0, seen.before.length), [...seen.before.slice(0, -1), seen.taken]);
}));

test("the keyboard's focus goes from the row that it took to the text, and stays there", { skip }, () => onPage({}, async (page) => {
  await set(page, { temperature: 1, tokens: 5 });
  await write(page);
  // Until the answer has come, the rows are the last token's, and a press would take its place.
  await page.locator("#top-title", { hasText: "What could come next" }).waitFor();
  const before = (await ids(page)).length;
  await page.evaluate(() => {
    window.focused = [];
    document.addEventListener("focusin", ({ target }) => window.focused.push(target.id || target.classList[0]));
  });
  await page.locator("#top .row").nth(2).focus();
  await page.keyboard.press("Enter");
  await page.locator("#text .token").nth(before).waitFor({ state: "attached" });
  await idle(page);
  assert.deepEqual(await page.evaluate(() => window.focused), ["row", "text"]);
}));

test("what its maker says is text, and nothing else", { skip }, () => onPage({}, async (page) => {
  assert.equal(await page.title(), AWKWARD);
  assert.equal(await page.locator("#title").textContent(), AWKWARD);
  assert.equal(await page.evaluate(() => window.broken), undefined);
  const facts = await page.locator("#facts").textContent();
  const day = new Date().toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
  for (const words of ["<i>Ana</i>", `${day}, with Ember`, "2,000 built-in stories (", "20 steps"]) assert.ok(facts.includes(words), `${words} in ${facts}`);
  assert.match(facts, /\d% of [\d,]+ characters/);
  assert.match(facts, /[\d,]+, of which [1-9][\d,]* are stored in 32 bits each, the others in 8/);
}));

test("a character that the model does not know is said, and the page goes on", { skip }, () => onPage({ run: "gpt2-chars", flags: ["--beginning", "the", "--skip-copied"] }, async (page) => {
  await page.locator("#prompt").fill("§");
  await page.locator("#status", { hasText: "does not know the character \"§\"" }).waitFor();
  await page.locator("#prompt").fill("cat");
  await set(page, { tokens: 40 });
  await write(page);
  assert.ok((await ids(page)).length > 0);
}));

test("half characters of bytes are shown whole", { skip }, () => onPage({ run: "llama-bytes", flags: ["--beginning", "中", "--skip-copied"] }, async (page) => {
  await set(page, { temperature: 1, topP: 1, seed: 2, tokens: 60 });
  await write(page);
  const ours = await written(open("llama-bytes", "int8"), "中", { temperature: 1, topK: 0, topP: 1, seed: 2 }, 60);
  assert.equal(await shown(page), ours.text);
}));

test("what goes on in the middle of a character shows it whole", { skip }, () => onPage({ run: "llama-bytes", flags: ["--beginning", "中", "--skip-copied"] }, async (page) => {
  const settings = { temperature: 1, topK: 0, topP: 1, seed: 2 };
  const ours = await written(open("llama-bytes", "int8"), "中", settings, 60);
  const half = ours.emitted.findIndex(({ text, end }) => text === "" && !end);
  assert.ok(half >= 0 && half < 59, "a token ends inside a character");
  await set(page, { ...settings, tokens: half + 1 });
  await write(page);
  assert.ok((await shown(page)).endsWith("\ufffd"));
  await set(page, { tokens: 59 - half });
  await write(page, "go-on");
  assert.deepEqual(await ids(page), ours.ids);
  assert.equal(await shown(page), ours.text);
}));

for (const [width, colorScheme] of [[360, "light"], [360, "dark"], [1280, "light"], [1280, "dark"]]) {
  const options = { viewport: { width, height: width < 500 ? 740 : 900 }, colorScheme };
  test(`at ${width} pixels, ${colorScheme}: nothing sticks out, all can be read and pressed`, { skip }, () => onPage(options, async (page) => {
    await page.locator("summary").click();
    await set(page, { temperature: 1, topK: 4, tokens: 40, seed: 9 });
    await write(page);
    await page.locator("#text .token").nth(2).click();
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]);
    assert.ok(wide[0] <= wide[1], `${wide}`);
    const small = await page.locator("button:visible, input:visible, summary:visible, textarea:visible").evaluateAll((all) => all
      .filter((one) => one.getBoundingClientRect().height < 23).map((one) => one.id || one.textContent));
    assert.deepEqual(small, []);
    await page.locator("#text .token.looked-at").evaluate((token) => token.classList.add("end"));
    assert.deepEqual(await faint(page), []);
    if (screenshots) await page.screenshot({ path: `${screenshots}/share-${width}-${colorScheme}.png`, fullPage: true });
  }));
}

test("everything is reached by keyboard, and has a name", { skip }, () => onPage({}, async (page) => {
  await set(page, { tokens: 40 });
  await page.locator("#prompt").focus();
  await page.keyboard.press("Control+Enter");
  await page.locator("#text .token").first().waitFor();
  await idle(page);
  const nameless = await page.locator("button, input, textarea").evaluateAll((all) => all
    .filter((one) => !one.textContent.trim() && !one.labels?.length && !one.getAttribute("aria-label")).map((one) => one.outerHTML));
  assert.deepEqual(nameless, []);
  const reached = new Set();
  for (let i = 0; i < 25; i++) {
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName));
    await page.keyboard.press("Tab");
  }
  for (const id of ["write", "another", "text", "SUMMARY", "row"]) assert.ok([...reached].some((one) => one.includes(id)), `${id} of ${[...reached]}`);
}));
