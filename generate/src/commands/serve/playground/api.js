// Requests to the server: whole answers and streams. Failures are Errors with a message for people.

const UNREACHABLE = "The server does not answer. Is ember-generate serve still running?";

/** The API key, if the server asks for one; forgotten when the tab is closed. */
const apiKey = {
  get: () => ofTab.getItem("ember-key") ?? "",
  set: (key) => ofTab.setItem("ember-key", key),
};

/** A text as a header can carry it, where each character is a byte: in UTF-8, since a key need not be ASCII. */
const inBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));

async function reach(path, body, signal) {
  const headers = { "content-type": "application/json" };
  if (apiKey.get()) headers.authorization = `Bearer ${inBytes(apiKey.get())}`;
  const options = body === undefined ? { headers, signal } : { method: "POST", headers, body: JSON.stringify(body), signal };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(UNREACHABLE);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw Object.assign(new Error(inWords(answer?.error, response.status)), { status: response.status });
}

/** The server's error message as a sentence. */
function inWords(error, status) {
  const message = error?.message ?? `The server refused this (${status}).`;
  return `${message[0].toUpperCase()}${message.slice(1)}${/[.!?]$/.test(message) ? "" : "."}`;
}

/** Fetches a whole answer; a GET if there is no body. */
const ask = async (path, body, signal) => (await reach(path, body, signal)).json();

/** The chunks of a streamed completion, as they arrive. */
async function* streamed(path, body, signal) {
  const response = await reach(path, { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => { throw error.name === "AbortError" ? error : new Error(UNREACHABLE); });
      if (done) throw new Error("The connection ended before the text was complete.");
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (signal?.aborted) throw new DOMException("stopped", "AbortError"); // discard chunks that had already arrived
        if (chunk.error) throw new Error(inWords(chunk.error, 500));
        yield chunk;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
