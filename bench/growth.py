"""The measurements of bench/growth.sh: one size at a time is varied, the others stay fixed."""

import argparse
import math
import os
import sys

import svg
from measuring import ROOT, Record, machine, measure, result_path
from run import GENERATE, TRAIN, device

SHAPE = {"n_layer": 4, "n_head": 4, "n_embd": 128, "vocab": 256, "context": 256, "batch": 4}
AXES = {
    "context": ("context, tokens", [64, 128, 256, 512, 1024, 2048, 4096], {"batch": 1}),
    "batch": ("batch, windows", [1, 2, 4, 8, 16, 32], {}),
    "n_embd": ("width", [64, 128, 256, 512, 1024], {}),
    "vocab": ("vocabulary, tokens", [256, 1024, 4096, 16384, 65536], {}),
}
# Text lengths at which a token's time is measured, and batches.
DECODING = {"length": [64, 256, 512, 1024, 2048, 4000], "batch": [1, 2, 4, 8, 16, 32, 64]}
GPT2 = (12, 12, 768, 50257)
NEW_TOKENS = 16


def training_row(args, record, axis, value, rest):
    sizes = {**SHAPE, **rest, axis: value}
    shape = "x".join(str(sizes[key]) for key in ("n_layer", "n_head", "n_embd", "vocab", "context"))
    steps = "3" if args.quick else "8"
    command = [TRAIN, "bench", "--shape", shape, "--batch", str(sizes["batch"]), "--device", args.device, "--steps", steps]
    command += ["--set", f"micro_batch={sizes['batch']}", "--warmup", "3", "--format", "json", "--quiet"]
    result = measure(record, command, args.timeout, axis=axis, value=value)
    if result is None:
        return None
    # The memory that grows with the windows, without that of the weights: a gradient and two moments for each.
    fixed = 16 * result["parameters"]
    return {
        "value": value,
        "step_s": result["step_s"]["median"],
        "peak_bytes": result["peak_bytes"],
        "beside_weights_bytes": max(result["peak_bytes"] - fixed, 1),
    }


def decoding_row(args, record, axis, value):
    n_layer, n_head, n_embd, vocab = (2, 2, 64, 256) if args.quick else GPT2
    length, batch = (value, 1) if axis == "length" else (64, value)
    shape = f"{n_layer}x{n_head}x{n_embd}x{vocab}x{max(length + NEW_TOKENS, 1024)}"
    command = [GENERATE, "bench", "--shape", shape, "--prompt", str(length), "--batch", str(batch), "--device", args.device]
    command += ["--new-tokens", str(NEW_TOKENS), "--repeats", "1", "--format", "json", "--quiet"]
    result = measure(record, command, args.timeout, axis=f"decoding, {axis}", value=value)
    if result is None:
        return None
    bytes_read = result["weight_bytes"] + result["cache_bytes"]
    return {"value": value, "step_s": result["step_s"]["median"], "bytes": bytes_read, "weight_bytes": result["weight_bytes"]}


def exponent(rows, key, last=None):
    """The slope of a line fitted to the logarithms, of the last points only if their number is given."""
    points = [(math.log(row["value"]), math.log(row[key])) for row in rows][-(last or len(rows)) :]
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def told(number):
    return "-" if number is None else f"{number:.2f}"


def main():
    parser = argparse.ArgumentParser(description="How costs grow: see bench/growth.sh.")
    parser.add_argument("--quick", action="store_true", help="two points of each, in small sizes")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--timeout", type=int, default=300, help="seconds that one measurement may take")
    args = parser.parse_args()
    args.device = args.device or device()
    facts = machine([])
    facts["device"] = args.device
    if args.device == "cpu":
        facts["gpu"] = None
    path = result_path(facts, "quick-growth" if args.quick else "growth")
    record = Record(path + ".json", facts)
    charts = []
    print(f"{'training step':24}{'from':>8}{'to':>8}{'time ~':>9}{'last two':>9}{'memory ~':>10}{'last two':>9}")
    for axis, (label, values, rest) in AXES.items():
        rows = [training_row(args, record, axis, value, rest) for value in (values[:2] if args.quick else values)]
        rows = [row for row in rows if row]
        if not rows:
            continue
        fits = {f"{key}{'_last' if last else ''}": exponent(rows, key, last) for key in KEYS for last in (None, 2)}
        labels = {"kind": "growth", "of": "training step", "axis": axis, "fixed": {**SHAPE, **rest}}
        record.add({**labels, "rows": rows, "exponents": fits})
        ends = f"{rows[0]['value']:>8}{rows[-1]['value']:>8}"
        exponents = [told(fits[key]) for key in ("step_s", "step_s_last", "beside_weights_bytes", "beside_weights_bytes_last")]
        print(f"{label:24}{ends}{exponents[0]:>9}{exponents[1]:>9}{exponents[2]:>10}{exponents[3]:>9}", flush=True)
        charts.append(svg.chart(f"training: time ~ {exponents[0]}", label, "ms a step", {"": points(rows, "step_s", 1e3)}))
        names = {"beside_weights_bytes": "beside weights and moments", "peak_bytes": "peak"}
        megabytes = {name: points(rows, key, 1e-6) for key, name in names.items()}
        charts.append(svg.chart(f"training: memory ~ {exponents[2]}", label, "MB", megabytes))
    print(f"\n{'a written token':24}{'from':>8}{'to':>8}{'time ~':>9}{'time':>9}{'bytes':>10}  (last over first)")
    for axis, values in DECODING.items():
        rows = [decoding_row(args, record, axis, value) for value in (values[:2] if args.quick else values)]
        rows = [row for row in rows if row]
        if not rows:
            continue
        fit = exponent(rows, "step_s")
        record.add({"kind": "growth", "of": "decoding step", "axis": axis, "rows": rows, "exponents": {"step_s": fit}})
        grown = [rows[-1][key] / rows[0][key] for key in ("step_s", "bytes")]
        label = "tokens before it" if axis == "length" else "rows at once"
        print(f"{label:24}{rows[0]['value']:>8}{rows[-1]['value']:>8}{told(fit):>9}{grown[0]:>9.2f}{grown[1]:>10.2f}", flush=True)
        # The first time, scaled by the number of bytes alone.
        bound = [(row["value"], 1e3 * rows[0]["step_s"] * row["bytes"] / rows[0]["bytes"]) for row in rows]
        lines = {"measured": points(rows, "step_s", 1e3), "as the bytes read grow": bound}
        charts.append(svg.chart("decoding: GPT-2 124M" if not args.quick else "decoding", label, "ms a step", lines))
    if charts:
        with open(path + ".svg", "w") as file:
            file.write(svg.page(charts, f"How costs grow, {facts['date'][:10]}, {facts['commit']}"))
        print(f"drawn in {os.path.relpath(path + '.svg', ROOT)}", file=sys.stderr)


KEYS = ("step_s", "beside_weights_bytes", "peak_bytes")


def points(rows, key, unit):
    return [(row["value"], unit * row[key]) for row in rows]


if __name__ == "__main__":
    main()
