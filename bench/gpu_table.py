"""The short table at the end of bench/gpu.sh: python3 bench/gpu_table.py FOLDER. Reads the results of all sections, even incomplete ones."""

import json
import statistics
import sys
from pathlib import Path


def lines(path):
    """The JSON objects of a file, one per line; an incomplete last line is skipped."""
    found = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [one for one in found if isinstance(one, dict)]


def row(what, value):
    print(f"{what:<58} {value}")


def sections(out):
    for one in lines(out / "sections.jsonl"):
        if "skipped" in one:
            row(one["section"], f"skipped: {one['skipped']}")
        elif one["exit"] != 0:
            cut = one["exit"] in (124, 137)
            row(one["section"], f"cut after {one['seconds']:.0f} s" if cut else f"FAILED with exit code {one['exit']}")


def checks(out):
    """The deviation of each device from the CPU."""
    for path in sorted(out.glob("check-*.out")):
        comparisons = lines(path)
        if not comparisons:
            continue
        for precision in sorted({one["precision"] for one in comparisons}, reverse=True):
            those = [one for one in comparisons if one["precision"] == precision]
            wrong = [one["what"] for one in those if not one["holds"]]
            furthest = max((one["difference"] for one in those if one["difference"] is not None), default=None)
            said = f"{len(those) - len(wrong)} of {len(those)} within rounding"
            said += f", furthest {furthest:.1e}" if furthest is not None else ""
            row(f"{comparisons[0]['device']} beside the CPU, {precision}", said + ("; NOT: " + ", ".join(wrong) if wrong else ""))
        notes = path.with_suffix(".err")
        for note in notes.read_text(errors="replace").splitlines() if notes.exists() else []:
            if note.startswith("attention in "):
                row(*note.split(": ", 1))


def contests(out):
    """Ours and the best peer, from the measurements themselves, as a section that was cut short has no table."""
    measured = {}
    for path in sorted(out.glob("*/*.json")):
        for one in lines(path):
            if one.get("kind") == "measurement":
                measured.setdefault(one["contest"], {}).setdefault(one["way"], []).append(one)
    for contest, ways in measured.items():
        key = next((key for word, key in KEYS.items() if contest.startswith(word)), "tokens_per_s")
        values = {}
        for way, those in ways.items():
            results = [one["result"][key] for one in those if key in one.get("result", {})]
            if results:
                values[way] = statistics.median(results)
        ours = values.pop("Ember", None)
        if ours is None:
            row(contest, "FAILED: " + ways.get("Ember", [{}])[0].get("error", "not reached"))
            continue
        less_is_better = key == "wall_s"
        best = (min if less_is_better else max)(values, key=values.get, default=None)
        unit = "s" if less_is_better else "tokens/s"
        said = f"{ours:,.4g} {unit}" if ours < 1000 else f"{ours:,.0f} {unit}"
        if best:
            ratio = values[best] / ours if less_is_better else ours / values[best]
            said += f", {ratio:.2f} times {best}"
        row(contest, said)


KEYS = {"prefill": "prefill_tokens_per_s", "start to": "wall_s"}


def shakespeare(out):
    rows = lines(out / "shakespeare.jsonl")
    losses = [one["val_loss"] for one in rows if one.get("val_loss") is not None]
    if losses:
        last = max(one.get("step", 0) for one in rows)
        elapsed = max(one.get("elapsed_s") or 0 for one in rows)
        row("nanoGPT's Shakespeare recipe", f"best validation loss {min(losses):.4f}, {last} steps in {elapsed:.1f} s")
    for peer in lines(out / "shakespeare-peer.out"):
        row("the same in PyTorch, compiled", f"best validation loss {peer['best_val_loss']:.4f}, {peer['steps']} steps in {peer['training_s']:.1f} s")


def main():
    out = Path(sys.argv[1])
    for part in (checks, contests, shakespeare, sections):
        part(out)


if __name__ == "__main__":
    main()
