"""Makes generate/lib/tests/fixtures/beams*: the results of transformers' beam searches, for ours to reproduce.

    python tools/make_beam_fixtures.py [FOLDER]     with torch==2.11.0, transformers==5.17.0: all but beams-diverse.json
    python tools/make_beam_fixtures.py [FOLDER]     again with transformers==4.55.4: beams-diverse.json

Diverse beams were removed from transformers' core after 4.55.4, hence the two versions. FOLDER defaults to
generate/lib/tests/fixtures. The files are reproducible, bit for bit on the same processor.

`beams-MODEL/` are random models as `save_pretrained` writes them, the vocabulary's size in the name, flat or peaky. A case
has its model, its prompts (of different lengths, left-padded with an attention mask), the knobs by our names, and for each
prompt the returned sequences: new ids, including an end token, and `sequences_scores`.

The cases cover all combinations of early_stopping, length_penalty and number of end tokens; the other knobs are random. End tokens
are drawn from text that the model generates without any, so that hypotheses finish. Only cases that rounding cannot decide are kept:
- any two candidates next to one another in a ranking, any two finished hypotheses, and any two sides of a stopping rule
  differ by MARGIN at least;
- ties among the beams that do not exist (transformers scores them -1e9) do not matter: breaking all of them the other way
  gives the same result;
- in a batch every prompt has the same result as alone. (Left padding counts as text for transformers' repetition penalty and
  n-gram ban, so these knobs are used with one prompt only.)

`beams-sampled.json` is for beam sampling, whose random draws differ from ours: how often each sequence was returned in a number of
runs, so that the distributions can be compared. Sequences returned in fewer than RARE runs are counted together.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import torch
import transformers
from transformers import GPT2LMHeadModel
from transformers.generation import GenerationMode
from transformers.generation.configuration_utils import GenerationConfig
from transformers.generation.utils import GenerationMixin

from make_fixtures import random_model

MARGIN = 2e-5
RARE = 20
NOT_A_BEAM = -1e8  # a score below this belongs to a beam that does not exist
MODELS = {  # name: (seed, vocab_size, n_layer, scale of the logits)
    "5-flat": (1, 5, 1, 1.0),
    "7-peaky": (2, 7, 2, 2.5),
    "12-flat": (3, 12, 2, 0.8),
    "24-peaky": (4, 24, 1, 2.5),
    "40-flat": (5, 40, 2, 1.0),
    "60-peaky": (6, 60, 1, 2.0),
}
EARLY_STOPPING = [True, False, "never"]
LENGTH_PENALTIES = [-1.0, 0.0, 0.5, 1.0, 2.0]
DIVERSE = transformers.__version__.startswith("4.")


class Margins:
    """Records the margin of every decision of a search, and can break ties the other way."""

    topk = staticmethod(torch.topk)

    def __init__(self):
        self.smallest, self.ties_from_the_end = float("inf"), False
        self.last_ranking = []  # the rows of the last ranking, up to the cut-off

    def compare(self, a, b):
        if NOT_A_BEAM < min(a, b):
            self.smallest = min(self.smallest, abs(a - b))

    def compare_ranked(self, row):
        for a, b in zip(self.last_ranking[row], self.last_ranking[row][1:]):
            self.compare(a, b)

    def ranking(self, values, k, dim=-1, **_):
        """torch.topk, with all ties broken the same way."""
        if self.ties_from_the_end:
            order = torch.sort(values.flip(-1), dim=-1, descending=True, stable=True)
            order = order.values, values.shape[-1] - 1 - order.indices
        else:
            order = torch.sort(values, dim=-1, descending=True, stable=True)
        self.last_ranking = order[0].reshape(-1, values.shape[-1])[:, : k + 1].tolist()
        if not DIVERSE:
            for row in range(len(self.last_ranking)):
                self.compare_ranked(row)
        return order[0][..., :k].clone(), order[1][..., :k].clone()


margins = Margins()


def watch():
    """Patches transformers so that `margins` sees its decisions."""
    torch.topk = lambda *args, **kwargs: margins.ranking(*args, **kwargs)
    mode = GenerationConfig.get_generation_mode
    # `generate` treats one beam as greedy search; the search itself has no such exception, nor has ours.
    GenerationConfig.get_generation_mode = lambda self, *a: (
        GenerationMode.BEAM_SEARCH if self.num_beams == 1 else mode(self, *a)
    )
    if DIVERSE:
        from transformers.generation.beam_search import BeamHypotheses, BeamSearchScorer

        process, add, is_done = BeamSearchScorer.process, BeamHypotheses.add, BeamHypotheses.is_done

        def watched_process(self, *args, group_index=0, **kwargs):
            # A finished group continues as padding, with equal beams.
            for prompt, done in enumerate(self._done[group_index :: self.num_beam_groups].tolist()):
                if not done:
                    margins.compare_ranked(prompt)
            return process(self, *args, group_index=group_index, **kwargs)

        def watched_add(self, hyp, total, beam_indices=None, generated_len=None):
            score = total / generated_len**self.length_penalty
            for other, _, _ in self.beams:
                margins.compare(score, other)
            add(self, hyp, total, beam_indices, generated_len)

        def watched_is_done(self, best, length, prompt_len=0):
            longest = self.early_stopping == "never" and self.length_penalty > 0
            attainable = best / ((self.max_length if longest else length) - prompt_len) ** self.length_penalty
            # They are equal if the best candidate is the one that has just finished: rounding does not decide that.
            if len(self) >= self.num_beams and self.early_stopping is not True and attainable != self.worst_score:
                margins.compare(self.worst_score, attainable)
            return is_done(self, best, length, prompt_len)

        BeamSearchScorer.process = watched_process
        BeamHypotheses.add, BeamHypotheses.is_done = watched_add, watched_is_done
        return
    heuristic = GenerationMixin._check_early_stop_heuristic

    def watched(**kw):
        longest = kw["early_stopping"] == "never" and kw["length_penalty"] > 0
        length = (kw["max_length"] if longest else kw["cur_len"]) - kw["decoder_prompt_len"]
        best = kw["running_beam_scores"][:, 0] / length ** kw["length_penalty"]
        for best, pool, full in zip(best.tolist(), kw["beam_scores"].tolist(), kw["is_sent_finished"].all(1).tolist()):
            if full:
                margins.compare(best, min(pool))
        return heuristic(**kw)

    GenerationMixin._check_early_stop_heuristic = staticmethod(watched)


def generate(model, prompts, knobs):
    """Generates. Returns the sequences of each prompt, best first, as (ids, score)."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    ours = {"end_tokens": "eos_token_id", "bad_words": "bad_words_ids", "logit_bias": "sequence_bias"}
    arguments = {ours.get(name, name): value for name, value in knobs.items()}
    if "sequence_bias" in arguments:
        arguments["sequence_bias"] = {tuple(ids): bias for ids, bias in arguments["sequence_bias"]}
    ends = arguments.setdefault("eos_token_id", None)
    found = model.generate(
        ids, attention_mask=mask, pad_token_id=ends[0] if ends else 0, use_cache=True,
        return_dict_in_generate=True, output_scores=True, **{"do_sample": False, **arguments},
    )
    rows = []
    for row, score in zip(found.sequences[:, longest:].tolist(), found.sequences_scores.tolist()):
        end = next((i + 1 for i, token in enumerate(row) if token in (ends or [])), len(row))
        rows.append((row[:end], score))
    count = knobs.get("num_return_sequences", 1)
    return [rows[i : i + count] for i in range(0, len(rows), count)]


