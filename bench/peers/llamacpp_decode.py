"""The peer: llama.cpp decoding one sequence with a GPT-2 of random weights, on the CPU.

    python bench/peers/llamacpp_decode.py [--shape 12x12x768x50257x1024] [--type f32|bf16|q8_0] [--prompt N] [--new N]
                                          [--threads N] [--repeats N]

Needs the wheels `xllamacpp` (llama.cpp prebuilt) and `gguf`. The weights are random, as in `ember-generate bench --shape`: speed
does not depend on them. One JSON object on standard output: tokens per second of each repetition, and their median.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

import gguf
import numpy as np


def bytes_to_characters():
    """GPT-2's table of 256 visible characters for the 256 bytes."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in visible]
    return {**{byte: chr(byte) for byte in visible}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def write_model(path, shape, kind):
    n_layer, n_head, n_embd, vocab, context = shape
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(n_layer)
    writer.add_context_length(context)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(4 * n_embd)
    writer.add_head_count(n_head)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    characters = list(bytes_to_characters().values())
    writer.add_token_list([characters[i] if i < 256 else f"<{i}>" for i in range(vocab)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocab)
    writer.add_token_merges([f"{characters[64]} {characters[65]}"])
    writer.add_eos_token_id(vocab - 1)

    def vector(name, value, width):
        writer.add_tensor(name, np.full(width, value, dtype=np.float32))

    def matrix(name, n_out, n_in):
        values = rng.standard_normal((n_out, n_in), dtype=np.float32) * np.float32(0.02)
        if kind == "f32":
            writer.add_tensor(name, values)
            return
        stored = gguf.GGMLQuantizationType.BF16 if kind == "bf16" else gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)

    matrix("token_embd.weight", vocab, n_embd)
    writer.add_tensor("position_embd.weight", rng.standard_normal((context, n_embd), dtype=np.float32) * np.float32(0.02))
    for i in range(n_layer):
        for norm in ["attn_norm", "ffn_norm"]:
            vector(f"blk.{i}.{norm}.weight", 1.0, n_embd)
            vector(f"blk.{i}.{norm}.bias", 0.0, n_embd)
        for name, n_out, n_in in [
            ("attn_qkv", 3 * n_embd, n_embd),
            ("attn_output", n_embd, n_embd),
            ("ffn_up", 4 * n_embd, n_embd),
            ("ffn_down", n_embd, 4 * n_embd),
        ]:
            matrix(f"blk.{i}.{name}.weight", n_out, n_in)
            vector(f"blk.{i}.{name}.bias", 0.0, n_out)
    vector("output_norm.weight", 1.0, n_embd)
    vector("output_norm.bias", 0.0, n_embd)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="12x12x768x50257x1024")
    parser.add_argument("--type", choices=["f32", "bf16", "q8_0"], default="f32")
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    shape = [int(size) for size in args.shape.split("x")]

    import xllamacpp

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.gguf")
        write_model(path, shape, args.type)
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx = min(shape[4], args.prompt + args.new + 8)
        params.n_parallel = 1
        params.cpuparams.n_threads = args.threads
        params.cpuparams_batch.n_threads = args.threads
        params.warmup = False
        # The server logs to standard output: keep that for the result.
        out = os.dup(1)
        os.dup2(2, 1)
        server = xllamacpp.Server(params)
        request = {
            "prompt": [i * 97 % 256 for i in range(args.prompt)],
            "n_predict": args.new,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        decode, prefill = [], []
        for repeat in range(args.repeats + 1):
            timings = server.handle_completions(request)["timings"]
            if repeat > 0:
                decode.append(timings["predicted_per_second"])
                prefill.append(timings["prompt_per_second"])
        result = {
            "peer": "llama.cpp",
            "type": args.type,
            "prompt_tokens": args.prompt,
            "new_tokens": args.new,
            "threads": args.threads,
            "tokens_per_s": statistics.median(decode),
            "all_tokens_per_s": decode,
            "prefill_tokens_per_s": statistics.median(prefill),
        }
        os.write(out, (json.dumps(result) + "\n").encode())
        sys.stdout.flush()
    # After the folder is removed, as this ends the process at once.
    os._exit(0)


if __name__ == "__main__":
    main()
