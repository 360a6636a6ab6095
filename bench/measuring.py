"""Runs measurements one after another and records each: command, time, load, result.

A measurement is a program whose last output is a JSON object. The environment variable WRAP is put before every command, as in
WRAP="nice -n -5".
"""

import datetime
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Record:
    """The raw record of a benchmark: JSON objects, one per line, the machine first."""

    def __init__(self, path, facts):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.path, self.facts = path, facts
        self.measured = self.disturbed = 0
        self.failed = []  # contests that our own program did not finish
        self.file = open(path, "w")
        self.add({"kind": "machine", **facts})

    def add(self, line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def measure(record, command, timeout_s, env=None, **labels):
    """Runs the command and records it. Returns the last object that it printed; None if it failed, which is recorded too."""
    env = env or {}
    full = shlex.split(os.environ.get("WRAP", "")) + command
    line = {"kind": "measurement", **labels, "command": shown(command, env), "began": now(), "load": os.getloadavg()[0]}
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            status = run_to_end(full, {**os.environ, **env}, out, err, timeout_s)
        except OSError as error:
            line["error"] = f"cannot be started: {error.strerror}"
            record.add(line)
            return None
        out.seek(0)
        err.seek(0)
        printed, said = (file.read().decode(errors="replace") for file in (out, err))
    record.measured += 1
    # The load average still includes the last command's threads for a while.
    record.disturbed += line["load"] > record.facts["cores"] + 1
    line["took_s"] = round(time.monotonic() - began, 3)
    results = [text for text in printed.splitlines() if text.startswith("{")]
    try:
        result = json.loads(results[-1]) if status == 0 and results else None
    except ValueError:
        result = None
    if result is None:
        last = (said.strip().splitlines() or ["nothing was said"])[-1]
        line["error"] = f"took more than {timeout_s} s" if status is None else f"exit {status}: {last}"
    else:
        line["result"] = result
    record.add(line)
    return result


def run_to_end(command, env, out, err, timeout_s):
    """Runs the command. Returns its exit code; None after a timeout."""
    streams = {"stdout": out, "stderr": err, "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=env, cwd=ROOT, start_new_session=True, **streams)
    late = threading.Event()

    def stop():
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout_s, stop)
    timer.start()
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        timer.cancel()
    return None if late.is_set() else status


def shown(command, env):
    """The command as typed in the repository, without this machine's folders."""
    words = [f"{key}={value}" for key, value in env.items()]
    for word in command:
        if os.path.isabs(word):
            inside = os.path.relpath(word, ROOT)
            word = os.path.basename(word) if inside.startswith("..") else inside
        words.append(shlex.quote(word))
    return " ".join(words)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def said_by(command, timeout_s=300):
    """The output of a command, stripped; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine(pythons):
    """The machine on which the numbers depend: processor, memory, GPU, versions, commit."""
    cpuinfo = read("/proc/cpuinfo")
    model = re.search(r"model name\s*:\s*(.+)", cpuinfo)
    flags = re.search(r"flags\s*:\s*(.+)", cpuinfo)
    wanted = ["avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"]
    memory = re.search(r"MemTotal:\s*(\d+)", read("/proc/meminfo"))
    gpu = said_by(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    versions = "; ".join(filter(None, (said_by([python, "-c", PEERS]) for python in pythons)))
    return {
        "date": now(),
        "processor": model.group(1).strip() if model else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "instructions": [flag for flag in wanted if flags and flag in flags.group(1).split()],
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "gpu": gpu or None,
        "system": f"{platform.system()} {platform.release()}",
        "rustc": said_by(["rustc", "--version"]) or None,
        "peers": versions or None,
        # Without a repository, the environment variable COMMIT names the programs' commit.
        "commit": os.environ.get("COMMIT") or said_by(["git", "rev-parse", "--short", "HEAD"]) or "unknown",
        "changed_files": len(said_by(["git", "status", "--porcelain", "--untracked-files=no"]).splitlines()),
    }


PEERS = """
from importlib.metadata import PackageNotFoundError, version
for name in ["torch", "transformers", "xllamacpp"]:
    try: print(name, version(name), end=" ")
    except PackageNotFoundError: pass
"""


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def result_path(facts, kind=""):
    """bench/results/DATE-MACHINE-COMMIT, without an extension."""
    name = facts["gpu"].split(",")[0] if facts["gpu"] else f"{facts['processor']} {facts['cores']} cores"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    folder = os.environ.get("OUT", os.path.join(ROOT, "bench", "results"))
    return os.path.join(folder, "-".join(filter(None, [facts["date"][:10], slug, facts["commit"], kind])))
