// Keyboard shortcuts, and their list in the drawer of texts.

/** The keys held with an arrow: on a Mac, Alt and an arrow move the caret by a word. */
const WITH_ARROW = navigator.platform.startsWith("Mac") ? "Ctrl+Alt" : "Alt";
const withArrow = (arrow) => `${WITH_ARROW.replace("+", " + ")} + ${arrow}`;

const SHORTCUTS = {
  "Ctrl+Enter": writeHere, "Ctrl+Shift+Enter": writeAnother, "Alt+Enter": alternativesAtCaret,
  [`${WITH_ARROW}+ArrowLeft`]: () => stepSibling(-1), [`${WITH_ARROW}+ArrowRight`]: () => stepSibling(1),
  [`${WITH_ARROW}+ArrowUp`]: () => stepDepth(false), [`${WITH_ARROW}+ArrowDown`]: () => stepDepth(true),
};

const KEYS = [["Ctrl + Enter", "write"], ["Ctrl + Shift + Enter", "another, from the same place"], ["Esc", "stop; close"],
  [withArrow("← →"), "the other continuations"], [withArrow("↑ ↓"), "back before this piece, and forward again"],
  ["Alt + Enter", "alternatives at the caret"], ["Ctrl + Z", "undo"]];

/** Whether keys with Alt have a meaning of their own there: they open a select box, and move through a field. */
const hasOwnKeys = (target) => target.closest("input, select, textarea") !== null;

function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return escape();
    const held = { Ctrl: event.ctrlKey || event.metaKey, Alt: event.altKey, Shift: event.shiftKey };
    const act = SHORTCUTS[[...Object.keys(held).filter((key) => held[key]), event.key].join("+")];
    if (!act || byId("view-text").hidden || (held.Alt && hasOwnKeys(event.target))) return;
    event.preventDefault();
    act();
  });
  byId("sibling-before").title = withArrow("←");
  byId("sibling-after").title = withArrow("→");
}

/** Esc closes or stops one thing, in this order: alternatives, writing, an error, the panel. */
function escape() {
  if (!byId("alternatives").hidden) hideAlternatives();
  else if (app.writing || app.asking) stopAll();
  else if (!byId("mishap").hidden) byId("mishap").hidden = true;
  else closePanel();
}
