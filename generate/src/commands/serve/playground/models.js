// The models of the server. Ids are valid for one tokenizer only, so each tokenizer has its own tree; the other trees are stored,
// in the browser and in files, until a model with their tokenizer is chosen again.

const readModels = new Map();

/** A model's properties from the server, its knobs among them, and an id of its `vocabulary`. */
function factsOf(model) {
  if (!readModels.has(model)) {
    readModels.set(model, readFacts(model).catch((error) => {
      readModels.delete(model);
      throw error;
    }));
  }
  return readModels.get(model);
}

async function readFacts(model) {
  const { n_ctx, n_vocab, eos_token, chat_template, knobs, tokenizer_hash: hash } = await ask(`/props?model=${encodeURIComponent(model)}`);
  if (!hash) throw new Error(`${model} holds no tokenizer, which this page needs.`);
  knobsByModel.set(model, knobs);
  return { n_ctx, eos_token, chat_template, knobs, vocabulary: `${n_vocab} ${hash}` };
}

/** Switches to a model. Returns whether the text has to be tokenized again. */
async function useModel(model) {
  const { vocabulary, ...facts } = await factsOf(model);
  if (vocabulary !== app.vocabulary) await stopWriting();
  Object.assign(props, facts);
  settings.model = model;
  byId("tab-chat").hidden = !props.chat_template;
  if (vocabulary === app.vocabulary) return false;
  if (app.vocabulary !== null) app.others[app.vocabulary] = { tree: app.tree, current: app.current, names: toldNames() };
  const { tree, current, names } = app.others[vocabulary] ?? { tree: newTree(), current: 0, names: {} };
  delete app.others[vocabulary];
  Object.assign(app, { tree, current, vocabulary, beams: null });
  pieces.clear();
  for (const [id, piece] of Object.entries(names)) learn(Number(id), piece);
  return true;
}

/** Handles the choice of a model: the text stays, in the new model's tokens. */
async function chooseModel(model) {
  stopAll();
  await tokenizeTyped();
  const text = byId("text").textContent;
  try {
    if (await useModel(model)) {
      show(0);
      byId("text").textContent = text;
      await tokenizeTyped();
      say("This model has another tokenizer, so the text was tokenized again. Earlier texts come back with the earlier model.");
    }
  } catch (error) {
    mishap(error.message);
  }
  byId("model").value = settings.model;
  drawOpenDrawer(["knobs"]); // its folder may set others
  if (view === "compare") drawCompare();
  changed();
  scoreTokens();
}

/** Throws if a model's tokens differ, since texts then cannot be compared. */
async function ensureSameTokens(model) {
  const { vocabulary } = await factsOf(model);
  if (vocabulary === app.vocabulary) return;
  throw new Error(`${model} has another tokenizer than ${settings.model}: with the same noise their texts cannot be compared.`);
}
