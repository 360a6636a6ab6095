// The playground in headless Chromium, with a server that tools/check-playground has started at EMBER_PLAYGROUND.

import assert from "node:assert/strict";
import { hasBrowser, onQuietPage } from "./chromium.mjs";

export { close, screenshots } from "./chromium.mjs";

const origin = process.env.EMBER_PLAYGROUND ?? "";

/** The reason to skip the tests, or false. */
export const skip = origin === "" || !hasBrowser ? "needs a server and Chromium: run tools/check-playground" : false;

/** A beginning in the style of the built-in stories, which a small model of them can continue. */
export const BEGINNING = "One day Tom";

/** Sends a request to the server directly. */
export async function api(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(origin + path, options);
  return { status: response.status, body: await response.json() };
}

export const props = skip ? { models: [] } : (await api("/props")).body;

/** The first model that satisfies `is`, or undefined. */
export async function modelWith(is) {
  for (const model of props.models) if (is((await api(`/props?model=${encodeURIComponent(model)}`)).body)) return model;
  return undefined;
}

/**
 * Runs `check` on a new page. `options` are the browser's, and `refusals`: whether the server may refuse requests, which the browser
 * logs to the console.
 */
export async function onPlayground({ refusals = false, ...options }, check) {
  const isOurs = (address) => new URL(address).origin === origin;
  const isExpected = (message) => refusals && /status of 4\d\d/.test(message);
  await onQuietPage({ isOurs, isExpected, timeout: 10000, viewport: { width: 1280, height: 860 }, ...options }, async (page, context) => {
    await context.grantPermissions(["clipboard-read", "clipboard-write"]).catch(() => {});
    await opened(page);
    await check(page, context);
  });
}

export async function opened(page) {
  await page.goto(`${origin}/`);
  await page.locator("body[data-ready]").waitFor();
}

/** Types at the end of the text. */
export async function type(page, words) {
  await page.locator("#text").focus();
  await page.keyboard.press("Control+End");
  await page.keyboard.type(words);
}

/** Waits until generation has ended, typed text is tokenized, and every token is measured. */
export async function rest(page) {
  await page.locator("#write:enabled").waitFor();
  await page.waitForFunction(() => document.getElementById("text").getAttribute("aria-busy") !== "true"
    && [...document.querySelectorAll("#text .token")].slice(1).every((token) => token.dataset.logprob !== undefined));
}

/** Types a text, generates, and waits. */
export async function written(page, words = BEGINNING, settings = {}) {
  await set(page, settings);
  await type(page, words);
  await page.keyboard.press("Control+Enter");
  await page.locator("#text .token:not(.given)").first().waitFor({ state: "attached" });
  await rest(page);
}

/** Fills in the bar's fields. */
export async function set(page, settings) {
  for (const [name, value] of Object.entries(settings)) {
    await page.locator(`#${name}`).fill(String(value));
    await page.locator(`#${name}`).blur();
  }
}

/** Opens a drawer of the panel. */
export async function drawer(page, name) {
  if (await page.locator("#panel").isHidden()) await page.locator("#more").click();
  await page.locator(`#tab-${name}`).click();
}

export const shownText = (page) => page.locator("#text").evaluate((text) => text.textContent);

/** The tokens in `place`: id, logprob (null if none), whether given, colour. */
export const tokens = (page, place = "#text") => page.locator(`${place} .token`).evaluateAll((all) => all.map((token) => ({
  id: Number(token.dataset.id),
  logprob: token.dataset.logprob === undefined ? null : Number(token.dataset.logprob),
  given: token.classList.contains("given"),
  heat: Number(token.className.match(/heat-(\d)/)[1]),
})));

export const idsOf = (all) => all.map(({ id }) => id);

export function near(actual, expected, what, tolerance = 1e-6) {
  assert.ok(Math.abs(actual - expected) <= tolerance, `${what}: ${actual}, not ${expected}`);
}
