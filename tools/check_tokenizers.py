"""Opens our saved tokenizers with transformers' AutoTokenizer and compares ids and texts with ours.

    cargo run --release -p ember-data --example tokenizer_samples -- OUT && python tools/check_tokenizers.py OUT

Needs: pip install transformers
"""

import json
import sys
from pathlib import Path

from transformers import AutoTokenizer

checked = 0
for folder in sorted(Path(sys.argv[1]).iterdir()):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = json.loads((folder / "samples.json").read_text())
    end = expected["end_of_text"]
    assert tokenizer.eos_token_id == end, f"{folder.name}: end of text is {tokenizer.eos_token_id}, ours {end}"
    if end is not None:
        assert tokenizer("<|endoftext|>").input_ids == [end]
    for text, ids in expected["samples"]:
        theirs = tokenizer(text).input_ids
        assert theirs == ids, f"{folder.name}: {text!r} gives {theirs}, ours {ids}"
        assert tokenizer.decode(ids) == text, f"{folder.name}: {ids} gives {tokenizer.decode(ids)!r}, not {text!r}"
        checked += 1
    print(f"{folder.name}: {type(tokenizer).__name__}, {len(tokenizer)} ids, {len(expected['samples'])} texts agree")
assert checked > 0, "nothing was checked"
