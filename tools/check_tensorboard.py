"""Reads a run's event files with TensorBoard itself and compares them with the run's own logs.

    python tools/check_tensorboard.py RUN

Needs the package `tensorboard`, which CI does not have. Every number of metrics.jsonl must be there exactly once, at its step,
even if the run was killed and resumed in between; and the text of every sample.
"""

import json
import math
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = Path(sys.argv[1])
events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
scalars = {tag.split("/", 1)[1]: events.Scalars(tag) for tag in events.Tags()["scalars"]}
texts = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}

rows = [json.loads(line) for line in open(run / "metrics.jsonl")]
logged: dict[str, dict[int, float]] = {}
for row in rows:
    for key, number in row.items():
        if key not in ("step", "run"):
            logged.setdefault(key, {}).setdefault(row["step"], math.nan if number is None else float(number))

assert set(scalars) == set(logged), (sorted(scalars), sorted(logged))
count = 0
for key, steps in logged.items():
    found = [event.step for event in scalars[key]]
    if key in ("tokens", "elapsed_s"):  # in both the training row and the evaluation of the same step
        assert set(found) == set(steps), (key, found)
    else:
        assert found == sorted(steps), (key, found, sorted(steps))
    for event in scalars[key]:
        if key != "elapsed_s":
            number = steps[event.step]
            assert math.isclose(event.value, number, rel_tol=1e-6, abs_tol=1e-30) or math.isnan(number), (key, event, number)
    count += len(found)

assert "config.toml" in texts, sorted(texts)
samples = [json.loads(line) for line in open(run / "samples" / "samples.jsonl")]
for sample in samples:
    found = {e.step: e.tensor_proto.string_val[0].decode() for e in texts[f"sample/prompt {sample['prompt_index']}"]}
    whole = sample["prompt"] + sample["text"]
    assert found[sample["step"]] == "".join(f"    {line}\n" for line in whole.splitlines()), sample
files = len(list((run / "tensorboard").iterdir()))
print(f"{run}: {count} numbers under {len(scalars)} names and {len(samples)} samples in {files} files, as in the run's own logs")
