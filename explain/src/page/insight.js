// Section 5: attention over the text, by layer and head, and the logit lens: what each layer would predict.

const MAP = 320; // pixels of the picture of all weights
const ALL_HEADS = -1;

/** A head's weights [query][key] from 0 to 1, or the mean over the heads. They are stored in thousandths. Of a long text only
 * the last queries are stored, so the first row need not be the first token's. */
function weights(layer, head) {
  const heads = head === ALL_HEADS ? layer : [layer[head]];
  return heads[0].map((row, query) => row.map((_, key) => heads.reduce((sum, one) => sum + one[query][key], 0) / (1000 * heads.length)));
}

/** All weights as a picture: a row per query, a column per key. */
function drawMap(canvas, rows, first, query) {
  const count = first + rows.length;
  const cell = Math.max(1, Math.floor((MAP * 2) / count));
  canvas.width = cell * count;
  canvas.height = cell * rows.length;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  const style = getComputedStyle(document.documentElement);
  context.fillStyle = style.getPropertyValue("--accent");
  for (const [place, row] of rows.entries()) {
    for (const [key, weight] of row.entries()) {
      context.globalAlpha = Math.sqrt(weight); // the square root makes small weights visible
      context.fillRect(key * cell, place * cell, cell, cell);
    }
  }
  context.globalAlpha = 1;
  context.strokeStyle = style.getPropertyValue("--other");
  context.lineWidth = Math.min(4, Math.max(1, cell / 6));
  context.strokeRect(0.5, (query - first) * cell + 0.5, (query + 1) * cell - 1, cell - 1);
}

/** The text, each token shaded by the query's attention to it. */
function shadedText(ids, row, query, onpick) {
  return ids.map((id, key) => {
    const weight = key <= query ? row[key] ?? 0 : 0;
    const kind = key === query ? "query" : key > query ? "later" : "";
    const tile = styled(element("span", { class: `token look ${kind}`, "data-weight": weight, title: `${percent(weight)}`, text: visibleToken(id) }),
      { "--weight": Math.sqrt(weight).toFixed(3) });
    tile.addEventListener("click", () => onpick(key));
    return tile;
  });
}

function attentionView(list) {
  const shown = { which: 0, layer: 0, head: ALL_HEADS, query: 0 };
  const canvas = element("canvas", { class: "map", role: "img" });
  const text = element("div", { class: "tokens", tabindex: "0", role: "group", "aria-label": "The text, shaded by attention" });
  const live = element("p", { class: "live", role: "status", "aria-live": "polite" });
  const table = element("ol", { class: "bars noted" });
  const now = () => list[shown.which];

  const draw = () => {
    const { ids, layers, first_query: first } = now();
    const rows = weights(layers[shown.layer], shown.head);
    const row = rows[shown.query - first];
    const order = row.map((weight, key) => ({ weight, key })).sort((a, b) => b.weight - a.weight || a.key - b.key);
    const best = order.slice(0, 10).filter(({ weight }) => weight > 0);
    const head = shown.head === ALL_HEADS ? "the mean of all heads" : `head ${shown.head + 1}`;
    text.replaceChildren(...shadedText(ids, row, shown.query, choose));
    live.textContent = `Layer ${shown.layer + 1}, ${head}: ${quoted(ids[shown.query])} looks most at ${quoted(ids[order[0].key])}`
      + `${order[0].key === shown.query ? " (itself)" : ""}, ${percent(order[0].weight)}.`;
    table.replaceChildren(...best.map(({ weight, key }) => barRow({ label: chip(ids[key]), p: weight, full: order[0].weight,
      note: key === shown.query ? "itself" : `${shown.query - key} back` })));
    canvas.setAttribute("aria-label", `Attention of layer ${shown.layer + 1}, ${head}: rows look, columns are looked at`);
    drawMap(canvas, rows, first, shown.query);
  };
  const pick = (key) => { shown.query = key; draw(); };
  const query = slider({ label: "The token that looks back", min: 0, max: 1, step: 1, value: 0, id: "attention-query",
    words: (place) => `${quoted(now().ids[place])}, number ${place + 1} of ${now().ids.length}`, oninput: pick });
  const choose = (place) => {
    const key = Math.max(now().first_query, Math.min(now().ids.length - 1, place));
    query.set(key);
    pick(key);
  };
  const atStep = (which) => {
    shown.which = which;
    query.input.min = now().first_query;
    query.input.max = now().ids.length - 1;
    shown.query = now().ids.length - 1;
    query.set(shown.query);
    draw();
  };
  const layers = now().layers;
  const stepChoice = choice("Step", list.map((one, which) => [which, `${one.step + 1}`]), atStep);
  const layerChoice = choice("Layer", layers.map((_, layer) => [layer, `${layer + 1}`]), (layer) => { shown.layer = layer; draw(); });
  const headChoice = choice("Head", [[ALL_HEADS, "mean of all"], ...layers[0].map((_, head) => [head, `${head + 1}`])],
    (head) => { shown.head = head; draw(); });
  canvas.addEventListener("click", (event) => {
    const { ids, first_query: first } = now();
    choose(first + Math.floor((event.offsetY / canvas.clientHeight) * (ids.length - first)));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const view = element("div", { id: "attention" }, element("h3", { text: "Attention" }),
    element("p", { text: "Pick a token: the more colour another has, the more of it flows into the one picked. No token sees those after it." }),
    element("div", { class: "fields" }, stepChoice.field, layerChoice.field, headChoice.field), query.field, live, text,
    element("div", { class: "beside" }, table, element("figure", {}, canvas,
      element("figcaption", { class: "hint", text: "All at once: each row is a token that looks, each column one that is looked at." }))));
  stepChoice.select.value = list.length - 1;
  atStep(list.length - 1);
  return view;
}

function lensTable({ layers }, chosen) {
  const cell = ({ id, probability }) => shaded("td", probability, chip(id, id === chosen ? "picked" : ""), ` ${percent(probability)}`);
  const row = (layer) => element("tr", {}, element("th", { scope: "row", text: layer.name }),
    element("td", { text: `${percent(layer.chosen.probability)}, no. ${number(layer.chosen.rank)}` }), ...layer.top.map(cell));
  const most = Math.max(...layers.map((layer) => layer.top.length));
  const heads = ["after", `the pick, ${quoted(chosen)}`, ...Array.from({ length: most }, (_, place) => `no. ${place + 1}`)];
  return element("table", { class: "lens" }, element("thead", {}, element("tr", {}, ...heads.map((text) => element("th", { scope: "col", text })))),
    element("tbody", {}, ...layers.map(row)));
}

function lensView(list) {
  const table = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Logit lens" });
  const draw = (which) => table.replaceChildren(lensTable(list[which], data.steps[list[which].step].chosen));
  const stepChoice = choice("Step", list.map((one, which) => [which, `${one.step + 1}`]), draw);
  stepChoice.select.value = list.length - 1;
  draw(list.length - 1);
  return element("div", { id: "lens" }, element("h3", { text: "What each layer would have said" }),
    element("p", { text: "The model's last layer turns its inner state into probabilities. Asked already after the embedding, or after each block, "
      + "it shows the answer taking shape (the \u201clogit lens\u201d). The last row is the real answer." }),
    element("div", { class: "fields" }, stepChoice.field), table);
}

function startInsight() {
  const body = byId("insight-body");
  body.append(data.attention?.length ? attentionView(data.attention) : absent("Attention"),
    data.lens?.length ? lensView(data.lens) : absent("The logit lens"));
}
