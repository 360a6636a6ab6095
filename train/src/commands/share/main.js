// The whole page: handlers of buttons and keys. The scripts are joined in the order of share.rs; the worker runs the same script,
// and branches off in the last lines.

let askWorker = null;
let writing = false;

/** The number of tokens when generation last started. */
let begunAt = 0;

const isOpen = () => "ready" in document.body.dataset;

const say = (words) => setWords("status", words);

const request = () => ({ prompt: paper.prompt, written: paper.tokens.map(({ id }) => id), settings: { ...settings } });

function setWriting(on) {
  writing = on;
  byId("stop").disabled = !on;
  byId("go-on").disabled = on || paper.tokens.length === 0 || paper.ended === "end";
  byId("text").setAttribute("aria-busy", on);
}

/** Continues after the existing tokens. */
function goOn(taken = null) {
  const started = performance.now();
  begunAt = paper.tokens.length;
  setWriting(true);
  lookAt(null);
  dropRest();
  say("Reading…");
  askWorker({ ask: "write", ...request(), taken, count: settings.tokens }, (heard) => {
    if (heard.told === "token") {
      addToken(heard);
      say("Writing…");
      return showProgress();
    }
    setWriting(false);
    if (heard.told === "mishap") return say(heard.words);
    addRest(heard.rest);
    finish(heard, (performance.now() - started) / 1000);
  });
}

/** During generation, shows from what the last token was drawn: what could come next is known only when it has come. */
function showProgress() {
  if (paper.place === null) showTop(paper.tokens.length - 1);
}

const REASONS = { end: "The text has ended.", length: "Go on for more.", stopped: "Stopped." };

function finish({ reason, slides }, seconds) {
  paper.ended = reason;
  setWriting(false);
  const count = paper.tokens.length - begunAt;
  const rate = seconds > 0 ? `, ${number(Math.round(count / seconds))} per second` : "";
  const slow = slides && !settings.byHalves ? slowWords() : "";
  say(`${plural(count, "token")}${rate}. ${REASONS[reason]}${slow}`);
  look();
}

const slowWords = () => ` The context of ${number(head.config.context_length)} tokens is full, so each new token recomputes all of it: “Forget by halves” is faster.`;

/** Requests the most probable next tokens, unless a text is being generated. */
function look() {
  if (writing || !isOpen()) return;
  if (paper.ended === "end") {
    paper.next = null;
    return showTop();
  }
  askWorker({ ask: "look", ...request() }, (heard) => {
    paper.next = heard.top ?? null;
    if (heard.told === "mishap") say(heard.words);
    if (paper.place === null) showTop();
  });
}

/** Starts a new text from the typed prompt. */
function begin() {
  if (!isOpen()) return;
  clearPaper(byId("prompt").value);
  goOn();
}

function another() {
  setKnobs({ seed: settings.seed + 1 });
  begin();
}

function stop() {
  if (!writing) return;
  askWorker({ ask: "stop" });
  finish({ reason: "stopped", slides: paper.tokens.at(-1)?.slides }, 0);
}

/** Continues with another token at a position. */
function take(id, place) {
  cutPaper(place);
  goOn(id);
}

/** The prompt was edited: clears the old text. */
function retyped() {
  if (byId("prompt").value === paper.prompt) return look();
  clearPaper(byId("prompt").value);
  if (writing) askWorker({ ask: "stop" });
  setWriting(false);
  say("");
  look();
}

function startText() {
  const text = byId("text");
  const move = (by) => {
    const last = paper.tokens.length - 1;
    if (last >= 0) lookAt(Math.max(0, Math.min(last, (paper.place ?? last + 1) + by)));
  };
  text.addEventListener("click", ({ target }) => {
    const place = placeOf(target);
    lookAt(place === paper.place ? null : place);
  });
  text.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    move(by);
  });
}

function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) begin();
    if (event.key === "Escape") {
      if (writing) stop();
      else lookAt(null);
    }
  });
}

function startPresses() {
  byId("write").addEventListener("click", begin);
  byId("another").addEventListener("click", another);
  byId("go-on").addEventListener("click", () => goOn());
  byId("stop").addEventListener("click", stop);
  byId("prompt").addEventListener("input", later(retyped, 250));
  byId("top").addEventListener("click", ({ target }) => {
    const row = target.closest(".row");
    if (row) take(Number(row.dataset.id), Number(row.dataset.place));
  });
}

/** Passes the model to the worker; the page no longer needs its weights. */
function openModel() {
  askWorker = newWorker(byId("program").textContent);
  askWorker({ ask: "open", head, weights: byId("weights").textContent }, ({ told, words }) => {
    if (told === "mishap") return say(`This page's model cannot be opened: ${words}`);
    ["write", "another"].forEach((id) => { byId(id).disabled = false; });
    document.body.dataset.ready = "";
    retyped();
    say("Type a beginning, or let it begin by itself.");
  });
  byId("weights").remove();
}

let head = null;

function startPage() {
  head = JSON.parse(byId("model").textContent);
  const { temperature, top_k: topK, top_p: topP } = head.settings;
  byId("prompt").value = head.facts.beginning ?? "";
  showFacts(head);
  showKnobs(later(look, 150));
  setKnobs({ temperature, topK, topP });
  startPresses();
  startText();
  startKeys();
  say("Opening the model…");
  try {
    openModel();
  } catch (error) {
    say(`This browser does not let the page compute: ${error.message}. Try another browser.`);
  }
}

if (typeof document === "undefined") startWorker();
else startPage();
