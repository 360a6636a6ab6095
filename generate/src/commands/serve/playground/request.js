// Builds requests from the page's settings: {model, tokens, temperature, seed, count, knobs (those that were set), grammar}.

let props = null;
const settings = { model: "", tokens: 64, temperature: 1, seed: 1, count: 1, knobs: {}, grammar: { kind: "", text: "" } };

const GRAMMARS = { json_schema: "JSON Schema", regex: "Regular expression", lark_grammar: "Lark grammar" };

/** Knobs shown in the page's bar or in one of its views instead of the drawer. */
const ELSEWHERE = ["temperature", "max_new_tokens", "num_return_sequences", "num_beams", "max_nodes"];

/** The knobs of each model that was asked for them: what its folder sets is their `default`. */
const knobsByModel = new Map();

/** A model's knobs; the chosen model's until its own are known. */
const knobsOf = (model) => knobsByModel.get(model) ?? props.knobs;

const knobNamed = (name, knobs = props.knobs) => knobs.find((knob) => knob.name === name);

/** What the page shows for knobs that this model's folder sets to another value than the chosen model's does. It is sent, so that
 * the model is the only difference between two texts. */
const defaultsToSend = (model) => Object.fromEntries(knobsOf(model).flatMap(({ name, default: own }) => {
  const shown = knobNamed(name).default;
  return ELSEWHERE.includes(name) || JSON.stringify(shown) === JSON.stringify(own) ? [] : [[name, shown]];
}));

/** The knobs that were set, without those under these headings of the drawer. */
const knobsWithout = (knobs, ...headings) =>
  Object.fromEntries(Object.entries(knobs).filter(([name]) => !headings.includes(knobNamed(name)?.heading)));

/** The key of a grammar that was set. */
const grammarKey = ({ kind, text }) => (kind && text ? { [kind]: text } : {});

/** A complete request except for its prompt; `set` overrides the page's settings. */
function requestFor(set = {}) {
  const { knobs = {}, ...others } = set;
  const now = { ...settings, ...others, knobs: { ...settings.knobs, ...knobs } };
  const greedy = now.temperature === 0;
  const count = greedy ? 1 : now.count;
  // Sent also if the model's folder sets several texts by default, or may: it need not be known yet.
  const own = knobsByModel.get(now.model);
  const severalByDefault = !own || knobNamed("num_return_sequences", own)?.default > 1;
  return {
    model: now.model,
    max_tokens: now.tokens,
    ...(greedy ? {} : { seed: now.seed }), // greedy draws nothing: with any seed it is the same request
    strategy: greedy ? "greedy" : "sample",
    ...(greedy ? {} : { temperature: now.temperature }),
    ...(count > 1 || severalByDefault ? { n: count } : {}),
    overflow: "slide",
    ...knobsWithout({ ...defaultsToSend(now.model), ...now.knobs }, "Beams", ...(greedy ? ["Sampling"] : [])),
    ...grammarKey(now.grammar),
  };
}

/** A request for a beam search, without sampling knobs and knobs of the strategy. */
function beamRequest(beams) {
  const strategy = settings.knobs.num_beam_groups > 1 ? "diverse-beam" : "beam";
  const { model, tokens, knobs, grammar } = settings;
  return {
    model, max_tokens: tokens, strategy, num_beams: beams, n: beams, overflow: "slide",
    ...knobsWithout(knobs, "Sampling", "Strategy"), ...grammarKey(grammar),
  };
}

/** What a request asks for beside the text: ids, log-probabilities and alternatives of its tokens. */
const WITH_LOGPROBS = { logprobs: ALTERNATIVES, return_token_ids: true };

/** The prompt's ids: of a text longer than the context, the last ones. */
const promptOf = (tokens) => idsOf(tokens).slice(-props.n_ctx);

/** The same for a request; no tokens become the empty text, which starts a document. */
const promptToSend = (tokens) => (tokens.length === 0 ? "" : promptOf(tokens));

/** Scores a text with a model: its tokens with their log-probabilities, nothing generated. */
async function scoresOf(tokens, model, signal) {
  if (tokens.length === 0) return [];
  const prompt = promptOf(tokens);
  const answer = await ask("/v1/completions", { model, prompt, max_tokens: 0, n: 1, echo: true, ...WITH_LOGPROBS }, signal);
  return tokensOfChoice(answer.choices[0], joiner());
}

/** Requests texts after `tokens`, and passes each choice's tokens on as they arrive: `hear(index, tokens, finish reason, its
 * text)`. */
async function writeOn(tokens, request, hear, signal) {
  const [joins, texts] = [new Map(), new Map()];
  const body = { ...request, prompt: promptToSend(tokens), ...WITH_LOGPROBS, stream_options: { include_usage: true } };
  let usage = null;
  for await (const chunk of streamed("/v1/completions", body, signal)) {
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      if (!joins.has(choice.index)) joins.set(choice.index, joinerAfter(tokens));
      texts.set(choice.index, (texts.get(choice.index) ?? "") + choice.text);
      hear(choice.index, tokensOfChoice(choice, joins.get(choice.index)), choice.finish_reason, texts.get(choice.index));
    }
  }
  return usage;
}
