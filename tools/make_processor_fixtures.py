"""Makes generate/lib/tests/fixtures/processors.json: results of transformers' logits processors, for ours to reproduce.

    python tools/make_processor_fixtures.py [FILE]

Needs torch==2.15.0 and transformers==5.24.0 (the versions that made the file in the repository). The file is
reproducible.

Every case is processed by the list that `generate` would build (`GenerationMixin._get_logits_processor`). A case holds
`knobs` (named as in our GenerationConfig; sequences of a logit bias are pairs of ids and bias), the text so far as `prompt`
and `generated`, the input scores as `logits` (null is minus infinity) or, for a large vocabulary, as the `seed` of the
function `hashed`, and the remaining tokens as `ids` with their `scores`.

Softmax differs in the last bits from one machine to the next, so no random case has a probability within a relative 1e-5, or
a sum of probabilities or a distance within 1e-5, of its threshold: `margin` measures that and the draw is
repeated. Cases with "tie" in their names meet the threshold exactly, with numbers that are exact in float32. Which of equal
scores top-p removes depends on torch.sort, whose order of ties depends on the processor; here it is made stable, so lower ids
are removed first.
"""

import functools
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel
from transformers.generation import logits_process as hf

MARGIN = 1e-5
VOCAB = 24
LARGE_VOCAB = 50257

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
torch.sort = functools.partial(torch.sort, stable=True)
rng = np.random.default_rng(20)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=4, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0))


def processors(knobs, prompt_len):
    """The processors that transformers' `generate` builds for our knobs."""
    renamed = {"bad_words": "bad_words_ids", "end_tokens": "eos_token_id"}
    values = {renamed.get(name, name): value for name, value in knobs.items() if name not in ("strategy", "logit_bias")}
    values.setdefault("eos_token_id", None)
    if "logit_bias" in knobs:
        values["sequence_bias"] = {tuple(ids): bias for ids, bias in knobs["logit_bias"]}
    strategy = knobs["strategy"]
    config = GenerationConfig(
        do_sample=strategy in ("sample", "beam-sample"), num_beams=2 if strategy.startswith("beam") else 1, **values
    )
    config.top_k = knobs.get("top_k", 0)  # transformers' default is 50
    model._prepare_special_tokens(config, device="cpu")
    return model._get_logits_processor(config, input_ids_seq_length=prompt_len, device="cpu")


def margin(processor, scores):
    """The distance of the nearest token from this processor's threshold."""
    logits = scores[0].double()
    logits = logits[logits > -torch.inf]
    p = logits.softmax(-1)
    if isinstance(processor, hf.TopPLogitsWarper):
        return (p.sort().values.cumsum(-1) - (1 - processor.top_p)).abs().min().item()
    if isinstance(processor, hf.MinPLogitsWarper):
        best = p.sort(descending=True).values
        keep = processor.min_tokens_to_keep
        if keep < len(p) and best[keep - 1] == best[keep] and best[keep] < processor.min_p * best[0]:
            return 0.0  # which of the two torch.topk picks is unspecified
        return (p / max(processor.min_p * p.max().item(), 1e-30) - 1).abs().min().item()
    if isinstance(processor, hf.TypicalLogitsWarper):
        surprise = -logits.log_softmax(-1)
        distance = (surprise - (p * surprise).sum()).abs()
        nearest = distance.sort()
        mass = p[nearest.indices].cumsum(-1)
        last = nearest.indices[min((mass < processor.mass).sum().item(), len(p) - 1)]
        others = distance[logits != logits[last]]
        edge = (others - distance[last]).abs().min().item() if len(others) else 1.0
        # If the first few are always kept, their order matters too.
        keep = processor.min_tokens_to_keep
        first = nearest.values[keep] - nearest.values[keep - 1] if 1 < keep < len(p) else torch.tensor(1.0)
        return min((mass - processor.mass).abs().min().item(), edge, first.item())
    if isinstance(processor, hf.EpsilonLogitsWarper):
        return (p / processor.epsilon - 1).abs().min().item()
    if isinstance(processor, hf.EtaLogitsWarper):
        epsilon = processor.epsilon.item()
        eta = min(epsilon, epsilon**0.5 * torch.exp((p * p.log()).sum()).item())
        return (p / eta - 1).abs().min().item()
    return 1.0


