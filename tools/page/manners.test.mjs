// Tests the page's behaviour: widths, light and dark, keyboard, names for screen readers, contrast, awkward texts, missing parts.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { close, noBrowser, onPage, screenshots } from "./browser.mjs";
import { read, writePage } from "./program.mjs";

after(close);
const skip = noBrowser;
const SECTIONS = ["loop", "knobs", "ways", "beams", "insight", "noise"];

for (const [width, colorScheme] of [[360, "light"], [360, "dark"], [1280, "light"], [1280, "dark"]]) {
  const options = { viewport: { width, height: 800 }, colorScheme };
  test(`at ${width} pixels, ${colorScheme}: nothing sticks out, everything is there`, { skip }, () => onPage("page.html", options, async (page) => {
    await page.locator("#loop-step").press("ArrowRight");
    await page.locator("#knobs-run-draw").click();
    // For any position of the draws.
    const steps = Number(await page.locator("#loop-step").getAttribute("max"));
    for (let step = 1; step <= steps; step++) {
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, `step ${step}`);
      await page.locator("#loop-step").press("ArrowRight");
    }
    for (const section of SECTIONS) {
      const box = await page.locator(`#${section}`).boundingBox();
      assert.ok(box.width <= width && box.height > 200, `${section}: ${box.width} x ${box.height}`);
      assert.equal(await page.locator(`#${section} .absent`).count(), 0, `${section} is not empty`);
      if (screenshots) await page.locator(`#${section}`).screenshot({ path: `${screenshots}/${section}-${width}-${colorScheme}.png` });
    }
    if (screenshots) await page.locator(".masthead").screenshot({ path: `${screenshots}/top-${width}-${colorScheme}.png` });
    const misaligned = await page.locator(".bars li").evaluateAll((all) => all.filter((row) => {
      const middle = (part) => { const box = part.getBoundingClientRect(); return box.top + box.height / 2; };
      const parts = [row.firstElementChild, row.querySelector(".bar"), row.querySelector(".value")].map(middle);
      return Math.max(...parts) - Math.min(...parts) > 4;
    }).map((row) => row.textContent));
    assert.deepEqual(misaligned, [], "token, bar and number stand in one row");
    const small = await page.locator("button:visible, select:visible, input:visible, summary:visible").evaluateAll((all) => all
      .filter((control) => control.getBoundingClientRect().height < 24).map((control) => control.id || control.textContent));
    assert.deepEqual(small, [], "everything to press is at least 24 pixels high");
  }));
}

test("colours can be read in light and dark", { skip }, async () => {
  for (const colorScheme of ["light", "dark"]) {
    await onPage("page.html", { colorScheme }, async (page) => {
      const ratios = await page.evaluate(() => {
        const colour = (name) => {
          const made = document.createElement("i");
          made.style.color = `var(--${name})`;
          document.body.append(made);
          const [r, g, b] = getComputedStyle(made).color.match(/\d+/g).map((byte) => {
            const share = Number(byte) / 255;
            return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
          });
          made.remove();
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const pairs = [["ink", "paper"], ["ink", "card"], ["ink", "faint"], ["soft", "paper"], ["soft", "card"], ["accent", "paper"], ["accent", "faint"],
          ["on-accent", "accent"], ["good", "good-faint"], ["gone-text", "card"], ["soft", "gone-fill"]];
        return pairs.map(([over, under]) => {
          const [a, b] = [colour(over), colour(under)];
          return { pair: `${over} on ${under}`, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
        });
      });
      // WCAG 2.2, success criterion 1.4.3: 4.5 for text.
      assert.deepEqual(ratios.filter(({ ratio }) => ratio < 4.5), [], colorScheme);
    });
  }
});

test("everything is reached and worked by the keyboard alone", { skip }, () => onPage("page.html", {}, async (page) => {
  const wanted = await page.evaluate(() => {
    const all = [...document.querySelectorAll("a[href], button, select, input, summary, [tabindex='0']")]
      .filter((control) => !control.disabled && control.checkVisibility());
    all.forEach((control, place) => { control.dataset.stop = place; });
    return all.length;
  });
  const reached = [];
  for (let i = 0; i < wanted; i++) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => {
      const style = getComputedStyle(document.activeElement);
      return { stop: Number(document.activeElement.dataset.stop), seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
    }));
  }
  assert.deepEqual(reached.map(({ stop }) => stop), Array.from({ length: wanted }, (_, place) => place), "in the order of the page, with no trap");
  assert.ok(reached.every(({ seen }) => seen), "and one sees where one is");
  await page.locator("#loop-forward").press("Enter");
  await page.locator("#loop-forward").press("Space");
  assert.equal(await page.locator("#loop-step").inputValue(), "2");
  await page.locator("#knobs-sample").press("Enter");
  assert.match(await page.locator("#knobs-draw").textContent(), /^The draw/);
  await page.locator("#attention select").nth(1).press("ArrowDown");
  assert.equal(await page.locator("#attention select").nth(1).inputValue(), "1");
  await page.locator("#beams summary").press("Enter");
  assert.ok(await page.locator("#beams details").evaluate((details) => details.open));
}));

