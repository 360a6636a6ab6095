// A talk, where the checkpoint has a template for one.

let talk = [];

/** What was said last is answered, or given up: nothing else is said before. */
let talkEnded = Promise.resolve();

/** Draws the talk, with what is being typed. */
function drawChat(typed = byId("chat-words")?.value ?? "") {
  const words = element("textarea", { id: "chat-words", rows: 2, "aria-label": "What you say", placeholder: "Say something" });
  words.value = typed;
  const send = mainPress("Send", "chat-send", () => {
    const said = words.value.trim();
    words.value = "";
    if (said !== "") busyWith(send, (signal) => speakNext(said, signal));
  });
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send.click();
  });
  const anew = press("Begin anew", () => {
    app.asking?.abort();
    talk = [];
    drawChat();
  });
  byId("view-chat").replaceChildren(element("div", { class: "wide" },
    element("ol", { class: "talk", id: "talk", role: "log", "aria-label": "The talk" }, talk.map(utterance)),
    element("div", { class: "say" }, words, send, anew)));
}

const utterance = ({ role, content }) => element("li", { class: role },
  element("span", { class: "who", text: role === "user" ? "You" : "Model" }), element("p", { class: "prose small", text: content }));

/** Says something once what was said before has ended, which is on its way to: who speaks again stops it. */
function speakNext(said, signal) {
  const spoken = talkEnded.then(() => speak(said, signal));
  talkEnded = spoken.catch(() => {});
  return spoken;
}

/** Says something and hears the answer as it comes. What failed is taken back, so that it can be said again. */
async function speak(said, signal) {
  const mine = talk; // one that was begun anew is another
  mine.push({ role: "user", content: said });
  const { overflow, ...request } = requestFor({ count: 1 });
  const answer = { role: "assistant", content: "" };
  const item = utterance(answer);
  byId("talk").append(utterance(mine.at(-1)), item);
  try {
    for await (const chunk of streamed("/v1/chat/completions", { ...request, messages: mine }, signal)) {
      answer.content += chunk.choices[0]?.delta?.content ?? "";
      item.lastChild.textContent = answer.content;
      item.scrollIntoView({ block: "nearest" });
    }
    mine.push(answer);
  } catch (error) {
    const isHeard = answer.content !== "";
    if (isHeard) mine.push(answer);
    else mine.pop();
    if (mine === talk) drawChat(byId("chat-words").value || (isHeard ? "" : said));
    throw error;
  }
}
