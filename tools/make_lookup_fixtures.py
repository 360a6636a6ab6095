"""Makes generate/lib/tests/fixtures/prompt_lookup.json: guesses of transformers' prompt lookup after random ids.

    python tools/make_lookup_fixtures.py

Needs torch and transformers (5.17 made the file in the repository). There are few different ids, so that suffixes of every
length occur again, once and often.
"""

import json
import random
from pathlib import Path

import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

FIXTURE = Path(__file__).resolve().parent.parent / "generate/lib/tests/fixtures/prompt_lookup.json"
CASES = 200
LONGEST_ENDING = 3


def guesses(ids, most):
    generator = PromptLookupCandidateGenerator(
        num_output_tokens=most, max_matching_ngram_size=LONGEST_ENDING, max_length=10**6
    )
    candidate, _ = generator.get_candidates(torch.tensor([ids]))
    return candidate[0, len(ids) :].tolist()


def main():
    rng = random.Random(1)
    cases = []
    for _ in range(CASES):
        vocabulary = rng.choice([2, 3, 5, 9])
        ids = [rng.randrange(vocabulary) for _ in range(rng.randint(1, 24))]
        most = rng.randint(1, 8)
        cases.append({"ids": ids, "most": most, "guesses": guesses(ids, most)})
    lines = ",\n".join(json.dumps(case) for case in cases)
    FIXTURE.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
