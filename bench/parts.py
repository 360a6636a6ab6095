"""Tests parts that contests of small models found, each by itself in the default recipe, with equal numbers of tokens.

    python bench/parts.py TINYSHAKESPEARE [--seeds 3] [--only NAME...] [--jobs 2]

`model/` holds only parts that some class of transformers computes, so the recipe is implemented again here, in PyTorch, where a part is
a line: Qwen3's blocks, Muon and AdamW, a linearly decaying learning rate. The tokens are those of `ember-train prepare TEXT
--tokenizer bpe:1024`; the first row compares this copy with the program itself. Loss: bits per byte of the whole last tenth, in adjacent
windows, by the last weights, at the best temperature. Cost: processor time per step relative to the default, one thread per run.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAIN = Path(os.environ.get("EMBER_TRAIN", ROOT / "target/release/ember-train"))

# The default of 3 blocks of width 128 (`train/lib/src/config/resolve.rs`), as keys of the program.
LAYERS, WIDTH, HEADS, INNER, CONTEXT, BATCH, STEPS = 3, 128, 4, 352, 64, 16, 500
RATE, MUON_RATE, MOMENTUM, DECAY, Z_LOSS, WARMUP, FALL = 0.006, 0.015, 0.9, 0.1, 0.01, 25, 0.8

# Header size of a token file (`data/src/tokens.rs`).
HEADER = 64

# A text that is repeated many times: the first 60,000 bytes, as in `read_often.py`.
OFTEN = dict(read=60_000, steps=780, dropout=0.2, decay=0.5)

# The difference from the default, as keywords of `Run`, and the expectation.
PARTS = {
    "the default": ({}, ""),
    "without a z-loss": ({"z_loss": 0.0}, "worse"),
    "not calibrated": ({"calibrate": False}, "near"),
    "without QK-norm": ({"qk_norm": False}, "worse"),
    "ReLU² for SwiGLU, as many weights": ({"mlp": "relu2"}, "near, cheaper"),
    "projections back that begin at zero": ({"zero": True}, "better"),
    "logits capped softly at 15": ({"cap": 15.0}, "near"),
    "value embeddings in the first and the last block": ({"value_embeddings": True}, "better"),
    "a skip connection from the first block to the last": ({"skip": True}, "a little better"),
    "an untied head at AdamW's rate": ({"head_rate": 1.0}, "near"),
    "an untied head at 0.3 of it": ({"head_rate": 0.3}, "better"),
    "windows that grow: a quarter, a half, whole": ({"windows": True}, "cheaper, a little worse"),
    "batches that grow: 8, 16, 32 windows": ({"batches": True}, "better"),
    "an average of the weights, 0.98 a step": ({"average": 0.98}, "near: the rate goes to zero already"),
    "the same, 0.995": ({"average": 0.995}, "near"),
    "a rate that falls to a tenth": ({"floor": 0.1}, "worse"),
    "a rate that falls to zero": ({"floor": 0.0}, "near"),
    "a rate that falls by a cosine": ({"curve": "cosine"}, "near"),
    "a rate level for half the run": ({"fall": 0.5}, "near"),
    "cautious Muon": ({"cautious": True}, "better"),
    "Muon whose rows are brought to one size": ({"normal_rows": True}, "better"),
    "decay only where it agrees with the step": ({"cautious_decay": True}, "a little better"),
    "Polar Express's coefficients": ({"polar": True}, "a little better"),
    "read 30 times: the default": (OFTEN, ""),
    "read 30 times: the same order in each pass": ({**OFTEN, "same_order": True}, "worse"),
    "read 30 times: no dropout": ({**OFTEN, "dropout": 0.0}, "worse"),
    "read 30 times: dropout 0.3": ({**OFTEN, "dropout": 0.3}, "near"),
    "read 30 times: decay 0.1": ({**OFTEN, "decay": 0.1}, "worse"),
    "read 30 times: decay 1.5": ({**OFTEN, "decay": 1.5}, "better"),
    "read 30 times: an average of the weights, 0.98 a step": ({**OFTEN, "average": 0.98}, "better"),
}

# The odd polynomial of Newton-Schulz, the same in five iterations; and Polar Express's, a different one in each (arXiv 2505.16932).
MUONS = [(3.4445, -4.7750, 2.0315)] * 5
POLAR = [(8.156554524902461, -22.48329292557795, 15.878769915207462), (4.042929935166739, -2.808917465908714, 0.5000178451051316),
         (3.8916678022926607, -2.772484153217685, 0.5060648178503393), (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
         (2.3465413258596377, -1.7097828382687081, 0.42323551169305323)]


def rms(x):
    import torch

    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def build(vocab, part):
    """The parameters by name, in PyTorch's layout: `[out, in]`."""
    import torch

    back = 0.0 if part.get("zero") else 0.02 / math.sqrt(2 * LAYERS)
    weights = {"wte": torch.randn(vocab, WIDTH) * 0.02, "ln_f": torch.ones(WIDTH)}
    inner = INNER * 3 // 2 if part.get("mlp") == "relu2" else INNER
    for i in range(LAYERS):
        for name in ["q", "k", "v"]:
            weights[f"h.{i}.{name}"] = torch.randn(WIDTH, WIDTH) * 0.02
        weights[f"h.{i}.up"] = torch.randn(inner, WIDTH) * 0.02
        if part.get("mlp") != "relu2":
            weights[f"h.{i}.gate"] = torch.randn(inner, WIDTH) * 0.02
        weights[f"h.{i}.out"] = torch.randn(WIDTH, WIDTH) * back
        weights[f"h.{i}.down"] = torch.randn(WIDTH, inner) * back
        for name, size in [("ln_1", WIDTH), ("ln_2", WIDTH), ("q_norm", WIDTH // HEADS), ("k_norm", WIDTH // HEADS)]:
            weights[f"h.{i}.{name}"] = torch.ones(size)
        if part.get("value_embeddings") and i in [0, LAYERS - 1]:
            weights[f"values.{i}"] = torch.randn(vocab, WIDTH) * 0.02
            weights[f"mix.{i}"] = torch.tensor([0.5])
    if part.get("skip"):
        weights["skip"] = torch.tensor([0.0])
    if part.get("head_rate"):
        weights["lm_head"] = torch.randn(vocab, WIDTH) * 0.02
    return {name: weight.requires_grad_() for name, weight in weights.items()}


def forward(weights, part, ids, dropout=0.0):
    """Logits `[batch, time, vocab]` of `ids` `[batch, time]`."""
    import torch
    from torch.nn import functional as F

    batch, time_ = ids.shape
    size = WIDTH // HEADS
    angles = torch.outer(torch.arange(time_), 1e4 ** (-torch.arange(0, size, 2) / size))
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)

    def rotate(x):
        half = torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1)
        return x * cos + half * sin

    def heads(x):
        return x.view(batch, time_, HEADS, size).transpose(1, 2)

    x = first = F.dropout(weights["wte"][ids], dropout, dropout > 0)
    for i in range(LAYERS):
        own = {name: weights.get(f"h.{i}.{name}") for name in ["q", "k", "v", "out", "up", "gate", "down", "ln_1", "ln_2", "q_norm", "k_norm"]}
        if i == LAYERS - 1 and "skip" in weights:
            x = x + weights["skip"] * first
        normed = rms(x) * own["ln_1"]
        q, k, v = (heads(normed @ own[name].T) for name in ["q", "k", "v"])
        if part.get("qk_norm", True):
            q, k = rms(q) * own["q_norm"], rms(k) * own["k_norm"]
        if f"values.{i}" in weights:
            v = v + weights[f"mix.{i}"] * heads(weights[f"values.{i}"][ids])
        mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, dropout_p=dropout)
        x = x + F.dropout(mixed.transpose(1, 2).reshape(batch, time_, WIDTH) @ own["out"].T, dropout, dropout > 0)
        if i == 0:
            first = x
        normed = rms(x) * own["ln_2"]
        hidden = normed @ own["up"].T
        hidden = F.relu(hidden).square() if own["gate"] is None else F.silu(normed @ own["gate"].T) * hidden
        x = x + F.dropout(hidden @ own["down"].T, dropout, dropout > 0)
    logits = rms(x) * weights["ln_f"] @ weights.get("lm_head", weights["wte"]).T
    cap = part.get("cap")
    return cap * torch.tanh(logits / cap) if cap else logits


