// Command lines that reproduce what the open view shows, to the last bit. Each view provides its own as {words, command}.

/** Quotes a word for any POSIX shell. */
const quoted = (word) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** A flag with its value; one that begins with a dash must not look like a flag. */
const flagged = (flag, value) => (String(value).startsWith("-") ? quoted(`${flag}=${value}`) : `${flag} ${quoted(String(value))}`);

/** The folder that a model was loaded from. */
const folderOf = (model) => props.folders?.[props.models.indexOf(model)] ?? props.folder;

/** Flags that differ from the server's: its flag takes words, this page has token ids. */
const FLAGS = { bad_words_ids: "--bad-words-ids" };

/** The flags of a knob: lists become repeated flags, or values joined by commas; what is empty has none. */
function knobFlags(name, value) {
  if (fieldText(value) === "") return [];
  const flag = FLAGS[name] ?? knobNamed(name)?.flag ?? `--${name.replaceAll("_", "-")}`;
  if (value instanceof Object && !Array.isArray(value)) {
    // Biases in transformers' notation: {"(5, 6)": -2.5}.
    return Object.entries(value).map(([ids, bias]) => flagged(flag, `${(ids.match(/\d+/g) ?? [ids]).join("+")}=${bias}`));
  }
  if (!Array.isArray(value)) return [flagged(flag, value)];
  if (value.every((one) => typeof one === "number")) return [flagged(flag, value.join(","))];
  return value.map((one) => {
    if (!Array.isArray(one)) return flagged(flag, one);
    return flagged(flag, Array.isArray(one[0]) ? `${one[0].join("+")}=${one[1]}` : one.join(","));
  });
}

/** Grammars are read from files: the command writes them first. */
const GRAMMAR_FILES = { json_schema: ["--json-schema", "schema.json"], lark_grammar: ["--grammar", "grammar.lark"] };

/** Letters and common punctuation, which cannot form a special token's name. */
const PLAIN = /^[\p{L}\p{N}\s.,;:!?'"()-]*$/u;

/** The prompt as shell words: the text if it was tokenized at once, else the token ids. */
function promptWords({ text, ids }) {
  if (text === null) return [`--prompt-ids ${ids.join(",")}`];
  return [...(PLAIN.test(text) ? [] : ["--special-tokens text"]), `-- ${text === "" ? "''" : quoted(text)}`];
}

/** The command for a request after a prompt {text, ids}; `text` is null if only the ids reproduce it. */
function commandFor(request, prompt) {
  const { model, max_tokens: tokens, n, seed, strategy, overflow, stream, ...rest } = request;
  const before = [];
  const words = [`ember-generate text --from ${quoted(folderOf(model))}`, `--strategy ${strategy}`, `--max-new-tokens ${tokens}`];
  if (seed !== undefined) words.push(`--seed ${seed}`);
  if (n !== undefined) words.push(`--num-return-sequences ${n}`);
  // The program refuses a minimum, the request's or its model's own, above the limit.
  const least = rest.min_new_tokens ?? knobNamed("min_new_tokens", knobsOf(model))?.default;
  const knobs = { overflow, ...rest, ...(least > tokens ? { min_new_tokens: tokens } : {}) };
  for (const [name, value] of Object.entries(knobs)) {
    if (name in GRAMMAR_FILES) {
      const [flag, file] = GRAMMAR_FILES[name];
      before.push(`printf '%s' ${quoted(value)} > ${file}\n`);
      words.push(`${flag} ${file}`);
    } else words.push(...(name === "regex" ? [flagged("--regex", value)] : knobFlags(name, value)));
  }
  words.push(...(props.flags ?? []), ...promptWords(prompt));
  return before.join("") + words.join(" \\\n  ");
}

/** A text, or its first `count` tokens, as a prompt. */
function promptFor(tree, id, count = Infinity) {
  const tokens = tokensTo(tree, id).slice(0, count);
  const nodes = pathTo(tree, id).filter((node) => node.tokens.length > 0);
  const whole = tokens.length <= props.n_ctx && nodes[0]?.typed != null && nodes[0].tokens.length === tokens.length;
  return { text: tokens.length === 0 ? "" : whole ? nodes[0].typed : null, ids: promptOf(tokens) };
}

/** The command for a request that continues the shown text. */
const nextCommand = (request) => commandFor(request, promptFor(app.tree, app.current));

/** The command that generates `shown` tokens again. If the model itself ended the text, the length limit stays as it was. */
function commandAgain(request, prompt, shown, end) {
  const room = request.num_beams || end === "stop" ? request.max_tokens : shown;
  return commandFor({ ...request, max_tokens: room }, prompt);
}

/** The command that generated the end of the current text; for typed text, the command of the next Write. */
function textCommands() {
  const { tree, current: id } = app;
  const made = madeBy(tree, id);
  if (!made) return [{ words: "What Write does next:", command: nextCommand(requestFor()) }];
  const { request, index, start } = made;
  const shown = tokensTo(tree, id).length - start;
  const which = request.n > 1 ? ` It is text ${index + 1} of ${request.n}.` : "";
  return [{
    words: `Writes the last ${plural(shown, "token")} again, to the last bit.${which}`,
    command: commandAgain(request, promptFor(tree, id, start), shown, nodeOf(tree, id).end),
  }];
}

function drawCommand() {
  const shown = COMMANDS[view]().flatMap(({ words, command }) => {
    const whole = element("pre", { class: "command", tabindex: "0", text: command });
    return [hint(words), whole, copier(whole)];
  });
  const none = hint("The command line continues texts, and has no conversations.");
  byId("drawer-command").replaceChildren(element("h2", { text: "The same on the command line" }), ...(shown.length > 0 ? shown : [none]));
}

/** A button that copies an element's text. Browsers have no clipboard for pages that came over plain HTTP from another machine: the
 * text is then selected, to be copied by hand. */
function copier(place) {
  const reset = later(() => { copy.textContent = "Copy"; }, 4000);
  const copy = press("Copy", async () => {
    try {
      await navigator.clipboard.writeText(place.textContent);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(place);
      copy.textContent = "Selected: press Ctrl + C";
    }
    reset();
  });
  return copy;
}
