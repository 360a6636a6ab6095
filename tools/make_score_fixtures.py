"""Makes generate/lib/tests/fixtures/score.json: results of transformers' perplexity recipe, for our tests to reproduce.

    python tools/make_score_fixtures.py [FILE]

Needs torch==2.11.0 and transformers==5.17.0 (the versions that made the file in the repository) and the model
model/tests/fixtures/b, whose context is 24 tokens. The recipe is "Perplexity of fixed-length models",
https://huggingface.co/docs/transformers/perplexity: windows of the context's length, a stride apart, in each of which only the
tokens that no window before it held are labels.

Each case holds `ids` and `stride`, and
- `recipe_perplexity`: by the recipe's own arithmetic, which weights a window's mean loss with one less than its number of
  labels. That is right for the first window, whose first label is shifted away; in later windows the first label has a token
  before it and counts in the mean, so that these windows have slightly too little weight;
- `logprobs`: of every token but the first, in the window in which it is a label;
- `loss`: their negative mean, with equal weights.
A stride as long as the context is left out: there the recipe does not score a window's first token, but we do.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

FIXTURES = Path(__file__).parent.parent / "model/tests/fixtures"
# (tokens, stride): one window, a window and one token, windows that end with the text, a short last one, every stride.
CASES = [(9, 12), (24, 12), (25, 12), (60, 12), (61, 5), (40, 1), (70, 23), (2, 12)]


def score(model, ids, stride):
    length = model.config.n_positions
    nll_sum, n_tokens, previous_end = 0.0, 0, 0
    logprobs = []
    for begin in range(0, len(ids), stride):
        end = min(begin + length, len(ids))
        window = torch.tensor([ids[begin:end]])
        labels = window.clone()
        labels[:, : -(end - previous_end)] = -100
        with torch.no_grad():
            output = model(window, labels=labels)
        weight = (labels != -100).sum().item() - 1
        nll_sum += output.loss.item() * weight
        n_tokens += weight
        all_logprobs = output.logits[0].double().log_softmax(-1)
        for position in range(max(previous_end, 1), end):
            logprobs.append(all_logprobs[position - begin - 1, ids[position]].item())
        previous_end = end
        if end == len(ids):
            break
    return {
        "ids": ids, "stride": stride, "recipe_perplexity": torch.tensor(nll_sum / n_tokens).double().exp().item(),
        "loss": -sum(logprobs) / len(logprobs), "logprobs": [round(logprob, 7) for logprob in logprobs],
    }


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "generate/lib/tests/fixtures/score.json"
    model = AutoModelForCausalLM.from_pretrained(FIXTURES / "b", dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(7)
    cases = []
    for tokens, stride in CASES:
        ids = torch.randint(model.config.vocab_size, (tokens,), generator=generator).tolist()
        cases.append(score(model, ids, stride))
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text('{"cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
