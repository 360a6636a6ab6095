"""Checks that transformers reads the generation_config.json that ember-generate writes, with the same settings.

    python tools/check_generation_config.py [FILE...] [--write]

FILE was written by `ember-generate text --save-config FILE`; without any, the cases in
generate/lib/tests/fixtures/generation_configs.jsonl are checked, and `--write` adds to each the file that transformers writes
after reading ours, for the Rust test that reads both. For every file:
1. GenerationConfig.from_pretrained accepts it and validate(strict=True) reports nothing;
2. every knob, with transformers' defaults filled in as `generate` does, has the file's value, or is off if the file lacks it:
   none of transformers' defaults (top_k 50, 20 new tokens) applies;
3. the generation mode corresponds to the strategy;
4. `generate` runs with it on a tiny random model (diverse beams aside, which left transformers' core).
Needs torch and transformers (5.17 made the stored cases). Exits with 1 when a check fails.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

CASES = Path(__file__).parent.parent / "generate/lib/tests/fixtures/generation_configs.jsonl"
FILE = "generation_config.json"

# The neutral values of transformers' knobs, for those that a file does not set.
OFF = {
    "do_sample": False, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None, "typical_p": 1.0,
    "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0,
    "bad_words_ids": None, "suppress_tokens": None, "sequence_bias": None, "num_beams": 1, "length_penalty": 1.0,
    "early_stopping": False, "num_beam_groups": 1, "diversity_penalty": 0.0, "num_return_sequences": 1,
    "min_new_tokens": None, "max_new_tokens": None, "max_time": None, "stop_strings": None, "eos_token_id": None,
}
# Without sampling its knobs have no effect; the rest of transformers' defaults must be neutral by themselves.
SAMPLING = ["temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"]


def mode(file):
    """Transformers' name for the file's strategy; it has neither exact search nor a beam search of one beam."""
    beams, groups, sample = file.get("num_beams", 1), file.get("num_beam_groups", 1), file["do_sample"]
    if groups > 1:
        return "group_beam_search"
    if beams > 1:
        return "beam_sample" if sample else "beam_search"
    return "sample" if sample else "greedy_search"


def problems(file, model):
    """The problems of a file, and the file that transformers writes after reading it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_text(json.dumps(file))
        config = GenerationConfig.from_pretrained(folder)
        found = []
        try:
            config.validate(strict=True)
            config.save_pretrained(folder)
        except ValueError as error:
            found.append(f"validate: {error}")
        theirs = json.loads((Path(folder) / FILE).read_text())
    defaults = GenerationConfig._get_default_generation_params()
    for name, off in OFF.items():
        if name in SAMPLING and not file["do_sample"]:
            continue
        value = getattr(config, name)
        value = defaults.get(name) if value is None else value
        expected = file.get(name, off)
        if value != expected:
            found.append(f"{name} is {value!r}, not {expected!r}")
    for name in file.keys() - OFF.keys():
        if getattr(config, name, None) != file[name]:
            found.append(f"our own {name} was lost")
    if config.get_generation_mode().value != mode(file):
        found.append(f"the mode is {config.get_generation_mode().value}, not {mode(file)}")
    if mode(file) != "group_beam_search":
        config.stop_strings = None  # they would need a tokenizer
        config.pad_token_id = 0
        try:
            rows = model.generate(torch.tensor([[1, 2, 3]]), generation_config=config)
        except ValueError as error:
            return found + [f"generate: {error}"], theirs
        if len(rows) != file.get("num_return_sequences", 1):
            found.append(f"{len(rows)} texts came back")
    return found, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "n_positions": 512, "n_embd": 8, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)).eval()
    cases = [json.loads(line) for line in CASES.read_text().splitlines()] if not arguments.files else [
        {"flags": str(path), "ours": json.loads(path.read_text())} for path in arguments.files
    ]
    failed = False
    for case in cases:
        found, theirs = problems(case["ours"], model)
        theirs.pop("transformers_version", None)
        if arguments.write:
            case["theirs"] = theirs
        elif not arguments.files and case["theirs"] != theirs:
            found.append("transformers writes another file than the stored one; see --write")
        failed |= bool(found)
        print(f"{'FAIL' if found else 'ok  '} {case['flags'] or '(no flags)'}", *found, sep="\n     ")
    if arguments.write and not arguments.files:
        # In serde_json's format, so that both write the same file.
        compact = {"separators": (",", ":"), "ensure_ascii": False}
        CASES.write_text("".join(json.dumps(case, **compact) + "\n" for case in cases))
    sys.exit(failed)


if __name__ == "__main__":
    main()
