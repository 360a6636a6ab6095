// The whole page. The scripts are joined in this order: elements, parts, storage, api, tokens, tree, request, models,
// command, kept, store, editor, alternatives, writing, treeview, grammar, knobs, samples, compare, slider, beams, chat, keys, main.

const app = { tree: newTree(), current: 0, vocabulary: null, others: {}, writing: null, asking: null, beams: null, beamCount: 4 };
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const VIEWS = { text: () => {}, compare: drawCompare, learning: drawLearning, beams: drawBeams, chat: drawChat };
const COMMANDS = { text: textCommands, compare: compareCommands, learning: learningCommands, beams: beamCommands, chat: () => [] };
const DRAWERS = { knobs: drawKnobs, tree: drawTree, grammar: drawGrammar, command: drawCommand, texts: drawTexts };

/** Shows the text that ends with a node. */
function show(id) {
  app.current = id;
  markSeen(app.tree, id);
  hideAlternatives();
  drawText();
  changed();
  if (!app.writing) scoreTokens();
}

/** Updates everything that depends on the text or its scores. */
function changed() {
  drawSiblings();
  drawOpenDrawer(["tree", "command"]);
  refreshKnobs();
  keep();
}

/** Shows a node once typed text is tokenized. */
const goTo = async (id) => { await tokenizeTyped(); show(id); };

let view = "text";

function showView(name) {
  for (const one of Object.keys(VIEWS)) {
    byId(`view-${one}`).hidden = one !== name;
    select(byId(`tab-${one}`), one === name);
  }
  hideAlternatives();
  tokenizeTyped().then(() => {
    VIEWS[name]();
    view = name;
    drawOpenDrawer(["command"]);
  });
}

function select(tab, on) {
  tab.setAttribute("aria-selected", on);
  tab.tabIndex = on ? 0 : -1;
}

let drawer = "knobs";

function openDrawer(name = drawer) {
  drawer = name;
  byId("panel").hidden = false;
  byId("more").setAttribute("aria-expanded", true);
  document.body.classList.add("with-panel");
  for (const one of Object.keys(DRAWERS)) {
    byId(`drawer-${one}`).hidden = one !== name;
    select(byId(`tab-${one}`), one === name);
  }
  DRAWERS[name]();
}

function closePanel() {
  byId("panel").hidden = true;
  byId("more").setAttribute("aria-expanded", false);
  document.body.classList.remove("with-panel");
}

function drawOpenDrawer(names) {
  if (!byId("panel").hidden && names.includes(drawer)) DRAWERS[drawer]();
}

/** Tabs in a row; the arrow keys move between them. */
function startTabs(list, choose) {
  list.addEventListener("click", (event) => { if (event.target.role === "tab") choose(event.target); });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step || event.altKey) return;
    const tabs = [...list.querySelectorAll("[role=tab]:not([hidden])")];
    const next = tabs.at((tabs.indexOf(event.target) + step) % tabs.length);
    next.focus();
    choose(next);
  });
}

function say(words) {
  byId("status").textContent = words;
}

/** Shows an error above the text. */
function mishap(words) {
  byId("mishap-words").textContent = words;
  byId("mishap").hidden = false;
}

/** A number field of the bar; invalid input is reset. */
function startNumber(id, read) {
  const input = byId(id);
  input.addEventListener("change", () => {
    if (read(input.value)) settings[id] = Number(input.value);
    input.value = settings[id];
    keep();
    refreshKnobs();
    drawOpenDrawer(["command"]);
  });
}

function showSettings() {
  for (const name of ["tokens", "temperature", "seed"]) byId(name).value = settings[name];
  byId("model").value = settings.model;
  if (!byId("panel").hidden) DRAWERS[drawer]();
}

function setSeed(seed) {
  settings.seed = seed;
  byId("seed").value = seed;
}

const THEMES = { "": "Auto", light: "Light", dark: "Dark" };

function startTheme() {
  const names = Object.keys(THEMES);
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    byId("theme").textContent = THEMES[theme];
    byId("theme").title = "Light, dark, or the system's setting";
    lasting.setItem("ember-theme", theme);
  };
  byId("theme").addEventListener("click", () => set(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]));
  const kept = lasting.getItem("ember-theme");
  set(names.includes(kept) ? kept : "");
}

function stopAll() {
  stopWriting();
  app.asking?.abort();
  learning.playing = false;
}

function startBar() {
  byId("write").addEventListener("click", () => { showView("text"); writeHere(); });
  byId("another").addEventListener("click", () => { showView("text"); writeAnother(); });
  byId("stop").addEventListener("click", stopAll);
  byId("more").addEventListener("click", () => (byId("panel").hidden ? openDrawer() : closePanel()));
  byId("sibling-before").addEventListener("click", () => stepSibling(-1));
  byId("sibling-after").addEventListener("click", () => stepSibling(1));
  const whole = (least) => (text) => text !== "" && Number.isSafeInteger(Number(text)) && Number(text) >= least;
  startNumber("tokens", whole(1));
  startNumber("seed", whole(0));
  startNumber("temperature", (text) => text !== "" && Number(text) >= 0);
}

function startModels() {
  const select = byId("model");
  select.append(...props.models.map((model) => element("option", { value: model, text: model })));
  select.addEventListener("change", () => chooseModel(select.value));
  byId("tab-learning").hidden = stepsOf().length < 2;
}

/** Reads the server's properties; asks for a key if the server needs one. */
async function readProps() {
  try {
    props = await ask("/props");
  } catch (error) {
    mishap(error.status === 401 ? "This server needs an API key." : error.message);
    if (error.status === 401) askForKey();
    return false;
  }
  settings.model = props.model_alias;
  settings.temperature = Number(knobNamed("temperature")?.default ?? 1);
  return true;
}

function askForKey() {
  const key = element("input", { type: "password", autocomplete: "off" });
  const use = (event) => {
    event.preventDefault(); // nothing is sent: the page itself asks with the key
    apiKey.set(key.value.trim());
    byId("mishap").hidden = true;
    begin();
  };
  byId("mishap-words").append(" ", element("form", { onsubmit: use },
    element("label", { class: "field" }, "API key", key), element("button", { text: "Use" })));
  key.focus();
}

function start() {
  startTheme();
  byId("mishap-close").addEventListener("click", () => { byId("mishap").hidden = true; });
  begin();
}

/** Shows the texts, once the server answers; with an API key again, if it needs one. */
async function begin() {
  if (!await readProps()) return;
  try {
    await restore();
  } catch (error) {
    return mishap(error.message);
  }
  startModels();
  startBar();
  startKeys();
  startEditor();
  startAlternatives();
  startTabs(byId("views"), (tab) => showView(tab.dataset.view));
  startTabs(byId("drawers"), (tab) => openDrawer(tab.dataset.drawer));
  // A view's settings are part of its command.
  document.querySelector(".room").addEventListener("change", () => drawOpenDrawer(["command"]));
  startKeeping();
  showSettings();
  showView("text");
  show(app.current);
  say("Type a beginning, then press Write or Ctrl + Enter.");
  if (!isLasting) mishap(NOT_LASTING);
  if (matchMedia("(hover: hover)").matches) byId("text").focus();
  document.body.dataset.ready = "";
}

start();
