"""Compares the validation loss and the time that `run TEXT --minutes M` predicts with the actual ones.

    python bench/promises.py TEXT... [--minutes 1 5] [--seed 1337]

The bars: a loss within 10% of the prediction, a time within 5% of the requested one.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRAIN = os.environ.get("EMBER_TRAIN", str(ROOT / "target/release/ember-train"))


def run(text, minutes, seed):
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "run"
        began = time.monotonic()
        command = [TRAIN, "run", str(text), "--minutes", str(minutes), "--device", "cpu", "--out", str(out), "--seed", str(seed)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        seconds = time.monotonic() - began
        promised = float(re.search(r"validation loss about ([\d.]+)", said).group(1))
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        best = min((row for row in rows if row.get("val_loss") is not None), key=lambda row: row["val_loss"])
        config = tomllib.loads((out / "config.toml").read_text())
        tokenizer = json.loads((out / "data" / "manifest.json").read_text())["tokenizer"]
        shape = f"{tokenizer}, {config['n_layer']} x {config['n_embd']}, {config['batch_size']} x {config['context_length']}, {config['max_steps']} steps"
        return promised, best["val_loss"], best["bits_per_byte"], seconds, shape


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float, nargs="+", default=[1, 5])
    parser.add_argument("--seed", type=int, default=1337)
    arguments = parser.parse_args()
    print("| text | minutes | promised | reached | off | bits a byte | seconds | off | what was chosen |\n|---|---|---|---|---|---|---|---|---|")
    for text in arguments.texts:
        for minutes in arguments.minutes:
            promised, reached, bits, seconds, shape = run(text, minutes, arguments.seed)
            print(f"| {text.name} | {minutes:g} | {promised:.2f} | {reached:.3f} | {reached / promised - 1:+.1%} | {bits:.3f} | {seconds:.1f} | "
                  f"{seconds / 60 / minutes - 1:+.1%} | {shape} |", flush=True)


if __name__ == "__main__":
    main()
