#!/usr/bin/env python3
"""A class that writes with one model: starts `ember-generate serve` on the newest run, asks it, and prints what came.

  python3 lessons/class.py stream              one pupil's text, piece by piece, and when each piece came
  python3 lessons/class.py pupils [COUNT...]   so many pupils at once: tokens a second, and passes through the model
  python3 lessons/class.py prefix              two pupils whose texts begin alike: what of the second did not have to be read
  python3 lessons/class.py company             the same question, alone and among others: whether the same text came

It computes nothing but rates: every text and every count is the server's own.
"""

import http.client
import json
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

START = Path("lessons/start.txt").read_text().strip()


class Server:
    """A server of its own, on a free port, which ends with the class."""

    def __enter__(self):
        self.program = subprocess.Popen(["ember-generate", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True)
        for line in self.program.stderr:
            if found := re.search(r"http://([\d.]+):(\d+)", line):
                self.address = found[1], int(found[2])
                return self
        sys.exit("class.py: the server did not start")

    def __exit__(self, *_):
        self.program.terminate()
        self.program.wait()

    def send(self, path, question=None):
        """The server's answer, to be read."""
        client = http.client.HTTPConnection(*self.address)
        client.request("POST" if question else "GET", path, json.dumps(question) if question else None)
        answer = client.getresponse()
        if answer.status != 200:
            sys.exit(f"class.py: {answer.read().decode()}")
        return answer

    def write(self, **question):
        return json.load(self.send("/v1/completions", question))

    def passes(self):
        """Passes through the model so far."""
        return int(re.search(r"^llamacpp:n_decode_total (\d+)", self.send("/metrics").read().decode(), re.M)[1])


def stream(server):
    """A line for each piece of a text: when it came, and what it is."""
    began = time.monotonic()
    answer = server.send("/v1/completions", {"prompt": START, "max_tokens": 12, "seed": 1, "stream": True})
    for line in answer:
        if line.startswith(b"data: {"):
            text = json.loads(line[6:])["choices"][0]["text"]
            print(f"{1000 * (time.monotonic() - began):7.1f} ms  {text!r}")


def pupils(server, counts):
    """A line for each number of pupils: what they get together, each, and what the model did for it."""
    print("pupils  tokens/s together  tokens/s each  tokens  passes")
    for count in counts:
        def ask(pupil):
            return server.write(prompt=START, max_tokens=64, seed=pupil, ignore_eos=True, overflow="stop")
        before, began = server.passes(), time.monotonic()
        with ThreadPoolExecutor(count) as class_room:
            answers = list(class_room.map(ask, range(count)))
        seconds = time.monotonic() - began
        tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
        passes = server.passes() - before
        print(f"{count:6}  {tokens / seconds:17.0f}  {tokens / seconds / count:13.0f}  {tokens:6}  {passes:6}")


def prefix(server):
    """A line for each of two texts that begin alike: its tokens, and how many of them were there already."""
    for end in ("", " The fox"):
        usage = server.write(prompt=START + end, max_tokens=1)["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        print(f"{usage['prompt_tokens']} tokens, {cached} of them in the cache: {(START + end)!r}")


def company(server):
    """The text of one question alone, among 20 others, and whether both are the same."""
    def ask(seed):
        answer = server.write(prompt=START, max_tokens=30, temperature=1, seed=seed, logprobs=0)
        choice = answer["choices"][0]
        return choice["text"], choice["logprobs"]["token_logprobs"]

    alone = ask(1)
    with ThreadPoolExecutor(21) as class_room:
        together = list(class_room.map(ask, range(21)))[1]
    print(alone[0].strip())
    print(together[0].strip())
    print("the same text and the same numbers" if alone == together else "they differ")


def main():
    doing = {"stream": stream, "pupils": pupils, "prefix": prefix, "company": company}
    if len(sys.argv) < 2 or sys.argv[1] not in doing:
        sys.exit(__doc__)
    counts = [int(count) for count in sys.argv[2:]] or [1, 4, 16]
    with Server() as server:
        if sys.argv[1] == "pupils":
            pupils(server, counts)
        else:
            doing[sys.argv[1]](server)


if __name__ == "__main__":
    main()
