"""Compares the training losses of two runs step by step: see bench/curves.sh."""

import json
import os
import statistics
import sys

import svg
from measuring import ROOT, machine, result_path

PER = 100


def losses(path):
    with open(path) as file:
        rows = [json.loads(line) for line in file]
    return {row["step"]: row["train_loss"] for row in rows if row.get("train_loss") is not None}


def main():
    old, new = (losses(path) for path in sys.argv[1:3])
    steps = sorted(old.keys() & new.keys())
    if not steps:
        sys.exit("the two runs have no logged step in common")
    apart = {step: abs(old[step] - new[step]) for step in steps}
    print(f"{'steps':>14}{'old':>9}{'new':>9}{'largest':>11}{'mean difference':>17}")
    for first in range(steps[0] // PER * PER, steps[-1] + 1, PER):
        some = [step for step in steps if first < step <= first + PER]
        if some:
            means = [statistics.mean(of[step] for step in some) for of in (old, new)]
            differences = [apart[step] for step in some]
            span = f"{some[0]} to {some[-1]}"
            print(f"{span:>14}{means[0]:>9.4f}{means[1]:>9.4f}{max(differences):>11.2e}{statistics.mean(differences):>17.2e}")
    print(f"{'all':>14}{'':>18}{max(apart.values()):>11.2e}{statistics.mean(apart.values()):>17.2e}")
    facts = machine([])
    path = result_path({**facts, "gpu": None}, "curves") + ".svg"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    lines = {name: [(step, of[step]) for step in steps] for name, of in (("old", old), ("new", new))}
    charts = [svg.chart("training loss", "step", "nats a token", lines, log=False)]
    differing = [(step, apart[step]) for step in steps if apart[step] > 0]
    if differing:
        charts.append(svg.chart("difference", "step", "nats a token", {"": differing}))
    with open(path, "w") as file:
        file.write(svg.page(charts, "Before and after"))
    print(f"drawn in {os.path.relpath(path, ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
