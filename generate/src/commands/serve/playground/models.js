// The models of the server. Ids mean nothing to a model with another tokenizer, so each tokenizer has a tree of its own; the others
// are laid aside, in the browser and in files, until a model that understands them is chosen again.

const readModels = new Map();

/** What the server says of a model, and the name of its alphabet: all tokens that it writes with. */
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
  const { n_ctx, n_vocab, eos_token, chat_template, tokenizer_hash: hash } = await ask(`/props?model=${encodeURIComponent(model)}`);
  if (!hash) throw new Error(`${model} holds no tokenizer, and this page writes texts.`);
  return { n_ctx, eos_token, chat_template, alphabet: `${n_vocab} ${hash}` };
}

/** Writes with a model from now on. Returns whether the text has to be made of other tokens. */
async function useModel(model) {
  const { alphabet, ...facts } = await factsOf(model);
  Object.assign(props, facts);
  settings.model = model;
  byId("tab-chat").hidden = !props.chat_template;
  if (alphabet === app.alphabet) return false;
  if (app.alphabet !== null) app.others[app.alphabet] = { tree: app.tree, current: app.current, names: toldNames() };
  const { tree, current, names } = app.others[alphabet] ?? { tree: newTree(), current: 0, names: {} };
  delete app.others[alphabet];
  Object.assign(app, { tree, current, alphabet, beams: null });
  pieces.clear();
  for (const [id, piece] of Object.entries(names)) learn(Number(id), piece);
  return true;
}

/** Another model was chosen: the text stays, in its tokens. */
async function chooseModel(model) {
  stopAll();
  await settle();
  const text = byId("text").textContent;
  try {
    if (await useModel(model)) {
      show(0);
      byId("text").textContent = text;
      await settle();
      say("This model has other tokens; the text was made of them anew. What was tried before comes back with the model before.");
    }
  } catch (error) {
    mishap(error.message);
  }
  byId("model").value = settings.model;
  changed();
  measure();
}

/** Refuses to compare what cannot be compared. */
async function ensureSameTokens(model) {
  const { alphabet } = await factsOf(model);
  if (alphabet === app.alphabet) return;
  throw new Error(`${model} has other tokens than ${settings.model}: the same noise means nothing between them.`);
}
