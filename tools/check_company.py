"""Sends random requests to the server, each alone and then concurrently with others: every answer must be bit for bit the same.

    python tools/check_company.py CHECKPOINT [--requests 1000] [--at-once 32] [--seed 1] [--weights f32]

The requests cover all strategies and many knobs: greedy, sampling, sampling with guessed tokens, beams, sampled beams, diverse beams,
exact search, under a regular expression, with a sliding window; prompts with and without common prefixes. First one client sends them
one after the other; then all are sent again in another order, --at-once at a time, to a server with a small cache and small steps, so
that prompts are split and evicted. Compared are texts, token ids, log-probabilities and scores from the
answers' JSON, which is exact. The program is EMBER_GENERATE, by default target/release/ember-generate. Exits with 1 if an answer differs,
if one has a status of 500 or more, and if more than a twentieth is refused, as that would compare only refusals.
"""

import argparse
import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from check_serve import Server

MOST_REFUSED = 1 / 20


def question(dice):
    """A random request: its strategy, its knobs, its prompt."""
    beginnings = ["One day Tom came to Paris", "One day Tom came to Paris with a ball. One fox came", "Once upon a time", "The", ""]
    words = ["Tom", "Dora", "left", "Paris", "Oslo", "the ball", "a fox", "In the end", "Henry was in"]
    prompt = dice.choice(beginnings) + " " + " ".join(dice.choices(words, k=dice.randrange(1, 12)))
    asked = {
        "prompt": prompt, "max_tokens": dice.choice([1, 5, 20, 60]), "seed": dice.randrange(1000), "logprobs": dice.choice([0, 3]),
        "return_token_ids": True, "ignore_eos": dice.random() < 0.3,
    }
    kinds = [
        lambda: {"temperature": 0},
        lambda: {"temperature": dice.choice([0.5, 1, 1.7]), "n": dice.randrange(1, 4)},
        lambda: {"temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.95, "repetition_penalty": 1.1},
        lambda: {"temperature": 0, "presence_penalty": 0.5, "frequency_penalty": 0.2, "no_repeat_ngram_size": 3},
        lambda: {"temperature": 0.9, "draft_tokens": 4},
        lambda: {"num_beams": 4, "n": 2, "length_penalty": 0.5},
        lambda: {"strategy": "beam-sample", "num_beams": 3, "temperature": 1.2},
        lambda: {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.7},
        lambda: {"strategy": "exact", "max_tokens": 4},
        lambda: {"temperature": 1, "regex": "[A-Z][a-z ]{3,20}\\."},
        lambda: {"temperature": 1, "overflow": "slide", "max_tokens": 120, "ignore_eos": True},
        lambda: {"temperature": 1, "echo": True, "logprobs": 1},
        lambda: {"temperature": 1, "stop": ["Paris", ". "]},
    ]
    return asked | dice.choice(kinds)()


def answer(server, asked):
    """The part of an answer that must be the same: all but its id and its timings."""
    status, told = server.ask("/v1/completions", asked)
    if status != 200:
        return status, json.dumps(told)
    return status, json.dumps(told["choices"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weights", default="f32")
    args = parser.parse_args()
    dice = random.Random(args.seed)
    questions = [question(dice) for _ in range(args.requests)]
    began = time.monotonic()
    with Server(args.checkpoint, "--weights", args.weights) as server:
        alone = [answer(server, asked) for asked in questions]
    order = list(range(len(questions)))
    dice.shuffle(order)
    flags = ["--weights", args.weights, "--cache-mib", 1, "--tokens-per-step", 7, "--at-once", 16]
    with Server(args.checkpoint, *flags) as server, ThreadPoolExecutor(args.at_once) as company:
        together = dict(zip(order, company.map(lambda number: answer(server, questions[number]), order)))
    differ = [number for number, told in enumerate(alone) if together[number] != told]
    for number in differ[:5]:
        print(f"differs: {json.dumps(questions[number])}\n  alone    {alone[number]}\n  together {together[number]}", file=sys.stderr)
    refused = sum(status != 200 for status, _ in alone)
    broken = sum(status >= 500 for status, _ in alone)
    print(f"{len(questions)} questions ({refused} refused alike), {args.at_once} at once, weights {args.weights}: "
          f"{len(questions) - len(differ)} the same to the last bit, {len(differ)} not; {time.monotonic() - began:.0f} s")
    faults = [f"{broken} answers are the server's own errors"] if broken else []
    if refused > MOST_REFUSED * len(questions):
        faults.append(f"too many were refused: {next(told for status, told in alone if status != 200)}")
    for fault in faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if differ or faults else 0)


if __name__ == "__main__":
    main()
