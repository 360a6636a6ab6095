// A page in headless Chromium that fails its test if it logs to the console, makes a network request, or throws.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { file, missing } from "./program.mjs";

const executablePath = process.env.EMBER_BROWSER ?? "";

/** The reason to skip tests in a browser, or false. */
export const noBrowser = missing || (executablePath === "" ? "needs Chromium: run tools/check-page" : false);

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
let browser = null;

async function launched() {
  const { chromium } = await import("playwright-core");
  browser ??= await chromium.launch({ executablePath, args: ARGS });
  return browser;
}

export const close = async () => { await browser?.close(); };

/** Runs `check` on a page of the program; `options` are the browser's: viewport, colorScheme, reducedMotion. */
export async function onPage(name, options, check) {
  const context = await (await launched()).newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(5000);
  const url = pathToFileURL(file(name)).href;
  const [messages, requests] = [[], []];
  page.on("console", (message) => messages.push(`${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => messages.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => { messages.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on("request", (request) => { if (!request.url().startsWith(`${url}`) && !request.url().startsWith("data:")) requests.push(request.url()); });
  try {
    await page.goto(url);
    await check(page);
    assert.deepEqual(messages, [], "the page says nothing on the console");
    assert.deepEqual(requests, [], "the page asks the network for nothing");
  } finally {
    await context.close();
  }
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
