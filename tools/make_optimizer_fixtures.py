"""Makes train/tests/fixtures/muon.json and muon.safetensors: results of PyTorch's Muon and AdamW, for our tests to reproduce.

    python tools/make_optimizer_fixtures.py [FOLDER]

Needs torch==2.11.0, transformers==5.17.0, safetensors (the versions that made the files in the repository) and the model and the
tokens of model/tests/fixtures/a. FOLDER defaults to train/tests/fixtures.

Ten steps of make_fixtures.py's loop, with torch.optim.Muon's own step function for the matrices of the blocks (GPT-2 stores them
[in, out], Muon wants [out, in]; queries, keys and values of `c_attn` are three matrices) and torch.optim.AdamW for the rest, under
one schedule and one clipping. PyTorch orthogonalises in bfloat16, which no other implementation can match exactly: that
function is replaced by the same one in float32.

- `muon.json` holds the settings, and for each step the learning rates, the loss and the gradient's global norm before clipping;
- `muon.safetensors` holds the weights after the steps as `final.NAME`, and Muon's momentum as `momentum.NAME`.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from torch.optim import _muon
from transformers import GPT2LMHeadModel

sys.path.insert(0, str(Path(__file__).parent))
from make_fixtures import bare, cross_entropy, learning_rate_at  # noqa: E402

ROOT = Path(__file__).parent.parent
SETTINGS = {"muon_learning_rate": 0.02, "muon_momentum": 0.95, "weight_decay": 0.1}


def orthogonal_in_float32(grad, coefficients, steps, eps):
    """torch.optim._muon._zeropower_via_newtonschulz without its conversion to bfloat16."""
    a, b, c = coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


def parts(name, matrix):
    """The matrices [out, in] inside a stored one [in, out]: views, so that updates change it."""
    return matrix.T.chunk(3) if name.endswith("attn.c_attn.weight") else [matrix.T]


def main():
    torch.set_num_threads(1)
    _muon._zeropower_via_newtonschulz = orthogonal_in_float32
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "train/tests/fixtures"
    source = ROOT / "model/tests/fixtures"
    fixture = json.loads((source / "a.json").read_text())
    adamw = fixture["optimizer"]
    model = GPT2LMHeadModel.from_pretrained(source / "a", dtype=torch.float32, attn_implementation="eager").eval()

    of_blocks = {n: p for n, p in model.named_parameters() if ".h." in n and p.dim() == 2}
    rest = [p for n, p in model.named_parameters() if n not in of_blocks]
    momenta = {name: torch.zeros_like(parameter) for name, parameter in of_blocks.items()}
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in rest if p.dim() >= 2], "weight_decay": SETTINGS["weight_decay"]},
            {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
        ],
        betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["eps"], foreach=False,
    )
    report = []
    for step, of_fixture in enumerate(fixture["steps"]):
        rate = learning_rate_at(step, adamw)
        muon_rate = SETTINGS["muon_learning_rate"] * rate / adamw["learning_rate"]
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = torch.tensor(of_fixture["tokens"][0])
        _, loss = cross_entropy(model, rows[:, :-1], rows[:, 1:])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), adamw["grad_clip"]).item()
        optimizer.step()
        with torch.no_grad():
            for name, parameter in of_blocks.items():
                _muon.muon(
                    parts(name, parameter), parts(name, parameter.grad), parts(name, momenta[name]), lr=muon_rate,
                    weight_decay=SETTINGS["weight_decay"], momentum=SETTINGS["muon_momentum"], nesterov=True,
                    ns_coefficients=(_muon.DEFAULT_A, _muon.DEFAULT_B, _muon.DEFAULT_C), ns_steps=_muon.DEFAULT_NS_STEPS,
                    eps=_muon.EPS, adjust_lr_fn="original", has_complex=False,
                )
        model.zero_grad(set_to_none=True)
        report.append({"learning_rate": rate, "loss": loss.item(), "grad_norm": norm})

    out.mkdir(parents=True, exist_ok=True)
    tensors = {f"final.{bare(n)}": p.detach().contiguous() for n, p in model.named_parameters()}
    tensors |= {f"momentum.{bare(n)}": momentum for n, momentum in momenta.items()}
    save_file(tensors, out / "muon.safetensors", metadata={"format": "pt"})
    (out / "muon.json").write_text(json.dumps({"settings": SETTINGS, "steps": report}, separators=(",", ":")) + "\n")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}: wrote {out}")


if __name__ == "__main__":
    main()