def orthogonal(matrix, rounds):
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() * (1.02 if rounds is POLAR else 1.0) + 1e-7)
    for a, b, c in rounds:
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


class Optimizer:
    """Muon for the matrices of the blocks, AdamW (0.9, 0.99) for everything else; gradients are clipped at norm 1."""

    def __init__(self, weights, part):
        self.weights, self.part, self.moments, self.taken = weights, part, {}, 0

    def step(self, share):
        import torch

        self.taken += 1
        gradients = {name: weight.grad for name, weight in self.weights.items() if weight.grad is not None}
        length = math.sqrt(sum(float(gradient.pow(2).sum()) for gradient in gradients.values()))
        scale = min(1.0, 1.0 / (length + 1e-6))
        with torch.no_grad():
            for name, gradient in gradients.items():
                is_matrix = name.startswith("h.") and gradient.dim() == 2
                (self.muon if is_matrix else self.adamw)(name, gradient * scale, share)
                self.weights[name].grad = None

    def decayed(self, weight, rate, direction):
        decay = rate * self.part.get("decay", DECAY)
        if self.part.get("cautious_decay"):
            weight.sub_(decay * weight * (weight * direction > 0))
        elif weight.dim() >= 2:
            weight.mul_(1 - decay)

    def muon(self, name, gradient, share):
        import torch

        weight, rate = self.weights[name], MUON_RATE * share
        momentum = self.moments.setdefault(name, torch.zeros_like(gradient)).lerp_(gradient, 1 - MOMENTUM)
        direction = orthogonal(gradient.lerp(momentum, MOMENTUM), POLAR if self.part.get("polar") else MUONS)
        if self.part.get("normal_rows"):
            size = direction.norm()
            second = self.moments.setdefault(name + " rows", torch.zeros(len(direction), 1))
            second.lerp_(direction.pow(2).mean(1, keepdim=True), 0.05)
            direction = direction / (second / (1 - 0.95**self.taken)).sqrt().add(1e-8)
            direction *= size / direction.norm()
        if self.part.get("cautious"):
            agrees = (direction * gradient > 0).float()
            direction = direction * agrees / agrees.mean().clamp(min=1e-3)
        self.decayed(weight, rate, direction)
        weight.sub_(rate * math.sqrt(max(1.0, weight.shape[0] / weight.shape[1])) * direction)

    def adamw(self, name, gradient, share):
        import torch

        weight, rate = self.weights[name], RATE * share * (self.part.get("head_rate", 1.0) if name == "lm_head" else 1.0)
        first = self.moments.setdefault(name, torch.zeros_like(gradient)).lerp_(gradient, 0.1)
        second = self.moments.setdefault(name + " squares", torch.zeros_like(gradient)).lerp_(gradient.square(), 0.01)
        direction = first / (1 - 0.9**self.taken) / ((second / (1 - 0.99**self.taken)).sqrt() + 1e-8)
        self.decayed(weight, rate, direction)
        weight.sub_(rate * direction)