test("a screen reader finds names, headings and what changes", { skip }, () => onPage("page.html", {}, async (page) => {
  const nameless = await page.evaluate(() => [...document.querySelectorAll("a[href], button, select, input, [role='img'], [role='group']")].filter((one) => {
    const labels = one.labels ? [...one.labels].map((label) => label.textContent) : [];
    return !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || labels.join("").trim()
      || (["A", "BUTTON"].includes(one.tagName) && one.textContent.trim()));
  }).map((one) => one.outerHTML.slice(0, 100)));
  assert.deepEqual(nameless, []);
  const levels = await page.locator("h1, h2, h3, h4").evaluateAll((all) => all.map((heading) => Number(heading.tagName[1])));
  assert.ok(levels.every((level, place) => place === 0 ? level === 1 : level <= levels[place - 1] + 1), `no level is left out: ${levels}`);
  assert.equal(await page.locator("main > section[aria-labelledby]").count(), SECTIONS.length);
  assert.ok(await page.locator("[aria-live='polite']").count() >= 5);
  const ids = await page.locator("[id]").evaluateAll((all) => all.map((one) => one.id));
  assert.equal(new Set(ids).size, ids.length, "no id twice");
  assert.equal(await page.locator("html").getAttribute("lang"), "en");
  for (const section of SECTIONS) assert.ok(await page.locator(`#${section} > .lead`).count() === 1 && await page.locator(`#${section} > .code code`).count() >= 1);
}));

test("motion stops where it is not wanted", { skip }, async () => {
  for (const [reducedMotion, moves] of [["reduce", false], ["no-preference", true]]) {
    await onPage("page.html", { reducedMotion }, async (page) => {
      const name = await page.locator("#loop-text .arrive").evaluate((mark) => getComputedStyle(mark).animationName);
      assert.equal(name !== "none", moves);
    });
  }
});

test("a prompt made of markup is text", { skip }, () => onPage("awkward.html", {}, async (page) => {
  const { prompt } = read("awkward.json");
  assert.ok(prompt.text.includes("</script>"), "the prompt is the awkward one");
  assert.ok((await page.locator("#quote").textContent()).startsWith(prompt.text));
  assert.ok((await page.locator("#loop-text").textContent()).startsWith(prompt.text));
  await page.locator("#loop-step").press("End");
}));

test("parts that were not asked for are missed, not mistaken", { skip }, async () => {
  const explained = read("page.json");
  for (const part of ["ways", "beams", "attention", "lens", "noise"]) explained[part] = null;
  explained.prompt.text = null;
  explained.run.text = null;
  explained.tokens = {};
  writePage("bare.html", explained);
  await onPage("bare.html", {}, async (page) => {
    assert.equal(await page.locator(".absent").count(), 5);
    assert.match(await page.locator("#quote").textContent(), /^(\[end\] )?#\d+ #\d+/, "without a tokenizer tokens are numbers");
    await page.locator("#loop-step").press("End");
    await page.locator("#knobs-sample").click();
  });
});