def same(a, b):
    """Whether two results are the same sequences with the same scores."""
    flat = [[pair for rows in result for pair in rows] for result in (a, b)]
    return all(x[0] == y[0] and abs(x[1] - y[1]) < 1e-4 for x, y in zip(*flat, strict=True))


def decided(model, prompts, knobs):
    """The result, or None if it depends on rounding, on a tie or on the rest of the batch."""
    margins.smallest = float("inf")
    results = []
    for margins.ties_from_the_end in (True, False):
        results.append(generate(model, prompts, knobs))
    if margins.smallest < MARGIN or not same(*results):
        return None
    if any(score < NOT_A_BEAM for rows in results[0] for _, score in rows):
        return None
    if len(prompts) > 1 and not same(results[0], [generate(model, [p], knobs)[0] for p in prompts]):
        return None
    return results[0]


def draw_case(rng, model, number):
    """The case with this number: (prompts, knobs)."""
    vocab_size = model.config.vocab_size
    draw_ids = lambda count: [rng.randrange(vocab_size) for _ in range(count)]
    prompts = [draw_ids(rng.randint(1, 7)) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    knobs = {
        "num_beams": 1 + number % 8,
        "max_new_tokens": rng.choice([1, 3, 6, 9, 12, 15]),
        "early_stopping": EARLY_STOPPING[number % 3],
        "length_penalty": LENGTH_PENALTIES[number // 3 % 5],
    }
    if DIVERSE:
        groups = rng.choice([2, 2, 3, 4])
        knobs["num_beams"] = groups * rng.randint(1, 3)
        knobs["num_beam_groups"] = groups
        knobs["diversity_penalty"] = rng.choice([0.2, 0.5, 1.0, 2.5, 5.0])
    count = number // 15 % 4
    if count:
        free = generate(model, prompts[:1], {**knobs, "max_new_tokens": 6, "num_return_sequences": knobs["num_beams"]})
        written = sorted({token for ids, _ in free[0] for token in ids})
        knobs["end_tokens"] = rng.sample(written, min(count, len(written), vocab_size - 2))
    knobs["num_return_sequences"] = rng.randint(1, knobs["num_beams"])
    if rng.random() < 0.4:
        knob = rng.choice(["repetition_penalty", "no_repeat_ngram_size", "bad_words", "min_new_tokens", "logit_bias"])
        if knob == "repetition_penalty":
            knobs[knob] = rng.choice([0.8, 1.2, 2.0])
        elif knob == "no_repeat_ngram_size":
            knobs[knob] = rng.choice([2, 3])
        elif knob == "bad_words":
            knobs[knob] = [draw_ids(1), draw_ids(2)]
        elif knob == "logit_bias":
            knobs[knob] = [[draw_ids(1), 1.5], [draw_ids(2), -2.0]]
        elif count:
            knobs[knob] = 3
        if knob in ("repetition_penalty", "no_repeat_ngram_size"):
            prompts = prompts[:1]
    return prompts, knobs


def count_draws(model, name, prompt, knobs, batches=10, runs=2000):
    """Counts how often beam sampling returns each best sequence."""
    counts = Counter()
    for seed in range(batches):
        torch.manual_seed(seed)
        for rows in generate(model, [prompt] * runs, {**knobs, "do_sample": True, "top_k": 0}):
            counts[tuple(rows[0][0])] += 1
    often = sorted((list(ids), count) for ids, count in counts.items() if count >= RARE)
    return {"model": name, "prompt": prompt, "knobs": knobs, "runs": batches * runs, "counts": often}


def write(file, cases):
    """Writes one case per line."""
    lines = ",\n".join(json.dumps(case) for case in cases)
    file.write_text(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}\n')


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "generate/lib/tests/fixtures")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    models = {}
    for name, (seed, vocab_size, n_layer, scale) in MODELS.items():
        path = folder / f"beams-{name}"
        if not DIVERSE:
            model = random_model(
                seed, position_scale=1.0, vocab_size=vocab_size, n_positions=32, n_embd=8, n_layer=n_layer, n_head=2
            )
            with torch.no_grad():
                model.transformer.wte.weight *= scale
            model.save_pretrained(path)
            (path / "generation_config.json").unlink(missing_ok=True)
        models[name] = GPT2LMHeadModel.from_pretrained(path, attn_implementation="eager").eval()
    if not DIVERSE:
        cases = [
            ("12-flat", [3, 1], dict(
                num_beams=2, max_new_tokens=3, early_stopping=True, length_penalty=0.0, temperature=0.4)),
            ("12-flat", [3, 1], dict(
                num_beams=3, max_new_tokens=4, early_stopping=False, length_penalty=1.0, temperature=1.2,
                end_tokens=[8])),
            ("40-flat", [15], dict(
                num_beams=3, max_new_tokens=4, early_stopping=True, length_penalty=2.0, temperature=1.0,
                end_tokens=[7, 31])),
            ("40-flat", [20, 4], dict(
                num_beams=2, max_new_tokens=3, early_stopping="never", length_penalty=-1.0, temperature=0.8,
                end_tokens=[7])),
        ]
        write(folder / "beams-sampled.json", [count_draws(models[case[0]], *case) for case in cases])
    watch()

    rng = random.Random(17)
    cases, dropped = [], 0
    for number in range(120):
        name = rng.choice(list(models))
        for _ in range(40):
            prompts, knobs = draw_case(rng, models[name], number)
            found = decided(models[name], prompts, knobs)
            if found:
                expected = [[{"ids": ids, "score": round(score, 6)} for ids, score in rows] for rows in found]
                cases.append({"model": name, "prompts": prompts, "knobs": knobs, "expected": expected})
                break
            dropped += 1
    file = folder / ("beams-diverse.json" if DIVERSE else "beams.json")
    write(file, cases)
    print(f"{file}: {len(cases)} cases, {dropped} dropped")


if __name__ == "__main__":
    main()
