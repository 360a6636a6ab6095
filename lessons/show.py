#!/usr/bin/env python3
"""Prints what the programs write for other programs (JSON, one object a line) as tables for people.

  ember-generate score TEXT --format json | python3 lessons/show.py loss
  ember-generate text PROMPT --format json --logprobs 3 | python3 lessons/show.py loss
  ember-generate text PROMPT --format json | python3 lessons/show.py texts
  python3 lessons/show.py steps RUN [STEP...]            what training wrote down, at these steps or at all
  python3 lessons/show.py choices TRACE [CANDIDATES]     a trace of greedy decoding or of sampling
  python3 lessons/show.py beams TRACE                    a trace of a beam search
  python3 lessons/show.py page FILE                      what a page with a model inside is made of

It computes nothing but e to the power of a log-probability: every other figure is the programs' own.
"""

import json
import math
import re
import sys


def percent(p):
    """A probability to read: never 0% where it is not 0."""
    return f"{100 * p:.1f}%" if p >= 0.0005 else f"{100 * p:.2f}%" if p >= 0.00005 else "<0.01%"


def bar(share, width=20):
    """A bar as long as its share of the whole, to half a character."""
    halves = round(2 * width * min(max(share, 0.0), 1.0))
    return "█" * (halves // 2) + "▌" * (halves % 2)


def show_loss(lines):
    """A line for each token: its text, its probability, its loss."""
    for row in map(json.loads, lines):
        if row.get("logprobs") is None:
            sys.exit("show.py: no log-probabilities; give --logprobs 3 to ember-generate text")
        texts = row.get("token_texts") or row["ids"]  # without a tokenizer a token has no text
        print(f"{'token':<14} {'probability':>11} {'loss':>7}")
        for place, entry in enumerate(row["logprobs"]):
            if isinstance(entry, dict):  # a token that was written
                token, logprob, top = entry["token"], entry["logprob"], entry["top"]
            else:  # a token that was scored; the first follows nothing
                token, logprob, top = texts[place + 1], entry, []
            others = "  ".join(f"{t['token']!r} {percent(math.exp(t['logprob']))}" for t in top)
            loss = abs(logprob)  # of a number that is at most 0: without the sign of -0
            print(f"{token!r:<14} {percent(math.exp(logprob)):>11} {loss:7.3f}  {others or bar(loss / 10, 30)}".rstrip())


def show_texts(lines):
    """A line for each text: its score, why it ended, how it reads, and what an exact search found out."""
    for row in map(json.loads, lines):
        print(f"{row['score']:9.3f}  {row['finish_reason']:<6} {row['text']}")
        if "exact" in row:
            verdict = "proven" if row["exact"]["proven"] else "not proven"
            print(f"           {verdict}, after a look at {row['exact']['nodes']:,} beginnings")


def show_steps(run, wanted):
    """A line for each step: the losses in nats a token, the learning rate, the gradient's length."""
    steps = {}
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as file:
        for row in map(json.loads, file):
            if "run" not in row:
                steps.setdefault(row["step"], {}).update(row)
    columns = {"train_loss": ".4f", "val_loss": ".4f", "learning_rate": ".1e", "grad_norm": ".2f"}
    print(f"{'step':>6}" + "".join(f"{name.replace('_', ' '):>15}" for name in columns))
    for step, row in steps.items():
        if not wanted or step in wanted:
            cells = (format(row[name], digits) if name in row else "" for name, digits in columns.items())
            print((f"{step:>6,}" + "".join(f"{cell:>15}" for cell in cells)).rstrip())


def show_choices(events, count):
    """For each token written: who was in the running, what removed them, what was drawn."""
    for event in (event for event in events if event["event"] == "choice"):
        print(f"step {event['step']}: {event['token']!r}", end="")
        if event["draw"] is not None:
            low, high = event["interval"]
            print(f", because {low:.4f} <= the draw {event['draw']:.4f} < {high:.4f}", end="")
        print()
        for candidate in event["candidates"][:count]:
            before = candidate["before"]
            after = candidate["changes"][-1]["after"] if candidate["changes"] else before
            fate = f"removed by {candidate['removed_by']}" if after is None else f"{percent(after['probability']):>6}"
            print(f"  {candidate['token']!r:<12} logit {before['logit']:7.3f}  {percent(before['probability']):>6} -> {fate:<19}"
                  f" {bar(after['probability'] if after else 0)}".rstrip())


def show_beams(events):
    """For each step: the sum of the log-probabilities of each text in the running, best first, and what became of it."""
    beams = [""]
    for event in (event for event in events if event["event"] == "beams"):
        print(f"token {event['step'] + 1}")
        going_on = {}
        for candidate in event["candidates"]:
            text, fate = beams[candidate["parent"]] + candidate["text"], candidate["fate"]
            if fate["fate"] == "goes-on":
                going_on[fate["beam"]] = text
            print(f"  {candidate['score']:8.3f}  {fate['fate'].replace('-', ' '):<8}  {text}")
        beams = [going_on[beam] for beam in sorted(going_on)]


def show_page(html):
    """A line for each part of a page: its bytes, and their share."""
    names = {"model": "its configuration and tokenizer", "weights": "the weights, as text", "program": "what computes, and what shows it"}
    parts = {names[id]: len(content.encode()) for id, content in re.findall(r'<script[^>]* id="(\w+)">(.*?)</script>', html, re.S)}
    whole = len(html.encode())
    parts["words and colours"] = whole - sum(parts.values())
    for name, size in sorted(parts.items(), key=lambda part: -part[1]):
        print(f"{name:<32} {size:>8,} bytes {percent(size / whole):>6} {bar(size / whole)}".rstrip())
    print(f"{'the page':<32} {whole:>8,} bytes")


def main(arguments):
    """Chooses the table."""
    match arguments:
        case ["loss"]:
            show_loss(sys.stdin)
        case ["texts"]:
            show_texts(sys.stdin)
        case ["steps", run, *steps]:
            show_steps(run, {int(step) for step in steps})
        case ["choices" | "beams" as view, path, *count]:
            with open(path, encoding="utf-8") as file:
                events = map(json.loads, file)
                show_beams(events) if view == "beams" else show_choices(events, int(count[0]) if count else 5)
        case ["page", path]:
            with open(path, encoding="utf-8") as file:
                show_page(file.read())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BrokenPipeError:
        sys.exit(0)
