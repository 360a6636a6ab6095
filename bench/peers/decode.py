"""The peers: greedy decoding with a GPT-2 of random weights in PyTorch.

    python bench/peers/decode.py [--shape 12x12x768x50257x1024] [--way transformers|static|graph] [--batch N] [--prompt N] [--new N]
                                 [--device cpu|cuda] [--dtype float32|bfloat16] [--threads N] [--repeats N]

- `transformers`: `generate` as usual, with its growing cache;
- `static`: `generate` with `cache_implementation="static"` and a compiled forward;
- `graph`: our own decoder with a cache of fixed size, compiled, on a GPU with CUDA graphs (`mode="reduce-overhead"`), with ids
  chosen on the device: the fastest PyTorch that we know how to write. It does not need transformers.

A step is one token for every row. One JSON object on standard output.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F


def transformers_steps(args, shape, static):
    from transformers import GPT2Config, GPT2LMHeadModel

    n_layer, n_head, n_embd, vocab, context = shape
    config = GPT2Config(
        vocab_size=vocab, n_positions=context, n_embd=n_embd, n_layer=n_layer, n_head=n_head, bos_token_id=0, eos_token_id=None
    )
    model = GPT2LMHeadModel(config).eval().to(args.device, getattr(torch, args.dtype))
    prompt = torch.randint(vocab, (args.batch, args.prompt), device=args.device)
    knobs = {"do_sample": False, "pad_token_id": 0, "use_cache": True}
    if static:
        knobs["cache_implementation"] = "static"

    def generate(new):
        synchronize(args)
        began = time.perf_counter()
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, min_new_tokens=new, **knobs)
        synchronize(args)
        return time.perf_counter() - began

    steps, prefills = [], []
    for repeat in range(args.repeats + 1):
        short, long = generate(1), generate(1 + args.new)
        if repeat > 0:
            steps.append((long - short) / args.new)
            prefills.append(short)
    return steps, prefills


def graph_steps(args, shape):
    n_layer, n_head, n_embd, vocab, context = shape
    dtype, device = getattr(torch, args.dtype), args.device
    size, head = args.prompt + args.new + 1, n_embd // n_head

    def weight(*sizes):
        return (torch.randn(*sizes, device=device) * 0.02).to(dtype)

    wte, wpe = weight(vocab, n_embd), weight(context, n_embd)
    blocks = [
        {
            "qkv": weight(3 * n_embd, n_embd), "proj": weight(n_embd, n_embd),
            "fc": weight(4 * n_embd, n_embd), "out": weight(n_embd, 4 * n_embd),
            "b3": weight(3 * n_embd), "b1": weight(n_embd), "b4": weight(4 * n_embd), "one": torch.ones_like(weight(n_embd)),
            "k": torch.zeros(args.batch, n_head, size, head, device=device, dtype=dtype),
            "v": torch.zeros(args.batch, n_head, size, head, device=device, dtype=dtype),
        }
        for _ in range(n_layer)
    ]
    places = torch.arange(size, device=device)

    def step(ids, place):
        x = wte[ids] + wpe[place]  # [batch, n_embd]
        seen = (places <= place)[None, None, None, :]
        for b in blocks:
            h = F.layer_norm(x, (n_embd,), b["one"], b["b1"])
            q, k, v = F.linear(h, b["qkv"], b["b3"]).view(args.batch, 3, n_head, 1, head).unbind(1)
            b["k"].index_copy_(2, place, k)
            b["v"].index_copy_(2, place, v)
            y = F.scaled_dot_product_attention(q, b["k"], b["v"], attn_mask=seen).reshape(args.batch, n_embd)
            x = x + F.linear(y, b["proj"], b["b1"])
            h = F.layer_norm(x, (n_embd,), b["one"], b["b1"])
            x = x + F.linear(F.gelu(F.linear(h, b["fc"], b["b4"]), approximate="tanh"), b["out"], b["b1"])
        return F.linear(F.layer_norm(x, (n_embd,)), wte).argmax(-1)

    # Inductor unrolls the layers into one function; the mode only matters with CUDA graphs.
    mode = "reduce-overhead" if device.startswith("cuda") else "default"
    compiled = torch.compile(step, mode=mode, fullgraph=True)
    steps = []
    for repeat in range(args.repeats + 2):
        ids = torch.zeros(args.batch, dtype=torch.long, device=device)
        place = torch.full((1,), args.prompt, dtype=torch.long, device=device)
        synchronize(args)
        began = time.perf_counter()
        for _ in range(args.new):
            ids = compiled(ids, place).clone()
            place = place + 1
        synchronize(args)
        if repeat > 1:
            steps.append((time.perf_counter() - began) / args.new)
    return steps, []


def synchronize(args):
    if args.device.startswith("cuda"):
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="12x12x768x50257x1024", help="layers x heads x width x vocabulary x context")
    parser.add_argument("--way", choices=["transformers", "static", "graph"], default="transformers")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    shape = [int(size) for size in args.shape.split("x")]
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    with torch.inference_mode():
        ran = graph_steps(args, shape) if args.way == "graph" else transformers_steps(args, shape, args.way == "static")
    steps, prefills = ran
    median = statistics.median(steps)
    result = {
        "peer": f"PyTorch {torch.__version__}, {args.way}",
        "dtype": args.dtype,
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else "cpu",
        "batch": args.batch,
        "prompt_tokens": args.prompt,
        "new_tokens": args.new,
        "step_s": {"median": median, "min": min(steps), "max": max(steps)},
        "tokens_per_s": args.batch / median,
        "steps_s": steps,
    }
    if prefills:
        # The prefill also chooses one token, as in ours.
        result["prefills_s"] = prefills
        result["prefill_tokens_per_s"] = args.batch * args.prompt / statistics.median(prefills)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
