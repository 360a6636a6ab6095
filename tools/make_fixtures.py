"""Makes model/tests/fixtures: results of PyTorch and transformers, for our tests to reproduce.

    python tools/make_fixtures.py [FOLDER]

Needs torch==2.11.0, transformers==5.17.0, safetensors, numpy (the versions that made the files in the repository). The
files are reproducible, bit for bit on the same processor; FOLDER defaults to model/tests/fixtures.

The numeric reference has two shapes, `a` and `b`:
- `a/` is the model as `save_pretrained` writes it, with random weights everywhere, including LayerNorm's, so that a
  missing term is noticed;
- `a.safetensors` holds `logits` [batch, time, vocab_size], every gradient of the mean cross-entropy as `grad.NAME` (the
  tied embedding's is the sum of both of its uses), and the weights after ten optimizer steps as `final.NAME`;
- `a.json` holds the token ids, the loss, the optimizer's settings, and for each of the ten steps its tokens
  [grad_accum_steps, batch, time + 1] (inputs are all but the last of a row, targets all but the first), the learning rate,
  the loss (mean over the micro-batches, before the update) and the gradient's global norm before clipping.
The optimizer is torch.optim.AdamW with nanoGPT's schedule (`get_lr`), decay on tensors of two and more dimensions only,
and clip_grad_norm_ at a norm that every step exceeds.

The rest test single features:
- `greedy/` and `greedy.json`: `generate` without sampling, 64 tokens after a prompt, the context never full; the best token
  leads the second by at least `smallest_margin` in logits, so rounding cannot change it;
- `untied-bf16-sharded/`: bfloat16, an untied head, split into shards with an index;
- `tied-f16-unprefixed/`: float16, saved from the bare `GPT2Model`, so that names lack `transformer.`;
  each with a `.json` (token ids) and a `.safetensors` (`logits`, computed in float32 from the stored weights).

NAME is GPT-2's name without the prefix `transformer.`. The gradient of the key third of `attn.c_attn.bias` is zero
except for rounding (softmax is invariant to it), and AdamW turns rounding into steps: do not compare it or its `final` values.
"""

import json
import math
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

STEPS = 10


def random_model(seed, position_scale=0.3, **sizes):
    """A GPT-2 in float32 on the eager path, with all parameters random, none at its usual initial value."""
    config = GPT2Config(
        **sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
        attn_implementation="eager",
    )
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if ".ln_" in name:
                parameter.copy_(1 + 0.3 * drawn if name.endswith("weight") else 0.2 * drawn)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * drawn)
            elif name.endswith(("wte.weight", "lm_head.weight")):
                parameter.copy_(0.5 * drawn)
            elif name.endswith("wpe.weight"):
                parameter.copy_(position_scale * drawn)
            else:
                parameter.copy_(drawn / math.sqrt(parameter.shape[0]))
    return model


def bare(name):
    return name.removeprefix("transformer.")


def cross_entropy(model, tokens_in, targets):
    logits = model(tokens_in, use_cache=False).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate_at(step, settings):
    """nanoGPT's get_lr, with max_steps for its lr_decay_iters."""
    peak, low = settings["learning_rate"], settings["min_learning_rate"]
    warmup, end = settings["warmup_steps"], settings["max_steps"]
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step > end:
        return low
    progress = (step - warmup) / (end - warmup)
    return low + 0.5 * (1.0 + math.cos(math.pi * progress)) * (peak - low)


