// A conversation, if the checkpoint has a chat template.

let talk = [];

/** Resolves when the last message is answered or stopped; the next one waits for it. */
let talkEnded = Promise.resolve();

/** Draws the conversation, with the text being typed. */
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
  const anew = press("Start again", () => {
    app.asking?.abort();
    talk = [];
    drawChat();
  });
  byId("view-chat").replaceChildren(element("div", { class: "wide" },
    element("ol", { class: "talk", id: "talk", role: "log", "aria-label": "The conversation" }, talk.map(utterance)),
    element("div", { class: "say" }, words, send, anew)));
}

const utterance = ({ role, content }) => element("li", { class: role },
  element("span", { class: "who", text: role === "user" ? "You" : "Model" }), element("p", { class: "prose small", text: content }));

/** Sends a message once the previous answer has ended; sending also stops that answer. */
function speakNext(said, signal) {
  const spoken = talkEnded.then(() => speak(said, signal));
  talkEnded = spoken.catch(() => {});
  return spoken;
}

/** Sends a message and streams the answer. A failed message is taken back, so that it can be sent again. */
async function speak(said, signal) {
  const mine = talk; // a new conversation replaces `talk`
  const { overflow, ...request } = requestFor({ count: 1 });
  const messages = [...mine, { role: "user", content: said }];
  const answer = { role: "assistant", content: "" };
  mine.push(messages.at(-1), answer);
  byId("talk").append(...mine.slice(-2).map(utterance));
  try {
    for await (const chunk of streamed("/v1/chat/completions", { ...request, messages }, signal)) {
      answer.content += chunk.choices[0]?.delta?.content ?? "";
      if (mine === talk) showAnswer(answer);
    }
  } catch (error) {
    const isHeard = answer.content !== "";
    if (!isHeard) mine.splice(-2);
    if (mine === talk) drawChat(byId("chat-words").value || (isHeard ? "" : said));
    throw error;
  }
}

/** Shows what has come of the last answer; its element is another one if the view was drawn meanwhile. */
function showAnswer({ content }) {
  const item = byId("talk").lastElementChild;
  item.lastChild.textContent = content;
  item.scrollIntoView({ block: "nearest" });
}