def share_of_the_rate(part, progress, warmup):
    """The learning rate at this share of the run, relative to the peak."""
    if progress < warmup:
        return progress / warmup
    floor, fall = part.get("floor", 0.01), part.get("fall", FALL)
    if part.get("curve") == "cosine":
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))
    return 1.0 if progress < 1 - fall else floor + (1 - floor) * (1 - progress) / fall


def windows_of(tokens, context, generator, part):
    """Yields windows for ever: in each pass adjacent ones, from a new offset and in a new order."""
    import torch

    state = generator.get_state()
    while True:
        if part.get("same_order"):
            generator.set_state(state)
        start = int(torch.randint(context, (1,), generator=generator))
        count = (len(tokens) - start - 1) // context
        for i in torch.randperm(count, generator=generator).tolist():
            yield tokens[start + i * context : start + (i + 1) * context + 1]


def run(name, seed, folder):
    """Trains. Returns (bits per byte, seconds of processor time per step)."""
    import numpy
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    part = PARTS[name][0]
    manifest = json.loads((folder / "manifest.json").read_text())
    tokens = lambda side: numpy.fromfile(folder / f"{side}.bin", dtype=numpy.uint16, offset=HEADER).astype(numpy.int64)
    train, held_out = torch.from_numpy(tokens("train")), torch.from_numpy(tokens("val"))
    if "read" in part:
        train = train[: int(len(train) * part["read"] / manifest["train"]["bytes"])]
    weights = build(manifest["vocab_size"], part)
    optimizer, average = Optimizer(weights, part), None
    tokens_of_the_run, seen, began, steps = part.get("steps", STEPS) * BATCH * CONTEXT, 0, time.process_time(), 0
    generator = torch.Generator().manual_seed(seed)
    sources = {}
    while seen < tokens_of_the_run:
        progress = seen / tokens_of_the_run
        grown = min(2, int(3 * progress))
        context = CONTEXT >> (2 - grown) if part.get("windows") else CONTEXT
        batch = 8 << grown if part.get("batches") else BATCH * CONTEXT // context
        source = sources.setdefault(context, windows_of(train, context, generator, part))
        ids = torch.stack([next(source) for _ in range(batch)])
        logits = forward(weights, part, ids[:, :-1], part.get("dropout", 0.0))
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        if weight := part.get("z_loss", Z_LOSS):
            loss = loss + weight * logits.logsumexp(-1).square().mean()
        loss.backward()
        seen += batch * context
        optimizer.step(share_of_the_rate(part, progress, WARMUP / STEPS))
        steps += 1
        if keep := part.get("average"):
            with torch.no_grad():
                if average is None:
                    average = {name: weight.clone() for name, weight in weights.items()}
                for name, weight in weights.items():
                    average[name].lerp_(weight, max(1 - keep, 1 / (steps + 1)))
    seconds = (time.process_time() - began) / steps
    with torch.no_grad():
        whole = (len(held_out) - 1) // CONTEXT * CONTEXT
        windows = [*held_out[:whole].view(-1, CONTEXT).split(64), held_out[None, whole:-1]]
        logits = torch.cat([forward(average or weights, part, ids).flatten(0, 1) for ids in windows if ids.numel()])
        nats = lowest(lambda by: F.cross_entropy(logits / by, held_out[1:], reduction="sum").item(), part.get("calibrate", True))
    return nats / math.log(2) / manifest["val"]["bytes"], seconds