def process(knobs, prompt, generated, logits, exact_ties=False):
    """The remaining scores, or None if a threshold is too near or nothing remains."""
    scores = torch.tensor(logits, dtype=torch.float32)[None]
    ids = torch.tensor([prompt + generated])
    for processor in processors(knobs, len(prompt)):
        if not exact_ties and margin(processor, scores) < MARGIN:
            return None
        scores = processor(ids, scores)
        if scores.max() == -torch.inf:
            return None
    assert not scores.isnan().any()
    return scores[0]


def number(value):
    """The shortest decimal form of a float32 that is unique."""
    return float(f"{value:.9g}") if value > -np.inf else None


def hashed(seed):
    """Scores [LARGE_VOCAB] from exact float32 arithmetic: integers spread over the line, then cubed for a sharp top."""
    ids = np.arange(LARGE_VOCAB, dtype=np.uint64) + np.uint64(seed * LARGE_VOCAB)
    spread = ((ids * np.uint64(2654435761)) % np.uint64(2**32)) >> np.uint64(8)
    x = (spread.astype(np.float32) - np.float32(2**23)) * np.float32(2**-20)
    return x * x * x / np.float32(16)


cases = []


def record(name, knobs, prompt, generated, logits, after, seed=None):
    left = (after > -torch.inf).nonzero().flatten()
    before = {"logits": [number(v) for v in logits]} if seed is None else {"seed": seed}
    cases.append(
        {"name": name, "knobs": knobs, "prompt": prompt, "generated": generated}
        | before
        | {"ids": left.tolist(), "scores": [number(v) for v in after[left].tolist()]}
    )


def scores(kind):
    values = rng.normal(size=VOCAB) * 2.5
    if kind == "coarse":  # many equal ones
        values = np.round(values) / 2
    if kind == "holes":  # as after a constraint
        values[rng.random(VOCAB) < 0.4] = -np.inf
        values[rng.integers(VOCAB)] = 1.0
    values = values.astype(np.float32)
    if kind == "log":  # log-probabilities, as in beam search
        values = torch.tensor(values).log_softmax(-1).numpy()
    return values


def text():
    """A random prompt and new tokens, of few different ids, so that they repeat."""
    ids = rng.integers(1, 7, size=rng.integers(4, 16)).tolist()
    cut = int(rng.integers(1, len(ids)))
    return ids[:cut], ids[cut:]


def random_case(name, draw_knobs, kind):
    for _ in range(1000):
        prompt, generated = text()
        knobs, logits = draw_knobs(prompt + generated), scores(kind)
        after = process(knobs, prompt, generated, logits)
        if after is not None:
            return record(f"{name}, {kind}", knobs, prompt, generated, logits, after)
    raise SystemExit(f"{name}, {kind}: no draw keeps its distance")


def pick(*values):
    return values[rng.integers(len(values))]


# How to draw each knob; `ids` is the text so far.
KNOBS = {
    "logit_bias": lambda ids: [[[7], 1.5], [[9], -2.0], [ids[-2:] + [8], 3.0], [[ids[-1], 9], -1.25], [[1, 2, 3], 5.0]],
    "repetition_penalty": lambda ids: pick(0.8, 1.2, 1.7),
    "no_repeat_ngram_size": lambda ids: pick(1, 2, 3, 4),
    "bad_words": lambda ids: [[5], [0], ids[-1:] + [10], ids[-3:] + [11], [12, 13], [ids[-1], 0]],
    "min_new_tokens": lambda ids: pick(1, 4, 8, 30),
    "suppress_tokens": lambda ids: [3, 14, 15],
    "temperature": lambda ids: pick(0.5, 0.7, 1.3, 2.0),
    "top_k": lambda ids: pick(1, 3, 8, 20, 200),
    "top_p": lambda ids: pick(0.05, 0.3, 0.6, 0.9, 0.99),
    "min_p": lambda ids: pick(0.01, 0.1, 0.5, 0.9),
    "typical_p": lambda ids: pick(0.1, 0.4, 0.8, 0.95),
    "epsilon_cutoff": lambda ids: pick(0.001, 0.02, 0.1, 0.6),
    "eta_cutoff": lambda ids: pick(0.001, 0.02, 0.3, 0.9),
}
SAMPLING = ["temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"]
ENDS = [[0], [0, 16], [0, 16, 17]]


def knobs_of(names, strategy):
    def draw(ids):
        ends = {} if strategy == "sample" and rng.random() < 0.3 else {"end_tokens": pick(*ENDS)}
        return {"strategy": strategy} | ends | {name: KNOBS[name](ids) for name in names}

    return draw


