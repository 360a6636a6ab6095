// Headless Chromium, and pages in it that fail their test if they log to the console, throw, or ask for what is not theirs.

import assert from "node:assert/strict";

const executablePath = process.env.EMBER_BROWSER ?? "";
export const hasBrowser = executablePath !== "";
export const screenshots = process.env.EMBER_SCREENSHOTS ?? "";

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
let browser = null;

async function launched() {
  const { chromium } = await import("playwright-core");
  browser ??= await chromium.launch({ executablePath, args: ARGS });
  return browser;
}

export const close = async () => { await browser?.close(); };

/**
 * Runs `check` on a new page. `isOurs` tells of an address whether the page may ask for it, `isExpected` of a message whether it may
 * be on the console, `timeout` is how long the page is waited for; other options are the browser's: viewport, colorScheme.
 */
export async function onQuietPage({ isOurs, isExpected = () => false, timeout, ...options }, check) {
  const context = await (await launched()).newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(timeout);
  const [messages, requests] = [[], []];
  page.on("console", (message) => { if (!isExpected(message.text())) messages.push(`${message.type()}: ${message.text()}`); });
  page.on("pageerror", (error) => messages.push(`error: ${error.stack}`));
  page.on("dialog", (dialog) => { messages.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  context.on("request", (request) => { if (!/^(data|blob):/.test(request.url()) && !isOurs(request.url())) requests.push(request.url()); });
  try {
    await check(page, context);
    assert.deepEqual(messages, [], "the page says nothing on the console");
    assert.deepEqual(requests, [], "the page asks for nothing that is not its own");
  } finally {
    await context.close();
  }
}
