// Section 3: the same prompt under several ways to choose, side by side.

/** What a way's text repeats, in words. */
function repetitionFacts({ distinct_2: distinct, longest_repeat: longest, loops }) {
  const facts = [];
  if (loops) facts.push(element("span", { class: "badge warning", text: "loops" }));
  facts.push(element("dt", { text: "different pairs" }), element("dd", { text: distinct === null ? "\u2013" : percent(distinct) }));
  facts.push(element("dt", { text: "longest repeat" }), element("dd", { text: longest === 0 ? "none" : plural(longest, "token") }));
  return facts;
}

function wayCard(way, best) {
  const { name, flags, ids, text, logprob_sum: sum, tokens, repetition } = way;
  const each = tokens > 0 ? sum / tokens : 0;
  const [badge, ...facts] = repetition.loops ? repetitionFacts(repetition) : [null, ...repetitionFacts(repetition)];
  // The bar is the probability of an average token: 100% would be a text without a choice.
  const bar = styled(element("span", { class: "fill" }), { width: `${100 * Math.exp(each)}%` });
  return element("article", { class: "card way", "data-way": name },
    element("h3", {}, name, " ", badge, sum === best ? element("span", { class: "badge", text: "most probable" }) : null),
    element("p", { class: "hint flags" }, ...flags.flatMap((flag) => [element("code", { text: flag }), " "])),
    element("p", { class: "text" }, promptText(), text ?? textOf(ids)),
    element("dl", { class: "measures" },
      element("dt", { text: "log-probability" }), element("dd", { text: nats(sum) }),
      element("dt", { text: "tokens" }), element("dd", { text: number(tokens) }),
      element("dt", { text: "an average token" }),
      element("dd", {}, element("span", { class: "bar mini", "aria-hidden": "true" }, bar), ` ${percent(Math.exp(each))}`),
      ...facts));
}

function startWays() {
  const body = byId("ways-body");
  if (!data.ways?.length) return body.append(absent("The comparison"));
  const best = Math.max(...data.ways.map((way) => way.logprob_sum));
  body.append(element("p", { class: "hint", text: "The log-probability is the model's own verdict on the whole text, in nats: nearer to 0 is more "
      + "probable. Different pairs: how many of all pairs of neighbouring tokens are different ones; 100% repeats none. "
      + "The flags make ember-generate text write the same." }),
    element("div", { class: "grid" }, ...data.ways.map((way) => wayCard(way, best))));
  return undefined;
}
