// The whole page: its head and foot, and the sections in order.

function startPage() {
  const { model, run } = data;
  byId("quote").replaceChildren(promptText(), run.text ?? textOf(run.ids));
  const how = run.strategy === "greedy" ? "greedily" : `by sampling with seed ${run.seed_digits}`;
  byId("facts").textContent = `${plural(run.ids.length, "new token")}, chosen ${how}, by a model of ${number(model.parameters)} parameters: `
    + `${plural(model.n_layer, "layer")} of ${plural(model.n_head, "head")}, a vocabulary of ${number(model.vocab_size)} tokens, `
    + `a window of ${number(model.context_length)}.`;
  byId("made-by").textContent = `Made by ${data.program} explain from ${model.checkpoint}.`;
  startLoop();
  startKnobs();
  startWays();
  startBeams();
  startInsight();
  startNoise();
  if (data.steps.length > 0) goTo(0);
}

startPage();
