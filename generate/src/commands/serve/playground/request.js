// What is asked of the server, from what the page is set to. `settings` is all of it: {model, tokens, temperature, seed, count,
// knobs (those that were turned), grammar}.

let props = null;
const settings = { model: "", tokens: 64, temperature: 1, seed: 1, count: 1, knobs: {}, grammar: { kind: "", text: "" } };

const GRAMMARS = { json_schema: "JSON Schema", regex: "Regular expression", lark_grammar: "Lark grammar" };

/** Knobs that stand in the page's bar or belong to one of its views. */
const ELSEWHERE = ["temperature", "max_new_tokens", "num_return_sequences", "num_beams", "max_nodes"];

const knobNamed = (name) => props.knobs.find((knob) => knob.name === name);
const headed = (heading) => (name) => knobNamed(name)?.heading === heading;

/** A request without its prompt, which says all that decides the text. `set` says what is otherwise than the page is set. */
function requestFor(set = {}) {
  const { knobs = {}, ...others } = set;
  const now = { ...settings, ...others, knobs: { ...settings.knobs, ...knobs } };
  const greedy = now.temperature === 0;
  const count = greedy ? 1 : now.count;
  // Said where it is needed: a model's folder may ask for several texts itself.
  const usual = knobNamed("num_return_sequences")?.default ?? 1;
  const turned = Object.entries(now.knobs).filter(([name]) => !headed("Beams")(name) && !(greedy && headed("Sampling")(name)));
  return {
    model: now.model,
    max_tokens: now.tokens,
    seed: now.seed,
    strategy: greedy ? "greedy" : "sample",
    ...(greedy ? {} : { temperature: now.temperature }),
    ...(count > 1 || usual > 1 ? { n: count } : {}),
    overflow: "slide",
    ...Object.fromEntries(turned),
    ...(now.grammar.kind && now.grammar.text ? { [now.grammar.kind]: now.grammar.text } : {}),
  };
}

/** A request for the most probable texts: beams take no sampling knobs, and no rules of writing one token after another. */
function beamRequest(beams) {
  const turned = Object.entries(settings.knobs).filter(([name]) => !headed("Sampling")(name) && !headed("Strategy")(name));
  const strategy = settings.knobs.num_beam_groups > 1 ? "diverse-beam" : "beam";
  const { model, tokens, grammar } = settings;
  return {
    model, max_tokens: tokens, strategy, num_beams: beams, n: beams, overflow: "slide", ...Object.fromEntries(turned),
    ...(grammar.kind && grammar.text ? { [grammar.kind]: grammar.text } : {}),
  };
}

/** What is told beside the text. */
const TELLING = { logprobs: ALTERNATIVES, return_token_ids: true };

/** The model looks back on so many tokens: of a longer text the last ones are its prompt. */
const promptOf = (tokens) => idsOf(tokens).slice(-props.n_ctx);

/** The same for a request: without a token it is an empty text, which begins where a document does. */
const promptToSend = (tokens) => (tokens.length === 0 ? "" : promptOf(tokens));

/** A text measured by a model: its tokens with their numbers, nothing written. */
async function measured(tokens, model, signal) {
  if (tokens.length === 0) return [];
  const prompt = promptOf(tokens);
  const answer = await ask("/v1/completions", { model, prompt, max_tokens: 0, echo: true, ...TELLING }, signal);
  return tokensOfChoice(answer.choices[0], joiner());
}

/** Asks for texts after `tokens`, and tells each choice's tokens as they come: `hear(index, tokens, finish reason, its text)`. */
async function writeOn(tokens, request, hear, signal) {
  const [joins, texts] = [new Map(), new Map()];
  const body = { ...request, prompt: promptToSend(tokens), ...TELLING, stream_options: { include_usage: true } };
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
