"""The peer: timed training steps of a GPT-2 in PyTorch, with the shapes and the arithmetic of `ember-train bench`.

    python bench/peers/train.py [--shape 12x12x768x50257x1024] [--batch N] [--device cpu|cuda] [--dtype float32|bfloat16]
                                [--compile [MODE]] [--pad-vocab N] [--steps N] [--warmup N] [--threads N]

A step is: a batch of random ids, forward, mean cross-entropy, backward, clipping of the global norm at 1, fused AdamW. Attention
is scaled_dot_product_attention (FlashAttention on a GPU), GELU the tanh form, the head tied; with bfloat16 the products run under
autocast and the weights stay float32. On a GPU float32 products may use TF32, as ours may. `--pad-vocab 64` rounds the head up to a
multiple of 64 rows, as nanoGPT does for tensor cores; no id uses the extra rows. One JSON object on standard output.

On a CPU the C library's allocator returns large blocks to the system after every step, so that they are cleared again in the next.
With MALLOC_TRIM_THRESHOLD_=4294967295 MALLOC_MMAP_THRESHOLD_=33554432 in the environment it keeps them: `bench/run.sh` tries both.
"""

import argparse
import json
import os
import resource
import statistics
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, n_head, n_embd):
        super().__init__()
        self.n_head = n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.attn_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.c_fc, self.mlp_proj = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        batch, length, width = x.shape
        heads = (batch, length, self.n_head, width // self.n_head)
        q, k, v = (part.view(heads).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.attn_proj(y)
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, n_layer, n_head, n_embd, vocab, context):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(context, n_embd)
        self.h = nn.ModuleList(Block(n_head, n_embd) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def resident_peak():
    """Peak resident memory of this process in bytes, including libraries."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="12x12x768x50257x1024", help="layers x heads x width x vocabulary x context")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--compile", nargs="?", const="default", metavar="MODE", help="torch.compile's mode")
    parser.add_argument("--pad-vocab", type=int, default=1, metavar="N")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    n_layer, n_head, n_embd, vocab, context = (int(size) for size in args.shape.split("x"))

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    on_gpu = args.device.startswith("cuda")
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    half = args.dtype == "bfloat16"
    autocast = torch.autocast("cuda" if on_gpu else "cpu", torch.bfloat16) if half else nullcontext()
    before = resident_peak()
    padded = -(-vocab // args.pad_vocab) * args.pad_vocab
    model = GPT(n_layer, n_head, n_embd, padded, context).to(args.device)
    parameters = sum(parameter.numel() for parameter in model.parameters()) - (padded - vocab) * n_embd
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    stepped = torch.compile(model, mode=args.compile) if args.compile else model

    times, began = [], time.perf_counter()
    for step in range(args.warmup + args.steps):
        synchronize()
        started = time.perf_counter()
        ids = torch.randint(vocab, (args.batch, context + 1), device=args.device)
        with autocast:
            loss = stepped(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        if step == 0:
            first_step_s = time.perf_counter() - began
        if step >= args.warmup:
            times.append(time.perf_counter() - started)
    median = statistics.median(times)
    tokens = args.batch * context
    flops = 6 * (parameters - context * n_embd) + 12 * n_layer * n_embd * context
    result = {
        "peer": "PyTorch " + torch.__version__,
        "compiled": args.compile,
        "allocator": "kept" if "MALLOC_TRIM_THRESHOLD_" in os.environ else "default",
        "dtype": args.dtype,
        "threads": torch.get_num_threads(),
        "padded_vocab": padded,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "parameters": parameters,
        "tokens_per_step": tokens,
        "step_s": {"median": median, "min": min(times), "max": max(times)},
        "tokens_per_s": tokens / median,
        "flops_per_s": tokens * flops / median,
        "first_step_s": first_step_s,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else resident_peak() - before,
        "steps_s": times,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
