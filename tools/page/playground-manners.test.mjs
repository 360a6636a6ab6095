// Tests the playground's behaviour: widths, light and dark, contrast, keyboard, names, quiet while streaming, early first text.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { faint } from "./contrast.mjs";
import { BEGINNING, close, drawer, idsOf, onPlayground, rest, screenshots } from "./playground.mjs";
import { set, shownText, skip, tokens, type, written } from "./playground.mjs";

after(close);

const VIEWS = ["compare", "learning", "beams"];
const DRAWERS = ["knobs", "tree", "grammar", "command", "texts"];

/** Opens everything that can be shown, and calls `look` each time. */
async function everywhere(page, look) {
  await written(page, BEGINNING, { tokens: 40 });
  await page.locator("#text .token:not(.given)").nth(4).hover();
  await page.locator("#alternatives .row").first().waitFor();
  await look("text");
  await page.keyboard.press("Escape");
  for (const name of DRAWERS) {
    await drawer(page, name);
    if (name === "knobs") await page.locator("#next .row").first().waitFor();
    await look(name);
  }
  await page.locator("#more").click();
  for (const name of VIEWS) {
    if (await page.locator(`#tab-${name}`).isHidden()) continue;
    await page.locator(`#tab-${name}`).click();
    const press = page.locator(`#view-${name} button.primary`);
    await press.click();
    await page.locator(`#view-${name} button.primary:enabled`).waitFor();
    await page.locator(`#view-${name} .token`).nth(3).waitFor();
    await look(name);
    await drawer(page, "command");
    await look(`${name}-command`);
    await page.locator("#more").click();
  }
}

for (const [width, colorScheme] of [[360, "light"], [360, "dark"], [1280, "light"], [1280, "dark"]]) {
  const options = { viewport: { width, height: width < 500 ? 740 : 860 }, colorScheme };
  test(`at ${width} pixels, ${colorScheme}: nothing sticks out`, { skip }, () => onPlayground(options, (page) => everywhere(page, async (name) => {
    const wide = await page.evaluate(() => [document.documentElement, ...document.querySelectorAll(".view, .panel, .bar, .top")]
      .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)
      .map((one) => `${one.id || one.className}: ${one.scrollWidth} > ${one.clientWidth}`));
    assert.deepEqual(wide, [], name);
    // Nodes of the tree are inline in text, like links, which WCAG 2.2 exempts (success criterion 2.5.8).
    const small = await page.locator("button:not(.piece):visible, select:visible, input:visible:not(.unseen), summary:visible").evaluateAll((all) => all
      .filter((control) => control.getBoundingClientRect().height < 23).map((control) => control.id || control.textContent));
    assert.deepEqual(small, [], `${name}: everything to press is high enough`);
    if (screenshots) await page.screenshot({ path: `${screenshots}/playground-${name}-${width}-${colorScheme}.png` });
  })));
}

for (const colorScheme of ["light", "dark"]) {
  test(`all words can be read, ${colorScheme}`, { skip }, () => onPlayground({ colorScheme }, (page) => everywhere(page, async (name) => {
    await page.evaluate(() => { // all colours of surprisal, of generated, given and last tokens
      if (document.querySelector(".sample-of-heats")) return;
      const all = document.createElement("p");
      all.className = "sample-of-heats";
      for (let heat = 0; heat < 7; heat++) {
        for (const kind of ["", " given", " end"]) {
          const word = Object.assign(document.createElement("span"), { className: "word", textContent: `word${heat}` });
          const token = Object.assign(document.createElement("span"), { className: `token heat-${heat}${kind}` });
          token.append(word);
          all.append(token);
        }
      }
      document.querySelector(".told").append(all);
    });
    assert.deepEqual(await faint(page), [], name);
  })));
}

test("the switch goes from the system's light to light, dark and back, and is remembered", { skip }, () => onPlayground({ colorScheme: "light" }, async (page) => {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.locator("#theme").click();
  assert.equal(await paper(), light);
  await page.locator("#theme").click();
  assert.notEqual(await paper(), light);
  await page.reload();
  assert.notEqual(await paper(), light);
}));

test("nothing moves while a text streams", { skip }, () => onPlayground({ reducedMotion: "no-preference" }, async (page) => {
  await page.evaluate(() => {
    window.shifts = [];
    const described = ({ value, sources }) => [value, sources.map(({ node }) => node?.id || node?.className).join()];
    new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map(described))).observe({ type: "layout-shift" });
  });
  await drawer(page, "tree");
  await type(page, BEGINNING);
  await rest(page);
  await page.evaluate(() => { window.shifts.length = 0; });
  await set(page, { tokens: 80 });
  await page.locator("#write").click();
  await page.locator("#text .token:not(.given)").nth(20).waitFor();
  await page.locator("#write:enabled").waitFor();
  await page.waitForTimeout(300);
  const shifts = await page.evaluate(() => window.shifts);
  assert.ok(shifts.reduce((sum, [value]) => sum + value, 0) < 0.005, JSON.stringify(shifts));
}));

