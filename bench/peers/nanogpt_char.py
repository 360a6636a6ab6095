"""The peer: nanoGPT's two character-level recipes in plain PyTorch, evaluated both our way and nanoGPT's.

    python bench/peers/nanogpt_char.py TEXT_FILE [--recipe cpu|gpu] [--threads N] [--compile] [--steps N]

The recipes are those of nanoGPT's README and config/train_shakespeare_char.py: `cpu` (4 layers, 4 heads, 128 wide, context
64, batch 12, dropout 0, 2,000 steps, float32) and `gpu` (6 layers, 6 heads, 384 wide, context 256, batch 64, dropout 0.2,
5,000 steps, bfloat16 autocast). Both: no biases, exact GELU, tied embedding, AdamW with betas 0.9 and 0.99 and decay 0.1
on matrices, 100 steps of linear warm-up to 1e-3, then cosine to 1e-4, clipping at norm 1; the first 90% of the text train,
batches are random crops.

Reported, as one JSON object on standard output (losses in nats per character):
- `val_loss`: every target of the last tenth once, in adjacent windows from its beginning: ember-train's evaluation;
- `val_loss_random`: nanoGPT's, the mean over `eval_iters` random batches (20 on the CPU, 200 on the GPU);
  each after the last step, and as `best_...` the best of all evaluations (like nanoGPT's published numbers);
- `training_s`: time of the steps without evaluations, including `first_step_s`, the first step's, which with `--compile`
  includes compilation;
- `mean_step_ms` of the steps after the first, and on the CPU, where each step ends before the next begins, `median_step_ms`.

Two advantages for the peer: AdamW is the fused one on every device, and the whole text is on the device as ids.
"""

import argparse
import json
import math
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Recipe:
    n_layer: int
    n_head: int
    n_embd: int
    context_length: int
    batch_size: int
    dropout: float
    steps: int
    eval_iters: int
    device: str
    dtype: str
    learning_rate: float = 1e-3
    min_learning_rate: float = 1e-4
    warmup_steps: int = 100
    eval_interval: int = 250


RECIPES = {
    "cpu": Recipe(4, 4, 128, 64, 12, 0.0, 2000, 20, "cpu", "float32"),
    "gpu": Recipe(6, 6, 384, 256, 64, 0.2, 5000, 200, "cuda", "bfloat16"),
}


class Block(nn.Module):
    def __init__(self, recipe):
        super().__init__()
        width = recipe.n_embd
        self.n_head, self.dropout = recipe.n_head, recipe.dropout
        self.ln_1 = nn.LayerNorm(width, bias=False)
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.attn_c_proj = nn.Linear(width, width, bias=False)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.mlp_c_proj = nn.Linear(4 * width, width, bias=False)

    def attention(self, x):
        batch, time, width = x.shape
        heads = (batch, time, self.n_head, width // self.n_head)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.c_attn(x).split(width, dim=2))
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)  # [batch, n_head, time, head_size]
        return self.attn_c_proj(mixed.transpose(1, 2).reshape(batch, time, width))

    def forward(self, x):
        x = x + F.dropout(self.attention(self.ln_1(x)), self.dropout, self.training)
        hidden = self.mlp_c_proj(F.gelu(self.c_fc(self.ln_2(x))))
        return x + F.dropout(hidden, self.dropout, self.training)


class GPT(nn.Module):
    def __init__(self, recipe, vocab_size):
        super().__init__()
        self.dropout = recipe.dropout
        self.wte = nn.Embedding(vocab_size, recipe.n_embd)
        self.wpe = nn.Embedding(recipe.context_length, recipe.n_embd)
        self.h = nn.ModuleList(Block(recipe) for _ in range(recipe.n_layer))
        self.ln_f = nn.LayerNorm(recipe.n_embd, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                residual = name.endswith("c_proj.weight")
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * recipe.n_layer) if residual else 0.02)

    def forward(self, tokens, targets):
        """Sum of -ln p over the targets; ids and targets are [batch, time]. A sum, so that windows of different lengths can be added."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.wte(tokens) + self.wpe(positions), self.dropout, self.training)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def learning_rate_at(step, recipe):
    """nanoGPT's get_lr; the decay spans the whole recipe."""
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / (recipe.warmup_steps + 1)
    progress = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    weight = 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return recipe.min_learning_rate + weight * (recipe.learning_rate - recipe.min_learning_rate)


