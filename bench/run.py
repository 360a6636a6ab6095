"""The measurements of bench/run.sh: the contests on this machine's device, and the bars that the project has set itself."""

import argparse
import json
import os
import random
import shutil
import struct
import sys
import tempfile

import contest
from contest import Contest, Row, Way
from measuring import ROOT, Record, machine, result_path, said_by

TRAIN = os.environ.get("TRAIN", os.path.join(ROOT, "target", "release", "ember-train"))
GENERATE = os.environ.get("GENERATE", os.path.join(ROOT, "target", "release", "ember-generate"))
PYTHON = os.environ.get("PYTHON", "python3")
LLAMA_PYTHON = os.environ.get("LLAMA_PYTHON", "python3")
GPT2 = "12x12x768x50257x1024"
# The rows shown in the README.
HEADLINES = {
    "training, 4x4x128, context 64, batch 12, f32",
    "training, 6x6x384, context 256, batch 8, bf16",
    "decoding, GPT-2 124M, 1 at once, after 32 tokens, f32, beside PyTorch",
    "decoding, GPT-2 124M, 1 at once, after 32 tokens, f32, beside llama.cpp",
    "decoding, GPT-2 124M, 1 at once, after 32 tokens, int8, beside llama.cpp",
    "prefill, GPT-2 124M, 512 tokens, f32",
    "start to first token, GPT-2 124M",
}
PRECISION = {"f32": "float32", "bf16": "bfloat16"}
# Settings with which glibc keeps large blocks: see peers/train.py.
KEPT = {"MALLOC_TRIM_THRESHOLD_": "4294967295", "MALLOC_MMAP_THRESHOLD_": "33554432"}


