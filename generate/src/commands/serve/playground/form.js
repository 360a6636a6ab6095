// The form that a text must have: a JSON schema, a regular expression or a grammar. Every token that would break it is taken out
// before the draw.

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

function drawForm() {
  const { kind, text } = settings.form;
  const kinds = [["", "Any text"], ...Object.entries(FORMS)];
  const area = element("textarea", { id: "form-text", rows: 12, spellcheck: "false", "aria-label": "The form" });
  area.value = text;
  area.addEventListener("input", () => setForm(kind, area.value));
  const choose = (chosen) => {
    setForm(chosen, chosen && EXAMPLES[chosen]);
    drawForm();
  };
  byId("drawer-form").replaceChildren(...[
    element("h2", { text: "The form of the text" }),
    hint("What the model writes will have this form. Tokens that would break it cannot be drawn."),
    element("div", { id: "form-kind" }, choice("Form", kinds, kind, choose)),
    kind ? area : null,
  ].filter(Boolean));
}

function setForm(kind, text) {
  settings.form = { kind, text };
  keep();
  refreshKnobs();
}
