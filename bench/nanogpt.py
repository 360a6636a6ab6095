"""nanoGPT's own train.py, by its CPU recipe, and what `ember-train run TEXT --minutes M` learns in the same time and in an eighth of it.

    python bench/nanogpt.py NANOGPT TEXT [--seeds 3] [--out FILE]

NANOGPT is its repository's folder; the Python that runs this has torch and numpy. Everything is on this machine, one after
the other, with nothing else running. Of train.py the better of eager and compiled counts:
- T: seconds of train.py without its evaluations: from its own times of every step, those with an evaluation taken as the median;
- V: its last weights on every target of the last tenth of the text, in windows side by side, in nats a character.
Ours: the clock from the program's start to its end, and the loss of the last evaluation, which is of every target of the same tenth, in
nats a character: nats a token times tokens over characters, both of the held-out text.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ["--device=cpu", "--eval_iters=20", "--log_interval=1", "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4",
          "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0", "--always_save_checkpoint=True"]


def nanogpt(folder, text, compiled, max_iters=None):
    """(T, V, what its own sampled evaluations say at best)."""
    with tempfile.TemporaryDirectory() as work:
        work = Path(work) / "nanoGPT"
        shutil.copytree(folder, work, ignore=shutil.ignore_patterns(".git"))
        data = work / "data" / "shakespeare_char"
        shutil.copy(text, data / "input.txt")
        subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True, stdout=subprocess.DEVNULL)
        more = [f"--max_iters={max_iters}", f"--lr_decay_iters={max_iters}"] if max_iters else []
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *RECIPE, f"--compile={compiled}", *more]
        ran = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if ran.returncode != 0:
            raise SystemExit(f"train.py failed:\n{ran.stderr[-2000:]}")
        # Its first line of each 250 has the evaluation in its time; the very first has the compilation, which is train.py's.
        steps = {int(number): float(ms) / 1e3 for number, ms in re.findall(r"iter (\d+): .*time ([\d.]+)ms", ran.stdout)}
        median = statistics.median(steps.values())
        seconds = sum(median if number % 250 == 0 and number > 0 else s for number, s in steps.items())
        own = min(float(loss) for loss in re.findall(r"val loss ([\d.]+)", ran.stdout))
        return seconds, last_weights(work, data), own


def last_weights(work, data):
    import numpy
    import torch

    sys.path.insert(0, str(work))
    from model import GPT, GPTConfig

    saved = torch.load(work / "out-shakespeare-char" / "ckpt.pt", map_location="cpu")
    model = GPT(GPTConfig(**saved["model_args"]))
    model.load_state_dict({name.removeprefix("_orig_mod."): value for name, value in saved["model"].items()})
    model.eval()
    sys.path.pop(0)
    sys.modules.pop("model")
    ids = torch.from_numpy(numpy.fromfile(data / "val.bin", dtype=numpy.uint16).astype(numpy.int64))
    context, total = saved["model_args"]["block_size"], 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, context):
            window = ids[start : start + context + 1]
            logits, _ = model(window[None, :-1], window[None, 1:])
            total += torch.nn.functional.cross_entropy(logits[0], window[1:], reduction="sum").item()
    return total / (len(ids) - 1)


def ours(train, text, minutes, seed):
    """(seconds by the clock, nats a character, the configuration in short)."""
    with tempfile.TemporaryDirectory() as work:
        run = Path(work) / "run"
        began = time.monotonic()
        command = [train, "run", str(text), "--minutes", str(minutes), "--device", "cpu", "--quiet", "--out", str(run), "--seed", str(seed), "--set",
                   "eval_tokens=0"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        return seconds, *read(run)


def read(run):
    import tomllib

    config = tomllib.loads((run / "config.toml").read_text())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    loss = [row["val_loss"] for row in rows if row.get("val_loss") is not None]
    val = json.loads((run / "data" / "manifest.json").read_text())["val"]
    assert config["eval_tokens"] == 0, "the last evaluation is not of everything"
    short = {key: config[key] for key in ["n_layer", "n_embd", "context_length", "batch_size", "max_steps", "dropout", "learning_rate"]}
    short["tokenizer"] = json.loads((run / "data" / "manifest.json").read_text())["tokenizer"]
    return loss[-1] * val["tokens"] / val["characters"], min(loss) * val["tokens"] / val["characters"], short


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("nanogpt", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    train = os.environ.get("EMBER_TRAIN", str(ROOT / "target/release/ember-train"))
    theirs = {name: nanogpt(arguments.nanogpt, arguments.text, compiled) for name, compiled in [("eager", False), ("compiled", True)]}
    for name, (seconds, loss, own) in theirs.items():
        print(f"train.py, {name:8} {seconds:8.1f} s without evaluations, {loss:.4f} nats a character (its own sampled evaluation: {own:.4f})", flush=True)
    seconds, loss, _ = min(theirs.values())
    record = {"theirs": theirs, "ours": []}
    for share in [1, 8]:
        for seed in range(1, arguments.seeds + 1):
            took, last, best, config = ours(train, arguments.text, seconds / 60 / share, seed)
            record["ours"].append({"share": share, "seed": seed, "seconds": took, "last": last, "best": best, **config})
            print(f"ember-train, T/{share}, seed {seed}: {took:8.1f} s by the clock, {last:.4f} (best {best:.4f}) {config}", flush=True)
    bars = {1: 1.52, 8: loss}
    for share, bar in bars.items():
        losses = [row["last"] for row in record["ours"] if row["share"] == share]
        print(f"T/{share}: {statistics.mean(losses):.4f} in the mean, {max(losses):.4f} at worst; the bar is {bar:.4f}: {'met' if max(losses) <= bar else 'MISSED'}")
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
