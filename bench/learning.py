"""An ablation of the default recipe: the default, and the default with one thing changed, each trained for the same number of seconds on
one text, with several seeds. The resulting table is in bench/LEARNING.md.

    python bench/learning.py TEXT [--seconds 60] [--seeds 3] [--base KEY=VALUE...] [--only NAME...] [--out FILE]

First a step of each variant is timed, alone on the machine (the median of 30); the variant then takes as many steps as fit into the
seconds, so that one with slower steps takes fewer. The comparison thus depends on a single timing, and can be repeated. Losses are over
all held-out targets in bits per byte, so that different tokenizers can be compared.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAIN = os.environ.get("EMBER_TRAIN", str(ROOT / "target/release/ember-train"))

# Name, expectation, and the keys that differ from the default.
VARIANTS = [
    ("the default", "", {}),
    ("characters", "worse: half as much text a step", {"tokenizer": "chars"}),
    ("half the vocabulary", "near", {"tokenizer": "half"}),
    ("twice the vocabulary", "near", {"tokenizer": "twice"}),
    ("AdamW, its rate", "much worse", {"optimizer": "adamw", "learning_rate": "2e-3"}),
    ("GPT-2's parts", "worse", {"architecture": "gpt2"}),
    ("Llama's parts: no QK-norm", "a little worse", {"architecture": "llama"}),
    ("an untied head", "worse: slower, and seen too seldom", {"tied_head": "false"}),
    ("a cosine to a tenth", "worse", {"schedule": "cosine", "min_learning_rate": "6e-4"}),
    ("a cosine to zero", "near", {"schedule": "cosine"}),
    ("level half of the way", "near", {"decay_fraction": "0.5"}),
    ("half of AdamW's rate", "near", {"learning_rate": "3e-3"}),
    ("twice of AdamW's rate", "near", {"learning_rate": "1.2e-2"}),
    ("Muon's rate 0.01", "near", {"muon_learning_rate": "0.01"}),
    ("Muon's rate 0.025", "near", {"muon_learning_rate": "0.025"}),
    ("Muon's momentum 0.95", "worse in short runs", {"muon_momentum": "0.95"}),
    ("no weight decay", "worse where the text is read often", {"weight_decay": "0"}),
    ("weight decay 0.5", "better where the text is read often", {"weight_decay": "0.5"}),
    ("no dropout", "better where the text is read once", {"dropout": "0"}),
    ("dropout 0.1", "", {"dropout": "0.1"}),
    ("dropout 0.2", "better where the text is read often", {"dropout": "0.2"}),
    ("dropout 0.3", "better where the text is read very often", {"dropout": "0.3"}),
    ("an average of the weights", "nothing beside a rate that goes to zero", {"ema_decay": "0.99"}),
]


def run(folder, keys, steps, seed):
    """Trains a run of this many steps. Returns the rows of its metrics.jsonl, and its configuration's dropout."""
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "run"
        keys = {"max_steps": steps, "eval_interval": steps, "checkpoint_interval": steps, "eval_tokens": 0, "sample_interval": 0,
                "log_interval": 1, **keys}
        command = [TRAIN, "run", str(folder), "--device", "cpu", "--quiet", "--seed", str(seed), "--out", str(out)]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def prepared(text, tokenizer, work):
    folder = work / tokenizer.replace(":", "")
    if not folder.exists():
        subprocess.run([TRAIN, "prepare", str(text), "--tokenizer", tokenizer, "--out", str(folder), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return folder, json.loads((folder / "manifest.json").read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--base", nargs="*", default=["n_layer=3", "n_embd=128", "n_head=4", "context_length=64", "batch_size=16"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    base = dict(pair.split("=") for pair in arguments.base)
    rows = []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        usual = prepared(arguments.text, "auto", work)[1]["tokenizer"]
        print(f"{arguments.text.name}, {arguments.seconds:g} s of training, {usual}, {' '.join(arguments.base)}, {arguments.seeds} seeds\n")
        print("| what | predicted | ms a step | steps | bits a byte | against the default |\n|---|---|---|---|---|---|")
        for name, predicted, keys in VARIANTS:
            if arguments.only and name != "the default" and not any(word in name for word in arguments.only):
                continue
            keys, tokenizer = {**base, **keys}, keys.get("tokenizer", usual)
            size = int(usual.split(":")[1]) if ":" in usual else 512
            tokenizer = {"half": f"bpe:{size // 2}", "twice": f"bpe:{size * 2}"}.get(tokenizer, tokenizer)
            keys.pop("tokenizer", None)
            folder, manifest = prepared(arguments.text, tokenizer, work)
            rates = [row["tokens_per_s"] for row in run(folder, keys, 33, 1) if row.get("tokens_per_s")][3:]
            step_s = int(keys["batch_size"]) * int(keys["context_length"]) / statistics.median(rates)
            steps = max(20, round(arguments.seconds / step_s))
            bits = []
            for seed in range(1, arguments.seeds + 1):
                loss = [row["val_loss"] for row in run(folder, keys, steps, seed) if row.get("val_loss") is not None][-1]
                bits.append(loss * manifest["val"]["tokens"] / manifest["val"]["bytes"] / math.log(2))
            mean, spread = statistics.mean(bits), max(bits) - min(bits)
            rows.append({"what": name, "tokenizer": tokenizer, "step_s": step_s, "steps": steps, "bits": bits, **keys})
            against = 100 * (mean / statistics.mean(rows[0]["bits"]) - 1)
            print(f"| {name} | {predicted} | {1e3 * step_s:.1f} | {steps} | {mean:.3f} (within {spread:.3f}) | {against:+.1f}% |", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
