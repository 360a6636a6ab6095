"""Makes data/tests/fixtures/prompts: transformers' encodings of prompts with foreign tokenizers, for our tests to reproduce.

    python tools/make_prompt_fixtures.py [FOLDER]

Needs torch, transformers and tokenizers (2.15, 5.23.0 and 0.23.3 made the files in the repository) and the model
model/tests/fixtures/b, whose vocabulary is 67 tokens and whose context is 24. The tokenizers, a folder each:
- `llama`: like Llama 2's: words marked by U+2581, `<s>` before every text by the post-processor;
- `closing`: the same, with `</s>` after every text as well;
- `said`: the same without a post-processor, both requested in tokenizer_config.json by `add_bos_token` and `add_eos_token`, which
  transformers ignores if there is a tokenizer.json;
- `bytes`: like Llama 3's: byte-level, `<|begin|>` by the second of two post-processors, and added tokens of every kind: special
  ones, one of which strips adjacent blanks, and one that is not special;
- `words`: these special tokens with GPT-2's words, which our own encoder splits.

prompts.json holds cases: `tokenizer`, `text`, `parsed` (the ids of `tokenizer(text)`), `plain` (with split_special_tokens), and
if it fits into the model's context, `perplexity` of `parsed` by the model's own loss.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).parent.parent
WORDS = "one day a fox came to the town and the fox met a dog who came from the sea".split()
TEXTS = [
    "", "one day", " one  day ", "the fox\nmet", "<s>one day", "one <s>day</s> the", "</s>", "<|im_start|>a dog<|im_end|> came",
    "a<|im_start|> <|im_end|>b", "fox <mask> dog", "fox<mask>dog", "(tool)(tools) tool", "<|begin|><|begin|>", "<|endoftext|>a",
    "<unk> &", "<|im_start", "the dog\u00e9",
]


def template(before, after, special):
    single = " ".join([*before, "$A", *after])
    return processors.TemplateProcessing(single=single, pair=f"{single} $B", special_tokens=special)


def marked():
    """Words marked by U+2581, 60-odd tokens."""
    pieces = ["<unk>", "<s>", "</s>", "\u2581", *"abcdefghijklmnopqrstuvwxyz", "<", ">", "|", "/", "_"]
    merges = [("\u2581", "a"), ("t", "h"), ("th", "e"), ("\u2581", "the"), ("o", "n"), ("\u2581", "on"), ("f", "o"), ("d", "a")]
    pieces += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<unk>", "<s>", "</s>")])
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in ("<|im_start|>", "<|im_end|>")])
    return tokenizer


def bytes_(pre_tokenizer, plain_tokens):
    """Byte-level, with added tokens of many kinds."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("f", "o"), ("\u0120", "fo")]
    pieces = alphabet + ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens(plain_tokens)
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(["<|begin|>"], [], [("<|begin|>", begin)])]
    )
    return tokenizer


def tokenizers():
    """Each name with its tokenizer and the extra keys of its tokenizer_config.json."""
    ends = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    special = [("<s>", 1), ("</s>", 2)]
    opening, closing, said = marked(), marked(), marked()
    opening.post_processor = template(["<s>"], [], special[:1])
    closing.post_processor = template(["<s>"], ["</s>"], special)
    yield "llama", opening, ends
    yield "closing", closing, ends
    yield "said", said, ends | {"add_bos_token": True, "add_eos_token": True}
    ends = {"bos_token": "<|begin|>", "eos_token": "<|endoftext|>"}
    split = pre_tokenizers.Split(Regex(r"\w+|\s+|[^\s\w]+"), "isolated")
    split = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    yield "bytes", bytes_(split, [AddedToken("(tool)", single_word=True)]), ends
    yield "words", bytes_(pre_tokenizers.ByteLevel(False), []), ends


@torch.no_grad()
def perplexity(model, ids):
    ids = torch.tensor([ids])
    return model(ids, labels=ids).loss.double().exp().item()


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "data/tests/fixtures/prompts"
    shutil.rmtree(out, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(
        ROOT / "model/tests/fixtures/b", dtype=torch.float32, attn_implementation="eager"
    ).eval()
    cases = []
    for name, tokenizer, config in tokenizers():
        folder = out / name
        folder.mkdir(parents=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False} | config
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
        theirs = AutoTokenizer.from_pretrained(folder)
        for text in [*TEXTS, " ".join(WORDS[:6])]:
            parsed = theirs(text).input_ids
            case = {"tokenizer": name, "text": text, "parsed": parsed}
            case["plain"] = theirs(text, split_special_tokens=True).input_ids
            if 2 <= len(parsed) <= model.config.n_positions and max(parsed) < model.config.vocab_size:
                case["perplexity"] = perplexity(model, parsed)
            cases.append(case)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (out / "prompts.json").write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    main()
