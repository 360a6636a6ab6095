// A talk, where the checkpoint has a template for one.

const talk = [];

function drawChat() {
  const words = element("textarea", { id: "chat-words", rows: 2, "aria-label": "What you say", placeholder: "Say something" });
  const send = mainPress("Send", "chat-send", () => {
    const said = words.value.trim();
    words.value = "";
    if (said !== "") busyWith(send, (signal) => speak(said, signal));
  });
  words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send.click();
  });
  const anew = press("Begin anew", () => {
    talk.length = 0;
    drawChat();
  });
  byId("view-chat").replaceChildren(element("div", { class: "wide" },
    element("ol", { class: "talk", id: "talk", role: "log", "aria-label": "The talk" }, talk.map(utterance)),
    element("div", { class: "say" }, words, send, anew)));
}

const utterance = ({ role, content }) => element("li", { class: role },
  element("span", { class: "who", text: role === "user" ? "You" : "Model" }), element("p", { class: "prose small", text: content }));

/** Says something and hears the answer as it comes. What failed is taken back, so that it can be said again. */
async function speak(said, signal) {
  talk.push({ role: "user", content: said });
  const { overflow, ...request } = requestFor({ count: 1 });
  const answer = { role: "assistant", content: "" };
  const item = utterance(answer);
  byId("talk").append(utterance(talk.at(-1)), item);
  try {
    for await (const chunk of streamed("/v1/chat/completions", { ...request, messages: talk }, signal)) {
      answer.content += chunk.choices[0]?.delta?.content ?? "";
      item.lastChild.textContent = answer.content;
      item.scrollIntoView({ block: "nearest" });
    }
    talk.push(answer);
  } catch (error) {
    if (answer.content !== "") talk.push(answer);
    else talk.pop();
    drawChat();
    throw error;
  }
}
