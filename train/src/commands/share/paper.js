// The paper: the text, token by token, and the most probable tokens at the selected position.

/** The text: its prompt, its tokens, why it ended, the selected position (null: after the end), and the most probable next
 * tokens. */
const paper = { prompt: "", tokens: [], ended: null, place: null, next: null };

function clearPaper(prompt) {
  Object.assign(paper, { prompt, tokens: [], ended: null, place: null, next: null });
  byId("text").replaceChildren(element("span", { class: "given", text: prompt }));
}

/** Removes all tokens from a position on. What could have come there is what could come next. */
function cutPaper(place) {
  const next = paper.tokens[place]?.top ?? paper.next;
  paper.tokens.length = Math.min(paper.tokens.length, place);
  Object.assign(paper, { ended: null, place: null, next });
  const spans = [...byId("text").children];
  spans.slice(paper.tokens.length + 1).forEach((span) => span.remove());
  spans.forEach((span) => span.classList.remove("looked-at"));
}

function addToken(token) {
  paper.tokens.push(token);
  paper.next = null;
  byId("text").append(element("span", { class: token.end ? "token end" : "token", text: token.text, "data-id": token.id }));
}

/** Appends an incomplete character at the end of the text: it is shown, but belongs to no token. */
function addRest(rest) {
  const place = paper.tokens.findLastIndex(({ end }) => !end);
  if (rest !== "" && place >= 0) byId("text").children[place + 1].append(rest);
}

/** Removes it again before the text continues: the next token may complete it. */
function dropRest() {
  const last = paper.tokens.at(-1);
  if (last) byId("text").lastElementChild.textContent = last.text;
}

/** Selects a position of the text; null is after the end. */
function lookAt(place) {
  paper.place = place;
  [...byId("text").children].forEach((span, at) => span.classList.toggle("looked-at", place !== null && at === place + 1));
  showTop();
}

/** The position of a pressed token, or null. */
const placeOf = (span) => (span?.classList.contains("token") ? [...span.parentElement.children].indexOf(span) - 1 : null);

/** Sets an element's words; unchanged ones are not set again, or screen readers would read them out at every token. */
function setWords(id, words) {
  if (byId(id).textContent !== words) byId(id).textContent = words;
}

/** Shows the most probable tokens at a position, by default the selected one: what could come next, if no token is there. A
 * press on a row takes that token there. */
function showTop(place = paper.place ?? paper.tokens.length) {
  const token = paper.tokens[place];
  const top = (token ? token.top : paper.next) ?? [];
  setWords("top-title", token ? "What could have come here" : "What could come next");
  setWords("top-about", aboutPlace(token, top, place === paper.place));
  const full = Math.max(...top.flatMap(({ before, after }) => [before, after]), 0.01);
  setRows(top.map((one) => element("li", {}, topRow(one, full, token, place))));
}

/** Replaces the rows. The keyboard's focus stays in its place. It goes to the text if no row is left, and while one is written: at
 * every token a screen reader would read out a row, and another Enter would take what happens to stand there. */
function setRows(rows) {
  const list = byId("top");
  const focused = [...list.children].findIndex((row) => row.contains(document.activeElement));
  list.replaceChildren(...rows);
  if (focused < 0) return;
  const row = writing ? null : rows[Math.min(focused, rows.length - 1)]?.firstChild;
  (row ?? byId("text")).focus({ preventScroll: true });
}

function aboutPlace(token, top, isSelected) {
  if (token && !isSelected) return "The last token was drawn from these. Press another to continue with that in its place.";
  if (token) return `It wrote ${token.end ? "the end of the text" : visible(token.text) || "part of a character"}, with probability ${percent(token.p)}. Press another to continue from here with that.`;
  if (paper.ended === "end") return "The text has ended. Press a token in it to see what else could have come.";
  if (top.length === 0) return "";
  return "A bar is the probability after the knobs, the thin line the model's own. Press one to continue with it, or a token of the text to look there.";
}

function topRow({ id, text, before, after }, full, token, place) {
  const share = (p) => `${(100 * p) / full}%`;
  const fill = element("span", { class: "fill" });
  const was = element("span", { class: "was" });
  fill.style.width = share(after);
  was.style.left = share(before);
  const name = visible(text) || "∅";
  const classes = ["row", token?.id === id ? "own" : "", after === 0 ? "removed" : ""].filter(Boolean).join(" ");
  const words = `${name}: ${percent(after)}, ${percent(before)} before the knobs`;
  return element("button", { type: "button", class: classes, "data-id": id, "data-place": place, "data-before": before, "data-after": after, "aria-label": words, title: words },
    element("span", { class: "chip", text: name }),
    element("span", { class: "bar", "aria-hidden": "true" }, fill, was),
    element("span", { class: "value", text: percent(after) }));
}
