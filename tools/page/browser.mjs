// The page that explain writes, in headless Chromium, without a network.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { hasBrowser, onQuietPage } from "./chromium.mjs";
import { file, missing } from "./program.mjs";

export { close, screenshots } from "./chromium.mjs";

/** The reason to skip tests in a browser, or false. */
export const noBrowser = missing || (hasBrowser ? false : "needs Chromium: run tools/check-page");

/** Runs `check` on a page of the program; `options` are the browser's: viewport, colorScheme, reducedMotion. */
export async function onPage(name, options, check) {
  const url = pathToFileURL(file(name)).href;
  await onQuietPage({ isOurs: (address) => address.startsWith(url), timeout: 5000, ...options }, async (page) => {
    await page.goto(url);
    await check(page);
  });
}

/** The rows of a bar chart: id, probability, note, the knob that removed it. */
export const rows = (page, list) => page.locator(`${list} > li`).evaluateAll((items) => items.map((item) => ({
  id: item.dataset.id === undefined ? null : Number(item.dataset.id),
  probability: Number(item.dataset.probability),
  note: item.querySelector(".note")?.textContent ?? "",
  removedBy: item.dataset.removedBy ?? "",
  grey: item.classList.contains("removed"),
  picked: item.classList.contains("picked"),
  value: item.querySelector(".value").textContent,
  width: parseFloat(item.querySelector(".fill").style.width),
})));

/** A line from 0 to 1: its picked share and the random draw, as displayed. */
export const unitLine = (page, place) => page.locator(`${place} .unit`).first().evaluate((unit) => {
  const picked = unit.querySelector(".share.picked");
  const draw = unit.querySelector(".draw");
  return {
    label: unit.getAttribute("aria-label"),
    picked: picked && { start: parseFloat(picked.style.left) / 100, width: parseFloat(picked.style.width) / 100 },
    draw: draw && { number: Number(draw.dataset.draw), place: parseFloat(draw.style.left) / 100 },
    covered: [...unit.querySelectorAll(".share")].reduce((sum, share) => sum + parseFloat(share.style.width) / 100, 0),
  };
});

export function near(actual, expected, what, tolerance = 1e-6) {
  assert.ok(Math.abs(actual - expected) <= tolerance, `${what}: ${actual}, not ${expected}`);
}

/** Types a value into a knob's field. */
export async function setKnob(page, name, value) {
  await page.locator(`#knob-${name.replace("_", "-")}`).fill(String(value));
}

/** Adds a row for every token that can have one. */
export const showAll = (page) => page.locator("#knobs-more").evaluate((button) => { while (!button.hidden) button.click(); });

export async function setKnobs(page, knobs) {
  for (const [name, value] of Object.entries(knobs)) await setKnob(page, name, value);
}