# Settings with which our program and the peers' libraries do not use AVX-512, as on an older processor.
AVX2 = {"EMBER_SIMD": "avx2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}


class Here:
    """The programs and the device to measure."""

    def __init__(self, args):
        self.quick, self.device = args.quick, args.device or device()
        self.torch = bool(said_by([PYTHON, "-c", "import torch; print(1)"]))
        self.transformers = self.torch and bool(said_by([PYTHON, "-c", "import transformers; print(1)"]))
        self.llama = bool(said_by([LLAMA_PYTHON, "-c", "import xllamacpp, gguf; print(1)"]))
        if self.torch and self.device == "cuda" and not said_by([PYTHON, "-c", "import torch; torch.zeros(1).cuda(); print(1)"]):
            self.torch = self.transformers = False
            say("PyTorch sees no CUDA device: its contests have no peer")
        self.weights = "--weights" in said_by([GENERATE, "bench", "--help"])
        self.folder = tempfile.mkdtemp()
        for there, what in [
            (self.torch, "PyTorch (set PYTHON)"),
            (self.transformers, "transformers (set PYTHON)"),
            (self.llama, "llama.cpp (set LLAMA_PYTHON)"),
            (self.weights, "weights in bfloat16 and 8 bits: ember-generate bench has no --weights"),
        ]:
            if not there:
                say(f"left out: {what}")

    def kinds(self):
        """The types in which decoding can store the weights."""
        return ["f32", "bf16", "int8"] if self.weights else ["f32"]


def say(line):
    print(line, file=sys.stderr, flush=True)


def device():
    """cuda if a CUDA device works, else cpu."""
    for line in said_by([GENERATE, "devices", "--format", "json", "--quiet"]).splitlines():
        listed = json.loads(line)
        if listed["id"].startswith("cuda") and not listed["problem"]:
            return "cuda"
    return "cpu"


def training(here, what, shape, batch, precision, bar, env=None):
    """Training steps of one shape: ours, and PyTorch eager and compiled, all with the environment `env`."""
    env = env or {}
    steps = 10 if here.quick else {"cuda": 50}.get(here.device)
    ours = [TRAIN, "bench", "--shape", shape, "--batch", str(batch), "--device", here.device, "--set", f"precision={precision}"]
    ours += ["--format", "json", "--quiet", *(["--steps", str(steps)] if steps else [])]
    theirs = [PYTHON, "bench/peers/train.py", "--shape", shape, "--batch", str(batch), "--device", here.device]
    theirs += ["--dtype", PRECISION[precision], "--steps", str(steps or (60 if "4x4" in shape else 10))]
    peers = []
    if here.torch:
        peers = [Way("PyTorch", theirs, env)]
        if here.device == "cpu":
            peers.append(Way("PyTorch, its memory kept", theirs, env | KEPT))
        if not here.quick:
            peers.append(Way("torch.compile", [*theirs, "--compile"], env | (KEPT if here.device == "cpu" else {})))
        if here.device == "cuda" and "50257" in shape:
            peers.append(Way("torch.compile, padded head", [*theirs, "--compile", "--pad-vocab", "64"]))
    row = Row(f"training, {what}, {precision}", named(peers), bar)
    share = Row(f"{row.what}: of a large product's rate", [], key="utilisation.median", unit="of it")
    return Contest(Way("Ember", ours, env), peers, [row, share])


def decoding(here, what, shape, batch, prompt, new, kind, bar, llama_bar=None):
    """Decoding one token at a time, with weights stored as `kind`."""
    sizes = ["--shape", shape, "--batch", str(batch), "--prompt", str(prompt)]
    repeats = ["--repeats", "1" if here.quick else "3"]
    ours = [GENERATE, "bench", *sizes, "--new-tokens", str(new), *repeats, "--device", here.device, "--format", "json", "--quiet"]
    if here.weights:
        ours += ["--weights", kind]
    of_torch, of_llama = [], []
    if here.torch and kind in PRECISION:
        theirs = [PYTHON, "bench/peers/decode.py", *sizes, "--new", str(new), *repeats, "--device", here.device]
        theirs += ["--dtype", PRECISION[kind]]
        if here.transformers:
            of_torch.append(Way("transformers", theirs))
        if here.transformers and not here.quick:
            of_torch.append(Way("transformers, static cache", [*theirs, "--way", "static"]))
        if not here.quick:
            of_torch.append(Way("a compiled decoder", [*theirs, "--way", "graph"]))
    if here.llama and here.device == "cpu" and batch == 1:
        stored = {"f32": "f32", "bf16": "bf16", "int8": "q8_0"}[kind]
        theirs = [LLAMA_PYTHON, "bench/peers/llamacpp_decode.py", "--shape", shape, "--type", stored]
        of_llama.append(Way("llama.cpp", [*theirs, "--prompt", str(prompt), "--new", str(new), *repeats]))
    name = f"decoding, {what}, {batch} at once, after {prompt} tokens, {kind}"
    rows = [Row(f"{name}, beside PyTorch", named(of_torch), bar)] if of_torch or not of_llama else []
    if of_llama:
        rows.append(Row(f"{name}, beside llama.cpp", named(of_llama), llama_bar))
    share = 0.85 if here.device == "cpu" and batch == 1 else None
    rows.append(Row(f"{name}: of a plain read's rate", [], share, "bandwidth_share.median", "of it", alone=True))
    ways = of_torch + of_llama
    if here.device != "cpu" and batch == 1:
        ways.append(Way("Ember, steps not replayed", ours, {"EMBER_REPLAY": "off"}))
        rows.append(Row(f"{name}: what replaying gains", named(ways[-1:])))
    return Contest(Way("Ember", ours), ways, rows)


def prefill(here, what, shape, prompt):
    """Processing a prompt."""
    sizes = ["--shape", shape, "--prompt", str(prompt)]
    ours = [GENERATE, "bench", *sizes, "--new-tokens", "2", "--device", here.device, "--format", "json", "--quiet"]
    peers = []
    if here.transformers:
        peers.append(Way("transformers", [PYTHON, "bench/peers/decode.py", *sizes, "--new", "2", "--device", here.device]))
    if here.llama and here.device == "cpu":
        peers.append(Way("llama.cpp", [LLAMA_PYTHON, "bench/peers/llamacpp_decode.py", *sizes, "--new", "2"]))
    name, key = f"prefill, {what}, {prompt} tokens, f32", "prefill_tokens_per_s"
    # The same tokens as one training window, whose forward pass also computes all logits and the loss: about a third more.
    trained = [TRAIN, "bench", "--shape", "x".join([*shape.split("x")[:4], str(prompt)]), "--batch", "1", "--steps", "3"]
    trained += ["--device", here.device, "--set", "precision=f32", "--format", "json", "--quiet"]
    training = Way("training's forward", [sys.executable, "-c", FORWARD_RATE, *trained])
    rows = [Row(name, named(peers), None, key), Row(f"{name}, beside its own training", [training.name], 1.0, key)]
    return Contest(Way("Ember", ours), [*peers, training], rows)


FORWARD_RATE = """
import json, subprocess, sys
speed = json.loads(subprocess.run(sys.argv[1:], check=True, capture_output=True, text=True).stdout)
print(json.dumps({"prefill_tokens_per_s": speed["tokens_per_step"] / speed["parts"]["forward_s"]["median"]}))
"""


def first_token(here, what, shape):
    """Time from the program's start to the first token, with the weights in the file cache."""
    folder = checkpoint(here, shape)
    ours = [GENERATE, "text", "--from", folder, "--prompt-ids", "1,2,3", "--max-new-tokens", "1", "--device", here.device]
    theirs = [PYTHON, "-c", FIRST_TOKEN, folder, here.device]
    peers = [Way("transformers", clocked(theirs))] if here.transformers else []
    name = f"start to first token, {what}"
    clock = {"key": "wall_s", "unit": "s", "less_is_better": True}
    rows = [Row(name, named(peers), **clock), Row(f"{name}: seconds", [], 1.0, **clock, alone=True)]
    return Contest(Way("Ember", clocked(ours)), peers, rows)


FIRST_TOKEN = """
import sys, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).to(sys.argv[2])
model.generate(torch.tensor([[1, 2, 3]], device=sys.argv[2]), max_new_tokens=1, do_sample=False)
"""


def first_step(here, what, shape, batch):
    """Time from the program's start to the end of the first training step."""
    n_layer, n_head, n_embd, _, context = shape.split("x")
    text = os.path.join(here.folder, "text.txt")
    with open(text, "w") as file:
        draw = random.Random(1)
        letters = "".join(chr(c) for c in range(33, 33 + 64)) + "\n"
        file.write("".join(draw.choices(letters, k=1_000_000)))
    run = os.path.join(here.folder, "run")
    sizes = {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "context_length": context, "batch_size": batch}
    rest = {"max_steps": 1, "eval_tokens": 256, "sample_interval": 0, "tokenizer": "chars"}
    sets = [word for key, value in {**sizes, **rest}.items() for word in ("--set", f"{key}={value}")]
    ours = ["sh", "-c", f'rm -rf "{run}"; exec "$@"', "sh", TRAIN, "run", text, "--out", run, "--device", here.device, *sets]
    theirs = [PYTHON, "bench/peers/train.py", "--shape", shape, "--batch", str(batch), "--device", here.device]
    peers = [Way("PyTorch", clocked([*theirs, "--steps", "1", "--warmup", "0"]))] if here.torch else []
    row = Row(f"start to first step, {what}", named(peers), None, "wall_s", "s", True)
    return Contest(Way("Ember", clocked(ours)), peers, [row])


def named(ways):
    return [way.name for way in ways]


def clocked(command):
    return [sys.executable, "bench/clocked.py", *command]


def checkpoint(here, shape):
    """A folder with a GPT-2 of small random weights, in the format of transformers."""
    n_layer, n_head, n_embd, vocab, context = (int(size) for size in shape.split("x"))
    folder = os.path.join(here.folder, "checkpoint")
    os.makedirs(folder, exist_ok=True)
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new"}
    config |= {"vocab_size": vocab, "n_positions": context, "n_ctx": context}
    config |= {"n_embd": n_embd, "n_layer": n_layer, "n_head": n_head}
    config |= {"layer_norm_epsilon": 1e-5, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    wide = 4 * n_embd
    tensors = {"wte.weight": [vocab, n_embd], "wpe.weight": [context, n_embd], "ln_f.weight": [n_embd], "ln_f.bias": [n_embd]}
    for i in range(n_layer):
        for name, sizes in [
            ("ln_1", [n_embd]), ("ln_2", [n_embd]), ("attn.c_attn", [n_embd, 3 * n_embd]), ("attn.c_proj", [n_embd, n_embd]),
            ("mlp.c_fc", [n_embd, wide]), ("mlp.c_proj", [wide, n_embd]),
        ]:
            tensors |= {f"h.{i}.{name}.weight": sizes, f"h.{i}.{name}.bias": sizes[-1:]}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, sizes in tensors.items():
        size = 4
        for n in sizes:
            size *= n
        header["transformer." + name] = {"dtype": "F32", "shape": sizes, "data_offsets": [at, at + size]}
        at += size
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    draw = random.Random(1)
    piece = struct.pack("<262144f", *(draw.gauss(0, 0.02) for _ in range(262144)))
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for begin in range(0, at, len(piece)):
            file.write(piece[: at - begin])
    return folder


def contests(here):
    if here.quick:
        tiny = "2x2x64x256x128"
        return [
            training(here, "tiny", "2x2x64x65x64", 12, "f32", 1.5),
            *(decoding(here, "tiny", tiny, 1, 8, 8, kind, None, 1.0) for kind in here.kinds()),
            prefill(here, "tiny", tiny, 64),
            first_token(here, "tiny", tiny),
            first_step(here, "tiny", "2x2x64x65x64", 12),
        ]
    gpt2 = "GPT-2 124M"
    if here.device == "cuda":
        kind = "bf16" if here.weights else "f32"
        sizes = [(batch, prompt) for batch in (1, 64) for prompt in (64, 960)]
        return [
            training(here, f"{gpt2}, context 1,024, batch 16", GPT2, 16, "bf16", 1.2),
            training(here, "6x6x384, context 256, batch 64", "6x6x384x65x256", 64, "bf16", 1.0),
            *(decoding(here, gpt2, GPT2, batch, prompt, 64, kind, 1.0) for batch, prompt in sizes),
            prefill(here, gpt2, GPT2, 1000),
            first_token(here, gpt2, GPT2),
            first_step(here, "GPT-2 124M's blocks, batch 4", "12x12x768x65x1024", 4),
        ]
    small = ("4x4x128, context 64, batch 12", "4x4x128x65x64", 12)
    medium = ("6x6x384, context 256, batch 8", "6x6x384x65x256", 8)
    without_avx512 = [(f"{what}, without AVX-512", *sizes) for what, *sizes in (small, medium)]
    return [
        *(training(here, *sizes, precision, 1.5) for sizes in (small, medium) for precision in PRECISION),
        *(training(here, *sizes, "f32", 1.5, AVX2) for sizes in without_avx512),
        *(decoding(here, gpt2, GPT2, 1, 32, 32, kind, 2.0, 1.0) for kind in here.kinds()),
        decoding(here, gpt2, GPT2, 8, 32, 32, "f32", None),
        prefill(here, gpt2, GPT2, 512),
        first_token(here, gpt2, GPT2),
        first_step(here, *small),
    ]


def put_into_documents(rows, facts):
    """Puts the table into docs/measured.md, and its headlines into the README."""
    say(contest.put_into("docs/measured.md", contest.table(rows, facts)))
    headlines = [row for row in rows if row["what"] in HEADLINES]
    say(contest.put_into("README.md", contest.table(headlines, facts)) if headlines else "no rows for the README")


def main():
    parser = argparse.ArgumentParser(description="Ember beside its peers: see bench/run.sh.")
    parser.add_argument("--quick", action="store_true", help="everything once, in sizes that mean nothing")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, help="turns of each contest [default: 3, or 1 with --quick]")
    parser.add_argument("--only", default="", help="contests whose name has this in it")
    parser.add_argument("--timeout", type=int, default=600, help="seconds that one measurement may take")
    parser.add_argument("--no-docs", action="store_true", help="leave docs/measured.md and the README as they are")
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 3)

    here, facts = Here(args), machine(dict.fromkeys([PYTHON, LLAMA_PYTHON]))
    facts["device"] = here.device
    if here.device == "cpu":
        facts["gpu"] = None
    path = result_path(facts, "quick" if args.quick else "")
    record = Record(path + ".json", facts)
    rows, left_out = [], []
    try:
        chosen = [each for each in contests(here) if args.only in each.rows[0].what]
        if not chosen:
            sys.exit(f"no contest has {args.only!r} in its name")
        for number, each in enumerate(chosen):
            left_out = [later.rows[0].what for later in chosen[number:]]
            rows += contest.hold(each, record, rounds, args.timeout)
        left_out = []
    except KeyboardInterrupt:
        say("stopped: the table has what was measured to its end")
    finally:
        shutil.rmtree(here.folder, ignore_errors=True)
    warning = "Tried out with --quick: sizes and turns so few that the figures mean nothing.\n\n" if args.quick else ""
    if record.disturbed:
        warning += f"**{record.disturbed} of {record.measured} measurements began while others used this machine: do not rely on these.**\n\n"
    if left_out:
        warning += f"Stopped before: {'; '.join(left_out)}.\n\n"
    if record.failed:
        warning += f"Ember failed at: {'; '.join(record.failed)}.\n\n"
    text = warning + contest.table(rows, facts)
    with open(path + ".md", "w") as file:
        file.write(text)
    print(text, end="")
    say(f"every measurement: {os.path.relpath(path + '.json', ROOT)}; the table: {os.path.relpath(path + '.md', ROOT)}")
    if not args.only and not args.no_docs:
        if warning:
            say("docs/measured.md and the README stay as they are")
        else:
            put_into_documents(rows, facts)
    if record.failed:
        sys.exit(f"Ember failed at: {'; '.join(record.failed)}")
    sys.exit(1 if left_out else 0)


if __name__ == "__main__":
    main()
