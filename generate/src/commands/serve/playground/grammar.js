// The grammar that a text must follow: a JSON schema, a regular expression or a Lark grammar. Every token that would break it is
// removed before sampling.

const EXAMPLES = {
  json_schema: `{
  "type": "object",
  "properties": {
    "name": { "type": "string", "maxLength": 12 },
    "age": { "type": "integer", "minimum": 0, "maximum": 99 }
  },
  "required": ["name", "age"],
  "additionalProperties": false
}`,
  regex: " (One|Two) [a-z]+\\.",
  lark_grammar: 'start: " " WORD (" " WORD)* "."\nWORD: /[a-z]+/',
};

function drawGrammar() {
  const { kind, text } = settings.grammar;
  const kinds = [["", "Any text"], ...Object.entries(GRAMMARS)];
  const area = element("textarea", { id: "grammar-text", rows: 12, spellcheck: "false", "aria-label": "The grammar" });
  area.value = text;
  area.addEventListener("input", () => setGrammar(kind, area.value));
  const choose = (chosen) => {
    setGrammar(chosen, chosen && EXAMPLES[chosen]);
    drawGrammar();
  };
  byId("drawer-grammar").replaceChildren(...[
    element("h2", { text: "The grammar of the text" }),
    hint("What the model writes will follow this grammar. Tokens that would break it cannot be drawn."),
    element("div", { id: "grammar-kind" }, choice("Grammar", kinds, kind, choose)),
    kind ? area : null,
  ].filter(Boolean));
}

function setGrammar(kind, text) {
  settings.grammar = { kind, text };
  keep();
  refreshKnobs();
}
