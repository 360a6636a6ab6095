"""Compares nanoGPT's own train.py with its CPU recipe to `ember-train run TEXT --minutes M`, on all held-out targets.

    python bench/nanogpt.py NANOGPT TEXT [--seeds 3]                     ours in the time of its recipe, and in an eighth of it
    python bench/nanogpt.py NANOGPT TEXT... --minutes 5 [--seeds 3]      both for this time, on each text; nanoGPT with as many steps as fit

NANOGPT is the folder of its repository; the Python that runs this needs torch, numpy and requests. Everything runs on this machine, one
after the other, with nothing else running. For train.py the better of eager and compiled counts:
- T: seconds of train.py without its evaluations: the sum of its own step times, with the median for steps with an evaluation;
- V: loss of its last weights on all targets of the last tenth of the text, in adjacent windows, in nats per character.
Ours: wall-clock time from the program's start to its end, and then `ember-generate score` of the same tenth with its last weights, in
adjacent windows: nats per token times tokens per character.
"""

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPE = ["--device=cpu", "--eval_iters=20", "--log_interval=1", "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4",
          "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0", "--always_save_checkpoint=True"]


def nanogpt(folder, text, compiled, max_iters=None):
    """(T, V, the best of its own sampled evaluations, seconds of a typical step)."""
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
        # The first line of each 250 includes the evaluation's time; the very first includes compilation, which counts for train.py.
        steps = {int(number): float(ms) / 1e3 for number, ms in re.findall(r"iter (\d+): .*time ([\d.]+)ms", ran.stdout)}
        median = statistics.median(steps.values())
        seconds = sum(median if number % 250 == 0 and number > 0 else s for number, s in steps.items())
        own = min(float(loss) for loss in re.findall(r"val loss ([\d.]+)", ran.stdout))
        return seconds, last_weights(work, data), own, median


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
    """(wall-clock seconds, nats per character, the configuration in short, with the predicted and the evaluated nats per token)."""
    with tempfile.TemporaryDirectory() as work:
        run, held_out = Path(work) / "run", Path(work) / "held-out.txt"
        began = time.monotonic()
        command = [train, "run", str(text), "--minutes", str(minutes), "--device", "cpu", "--out", str(run), "--seed", str(seed)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
        seconds = time.monotonic() - began
        config = tomllib.loads((run / "config.toml").read_text())
        manifest = json.loads((run / "data" / "manifest.json").read_text())
        content = text.read_text()
        held_out.write_text(content[int(len(content) * 0.9) :])
        assert len(held_out.read_text()) == manifest["val"]["characters"], "another tenth is held out"
        command = [train.with_name("ember-generate"), "score", "--from", run / "checkpoints" / (run / "latest").read_text().strip(), "--file", held_out, "--format", "json", "--quiet",
                   "--stride", str(config["context_length"])]
        score = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
        loss = score["loss"] * score["tokens"] / manifest["val"]["characters"]
        keys = ["n_layer", "n_embd", "context_length", "batch_size", "max_steps", "dropout"]
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        evaluated = [row["val_loss"] for row in rows if row.get("val_loss") is not None][-1]
        promised = float(re.search(r"validation loss about ([\d.]+)", said).group(1))
        return seconds, loss, {"tokenizer": manifest["tokenizer"], **{key: config[key] for key in keys}, "promised": promised, "evaluated": evaluated}


def told(name, seconds, loss, more=""):
    print(f"{name:32} {seconds:8.1f} s  {loss:.4f} nats a character{more}", flush=True)


def of_its_time(train, folder, text, seeds):
    """nanoGPT's recipe unchanged; ours in the same time and in an eighth of it."""
    theirs = []
    for name, compiled in [("eager", False), ("compiled", True)]:
        seconds, loss, own, _ = nanogpt(folder, text, compiled)
        told(f"train.py, {name}", seconds, loss, f" (its own sampled evaluation: {own:.4f})")
        theirs.append((seconds, loss))
    seconds, loss = min(theirs)
    for share, bar in [(1, 1.52), (8, loss)]:
        losses = []
        for seed in range(1, seeds + 1):
            took, ended, config = ours(train, text, seconds / 60 / share, seed)
            told(f"ember-train, T/{share}, seed {seed}", took, ended, f" {config}")
            losses.append(ended)
        met = "met" if max(losses) <= bar else "MISSED"
        print(f"T/{share}: {statistics.mean(losses):.4f} in the mean, {max(losses):.4f} at worst; the bar is {bar:.4f}: {met}", flush=True)


def of_these_minutes(train, folder, text, minutes, seeds):
    """Both for the same time on one text, in bits per byte."""
    content = text.read_text()
    held_out = content[int(len(content) * 0.9) :]
    bits = len(held_out) / len(held_out.encode()) / math.log(2)  # bits per byte for one nat per character
    rates = {compiled: nanogpt(folder, text, compiled, 300)[3] for compiled in [False, True]}
    compiled = min(rates, key=rates.get)
    seconds, theirs, *_ = nanogpt(folder, text, compiled, int(60 * minutes / rates[compiled]))
    told(f"{text.name}, train.py{', compiled' if compiled else ''}", seconds, theirs, f", {bits * theirs:.4f} bits a byte")
    losses = []
    for seed in range(1, seeds + 1):
        took, loss, config = ours(train, text, minutes, seed)
        told(f"{text.name}, ember-train, seed {seed}", took, loss, f", {bits * loss:.4f} bits a byte {config}")
        losses.append(loss)
    lower = 1 - max(losses) / theirs
    print(f"{text.name}: lower by {1 - statistics.mean(losses) / theirs:.1%} in the mean, {lower:.1%} at worst; the bar is 10%: "
          f"{'met' if lower >= 0.1 else 'MISSED'}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("nanogpt", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    train = Path(os.environ.get("EMBER_TRAIN", ROOT / "target/release/ember-train"))
    for text in arguments.texts:
        if arguments.minutes:
            of_these_minutes(train, arguments.nanogpt, text, arguments.minutes, arguments.seeds)
        else:
            of_its_time(train, arguments.nanogpt, text, arguments.seeds)


if __name__ == "__main__":
    main()