def lowest(nats, calibrate):
    """The loss at the best temperature, as a function of which it has a single minimum."""
    if not calibrate:
        return nats(1.0)
    low, high = 0.8, 2.2
    while high - low > 0.02:
        third = (high - low) / 3
        low, high = (low, high - third) if nats(low + third) < nats(high - third) else (low + third, high)
    return nats((low + high) / 2)


def by_the_program(text, folder, seed):
    """Bits per byte of the program's own run with the default."""
    command = [TRAIN, "run", text, "--device", "cpu", "--out", folder / f"run-{seed}", "--seed", str(seed), "--quiet", "--set", "tokenizer=bpe:1024"]
    for key, value in dict(n_layer=LAYERS, n_embd=WIDTH, context_length=CONTEXT, batch_size=BATCH, max_steps=STEPS, precision="f32", eval_tokens=0).items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, capture_output=True)
    run = folder / f"run-{seed}"
    manifest = json.loads((run / "data" / "manifest.json").read_text())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    loss = [row["val_loss"] for row in rows if row.get("val_loss") is not None][-1]
    return loss * manifest["val"]["tokens"] / math.log(2) / manifest["val"]["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="parts whose name holds one of these, and the defaults")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    names = [name for name in PARTS if not arguments.only or name.endswith("the default") or any(part in name for part in arguments.only)]
    seeds = range(1, arguments.seeds + 1)
    print("| what | predicted | bits a byte, by seed | mean | cost |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        subprocess.run([TRAIN, "prepare", arguments.text, "--tokenizer", "bpe:1024", "--out", folder / "data"], check=True, capture_output=True)
        own = [by_the_program(arguments.text, folder, seed) for seed in seeds]
        print(f"| `ember-train run` itself | | {', '.join(f'{loss:.3f}' for loss in own)} | {statistics.mean(own):.3f} | |", flush=True)
        with ProcessPoolExecutor(arguments.jobs) as pool:
            runs = {name: [pool.submit(run, name, seed, folder / "data") for seed in seeds] for name in names}
            for name, results in runs.items():
                losses, seconds = zip(*(result.result() for result in results))
                if name.endswith("the default"):
                    usual = statistics.median(seconds)
                print(f"| {name} | {PARTS[name][1]} | {', '.join(f'{loss:.3f}' for loss in losses)} | {statistics.mean(losses):.3f} | "
                      f"{statistics.median(seconds) / usual:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