# Each processor by itself.
for knob in KNOBS:
    strategies = ["sample", "sample", "beam-sample"] if knob in SAMPLING else ["greedy", "beam"]
    for strategy in strategies:
        for kind in ["plain", "coarse", "holes", "log"]:
            random_case(f"{knob} alone, {strategy}", knobs_of([knob], strategy), kind)

# Combinations: random ones, then all at once.
for count in [2, 3, 4, 5, 6, 8]:
    for strategy in ["sample", "beam-sample", "sample", "greedy"]:
        for kind in ["plain", "log"]:
            names = [name for name in KNOBS if strategy != "greedy" or name not in SAMPLING]
            drawn = sorted(rng.choice(len(names), size=min(count, len(names)), replace=False))
            random_case(f"{count} together, {strategy}", knobs_of([names[i] for i in drawn], strategy), kind)
for strategy in ["sample", "beam-sample"]:
    for kind in ["plain", "log", "holes"]:
        random_case(f"all together, {strategy}", knobs_of(list(KNOBS), strategy), kind)

# Thresholds met exactly: uniform distributions over 2^n tokens, whose probabilities are exact in float32.
EVEN = np.where(np.arange(VOCAB) % 3 == 1, np.float32(1), -np.inf).astype(np.float32)  # 8 tokens of 1/8
for knobs in [
    {"top_p": 0.5},
    {"top_p": 0.25},
    {"top_p": 0.875},
    {"top_p": 1e-9},
    {"top_k": 3},
    {"min_p": 1.0},
    {"typical_p": 0.5},
    {"typical_p": 0.125},
    {"epsilon_cutoff": 0.125},
    {"epsilon_cutoff": 0.2},
    {"eta_cutoff": 0.2},
    {"top_k": 3, "top_p": 0.5, "typical_p": 0.5, "epsilon_cutoff": 0.125},
    {"temperature": 0.5, "top_p": 0.5, "top_k": 1},
]:
    for strategy in ["sample", "beam-sample"]:
        full = {"strategy": strategy, "end_tokens": [0, 16]} | knobs
        if strategy == "beam-sample" and "min_p" in knobs:
            continue
        after = process(full, [1, 2], [3], EVEN, exact_ties=True)
        record(f"tie: {' '.join(knobs)}, {strategy}", full, [1, 2], [3], EVEN, after)

# The condition on lengths: a sequence that would span the whole text and the next token is not matched.
for prompt, generated in [([4], [5]), ([4], []), ([4, 4], [5]), ([4, 5], [])]:
    for knobs in [
        {"logit_bias": [[[4, 5, 6], 2.0], [[4, 5], 1.0], [[5, 6], -1.0]]},
        {"bad_words": [[4, 5, 6], [4, 5]]},
        {"no_repeat_ngram_size": 2},
    ]:
        full = {"strategy": "greedy"} | knobs
        logits = scores("plain")
        record("a short text", full, prompt, generated, logits, process(full, prompt, generated, logits))

# A vocabulary of GPT-2's size.
seed = 0
for knobs in [
    {"top_k": 40},
    {"top_p": 0.9, "repetition_penalty": 1.2},
    {"min_p": 0.2, "temperature": 0.9},
    {"typical_p": 0.3, "top_k": 1000},
    {"typical_p": 0.2},
    {"epsilon_cutoff": 0.001},
    {"eta_cutoff": 0.01, "no_repeat_ngram_size": 2},
    {"temperature": 0.7, "top_k": 300, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.9, "epsilon_cutoff": 3e-4, "eta_cutoff": 3e-4},
]:
    full = {"strategy": "sample", "end_tokens": [50256]} | knobs
    prompt, generated = rng.integers(0, LARGE_VOCAB, size=60).tolist(), rng.integers(0, LARGE_VOCAB, size=20).tolist()
    after = None
    while after is None:
        seed += 1
        logits = hashed(seed)
        after = process(full, prompt, generated, logits)
    record("large", full, prompt, generated, logits, after, seed)

path = Path(sys.argv[1] if len(sys.argv) > 1 else "generate/lib/tests/fixtures/processors.json")
path.parent.mkdir(parents=True, exist_ok=True)
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
path.write_text(f"[\n{lines}\n]\n")
together = sum("together" in case["name"] for case in cases)
print(f"{len(cases)} cases, {together} of them combinations, {path.stat().st_size:,} bytes in {path}")