def read_text(path, device):
    """The text as ids of its sorted characters, split as in nanoGPT, and the number of different characters."""
    text = path.read_text(encoding="utf-8")
    ids = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([ids[character] for character in text], device=device)
    cut = int(len(text) * 0.9)
    return tokens[:cut], tokens[cut:], len(ids)


def random_batch(tokens, recipe):
    starts = torch.randint(len(tokens) - recipe.context_length, (recipe.batch_size,))
    places = (starts[:, None] + torch.arange(recipe.context_length)).to(tokens.device)
    return tokens[places], tokens[places + 1]


@torch.no_grad()
def loss_over_windows(model, tokens, recipe, autocast):
    """Evaluates as ember-train does: every target once, in adjacent windows, the last one shorter."""
    time, count = recipe.context_length, len(tokens) - 1
    whole = count // time * time
    inputs, targets = tokens[:whole].view(-1, time), tokens[1 : whole + 1].view(-1, time)
    rows = max(1, 8192 // time)
    batches = list(zip(inputs.split(rows), targets.split(rows)))
    if whole < count:
        batches.append((tokens[whole:count][None], tokens[whole + 1 :][None]))
    total = 0.0
    for batch in batches:
        with autocast:
            total += model(*batch).item()
    return total / count


@torch.no_grad()
def loss_over_random_batches(model, tokens, recipe, autocast):
    total = 0.0
    for _ in range(recipe.eval_iters):
        with autocast:
            total += model(*random_batch(tokens, recipe)).item()
    return total / (recipe.eval_iters * recipe.batch_size * recipe.context_length)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--recipe", choices=RECIPES, default="cpu")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="of autocast; weights stay float32")
    parser.add_argument("--compile", action="store_true", help="train a torch.compile'd model (evaluation stays eager)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--steps", type=int, help="another length; the cosine ends with it")
    parser.add_argument("--eval-interval", type=int, help="steps between evaluations; 0 evaluates at the end only")
    parser.add_argument("--seed", type=int, default=1337)
    args = parser.parse_args()
    recipe = RECIPES[args.recipe]
    for name in ["device", "dtype", "steps", "eval_interval"]:
        if getattr(args, name) is not None:
            setattr(recipe, name, getattr(args, name))

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    device = torch.device(recipe.device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    half = recipe.dtype == "bfloat16"
    autocast = torch.autocast(device.type, torch.bfloat16) if half else nullcontext()

    train, val, vocab_size = read_text(args.text, device)
    model = GPT(recipe, vocab_size).to(device)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], betas=(0.9, 0.99), fused=True
    )
    stepped = torch.compile(model) if args.compile else model
    targets_per_step = recipe.batch_size * recipe.context_length

    evaluations, step_seconds = [], []
    for step in range(recipe.steps):
        started = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, recipe)
        with autocast:
            loss = stepped(*random_batch(train, recipe)) / targets_per_step
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        done = step + 1
        due = done == recipe.steps or (recipe.eval_interval and done % recipe.eval_interval == 0)
        if due or step == 0:
            synchronize()  # Only where a time is read: otherwise the host may run ahead of the device.
        step_seconds.append(time.perf_counter() - started)

        if due:
            model.eval()
            losses = [evaluate(model, val, recipe, autocast) for evaluate in (loss_over_windows, loss_over_random_batches)]
            model.train()
            evaluations.append(losses)
            print(
                f"step {done}: train {loss.item():.4f}, validation {losses[0]:.4f} (random batches {losses[1]:.4f}), "
                f"{sum(step_seconds):.1f} s",
                file=sys.stderr,
            )
            synchronize()

    rest = step_seconds[1:] or step_seconds
    windows, random = zip(*evaluations)
    print(json.dumps({
        "recipe": args.recipe, "device": recipe.device, "dtype": recipe.dtype, "compile": args.compile,
        "threads": args.threads, "seed": args.seed, "steps": recipe.steps, "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()), "vocab_size": vocab_size,
        "val_loss": windows[-1], "best_val_loss": min(windows),
        "val_loss_random": random[-1], "best_val_loss_random": min(random),
        "training_s": sum(step_seconds), "first_step_s": step_seconds[0],
        "mean_step_ms": 1e3 * sum(rest) / len(rest),
        "median_step_ms": None if device.type == "cuda" else 1e3 * sorted(rest)[len(rest) // 2],
    }))


if __name__ == "__main__":
    main()
