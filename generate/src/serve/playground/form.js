// The form that a text must have: a JSON schema, a regular expression or a grammar. Every token that would break it is taken out
// before the draw.

const EXAMPLES = {
  json_schema: '{\n  "type": "object",\n  "properties": {\n    "name": { "type": "string", "maxLength": 12 },\n    "age": { "type": "integer", "minimum": 0, "maximum": 99 }\n  },\n  "required": ["name", "age"],\n  "additionalProperties": false\n}',
  regex: " (One|Two) [a-z]+\\.",
  lark_grammar: 'start: " " WORD (" " WORD)* "."\nWORD: /[a-z]+/',
};

function drawForm() {
  const { kind, text } = settings.form;
  const kinds = [["", "Any text"], ...Object.entries(FORMS)];
  const area = element("textarea", { id: "form-text", rows: 12, spellcheck: "false", "aria-label": "The form", oninput: () => setForm(kind, area.value) });
  area.value = text;
  byId("drawer-form").replaceChildren(...[
    element("h2", { text: "The form of the text" }),
    element("p", { class: "hint", text: "What the model writes will have this form. Tokens that would break it cannot be drawn." }),
    Object.assign(choice("Form", kinds, kind, (chosen) => { setForm(chosen, chosen && EXAMPLES[chosen]); drawForm(); }), { id: "form-kind" }),
    kind ? area : null,
  ].filter(Boolean));
}

function setForm(kind, text) {
  settings.form = { kind, text };
  keep();
  refreshKnobs();
}
