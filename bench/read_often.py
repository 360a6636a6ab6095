"""What keeps a model from overfitting when it repeats its text many times: a model of two blocks trains on the beginning of a text for a
number of passes, in steps of 1,024 tokens, with the text's last tenth held out. Losses are over all held-out targets, in nats per byte;
`T` is the temperature of the last checkpoint, which divides its logits. The resulting tables are in bench/LEARNING.md.

    python bench/read_often.py TEXT [--seeds 3] [--only NAME...]                   thirty passes over 60 KB, and ninety; 96 wide
    python bench/read_often.py TEXT --passes 3 5 8 12 20 [--read 200000]           weight decay, z-loss and dropout by passes; 128 wide
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAIN = os.environ.get("EMBER_TRAIN", str(ROOT / "target/release/ember-train"))
TOKENS_A_STEP = 1024
BASE = {"n_layer": 2, "n_embd": 96, "n_head": 3, "context_length": 64, "batch_size": 16, "dropout": 0.2, "weight_decay": 0.5,
        "z_loss": 0, "calibrate": "false", "eval_tokens": 0, "sample_interval": 0}

# Name, passes, and the keys that differ.
VARIANTS = [
    ("dropout 0.2, decay 0.5", 30, {}),
    ("label smoothing 0.1", 30, {"label_smoothing": 0.1}),
    ("a z-loss of 0.1", 30, {"z_loss": 0.1}),
    ("calibrated", 30, {"calibrate": "true"}),
    ("calibrated, a z-loss of 0.01: the default", 30, {"calibrate": "true", "z_loss": 0.01}),
    ("calibrated, a z-loss of 0.1", 30, {"calibrate": "true", "z_loss": 0.1}),
    ("calibrated, a z-loss of 0.3", 30, {"calibrate": "true", "z_loss": 0.3}),
    ("calibrated, a z-loss of 0.1, dropout 0.1", 30, {"calibrate": "true", "z_loss": 0.1, "dropout": 0.1}),
    ("calibrated, a z-loss of 0.1, dropout 0.3", 30, {"calibrate": "true", "z_loss": 0.1, "dropout": 0.3}),
    ("decay 1", 30, {"calibrate": "true", "z_loss": 0.01, "weight_decay": 1}),
    ("decay 1.5", 30, {"calibrate": "true", "z_loss": 0.01, "weight_decay": 1.5}),
    ("decay 2.5", 30, {"calibrate": "true", "z_loss": 0.01, "weight_decay": 2.5}),
    ("decay 1.5, dropout 0.1", 30, {"calibrate": "true", "z_loss": 0.01, "weight_decay": 1.5, "dropout": 0.1}),
    ("decay 1.5, dropout 0.3", 30, {"calibrate": "true", "z_loss": 0.01, "weight_decay": 1.5, "dropout": 0.3}),
    ("dropout 0.2, decay 0.5", 90, {}),
    ("calibrated, a z-loss of 0.01: the default", 90, {"calibrate": "true", "z_loss": 0.01}),
]

# The same for a given number of passes.
WIDER = {"n_embd": 128, "n_head": 4, "calibrate": "true"}
BY_PASSES = [
    (f"dropout {dropout}, decay {decay}, z-loss {z_loss}", {**WIDER, "dropout": dropout, "weight_decay": decay, "z_loss": z_loss})
    for dropout, decay, z_loss in [(0, 0.1, 0), (0.1, 0.1, 0), (0, 0.3, 0.01), (0, 0.5, 0.01), (0.05, 0.5, 0.01), (0.1, 0.5, 0.01), (0.2, 0.5, 0.01)]
]


def run(folder, manifest, passes, keys, seed):
    """The final loss in nats per byte, and the temperature of the last checkpoint."""
    steps = round(passes * manifest["train"]["tokens"] / TOKENS_A_STEP)
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "run"
        command = [TRAIN, "run", folder, "--device", "cpu", "--threads", "1", "--quiet", "--seed", str(seed), "--out", out]
        looks = {"max_steps": steps, "eval_interval": round(steps / 20), "checkpoint_interval": steps}
        for key, value in {**BASE, **looks, **keys}.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row.get("val_loss") is not None][-1]
    return last["val_loss"] * manifest["val"]["tokens"] / manifest["val"]["bytes"], last.get("temperature", 1.0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--passes", type=float, nargs="+")
    parser.add_argument("--read", type=int)
    arguments = parser.parse_args()
    read = arguments.read or (200_000 if arguments.passes else 60_000)
    variants = [(name, passes, keys) for passes in arguments.passes for name, keys in BY_PASSES] if arguments.passes else VARIANTS
    text = arguments.text.read_text()
    held_out = text[int(len(text) * 0.9) :]
    share = len(held_out) / (read + len(held_out))
    with tempfile.TemporaryDirectory() as work:
        folder, both = Path(work) / "prepared", Path(work) / "both.txt"
        both.write_text(text[:read] + held_out)
        subprocess.run([TRAIN, "prepare", both, "--tokenizer", "bpe:512", "--val-fraction", f"{share:.6f}", "--hold-out", "last", "--out", folder,
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)
        manifest = json.loads((folder / "manifest.json").read_text())
        print("| what | passes | nats a byte, by seed | mean | T |\n|---|---|---|---|---|")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for name, passes, keys in variants:
                if arguments.only and not any(word in name for word in arguments.only):
                    continue
                found = list(pool.map(lambda seed: run(folder, manifest, passes, keys, seed), range(1, arguments.seeds + 1)))
                losses = [loss for loss, _ in found]
                temperature = statistics.mean(temperature for _, temperature in found)
                shown = ", ".join(f"{loss:.3f}" for loss in losses)
                print(f"| {name} | {passes:g} | {shown} | {statistics.mean(losses):.3f} | {temperature:.2f} |", flush=True)


if __name__ == "__main__":
    main()
