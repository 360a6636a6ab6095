// The knobs' arithmetic on the stored logits of one step, as in generate/lib/src/processors: repetition penalty, temperature,
// top-k, top-p, min-p, in this order, in float32. Pure functions without DOM access: the tests run this file in Node.
//
// An entry stands for one token or, in the tail of a large vocabulary, for a group of `count` tokens of nearly the same logit
// (explain/src/stored.rs). A group has no id; a knob may take a part of it.

globalThis.EmberArithmetic = (() => {
  "use strict";
  const f32 = Math.fround;

  /** The knobs' values at which they change nothing. */
  const OFF = { temperature: 1, top_k: 0, top_p: 1, min_p: 0, repetition_penalty: 1 };

  /** The entries of a step's logits: those with an id, in the order stored, then the groups. */
  function entries({ ids, values, tail }) {
    return {
      ids: [...ids, ...tail.counts.map(() => null)],
      counts: [...ids.map(() => 1), ...tail.counts],
      logits: Float32Array.from([...values, ...tail.logits]),
    };
  }

  /** The maximum of the values and `least`, for any number of values; `Math.max(...values)` is limited to some 125,000. */
  const highest = (values, least) => values.reduce((largest, value) => Math.max(largest, value), least);

  /** Each entry's probability per token, where `left[i]` of its tokens remain; 0 where none do. */
  function softmax(values, left) {
    let highest = -Infinity;
    for (let i = 0; i < values.length; i++) if (left[i] > 0 && values[i] > highest) highest = values[i];
    const probabilities = new Float32Array(values.length);
    let total = 0;
    for (let i = 0; i < values.length; i++) {
      if (left[i] === 0) continue;
      probabilities[i] = Math.exp(f32(values[i] - highest));
      total += left[i] * probabilities[i];
    }
    total = f32(total);
    for (let i = 0; i < values.length; i++) probabilities[i] /= total;
    return probabilities;
  }

  /** Entries with remaining tokens, in ascending order of logits; among equal ones the lower id first. Groups, whose ids are not
   * known here, come first among equals. */
  function ascending(state) {
    const { values, left, ids } = state;
    const alive = [];
    for (let i = 0; i < values.length; i++) if (left[i] > 0) alive.push(i);
    return alive.sort((a, b) => values[a] - values[b] || (ids[a] ?? -1) - (ids[b] ?? -1));
  }

  /** Removes `count` tokens, or all, from an entry. */
  function remove(state, entry, knob, count = state.left[entry]) {
    state.left[entry] -= count;
    if (state.left[entry] === 0) state.removedBy[entry] = knob;
  }

  /** Negative logits times the penalty, positive ones divided by it; once for each token seen. */
  function repetitionPenalty(state, penalty, seen) {
    if (penalty === 1) return;
    const divisor = f32(penalty);
    for (let i = 0; i < state.ids.length; i++) {
      if (state.ids[i] === null || !seen.has(state.ids[i])) continue;
      state.values[i] = state.values[i] < 0 ? state.values[i] * divisor : state.values[i] / divisor;
      state.penalised[i] = true;
    }
  }

  /** Divides the logits. At 0 only the best token is left, of equal ones the lowest id: greedy. */
  function temperature(state, divisor) {
    if (divisor === 1) return;
    if (divisor > 0) {
      for (let i = 0; i < state.values.length; i++) state.values[i] /= f32(divisor);
      return;
    }
    let best = 0;
    for (let i = 1; i < state.values.length; i++) {
      const [value, highest] = [state.values[i], state.values[best]];
      if (value > highest || (value === highest && (state.ids[i] ?? Infinity) < (state.ids[best] ?? Infinity))) best = i;
    }
    for (let i = 0; i < state.values.length; i++) if (i !== best) remove(state, i, "temperature");
  }

  /** Keeps the k best tokens, and ties with the k-th. */
  function topK(state, k) {
    if (k === 0) return;
    const order = ascending(state).reverse();
    let kept = 0;
    let kth = -Infinity;
    for (const entry of order) {
      if (kept >= k && state.values[entry] < kth) {
        remove(state, entry, "top-k");
        continue;
      }
      const count = state.left[entry];
      // A group's logits are close, but do not tie: of the group with the k-th token, just enough tokens stay.
      if (kept + count > k && count > 1) remove(state, entry, "top-k", Math.min(count, kept + count - k));
      kept += count;
      if (kept >= k && kth === -Infinity) kth = state.values[entry];
    }
  }

  /** Removes tokens from the least probable up while their total probability is at most 1 - p; the best one stays. */
  function topP(state, p) {
    if (p >= 1) return;
    const order = ascending(state);
    const probabilities = softmax(state.values, state.left);
    const limit = f32(1 - p);
    let gone = 0;
    for (const [place, entry] of order.entries()) {
      const each = probabilities[entry];
      const isBest = place === order.length - 1;
      const available = state.left[entry] - (isBest ? 1 : 0);
      let count = available;
      if (f32(gone + count * each) > limit) {
        count = Math.min(available, Math.max(0, Math.floor((limit - gone) / each)));
        while (count > 0 && f32(gone + count * each) > limit) count--;
        while (count < available && f32(gone + (count + 1) * each) <= limit) count++;
      }
      remove(state, entry, "top-p", count);
      gone += count * each;
      if (count < available) return;
    }
  }

  /** Removes tokens less probable than `share` times the best one: a ratio of probabilities is a difference of logits. */
  function minP(state, share) {
    if (share <= 0) return;
    const furthest = f32(-Math.log(share));
    const order = ascending(state);
    const best = state.values[order[order.length - 1]];
    for (const entry of order.slice(0, -1)) {
      if (f32(best - state.values[entry]) > furthest) remove(state, entry, "min-p");
    }
  }

  /**
   * Applies the knobs to a step's logits. `seen` is the Set of ids in the prompt and the text so far.
   *
   * Returns the entries (`ids`, `counts`) with, for each: `before`, a token's probability under the model alone; `after`, after
   * the knobs; `left`, its remaining tokens; `removedBy`, the knob that removed the last of them; `penalised`.
   */
  function process(logits, knobs, seen) {
    const { ids, counts, logits: values } = entries(logits);
    const before = softmax(values, counts);
    const state = {
      ids, counts, before,
      values: Float32Array.from(values),
      left: Float64Array.from(counts),
      removedBy: ids.map(() => null),
      penalised: ids.map(() => false),
    };
    repetitionPenalty(state, knobs.repetition_penalty, seen);
    temperature(state, knobs.temperature);
    if (knobs.temperature > 0) {
      topK(state, knobs.top_k);
      topP(state, knobs.top_p);
      minP(state, knobs.min_p);
    }
    state.after = softmax(state.values, state.left);
    return state;
  }

  /** The survivors' shares of the unit interval, ordered by id as in the program; groups come last. */
  function shares(state) {
    const order = [];
    for (let i = 0; i < state.ids.length; i++) if (state.left[i] > 0 && state.after[i] > 0) order.push(i);
    order.sort((a, b) => (state.ids[a] ?? Infinity) - (state.ids[b] ?? Infinity) || a - b);
    let total = 0;
    for (const entry of order) total += state.left[entry] * state.after[entry];
    let end = 0;
    return order.map((entry) => {
      const start = end;
      end += state.left[entry] * state.after[entry];
      return { entry, id: state.ids[entry], start: start / total, end: end / total };
    });
  }

  /** The share that contains `uniform`, a number in [0, 1). */
  function shareAt(shares, uniform) {
    return shares.find((share) => uniform < share.end) ?? shares[shares.length - 1];
  }

  /** How many tokens are left, the vocabulary size, the probability mass that they had under the model, and the uncertainty as a
   * number of equally likely choices (the exponential of the entropy). */
  function summary(state) {
    let [tokens, vocabulary, mass, entropy] = [0, 0, 0, 0];
    for (let i = 0; i < state.ids.length; i++) {
      tokens += state.left[i];
      vocabulary += state.counts[i];
      mass += state.left[i] * state.before[i];
      if (state.after[i] > 0) entropy -= state.left[i] * state.after[i] * Math.log(state.after[i]);
    }
    return { tokens, vocabulary, mass, choices: Math.exp(entropy) };
  }

  return { OFF, highest, process, shares, shareAt, summary };
})();
