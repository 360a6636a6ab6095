"""The cost of reading files: 500,000 small ones, a folder of mixed formats, and each format by itself.

    python bench/kinds.py TEXT [--files 500000] [--mb 2000] [--folder DIR] [--program FILE]

TEXT (a few MB) provides the words. `ember-train prepare --tokenizer bytes` reads the files made of it; seconds, seconds of processor time
(which a busy machine hardly changes) and peak memory (resident set) are those of the whole command. For a single format each file has the
same words, some MB of them; Word, PDF and other packed files are copies of the readers' fixtures, many times.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "data" / "tests" / "fixtures" / "readers"
MAIL = "From ann@example.org Mon Jan  1 00:00:00 2024\nFrom: ann@example.org\nSubject: letter {}\nDate: Mon, 1 Jan 2024 00:00:00 +0000\n\n{}\n\n> quoted\n\n-- \nAnn\n\n"
PACKED = [".docx", ".odt", ".epub", ".pdf", ".rtf", ".html", ".ipynb", ".tex", ".srt"]


def main():
    """Makes the folders one after the other, and measures each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--files", type=int, default=500_000)
    parser.add_argument("--mb", type=int, default=2000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--program", type=Path, default=ROOT / "target" / "release" / "ember-train")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        maker = Maker(options.text.read_text())
        print(f"{'what':<22} {'files':>8} {'MB':>7} {'s':>7} {'cpu s':>7} {'MB/cpu s':>9} {'peak MiB':>9}")
        cases = [(f"{options.files:,} small files", lambda at: maker.small(at, options.files))]
        cases += [("mixed kinds", lambda at: maker.mixed(at, options.mb))]
        cases += [(kind, lambda at, make=make: make(at, 50)) for kind, make in maker.streams.items()]
        cases += [(ending, lambda at, ending=ending: maker.packed(at, [ending], 300)) for ending in PACKED]
        for what, make in cases:
            at = Path(folder) / "texts"
            at.mkdir()
            make(at)
            measure(options.program, what, at, Path(folder) / "out")
            shutil.rmtree(at)


def measure(program, what, at, out):
    """Measures a folder, and returns a row of the table."""
    files = [path for path in at.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    command = [program, "prepare", at, "--out", out, "--tokenizer", "bytes", "--device", "cpu", "--quiet"]
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    seconds, cpu = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    if status != 0:
        raise SystemExit(f"{what}: {said.decode()}")
    rate, memory = megabytes / cpu, usage.ru_maxrss / 1024
    print(f"{what:<22} {len(files):>8,} {megabytes:>7.0f} {seconds:>7.1f} {cpu:>7.1f} {rate:>9.1f} {memory:>9.0f}", flush=True)
    shutil.rmtree(out)


class Maker:
    """Makes files from pieces of a text."""

    def __init__(self, text):
        self.text, self.random = text, random.Random(1)
        self.streams = {"text": self.plain, "JSON Lines": self.lines, "CSV": self.rows, "mbox": self.mails}

    def piece(self, length):
        """A piece of this many characters from a random place."""
        at = self.random.randrange(len(self.text) - length)
        return self.text[at : at + length]

    def small(self, at, files):
        """Small files, a thousand per folder, of some hundred bytes each."""
        for number in range(files):
            folder = at / f"{number // 1000:04}"
            if number % 1000 == 0:
                folder.mkdir()
            (folder / f"{number % 1000:03}.txt").write_text(self.piece(self.random.randrange(200, 900)))

    def written(self, path, megabytes, first, document):
        """A file of documents, preceded by `first`."""
        with path.open("w") as out:
            written = out.write(first)
            while written < megabytes * 1e6:
                written += out.write(document(self.piece(4000)))

    def plain(self, at, megabytes):
        self.written(at / "novel.txt", megabytes, "", str)

    def lines(self, at, megabytes):
        self.written(at / "lines.jsonl", megabytes, "", lambda piece: json.dumps({"text": piece}) + "\n")

    def rows(self, at, megabytes):
        self.written(at / "rows.csv", megabytes, "id,text\n", lambda piece: '1,"' + piece.replace('"', "") + '"\n')

    def mails(self, at, megabytes):
        self.written(at / "mails.mbox", megabytes, "", lambda piece: MAIL.format(self.random.random(), piece))

    def packed(self, at, endings, times):
        """Copies of the fixtures with these extensions, and a text: identical documents alone cannot be split for validation."""
        (at / "other.txt").write_text(self.piece(4000))
        for number in range(times):
            folder = at / f"{number:04}"
            folder.mkdir()
            for path in FIXTURES.iterdir():
                if path.suffix in endings:
                    shutil.copy(path, folder)

    def mixed(self, at, megabytes):
        """All formats together: four with a fifth or more of the bytes each, and the fixtures 300 times."""
        for make in self.streams.values():
            make(at, megabytes / 4)
        self.packed(at, PACKED, 300)


if __name__ == "__main__":
    main()
