"""Checks that transformers and ember-generate agree on a checkpoint folder.

    python tools/check_interop.py FOLDER TEXT [--program PATH] [--score FILE --greedy FILE]

Opens FOLDER, of a GPT-2, a Llama or a Qwen3, with AutoModelForCausalLM and AutoTokenizer, and compares with ember-generate's
results:
1. every tensor is loaded, none is missing or left over;
2. TEXT has the same token ids;
3. each token's log-probability in TEXT is the same within 1e-4;
4. the greedy continuation of TEXT's first tokens has the same ids (64 of them, fewer if the context or the text ends
   first) and the same text.

ember-generate is run (`--program`, by default target/release/ember-generate), or its output is read from two files:
`score --format json TEXT` in FILE of --score, `text --strategy greedy --format json --prompt-ids ...` in FILE of --greedy.
Needs torch, transformers and tokenizers; without tokenizer.json, give token ids as TEXT (`1,2,3`). Exits with 1 when a check fails.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-4
PROMPT_TOKENS = 16
NEW_TOKENS = 64


class Checks:
    """Prints each check and remembers whether one failed."""

    def __init__(self):
        self.failed = False

    def __call__(self, passed, what, detail=""):
        self.failed |= not passed
        print(f"{'ok  ' if passed else 'FAIL'} {what}" + (f": {detail}" if detail else ""))


def run_ours(program, *arguments):
    """Runs ember-generate, and returns its only JSON line."""
    result = subprocess.run([program, *arguments], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{program} {' '.join(arguments)}: exit {result.returncode}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def read_saved(path):
    return json.loads(Path(path).read_text().splitlines()[0])


@torch.no_grad()
def check_log_probabilities(check, model, scored):
    ids = torch.tensor([scored["ids"]])
    log_p = torch.log_softmax(model(ids).logits[0, :-1].double(), dim=-1)
    theirs = log_p.gather(1, ids[0, 1:, None])[:, 0]
    ours = torch.tensor(scored["logprobs"], dtype=torch.float64)
    if ours.shape != theirs.shape:
        return check(False, "log-probabilities", f"{len(ours)} of ours, {len(theirs)} of transformers")
    difference = (ours - theirs).abs().max().item()
    check(difference <= TOLERANCE, "log-probabilities", f"{len(ours)} tokens, largest difference {difference:.1e}")


@torch.no_grad()
def check_greedy(check, model, tokenizer, written):
    prompt = torch.tensor([written["prompt_ids"]])
    ours = written["ids"]
    room = model.config.max_position_embeddings - prompt.shape[1]
    end = model.generation_config.eos_token_id
    output = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=min(NEW_TOKENS, room),
        pad_token_id=0 if end is None else end,
    )
    theirs = output[0, prompt.shape[1]:].tolist()
    if ours == theirs:
        check(True, "greedy ids", f"{len(ours)} tokens")
    else:
        first = next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
        best = model(output[:, : prompt.shape[1] + first]).logits[0, -1].topk(2).values
        check(False, "greedy ids", f"differ at token {first}, where the best leads by {best[0] - best[1]:.1e}: {ours} {theirs}")
    if tokenizer is not None:
        shown = theirs[:-1] if theirs and theirs[-1] == end else theirs  # Our text excludes the end token.
        text = tokenizer.decode(shown, clean_up_tokenization_spaces=False)
        check(written["text"] == text, "greedy text", "" if written["text"] == text else f"{written['text']!r} {text!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("text", help="a text, or token ids such as 1,2,3 where the folder has no tokenizer")
    parser.add_argument("--program", default="target/release/ember-generate")
    parser.add_argument("--score", help="saved output of `ember-generate score --format json`")
    parser.add_argument("--greedy", help="saved output of `ember-generate text --strategy greedy --format json`")
    parser.add_argument("--device", default="cpu", help="ember-generate's --device")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    check = Checks()

    model, info = AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32, output_loading_info=True)
    model.eval()
    wrong = {key: sorted(map(str, names)) for key, names in info.items() if names}
    check(not wrong, "every tensor found its place", str(wrong) if wrong else "")

    # Flags of every run of ember-generate.
    always = ["--from", str(args.folder), "--device", args.device, "--format", "json", "--quiet"]
    tokenizer = AutoTokenizer.from_pretrained(args.folder) if (args.folder / "tokenizer.json").exists() else None
    if tokenizer is None:
        expected = [int(number) for number in args.text.split(",")]
        request = ["--prompt-ids", args.text]
    else:
        expected = tokenizer(args.text)["input_ids"]
        request = ["--", args.text]
    if len(expected) >= model.config.max_position_embeddings:
        raise SystemExit(f"TEXT has {len(expected)} tokens; give fewer than the context of {model.config.max_position_embeddings}")

    scored = read_saved(args.score) if args.score else run_ours(args.program, "score", *always, *request)
    same = scored["ids"] == expected
    check(same, "token ids", f"{len(expected)} tokens" if same else f"{scored['ids']} {expected}")
    check_log_probabilities(check, model, scored)

    if args.greedy:
        written = read_saved(args.greedy)
    else:
        prompt = scored["ids"][: min(PROMPT_TOKENS, model.config.max_position_embeddings // 2)]
        new_tokens = min(NEW_TOKENS, model.config.max_position_embeddings - len(prompt))
        written = run_ours(
            args.program, "text", *always, "--strategy", "greedy", "--max-new-tokens", str(new_tokens), "--prompt-ids",
            ",".join(map(str, prompt)),
        )
    check_greedy(check, model, tokenizer, written)
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
