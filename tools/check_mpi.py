"""The checks of tools/check-mpi: check_mpi.py EMBER_TRAIN FOLDER. Needs only Python's standard library."""

import argparse
import array
import hashlib
import json
import math
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

# Weights of an AdamW run drift apart by rounding: the tolerance for 40 steps of up to 1e-3, with weights around 0.02 to 1.
TOLERANCE = 2e-5
LONG_TOLERANCE = 1e-3  # for 400 steps
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
SETTINGS = (
    # With AdamW: Muon amplifies small differences, so that weights that differ by rounding diverge.
    "precision=f32 architecture=gpt2 optimizer=adamw schedule=cosine tokenizer=chars n_layer=2 n_head=2 n_embd=32 context_length=32 "
    "batch_size=8 micro_batch=2 max_steps=40 warmup_steps=5 "
    "learning_rate=0.001 min_learning_rate=0.0001 epsilon=1e-6 eval_interval=20 checkpoint_interval=7 log_interval=5 "
    "sample_interval=20 sample_tokens=20"
).split()
failures = []


def say(what, fine, detail):
    print(f"{what:<66} {'fine' if fine else 'FAILED':<7} {detail}", flush=True)
    if not fine:
        failures.append(what)


class Place:
    """The folder of the runs, and the program."""

    def __init__(self, program, folder):
        self.program, self.folder = str(program.resolve()), folder
        words = ["one", "two", "three", "four", "five", "six", "seven"]
        text = "".join(f"{words[i % 7]} and then {words[(i + 1) % 7]}.\n" for i in range(1500))
        (self.folder / "count.txt").write_text(text)

    def start(self, processes, *arguments):
        launcher = MPIRUN + ["-n", str(processes)] if processes > 1 else []
        command = [*launcher, self.program, *arguments, "--device", "cpu", "--threads", "1"]
        return subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )

    def new(self, processes, run, *settings):
        sets = [word for setting in [*SETTINGS, *settings] for word in ("--set", setting)]
        return self.start(processes, "run", "count.txt", "--out", run, *sets)

    def resume(self, processes, run):
        return self.start(processes, "resume", run)

    def weights(self, run):
        latest = self.folder / run / "checkpoints" / (self.folder / run / "latest").read_text().strip()
        return latest / "model.safetensors", latest / "training/moments.safetensors"

    def bits(self, run):
        return [hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in self.weights(run)]

    def step(self, run):
        return int((self.folder / run / "latest").read_text().strip().removeprefix("step-"))

    def rows(self, run):
        return [json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines()]

    def until_saved(self, run, seconds=60):
        """Waits until the run has saved a step."""
        end = time.time() + seconds
        while not (self.folder / run / "latest").exists() and time.time() < end:
            time.sleep(0.005)


def values(file):
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    numbers = array.array("f")
    numbers.frombytes(content[8 + length:])
    return numbers


def difference(place, a, b):
    """The largest difference of two runs' weights, and the norm of all differences relative to that of the weights."""
    a, b = values(place.weights(a)[0]), values(place.weights(b)[0])
    apart = [x - y for x, y in zip(a, b, strict=True)]
    return max(map(abs, apart)), math.dist(a, b) / math.hypot(*a)


def end(child, seconds=120):
    """Waits for a process to end. Returns its exit code and its output."""
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        out, err = child.communicate()
        return "timeout", out + err
    return child.returncode, err


def must(child):
    code, err = end(child)
    if code != 0:
        raise SystemExit(f"a run that should have ended well ended with {code}:\n{err}")
    return err


