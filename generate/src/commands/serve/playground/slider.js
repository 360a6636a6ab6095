// A slider through the steps of a training run: each step's continuation of the same prompt with the same noise, and the surprise
// of your text at that step.

const learning = { card: null, place: null, samples: new Map(), surprises: new Map(), playing: false };

/** Parses a checkpoint's name RUN@STEP; undefined for other names. The run's name may contain an @ too. */
const checkpointOf = (model) => model.match(/^(?<run>.+)@(?<step>\d+)$/s)?.groups;

/** The checkpoints of a run, in order. */
function stepsOf() {
  const runOf = (model) => checkpointOf(model)?.run;
  const of = (run) => props.models.filter((model) => runOf(model) === run);
  const runs = [settings.model, ...[settings.model, ...props.models].map(runOf)].filter((run) => run !== undefined);
  const run = runs.find((name) => of(name).length > 1);
  return run === undefined ? [] : of(run);
}

const stepName = (model) => `step ${number(checkpointOf(model).step)}`;

function drawLearning() {
  const steps = stepsOf();
  learning.card ??= sampleCard("");
  learning.place = Math.min(learning.place ?? steps.length - 1, steps.length - 1);
  const play = mainPress("Watch it learn", "learning-play", () => busyWith(play, watchIt));
  const range = { min: 0, max: steps.length - 1, step: 1 };
  const slider = element("input", { type: "range", id: "step", ...range, "aria-label": "Step of the training run" });
  slider.value = learning.place;
  slider.addEventListener("input", () => {
    Object.assign(learning, { playing: false, place: Number(slider.value) });
    busyWith(play, showStep);
  });
  byId("view-learning").replaceChildren(element("div", { class: "wide" },
    element("h2", { text: "Learning" }),
    hint("The same text and the same noise at every step of the run."),
    promptShown(),
    element("div", { class: "presses" }, play),
    slider,
    element("p", { class: "ends" }, element("span", { text: stepName(steps[0]) }), element("span", { text: stepName(steps.at(-1)) })),
    element("div", { id: "curve" }),
    learning.card.whole));
  drawCurve();
}

/** Plays all steps from first to last, each as soon as it is ready. */
async function watchIt(signal) {
  learning.playing = true;
  for (learning.place = 0; learning.place < stepsOf().length && learning.playing; learning.place += 1) {
    await showStep(signal);
    if (!calm.matches) await new Promise((ready) => setTimeout(ready, 500));
    if (signal.aborted) return;
  }
  learning.place = Math.min(learning.place, stepsOf().length - 1);
}

/** Shows a step's text; generated texts are cached, so the slider can move back and forth. */
async function showStep(signal) {
  const model = stepsOf()[learning.place];
  byId("step").value = learning.place;
  byId("step").setAttribute("aria-valuetext", stepName(model));
  const { card } = learning;
  const request = requestFor({ model, count: 1 });
  const name = JSON.stringify([request, promptOf(tokensTo(app.tree, app.current))]);
  card.heading.textContent = stepName(model);
  const kept = learning.samples.get(name);
  if (kept) {
    clearCard(card, request);
    addToCard(card, kept.tokens);
    card.end = kept.end;
    card.taking.disabled = kept.tokens.length === 0;
    tellFacts(card);
  } else {
    await fill(card, request, signal);
    learning.samples.set(name, { tokens: card.tokens, end: card.end });
  }
  await measureStep(model, signal);
  drawCurve();
  drawOpenDrawer(["command"]);
}

function learningCommands() {
  const model = learning.card.request?.model ?? stepsOf()[learning.place];
  return [cardCommand(learning.card, stepName(model), requestFor({ model, count: 1 }))];
}

const textName = (model) => JSON.stringify([model, promptOf(tokensTo(app.tree, app.current))]);

/** Computes the mean surprise of the text at a step. */
async function measureStep(model, signal) {
  if (learning.surprises.has(textName(model))) return;
  learning.surprises.set(textName(model), meanBits(await scoresOf(tokensTo(app.tree, app.current), model, signal)));
}

const CURVE_HEIGHT = 110;

/** Draws the surprise of your text by step, where it is known. */
function drawCurve() {
  const steps = stepsOf();
  const known = steps.map((model, place) => [place, learning.surprises.get(textName(model)) ?? null]).filter(([, mean]) => mean !== null);
  const highest = Math.max(...known.map(([, mean]) => mean), 1e-9);
  const width = byId("curve").clientWidth || 600;
  const across = (place) => 8 + (place / Math.max(1, steps.length - 1)) * (width - 16);
  const down = (mean) => 10 + (1 - mean / highest) * (CURVE_HEIGHT - 20);
  const point = ([place, mean]) => [across(place), down(mean)];
  const line = known.map((one, n) => `${n === 0 ? "M" : "L"}${point(one).map((at) => at.toFixed(1)).join(" ")}`).join("");
  const here = known.find(([place]) => place === learning.place);
  const unknown = "How much your text surprises this step is not known yet.";
  const words = here ? `Your text surprises ${stepName(steps[here[0]])} by ${bits(here[1])} per token.` : unknown;
  const picture = element("svg", { viewBox: `0 0 ${width} ${CURVE_HEIGHT}`, role: "img", "aria-label": words, class: "curve" },
    element("path", { d: line || "M0 0" }), known.map((one) => {
      const [cx, cy] = point(one);
      return element("circle", { cx, cy, r: one === here ? 6 : 3, class: one === here ? "here" : null, "data-bits": one[1] });
    }));
  byId("curve").replaceChildren(picture, hint(words));
}
