// A token's alternatives: shown beside it on hover, tap or Alt + Enter; a press on one branches from there.

/** After how many milliseconds over a token its alternatives are shown. */
const HOVER_PAUSE = 140;

const shownAlternatives = { span: null, timer: 0 };

/** Shows a token's alternatives beside its span; `pick(alternative)` continues with one. */
async function showAlternatives(span, token, pick) {
  const box = byId("alternatives");
  shownAlternatives.span?.classList.remove("looked-at");
  shownAlternatives.span = span;
  span.classList.add("looked-at");
  await nameAll((token.top ?? []).map(([id]) => id)).catch(() => {});
  if (shownAlternatives.span !== span) return;
  box.replaceChildren(...aboutToken(token, pick));
  box.hidden = false;
  setBeside(box, span);
}

function aboutToken({ id, text, logprob, top }, pick) {
  const head = element("p", { class: "about" }, element("b", { class: "chip", text: visible(text) || nameOf(id) }));
  if (typeof logprob !== "number") {
    const why = logprob === null ? "The text begins here: nothing comes before it." : "Not measured yet.";
    return [head, hint(why)];
  }
  const p = Math.exp(logprob);
  head.dataset.logprob = logprob;
  head.append(` ${percent(p)} probable, ${bits(bitsOf(logprob))} of surprise`);
  const rest = 1 - (top ?? []).reduce((sum, [, other]) => sum + Math.exp(other), 0);
  const full = Math.max(...(top ?? []).map(([, other]) => Math.exp(other)));
  const rows = (top ?? []).map((one) => alternativeRow(one, full, one[0] === id, pick));
  return [head, element("ol", { class: "rows" }, rows), hint(`All others together: ${percent(Math.max(0, rest))}`)];
}

function alternativeRow([id, logprob], full, isOwn, pick) {
  const p = Math.exp(logprob);
  const facts = { type: "button", class: `row${isOwn ? " own" : ""}`, "data-id": id, "data-logprob": logprob, "aria-current": isOwn };
  const onclick = () => {
    hideAlternatives();
    pick([id, logprob]);
  };
  return element("li", {}, element("button", { ...facts, onclick }, chip(id), bar(p, full), value(percent(p))));
}

const chip = (id) => element("span", { class: "chip", text: nameOf(id) });
const value = (text) => element("span", { class: "value", text });

/** Positions the box below the token, or above it if there is more room; on small screens the style makes it a bottom sheet. */
function setBeside(box, span) {
  const token = span.getClientRects()[0];
  if (!token) return;
  const [width, height] = [box.offsetWidth, box.offsetHeight];
  const below = token.bottom + height + 8 < innerHeight;
  styled(box, {
    "--left": `${Math.max(8, Math.min(token.left, innerWidth - width - 8))}px`,
    "--top": `${Math.max(8, below ? token.bottom + 2 : token.top - height - 2)}px`,
  });
}

function hideAlternatives() {
  clearTimeout(shownAlternatives.timer);
  shownAlternatives.span?.classList.remove("looked-at");
  shownAlternatives.span = null;
  byId("alternatives").hidden = true;
}

/** Shows alternatives for the tokens in `container`; `tokenAt(place)` returns a token, `pick(place, alternative)` branches from it. */
function tellsAlternatives(container, tokenAt, pick) {
  const spanOf = (event) => event.target.closest?.(".token");
  const showSpan = (span) => {
    const place = Number(span.dataset.place);
    const token = tokenAt(place);
    if (token && token.text === span.textContent) showAlternatives(span, token, (one) => pick(place, one));
  };
  container.addEventListener("pointerover", (event) => {
    const span = spanOf(event);
    if (!span || event.pointerType === "touch" || event.buttons > 0) return;
    clearTimeout(shownAlternatives.timer);
    shownAlternatives.timer = setTimeout(() => showSpan(span), HOVER_PAUSE);
  });
  container.addEventListener("pointerleave", leave);
  container.addEventListener("click", (event) => {
    const span = spanOf(event);
    if (span && getSelection().isCollapsed) showSpan(span);
  });
}

/** Hides the box, unless the pointer moved from the token into it. */
function leave() {
  clearTimeout(shownAlternatives.timer);
  shownAlternatives.timer = setTimeout(() => { if (!byId("alternatives").matches(":hover, :focus-within")) hideAlternatives(); }, 2 * HOVER_PAUSE);
}

/** The place of the token that a caret after so many characters is in, or directly after; null if there is none. */
function placeOfCaret(tokens, caret) {
  let end = 0;
  for (const [place, { text }] of tokens.entries()) {
    end += text.length;
    if (text !== "" && end >= caret) return place;
  }
  return null;
}

/** Shows the alternatives of the token before the caret. */
async function alternativesAtCaret() {
  const caret = caretAt();
  if (caret === null) return;
  await tokenizeTyped();
  const tokens = tokensTo(app.tree, app.current);
  const place = placeOfCaret(tokens, caret);
  if (place === null) return;
  const span = byId("text").querySelector(`[data-place="${place}"]`);
  await showAlternatives(span, tokens[place], (one) => branch(place, one));
  byId("alternatives").querySelector("button")?.focus();
}

function startAlternatives() {
  const box = byId("alternatives");
  tellsAlternatives(byId("text"), (place) => tokensTo(app.tree, app.current)[place], branch);
  box.addEventListener("pointerenter", () => clearTimeout(shownAlternatives.timer));
  box.addEventListener("pointerleave", leave);
  box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") byId("text").focus();
    if (!step) return;
    event.preventDefault();
    const rows = [...box.querySelectorAll("button")];
    rows.at((rows.indexOf(document.activeElement) + step) % rows.length)?.focus();
  });
  document.addEventListener("pointerdown", (event) => { if (!event.target.closest(".alternatives, .token")) hideAlternatives(); });
  byId("view-text").addEventListener("scroll", hideAlternatives, { passive: true });
}
