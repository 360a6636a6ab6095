"""The speed of `prepare`, compared with the tokenizers library's batch encoding on the same cores.

    python bench/prepare.py TEXT [--tokenizer bpe:8192|FILE] [--mb 2000] [--peer-mb 50] [--folder DIR]

TEXT is repeated to a file of --mb million bytes, its lines shuffled each time and with numbers mixed in. The peer encodes
the first --peer-mb of it, in documents of about 10 kB, with the tokenizer that `prepare` used; its time excludes reading the
file, ours includes everything. On a busy machine compare the CPU seconds. Peak memory is the resident set, which is more
than the heap.

Needs: pip install tokenizers
"""

import argparse
import os
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("text", type=Path)
parser.add_argument("--tokenizer", default="bpe:8192")
parser.add_argument("--mb", type=int, default=2000)
parser.add_argument("--peer-mb", type=int, default=50)
parser.add_argument("--folder", type=Path)
options = parser.parse_args()

folder = options.folder or Path(tempfile.mkdtemp())
big = folder / f"{options.mb}mb.txt"
if not big.exists():
    lines = options.text.read_text().splitlines(keepends=True)
    rng = random.Random(0)
    written = 0
    with big.open("w") as out:
        while written < options.mb * 1_000_000:
            rng.shuffle(lines)
            for start in range(0, len(lines), 250):
                piece = "".join(lines[start : start + 250]) + f"{rng.randrange(10**9)}\n<|endoftext|>"
                written += out.write(piece)

root = Path(__file__).resolve().parent.parent
target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
build = ["cargo", "build", "--release", "--locked", "-q", "-p", "ember-data", "--example", "prepare"]
subprocess.run(build, cwd=root, check=True)
program = target / "release" / "examples" / "prepare"
begin = time.time()
child = subprocess.Popen([program, options.tokenizer, folder / "out", big], stdout=subprocess.PIPE, text=True)
report = child.stdout.read()
_, status, usage = os.wait4(child.pid, 0)
seconds = time.time() - begin
assert status == 0, "prepare failed"
print(report)
size = big.stat().st_size / 1e6
cpu = usage.ru_utime + usage.ru_stime
print(f"ours: {size:.0f} MB in {seconds:.1f} s, {size / seconds:.1f} MB/s, {size / cpu:.1f} MB per CPU second")
print(f"ours: peak memory {usage.ru_maxrss / 1024:.0f} MiB")

from tokenizers import Tokenizer  # noqa: E402 (after our run, so that its threads do not share the cores)

peer = Tokenizer.from_file(str(folder / "out" / "tokenizer.json"))
with big.open() as file:
    text = file.read(options.peer_mb * 1_000_000)
documents = [piece for piece in re.split(r"<\|endoftext\|>", text) if piece]
begin, begin_cpu = time.time(), time.process_time()
tokens = 0
for start in range(0, len(documents), 1000):
    encodings = peer.encode_batch(documents[start : start + 1000])
    tokens += sum(len(encoding) for encoding in encodings)
peer_seconds, peer_cpu = time.time() - begin, time.process_time() - begin_cpu
peer_size = len(text.encode()) / 1e6
print(f"tokenizers: {peer_size:.0f} MB in {peer_seconds:.1f} s, {peer_size / peer_seconds:.1f} MB/s, "
      f"{peer_size / peer_cpu:.1f} MB per CPU second, {tokens} tokens")