def workers(child):
    """The pids of mpirun's ember-train processes, by rank."""
    ranks = {}
    for folder in Path("/proc").iterdir():
        try:
            stat = (folder / "stat").read_text()
            if int(stat.rsplit(") ", 1)[1].split()[1]) == child.pid:
                variables = (folder / "environ").read_bytes().split(b"\0")
                rank = next(v for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK="))
                ranks[int(rank.split(b"=")[1])] = int(folder.name)
        except (OSError, ValueError, IndexError, StopIteration):
            continue
    return ranks


def lines(err):
    return [line for line in err.splitlines() if line.startswith("error: ")]


def equality(place):
    for dropout, teams in [("0", [2, 4]), ("0.1", [4])]:
        one = f"one-{dropout}"
        must(place.new(1, one, f"dropout={dropout}"))
        loss = place.rows(one)[-1]["val_loss"]
        for processes in teams:
            run = f"team-{processes}-{dropout}"
            must(place.new(processes, run, f"dropout={dropout}"))
            most, whole = difference(place, one, run)
            near = abs(place.rows(run)[-1]["val_loss"] - loss) < 1e-5
            say(f"{processes} processes, dropout {dropout}: weights as one process's after 40 steps",
                most < TOLERANCE and near and logged_once(place, run),
                f"largest difference {most:.1e} (allowed {TOLERANCE:.0e}), of the whole {whole:.1e}")
    must(place.new(2, "again", "dropout=0"))
    say("2 processes twice: the same bits", place.bits("again") == place.bits("team-2-0"), " ".join(place.bits("again")))


def interrupted(place):
    must(place.new(2, "twin", "dropout=0.1", "max_steps=400"))
    for name, aim in [("one process", lambda child: workers(child)[1]), ("mpirun (Ctrl-C)", lambda child: child.pid)]:
        run = "stopped-" + name.split()[0]
        child = place.new(2, run, "dropout=0.1", "max_steps=400")
        place.until_saved(run)
        os.kill(aim(child), signal.SIGINT)
        code, err = end(child)
        step = place.step(run)
        told = sum("interrupted at step" in line for line in err.splitlines())
        say(f"SIGINT to {name}: all stop at one step, saved once", told == 1 and 0 < step < 400 and f"step {step}," in err,
            f"exit {code}, step {step}")
        if name == "one process":
            for processes in [1, 4]:
                subprocess.run(["cp", "-r", run, f"on-{processes}"], cwd=place.folder, check=True)
        must(place.resume(2, run))
        say("  and resumed, the twin's bits", place.bits(run) == place.bits("twin"), " ".join(place.bits(run)))
    for processes in [1, 4]:
        run = f"on-{processes}"
        must(place.resume(processes, run))
        most, whole = difference(place, "twin", run)
        say(f"  and resumed with {processes}: the twin's weights to rounding",
            place.step(run) == 400 and logged_once(place, run) and most < LONG_TOLERANCE,
            f"largest difference {most:.1e} (allowed {LONG_TOLERANCE:.0e}), of the whole {whole:.1e}")


def logged_once(place, run):
    """Whether the log has every step exactly once, in order."""
    steps = [row["step"] for row in place.rows(run) if "train_loss" in row]
    return steps == sorted(set(steps))


def killed_worker(place):
    for rank in [1, 0]:
        run = f"killed-{rank}"
        child = place.new(2, run, "dropout=0.1", "max_steps=400")
        place.until_saved(run)
        os.kill(workers(child)[rank], signal.SIGKILL)
        code, err = end(child)
        told = lines(err)
        fine = code not in (0, "timeout") and len(told) == 1 and f"rank {rank}" in told[0] and "resume" in told[0]
        say(f"kill -9 of the process of rank {rank}: one line, and the others end", fine, f"exit {code}: {' | '.join(told)}")
        must(place.resume(2, run))
        say("  and resumed, the twin's bits", place.bits(run) == place.bits("twin"), " ".join(place.bits(run)))


def refusals(place):
    code, err = end(place.new(3, "three", "dropout=0"))
    fine = code == 2 and len(lines(err)) == 1 and not (place.folder / "three").exists()
    say("3 processes for 8 windows: refused in one line", fine, f"exit {code}: {' | '.join(lines(err))}")


def unlike(place):
    """Simulates different processors on one machine: each process uses another instruction set. AdamW's steps are elementwise and
    the same in both; Muon multiplies matrices."""
    sets = [word for setting in [*SETTINGS, "dropout=0", "optimizer=muon"] for word in ("--set", setting)]
    arguments = [place.program, "run", "count.txt", "--out", "unlike", *sets, "--device", "cpu", "--threads", "1"]
    each = [["-n", "1", "env", f"EMBER_SIMD={simd}", *arguments] for simd in ("portable", "avx2")]
    child = subprocess.Popen(
        [*MPIRUN, *each[0], ":", *each[1]], cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )
    code, err = end(child)
    told = lines(err)
    fine = code == 1 and len(told) == 1 and "the weights of rank 1 differ" in told[0]
    say("processes that round differently: found at a save", fine, f"exit {code}: {' | '.join(told)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    place = Place(arguments.program, arguments.folder)
    for check in [equality, interrupted, killed_worker, refusals, unlike]:
        check(place)
    if failures:
        raise SystemExit(f"check-mpi: {len(failures)} failed")


main()
