// Saves the state in the browser or as a file. Nothing is sent anywhere.

const PLACE = "ember-playground";
const ASIDE = "ember-playground-unreadable";
const FORMAT = 1;
const NOT_LASTING = "This browser lets the page keep nothing: export your texts before you leave.";
const NOT_OURS = "This file does not hold texts of this page.";

/** The saved state as JSON. Its key for the vocabulary's id stays `alphabet`: browsers and files hold it. */
function packed() {
  const { vocabulary, tree, current, others } = app;
  return JSON.stringify({ format: FORMAT, alphabet: vocabulary, tree, current, names: toldNames(), others, settings });
}

/** The pieces of all tokens in the tree, which its texts do not give: a character split over tokens is in the last one's text. */
function toldNames() {
  const ids = Object.values(app.tree.nodes).flatMap(({ tokens }) => tokens.flatMap(({ id, top }) => [id, ...(top ?? []).map(([one]) => one)]));
  return Object.fromEntries([...new Set(ids)].filter((id) => pieces.has(id)).map((id) => [id, pieces.get(id)]));
}

/** The saved state as this page last read or wrote it. */
let lastKept = null;

/** Whether it is told that another tab has saved: once, or it would take the place of every later message. */
let isTold = false;

/** Whether another tab has saved. If nothing is kept any more, there is nothing to save over. */
const isOvertaken = () => ![null, lastKept].includes(lasting.getItem(PLACE));

/** Saves the state, but not over the texts of another tab. */
function keepNow() {
  if (isOvertaken()) return tellOvertaken();
  const state = packed();
  try {
    lasting.setItem(PLACE, state);
    lastKept = state;
    isTold = false;
  } catch (error) {
    const isFull = error.name === "QuotaExceededError";
    mishap(isFull ? "The browser has no room for these texts. Export them, then press Forget all." : `These texts are not saved: ${error.message}`);
  }
}
const keep = later(keepNow, 400);

/** Saves the state also over another tab's: all texts were forgotten or replaced on purpose. */
function keepInstead() {
  lastKept = lasting.getItem(PLACE);
  if (isTold) byId("mishap").hidden = true; // from now on this tab saves again
  keepNow();
}

function tellOvertaken() {
  if (isTold) return;
  isTold = true;
  mishap("Another tab has changed your texts, so this one saves no more. Export what is only here, then reload.");
  byId("mishap-words").append(" ", press("Reload", () => location.reload()));
}

function startKeeping() {
  addEventListener("pagehide", keepNow);
  addEventListener("storage", ({ key }) => { if (key === PLACE && isOvertaken()) tellOvertaken(); });
}

/** Loads saved state; invalid data is refused before anything changes. */
async function loadState(text) {
  const kept = JSON.parse(text);
  if (kept?.format !== FORMAT || typeof kept.alphabet !== "string") throw new SyntaxError(NOT_OURS);
  const all = [...Object.entries(kept.others ?? {}), [kept.alphabet, kept]];
  if (!all.every(([, one]) => isTree(one?.tree))) throw new SyntaxError(NOT_OURS);
  const others = Object.fromEntries(all.map(([vocabulary, one]) => [vocabulary, textsOf(one)]));
  const own = settingsOf(kept.settings);
  const model = props.models.includes(own.model) ? own.model : settings.model;
  const knobs = Object.fromEntries(Object.entries(own.knobs ?? {}).filter(([name]) => knobNamed(name)));
  await factsOf(model); // from here on nothing can fail
  await stopWriting();
  Object.assign(settings, own, { model, knobs });
  // The model gets the tree of its tokenizer, which need not be the one last shown.
  Object.assign(app, { vocabulary: null, others });
  await useModel(model);
}

async function restore() {
  const kept = lastKept = lasting.getItem(PLACE);
  try {
    if (kept !== null) await loadState(kept);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error; // a server error: the saved state must not be lost
    setAside(kept);
    mishap("The texts saved in this browser cannot be read. They are set aside, and the page starts empty.");
  }
  if (app.vocabulary === null) await useModel(settings.model);
}

/** Moves unreadable state aside, so that it is not lost. Removed first, since storage may not hold it twice. */
function setAside(kept) {
  lasting.removeItem(PLACE);
  lastKept = null;
  lasting.setItem(ASIDE, kept);
}

function exportTexts() {
  const address = URL.createObjectURL(new Blob([packed()], { type: "application/json" }));
  element("a", { href: address, download: "ember-texts.json" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** Whether there is a text, in the tokens of any model, or in another tab. */
const hasTexts = () => isOvertaken() || [app, ...Object.values(app.others)].some(({ tree }) => nodeOf(tree, 0).children.length > 0);

async function importTexts(file) {
  try {
    await loadState(await file.text());
  } catch (error) {
    mishap(error instanceof SyntaxError ? NOT_OURS : error.message);
    return;
  }
  showSettings();
  show(app.current);
  keepInstead(); // after showing it, so that only valid state is saved
}

function drawTexts() {
  const file = element("input", { type: "file", accept: ".json,application/json", id: "import-file", class: "unseen", tabindex: "-1",
    "aria-label": "A file to import", onchange: () => { if (file.files[0]) importTexts(file.files[0]); file.value = ""; } });
  byId("drawer-texts").replaceChildren(
    element("h2", { text: "Your texts" }),
    hint(isLasting ? "They are kept in this browser, and nowhere else." : NOT_LASTING),
    element("div", { class: "presses" }, press("New text", () => goTo(0), { id: "new-text" }),
      press("Export", exportTexts, { id: "export" }),
      pressTwice("Import", "Replace all texts?", () => file.click(), hasTexts, { id: "import" }), file,
      pressTwice("Forget all", "Really forget all?", forgetAll, hasTexts, { id: "forget" })),
    element("h2", { text: "Keys" }),
    element("dl", { class: "keys" }, KEYS.flatMap(([keys, meaning]) => [
      element("dt", {}, element("kbd", { text: keys })),
      element("dd", { text: meaning }),
    ])));
}

async function forgetAll() {
  await stopWriting();
  Object.assign(app, { tree: newTree(), current: 0, others: {} });
  keepInstead();
  show(0);
}
