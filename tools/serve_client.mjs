// Checks `ember-generate serve` with OpenAI's npm client; run by tools/check_serve.py. Prints one JSON object per check.
//
//     node serve_client.mjs URL/v1 URL

import OpenAI from "openai";

const [baseURL, root] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const prompt = "One day Tom came to";

const check = (passed, what, detail = "") => console.log(JSON.stringify({ passed: Boolean(passed), what, detail: String(detail) }));

async function figure(name) {
  const text = await (await fetch(`${root}/metrics`)).text();
  return Number(text.match(new RegExp(`^\\w+:${name} (\\S+)$`, "m"))[1]);
}

async function until(condition) {
  for (let i = 0; i < 100; i++) {
    if (await condition()) return true;
    await new Promise((done) => setTimeout(done, 50));
  }
  return false;
}

const model = (await client.models.list()).data[0].id;
check(model, "a model is listed", model);

const knobs = { model, prompt, max_tokens: 16, temperature: 1, seed: 3 };
const whole = await client.completions.create(knobs);
check(whole.choices[0].text && whole.usage.completion_tokens <= 16, "a completion has text");

let streamed = "";
let usage = null;
for await (const piece of await client.completions.create({ ...knobs, stream: true, stream_options: { include_usage: true } })) {
  streamed += piece.choices[0]?.text ?? "";
  usage = piece.usage ?? usage;
}
check(streamed === whole.choices[0].text, "the pieces of a stream are the whole", streamed === whole.choices[0].text ? "" : streamed);
check(usage?.completion_tokens === whole.usage.completion_tokens, "usage comes with it");

const three = await client.completions.create({ ...knobs, n: 3, logprobs: 2 });
check(three.choices.length === 3 && three.choices[0].logprobs.tokens.length > 0, "three texts with logprobs");

for (const [what, kind, more] of [
  ["another model", OpenAI.NotFoundError, { model: "no-such-model" }],
  ["a temperature that is a word", OpenAI.BadRequestError, { temperature: "much" }],
]) {
  try {
    await client.completions.create({ ...knobs, ...more });
    check(false, `${what} is refused`, "it was answered");
  } catch (error) {
    check(error instanceof kind && error.type === (error.error?.type ?? error.type), `${what} is a ${kind.name}`, error.message);
  }
}

const before = await figure("requests_cancelled_total");
const stream = await client.completions.create({ ...knobs, n: 40, max_tokens: 60, ignore_eos: true, stream: true });
for await (const _ of stream) {
  stream.controller.abort();
  break;
}
const free = async () => (await figure("requests_cancelled_total")) === before + 1 && (await figure("requests_processing")) === 0;
check(await until(free), "an aborted stream counts as cancelled and leaves nothing at work");