def train(model, batches, settings):
    """Ten steps of nanoGPT's loop over `batches` [step, micro-batch, batch, time + 1]; returns the report of each step."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
        lr=settings["learning_rate"], betas=(settings["beta1"], settings["beta2"]), eps=settings["eps"], foreach=False,
    )
    report = []
    for step, micro_batches in enumerate(batches):
        rate = learning_rate_at(step, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss_sum = 0.0
        for rows in micro_batches:
            _, loss = cross_entropy(model, rows[:, :-1], rows[:, 1:])
            (loss / len(micro_batches)).backward()
            loss_sum += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings["grad_clip"]).item()
        assert norm > 1.2 * settings["grad_clip"], f"step {step} would not clip: {norm}"
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        report.append({
            "tokens": micro_batches.tolist(), "learning_rate": rate, "loss": loss_sum / len(micro_batches), "grad_norm": norm,
        })
    return report


def make_reference(out, name, seed, batch, time, settings, **sizes):
    model = random_model(seed, **sizes)
    save_folder(model, out / name)
    generator = torch.Generator().manual_seed(seed + 1)
    rows = torch.randint(sizes["vocab_size"], (batch, time + 1), generator=generator)
    tokens_in, targets = rows[:, :-1], rows[:, 1:]

    logits, loss = cross_entropy(model, tokens_in, targets)
    loss.backward()
    tensors = {"logits": logits.detach()}
    tensors |= {f"grad.{bare(n)}": p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)

    micro_batches = (STEPS, settings["grad_accum_steps"], batch, time + 1)
    steps = train(model, torch.randint(sizes["vocab_size"], micro_batches, generator=generator), settings)
    tensors |= {f"final.{bare(n)}": p.detach() for n, p in model.named_parameters()}
    save_tensors(tensors, out / f"{name}.safetensors")
    save_json(out / f"{name}.json", {
        "input_ids": tokens_in.tolist(), "targets": targets.tolist(), "loss": loss.item(), "optimizer": settings, "steps": steps,
    })


def make_greedy(out, prompt_length=5, new_tokens=64, **sizes):
    """Uses the first seed whose text is varied and whose choices all have clear margins (strong positions avoid a fixed point)."""
    for seed in range(1000):
        model = random_model(seed, position_scale=1.0, **sizes)
        prompt = torch.randint(sizes["vocab_size"], (1, prompt_length), generator=torch.Generator().manual_seed(seed))
        ids = prompt
        margins = []
        with torch.no_grad():
            for _ in range(new_tokens):
                best = model(ids, use_cache=False).logits[0, -1].topk(2)
                margins.append((best.values[0] - best.values[1]).item())
                if margins[-1] < 0.01:
                    break
                ids = torch.cat([ids, best.indices[:1].view(1, 1)], dim=1)
        new = ids[0, prompt_length:].tolist()
        if len(new) == new_tokens and len(set(new)) >= 16:
            break
    else:
        raise SystemExit("no seed below 1000 gives a varied text with clear choices")
    generated = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new_tokens, do_sample=False)
    assert generated[0].tolist() == ids[0].tolist(), "generate disagrees with the plain loop"
    save_folder(model, out / "greedy")
    save_json(out / "greedy.json", {"prompt_ids": prompt[0].tolist(), "ids": new, "smallest_margin": min(margins)})


def make_variant(out, name, seed, save, **sizes):
    """Saves a model by `save`; the expected logits are computed in float32 from the weights that transformers reads back."""
    save(random_model(seed, **sizes), out / name)
    model = GPT2LMHeadModel.from_pretrained(out / name, dtype=torch.float32, attn_implementation="eager").eval()
    tokens_in = torch.randint(sizes["vocab_size"], (2, sizes["n_positions"]), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(tokens_in, use_cache=False).logits
    save_tensors({"logits": logits}, out / f"{name}.safetensors")
    save_json(out / f"{name}.json", {"input_ids": tokens_in.tolist()})


def save_folder(model, path, **options):
    model.save_pretrained(path, **options)
    (path / "generation_config.json").unlink(missing_ok=True)


def save_tensors(tensors, path):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def save_json(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "model/tests/fixtures"
    for old in [*out.glob("*.safetensors"), *out.glob("*.json")]:
        old.unlink()
    for old in ["a", "b", "greedy", "untied-bf16-sharded", "tied-f16-unprefixed"]:
        shutil.rmtree(out / old, ignore_errors=True)

    settings = {
        "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 0.5, "learning_rate": 1e-2,
        "min_learning_rate": 1e-3, "warmup_steps": 4, "max_steps": STEPS, "grad_accum_steps": 1,
    }
    make_reference(
        out, "a", seed=1, batch=4, time=16, settings=settings, vocab_size=33, n_positions=16, n_layer=2, n_head=2, n_embd=16
    )
    # An odd time below the context, a head size that is not a power of two, and two micro-batches per step.
    make_reference(
        out, "b", seed=2, batch=3, time=23, settings=settings | {"grad_accum_steps": 2}, vocab_size=67, n_positions=24,
        n_layer=3, n_head=3, n_embd=36,
    )
    make_greedy(out, vocab_size=33, n_positions=96, n_layer=2, n_head=2, n_embd=16)

    small = {"vocab_size": 29, "n_positions": 12, "n_layer": 2, "n_head": 2, "n_embd": 12}
    make_variant(
        out, "untied-bf16-sharded", seed=3, tie_word_embeddings=False, **small,
        save=lambda model, path: save_folder(model.to(torch.bfloat16), path, max_shard_size="4KB"),
    )
    make_variant(
        out, "tied-f16-unprefixed", seed=4, **small,
        save=lambda model, path: save_folder(model.transformer.to(torch.float16), path),
    )
    print(f"torch {torch.__version__}, transformers {transformers.__version__}: wrote {out}")


if __name__ == "__main__":
    main()
