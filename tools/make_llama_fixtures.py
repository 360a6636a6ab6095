"""Makes model/tests/fixtures/llama: results of transformers' Llama and Qwen3, for our tests to reproduce.

    python tools/make_llama_fixtures.py [FOLDER]

Like make_fixtures.py, with the same versions and the same files for each reference: a folder by `save_pretrained`
with random weights everywhere, NAME.safetensors (`logits`, `grad.*`, `final.*` after four optimizer steps) and NAME.json. Tensors
keep transformers' own names and layout here. The references:
- `gqa`: Llama, two key/value heads for four query heads, untied;
- `biased`: Llama, tied, with biases in every linear layer, and another RoPE base;
- `qwen3`: heads whose total width differs from the model's, one key/value head for four query heads, tied.
And for single features: `greedy` (64 tokens), `sharded` (bfloat16 in shards with an index; logits computed in float32), and `old` (a
config.json as transformers 4 wrote it, weights without the prefix `model.`).
"""

import json
import shutil
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from make_fixtures import cross_entropy, save_folder, save_json, save_tensors, train

SETTINGS = {
    "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "grad_clip": 0.5, "learning_rate": 1e-2,
    "min_learning_rate": 1e-3, "warmup_steps": 2, "max_steps": 4, "grad_accum_steps": 1,
}
GQA = {
    "vocab_size": 33, "max_position_embeddings": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "hidden_size": 16, "intermediate_size": 22, "rms_norm_eps": 1e-5,
}
SMALL = GQA | {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 12, "vocab_size": 21}


def random_model(seed, kind="llama", **sizes):
    """A model in float32 on the eager path, with all parameters random, none at its usual initial value."""
    config_class, model_class = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}[kind]
    config = config_class(**sizes, bos_token_id=None, eos_token_id=None, attn_implementation="eager")
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            drawn = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.3 * drawn)
            elif name.endswith("bias"):
                parameter.copy_(0.1 * drawn)
            elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
                parameter.copy_(0.5 * drawn)
            else:
                parameter.copy_(drawn / parameter.shape[1] ** 0.5)
    return model


def make_reference(out, name, seed, batch, time, **sizes):
    model = random_model(seed, **sizes)
    save_folder(model, out / name)
    generator = torch.Generator().manual_seed(seed + 1)
    rows = torch.randint(sizes["vocab_size"], (batch, time + 1), generator=generator)
    tokens_in, targets = rows[:, :-1], rows[:, 1:]
    logits, loss = cross_entropy(model, tokens_in, targets)
    loss.backward()
    tensors = {"logits": logits.detach()}
    tensors |= {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    micro_batches = (SETTINGS["max_steps"], SETTINGS["grad_accum_steps"], batch, time + 1)
    steps = train(model, torch.randint(sizes["vocab_size"], micro_batches, generator=generator), SETTINGS)
    tensors |= {f"final.{n}": p.detach() for n, p in model.named_parameters()}
    save_tensors(tensors, out / f"{name}.safetensors")
    save_json(out / f"{name}.json", {
        "input_ids": tokens_in.tolist(), "targets": targets.tolist(), "loss": loss.item(), "optimizer": SETTINGS, "steps": steps,
    })


def make_greedy(out, prompt_length=5, new_tokens=64, **sizes):
    """Uses the first seed whose text is varied and whose choices all have clear margins."""
    for seed in range(2000):
        model = random_model(seed, **sizes)
        prompt = torch.randint(sizes["vocab_size"], (1, prompt_length), generator=torch.Generator().manual_seed(seed))
        ids, margins = prompt, []
        with torch.no_grad():
            for _ in range(new_tokens):
                best = model(ids, use_cache=False).logits[0, -1].topk(2)
                margins.append((best.values[0] - best.values[1]).item())
                if margins[-1] < 0.01:
                    break
                ids = torch.cat([ids, best.indices[:1].view(1, 1)], dim=1)
        new = ids[0, prompt_length:].tolist()
        if len(new) == new_tokens and len(set(new)) >= 12:
            break
    else:
        raise SystemExit("no seed below 2000 gives a varied text with clear choices")
    generated = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new_tokens, do_sample=False)
    assert generated[0].tolist() == ids[0].tolist(), "generate disagrees with the plain loop"
    save_folder(model, out / "greedy")
    save_json(out / "greedy.json", {"prompt_ids": prompt[0].tolist(), "ids": new, "smallest_margin": min(margins)})


def make_logits(out, name, seed):
    """The logits that transformers computes in float32 from the saved folder."""
    model = AutoModelForCausalLM.from_pretrained(out / name, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed)
    tokens_in = torch.randint(model.config.vocab_size, (2, model.config.max_position_embeddings), generator=generator)
    with torch.no_grad():
        logits = model(tokens_in, use_cache=False).logits
    save_tensors({"logits": logits}, out / f"{name}.safetensors")
    save_json(out / f"{name}.json", {"input_ids": tokens_in.tolist()})


def make_old(out, name, seed, **sizes):
    """A Llama in the format of transformers 4: `rope_theta` beside `rope_scaling`, `torch_dtype`, no `head_dim`."""
    save_folder(random_model(seed, **sizes, tie_word_embeddings=True).model, out / name)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
        "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "pretraining_tp": 1,
        "rope_scaling": None, "rope_theta": 500.0, "tie_word_embeddings": True, "torch_dtype": "float32",
        "transformers_version": "4.36.0", "use_cache": True, **sizes,
    }
    (out / name / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "model/tests/fixtures/llama"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    make_reference(out, "gqa", seed=1, batch=4, time=16, **GQA, tie_word_embeddings=False)
    make_reference(
        out, "biased", seed=2, batch=3, time=23, vocab_size=29, max_position_embeddings=24, num_hidden_layers=2,
        num_attention_heads=3, hidden_size=12, intermediate_size=17, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 300.0},
    )
    make_reference(
        out, "qwen3", seed=3, batch=3, time=13, kind="qwen3", vocab_size=37, max_position_embeddings=20, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=1, head_dim=6, hidden_size=14, intermediate_size=19, tie_word_embeddings=True,
    )
    make_greedy(out, **GQA | {"max_position_embeddings": 96}, tie_word_embeddings=False)
    save_folder(
        random_model(4, **SMALL, tie_word_embeddings=False).to(torch.bfloat16), out / "sharded", max_shard_size="4KB"
    )
    make_logits(out, "sharded", seed=4)
    make_old(out, "old", seed=5, **SMALL)
    make_logits(out, "old", seed=5)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}: wrote {out}")


if __name__ == "__main__":
    main()