test("the first text is there within half a second of Enter", { skip }, () => onPlayground({}, async (page) => {
  await written(page, BEGINNING, { tokens: 4 });
  await page.evaluate(() => {
    document.addEventListener("keydown", (event) => { if (event.key === "Enter") window.pressed = performance.now(); }, true);
    const before = document.querySelectorAll("#text .token").length;
    new MutationObserver((_, all) => {
      if (document.querySelectorAll("#text .token:not(.given)").length <= before) return;
      window.waited = performance.now() - window.pressed;
      all.disconnect();
    }).observe(document.getElementById("text"), { childList: true });
  });
  await set(page, { tokens: 30 });
  await type(page, " and so");
  await page.keyboard.press("Control+Enter");
  const waited = await (await page.waitForFunction(() => window.waited)).jsonValue();
  assert.ok(waited < 500, `${waited} ms`);
}));

test("everything is worked by the keyboard", { skip }, () => onPlayground({}, async (page) => {
  await written(page, BEGINNING, { tokens: 12 });
  const first = await tokens(page);
  await page.keyboard.press("Control+Shift+Enter");
  await page.waitForFunction(() => document.getElementById("sibling-place").textContent === "2 of 2");
  await rest(page);
  assert.notDeepEqual(idsOf(await tokens(page)), idsOf(first));
  await page.keyboard.press("Alt+ArrowLeft");
  assert.deepEqual(idsOf(await tokens(page)), idsOf(first));
  await page.keyboard.press("Alt+ArrowUp");
  assert.equal(await shownText(page), BEGINNING);
  await page.keyboard.press("Alt+ArrowDown");
  assert.deepEqual(idsOf(await tokens(page)), idsOf(first));
  await page.locator("#tokens").focus();
  for (const arrow of ["Left", "Up"]) await page.keyboard.press(`Alt+Arrow${arrow}`);
  assert.deepEqual(idsOf(await tokens(page)), idsOf(first), "a field keeps its keys");
  await page.locator("#text").focus();
  await page.keyboard.press("Control+End");
  await page.keyboard.press("Alt+Enter");
  await page.locator("#alternatives .row:focus").waitFor();
  await page.keyboard.press("ArrowDown");
  const id = Number(await page.locator("#alternatives .row:focus").getAttribute("data-id"));
  await page.keyboard.press("Enter");
  await page.waitForFunction((length) => document.querySelectorAll("#text .token").length > length, first.length);
  assert.ok(idsOf(await tokens(page)).includes(id));
  await rest(page);
  await page.locator("#tab-text").focus();
  await page.keyboard.press("ArrowRight");
  assert.ok(await page.locator("#view-compare").isVisible());
}));

const phone = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
test("a tap tells what hovering tells, on a phone", { skip }, () => onPlayground(phone, async (page) => {
  await written(page, BEGINNING, { tokens: 12 });
  await page.locator("#text .token").nth(5).tap();
  await page.locator("#alternatives .row").first().waitFor();
  const box = await page.locator("#alternatives").boundingBox();
  assert.ok(box.x >= 0 && box.x + box.width <= 360 && box.y + box.height <= 740);
}));

test("a screen reader finds names", { skip }, () => onPlayground({}, (page) => everywhere(page, async (name) => {
  const nameless = await page.evaluate(() => {
    const named = "a[href], button, select, input, textarea, [role='img'], [role='group'], [role='textbox'], [role='dialog'], [role='log']";
    return [...document.querySelectorAll(named)].filter((one) => {
      const labels = one.labels ? [...one.labels].map((label) => label.textContent) : [];
      const words = [one.getAttribute("aria-label"), one.getAttribute("aria-labelledby"), ...labels, one.tagName === "BUTTON" ? one.textContent : ""];
      return words.every((word) => !word?.trim());
    }).map((one) => one.outerHTML.slice(0, 100));
  });
  assert.deepEqual(nameless, [], name);
  const ids = await page.locator("[id]").evaluateAll((all) => all.map((one) => one.id));
  assert.equal(new Set(ids).size, ids.length, "no id twice");
})));

test("a text made of markup is text", { skip }, () => onPlayground({}, async (page) => {
  const awkward = '<img src=x onerror="alert(1)"></script><b>One';
  await written(page, awkward, { tokens: 4 });
  assert.ok((await shownText(page)).startsWith(awkward));
  assert.equal(await page.locator("#text img, #text b, #drawer-tree img").count(), 0);
  await drawer(page, "tree");
  assert.equal(await page.locator("#drawer-tree img").count(), 0);
}));
