"""Compares `ember-generate serve` with llama.cpp's server, in turns, on a GPT-2 124M of random weights.

    python bench/serve.py [--turns 3] [--types f32 bf16 int8] [--streams 1 4 16 64] [--quick] [--work FOLDER]

The same client sends both the same requests: /v1/completions with `stream`, greedy, 64 new tokens after 32 random ids, with `--streams`
concurrent requests; threads, the weights' type and cache space for every stream are set equal. The rows:
- tokens per second of all streams together, from the first request to the last token; for 16 streams also compared with our own offline
  batch (`ember-generate bench --batch 16`), and their fairness: Jain's index of their speeds, 1 if all are equal;
- the time to the first token of a prompt of 520 tokens whose first 512 are cached, compared with a new one;
- the longest gap between two tokens of 15 streams while a prompt of 1,000 tokens is processed, compared with their median gap before.
Needs `xllamacpp` (llama.cpp's server prebuilt), `gguf`, `numpy` and `safetensors`. The program is EMBER_GENERATE, by default
target/release/ember-generate. A table goes to standard output, everything to bench/results/serve.json. With `--work` the models are kept.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measuring import machine

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("EMBER_GENERATE", str(ROOT / "target/release/ember-generate"))
LAYERS, HEADS, WIDTH, VOCABULARY, CONTEXT = 12, 12, 768, 50257, 1024
PROMPT, NEW = 32, 64
PREFIX, REST, LONG = 512, 8, 1000
# llama.cpp's weight types for each of ours; of two, the faster one is used.
THEIR_TYPES = {"f32": ["f32"], "bf16": ["bf16", "f16"], "int8": ["q8_0"]}
BARS = {1: 0.97, 4: 1.8, 16: 1.8, 64: 1.8, "offline": 0.95, "cached": 0.10, "gap": 3, "jain": 0.99}
STARTS_S = 120


# The model, the same for both


def drawn_weights():
    """Random tensors of GPT-2 by Hugging Face's names, with matrices [in, out]; the same at every call."""
    import numpy

    rng = numpy.random.default_rng(1)

    def matrix(*sizes):
        return rng.standard_normal(sizes, dtype=numpy.float32) * numpy.float32(0.02)

    def vector(value, width):
        return numpy.full(width, value, dtype=numpy.float32)

    weights = {"wte.weight": matrix(VOCABULARY, WIDTH), "wpe.weight": matrix(CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        for norm in ["ln_1", "ln_2"]:
            weights |= {f"h.{layer}.{norm}.weight": vector(1, WIDTH), f"h.{layer}.{norm}.bias": vector(0, WIDTH)}
        for name, width, out in [("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH), ("mlp.c_fc", WIDTH, 4 * WIDTH),
                                 ("mlp.c_proj", 4 * WIDTH, WIDTH)]:
            weights |= {f"h.{layer}.{name}.weight": matrix(width, out), f"h.{layer}.{name}.bias": vector(0, out)}
    return weights | {"ln_f.weight": vector(1, WIDTH), "ln_f.bias": vector(0, WIDTH)}


def pieces():
    """GPT-2's 256 visible characters for the 256 bytes, and names for the rest."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = [*map(chr, visible), *(chr(256 + i) for i in range(256 - len(visible)))]
    return [*characters, *(f"<{id}>" for id in range(256, VOCABULARY - 1)), "<|endoftext|>"]


def write_folder(folder, weights):
    """Writes a GPT-2 in the format of Hugging Face."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True)
    save_file({f"transformer.{name}": value for name, value in weights.items()}, folder / "model.safetensors", metadata={"format": "pt"})
    end = VOCABULARY - 1
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": CONTEXT, "n_ctx": CONTEXT,
        "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True, "bos_token_id": end, "eos_token_id": end, "dtype": "float32",
    }
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True, "type": "ByteLevel"}
    end_of_text = {"id": end, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                   "special": True}
    vocabulary = pieces()
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end_of_text], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "vocab": {piece: id for id, piece in enumerate(vocabulary)}, "merges": []},
    }
    names = {"tokenizer_class": "GPT2TokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    files = {"config.json": config, "tokenizer.json": tokenizer, "tokenizer_config.json": names,
             "generation_config.json": {"eos_token_id": end}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


THEIR_NAMES = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
               "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}


def write_gguf(path, weights, kind):
    """Writes the same weights for llama.cpp, with the names and layout of its own converter."""
    import gguf

    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    vocabulary = pieces()
    writer.add_token_list(vocabulary)
    writer.add_token_types([gguf.TokenType.NORMAL] * (VOCABULARY - 1) + [gguf.TokenType.CONTROL])
    writer.add_token_merges([f"{vocabulary[64]} {vocabulary[65]}"])
    writer.add_eos_token_id(VOCABULARY - 1)
    stored = {"bf16": gguf.GGMLQuantizationType.BF16, "f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
    for name, value in weights.items():
        layer, inner, kind_of = re.fullmatch(r"(?:h\.(\d+)\.)?(.+)\.(weight|bias)", name).groups()
        theirs = f"{f'blk.{layer}.' if layer else ''}{THEIR_NAMES[inner]}.{kind_of}"
        if inner.endswith(("c_attn", "c_proj", "c_fc")) and kind_of == "weight":
            value = value.T.copy()
        if value.ndim == 2 and inner != "wpe" and kind in stored:
            writer.add_tensor(theirs, gguf.quants.quantize(value, stored[kind]), raw_dtype=stored[kind])
        else:
            writer.add_tensor(theirs, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_models(work, types):
    weights = None
    wanted = {work / f"{kind}.gguf": kind for ours in types for kind in THEIR_TYPES[ours]}
    for path in [work / "gpt2", *wanted]:
        if path.exists():
            continue
        weights = weights or drawn_weights()
        if path in wanted:
            # Renamed only when complete.
            write_gguf(path.with_suffix(".part"), weights, wanted[path])
            path.with_suffix(".part").rename(path)
        else:
            write_folder(path, weights)


# The servers


class Serving:
    """A server of either kind, stopped at the end of its `with`."""

    def __init__(self, command, stdin=subprocess.DEVNULL):
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=stdin, stdout=self.said, stderr=self.said)
        deadline = time.monotonic() + STARTS_S
        self.address = None
        while self.address is None:
            self.said.seek(0)
            text = self.said.read().decode(errors="replace")
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                raise SystemExit(f"{command[0]} does not serve:\n{text[-2000:]}")
            if told := re.search(r"listening on http://([\w.]+):(\d+)\b", text):
                self.address = (told.group(1), int(told.group(2)))
            time.sleep(0.05)

    def __enter__(self):
        return self.address

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ours(work, kind, streams, context):
    """Our server, with cache space for every stream, as theirs; ours needs at least two whole contexts."""
    room = 4 * 2 * LAYERS * WIDTH * max(2 * CONTEXT, context * streams * 5 // 4) >> 20
    return Serving([PROGRAM, "serve", "--from", str(work / "gpt2"), "--port", "0", "--device", "cpu", "--weights", kind, "--threads",
                    str(THREADS), "--cache-mib", str(room)])


def theirs(work, kind, streams, context):
    command = [sys.executable, __file__, "--llama-server", str(work / f"{kind}.gguf"), str(streams), str(context)]
    return Serving(command, stdin=subprocess.PIPE)


def llama_server(path, streams, context):
    """Runs llama.cpp's server until it is stopped: a separate process, as the package serves within Python."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_parallel = streams
    params.n_ctx = streams * context
    params.cont_batching = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.port = 0
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address} .", flush=True)
    sys.stdin.read()


THREADS = len(os.sched_getaffinity(0))


# The client


class Stream:
    """A request: when it was sent, and when each chunk arrived."""

    def __init__(self, prompt, new, reused=False):
        self.prompt, self.new, self.reused = prompt, new, reused
        self.times, self.parts = [], []
        self.began = 0.0

    async def run(self, address, arrived=None):
        ask = {"prompt": self.prompt, "max_tokens": self.new, "temperature": 0, "ignore_eos": True, "stream": True,
               "stream_options": {"include_usage": True}, "cache_prompt": self.reused}
        body = json.dumps(ask).encode()
        host, port = address
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n")
        self.began = time.perf_counter()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(head.encode() + body)
        while part := await reader.read(1 << 16):
            # Chunks that arrived together have the same time; only the last two carry no token.
            self.times += [time.perf_counter()] * part.count(b"data: ")
            self.parts.append(part)
            if arrived:
                arrived(self)
        writer.close()
        told = re.findall(rb'"completion_tokens": ?(\d+)', b"".join(self.parts))
        if not told or int(told[-1]) != self.new:
            raise SystemExit(f"not {self.new} tokens were written: {b''.join(self.parts)[-600:].decode(errors='replace')}")
        return self

    def token_times(self):
        """Arrival times of the chunks with tokens; the last ones carry the finish reason, the usage and the end mark."""
        return self.times[: self.new]

    def first_s(self):
        return self.times[0] - self.began

    def took_s(self):
        return self.times[-1] - self.began

    def gaps(self):
        times = self.token_times()
        return [(later, later - earlier) for earlier, later in zip(times, times[1:])]


def random_ids(drawn, count):
    """Random ids of tokens that are complete text, so that no token is held back."""
    return [drawn.randrange(300, VOCABULARY - 1) for _ in range(count)]


async def at_once(address, prompts, new):
    streams = [Stream(prompt, new) for prompt in prompts]
    await asyncio.gather(*(stream.run(address) for stream in streams))
    return streams


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value**2 for value in values))


def throughput(address, drawn, count, new):
    """Tokens per second of all streams together, and their fairness."""
    asyncio.run(at_once(address, [random_ids(drawn, PROMPT) for _ in range(count)], 4))
    streams = asyncio.run(at_once(address, [random_ids(drawn, PROMPT) for _ in range(count)], new))
    seconds = max(stream.times[-1] for stream in streams) - min(stream.began for stream in streams)
    return {"tokens_per_s": count * new / seconds, "jain": jain([new / stream.took_s() for stream in streams]),
            "first_s": median(stream.first_s() for stream in streams)}


def first_tokens(address, drawn, repeats):
    """Seconds to the first token of new prompts, and of prompts whose beginning is cached."""
    cold, cached = [], []
    for _ in range(repeats):
        prefix = random_ids(drawn, PREFIX)
        for times in [cold, cached]:
            stream = Stream(prefix + random_ids(drawn, REST), 2, reused=True)
            asyncio.run(stream.run(address))
            times.append(stream.first_s())
    return {"cold_s": median(cold), "cached_s": median(cached),
            "share": median(b / a for a, b in zip(cold, cached))}


async def with_a_long_prompt(address, drawn, running, new):
    """Token gaps of running streams before a long prompt arrives, and until its first token."""
    streams = [Stream(random_ids(drawn, PROMPT), new) for _ in range(running)]
    long = Stream(random_ids(drawn, LONG), 2)
    under_way = asyncio.Event()

    def arrived(_):
        if all(len(stream.times) >= 16 for stream in streams):
            under_way.set()

    tasks = [asyncio.ensure_future(stream.run(address, arrived)) for stream in streams]
    waiting = asyncio.ensure_future(under_way.wait())
    await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    await long.run(address)
    await asyncio.gather(*tasks)
    came, read = long.began, long.times[0]
    # The first gaps include the processing of the other prompts.
    before = [gap for stream in streams for later, gap in stream.gaps()[8:] if later < came]
    during = [gap for stream in streams for later, gap in stream.gaps() if later > came and later - gap < read]
    if not before or not during:
        raise SystemExit("the streams ended before the long prompt was read; more --turns do not help, longer streams do")
    every = [gap for stream in streams for _, gap in stream.gaps()[8:]]
    return {"median_before_s": median(before), "median_all_s": median(every), "longest_s": max(during),
            "ratio": max(during) / median(before), "ratio_to_all": max(during) / median(every), "long_first_s": long.first_s()}


def offline(work, kind):
    """Tokens per second of our offline batch of 16: prefill, and 64 tokens after each prompt."""
    command = [PROGRAM, "bench", "--from", str(work / "gpt2"), "--device", "cpu", "--weights", kind, "--threads", str(THREADS),
               "--batch", "16", "--prompt", str(PROMPT), "--new-tokens", str(NEW), "--format", "json", "--quiet"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    # The first token comes with the prefill.
    return 16 * NEW / (found["prefill_s"]["median"] + (NEW - 1) * found["step_s"]["median"])


# The measurement


class Measured:
    """The measurements of all turns, printed as they come."""

    def __init__(self):
        self.turns = []

    def add(self, what, kind, who, figures, **labels):
        self.turns.append({"what": what, "type": kind, "who": who, **labels, **figures})
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
        print(f"  {what} {kind} {labels or ''} {who}: {shown}", file=sys.stderr, flush=True)

    def values(self, what, kind, who, figure, **labels):
        wanted = {"what": what, "type": kind, "who": who, **labels}
        return [turn[figure] for turn in self.turns if wanted.items() <= turn.items()]


def faster_type(work, ours_kind, turns):
    """The faster one of llama.cpp's types for these weights."""
    kinds = THEIR_TYPES[ours_kind]
    speeds = {}
    for kind in kinds if len(kinds) > 1 else []:
        with theirs(work, kind, 1, 256) as address:
            speeds[kind] = median(throughput(address, random.Random(turn), 1, NEW)["tokens_per_s"] for turn in range(turns))
    return max(speeds, key=speeds.get) if speeds else kinds[0]


def in_turns(work, kind, their_kind, streams, context, turns, measure, besides=lambda: None):
    """Runs both in turns with the same prompts, alternating who begins; and `besides` in each turn."""
    for turn in range(turns):
        pair = [("ours", ours, kind), ("llama.cpp", theirs, their_kind)]
        for who, serving, stored in pair if turn % 2 == 0 else pair[::-1]:
            with serving(work, stored, streams, context) as address:
                measure(who, address, random.Random(1000 * turn + streams))
            if who == "ours":
                besides()


def measure_type(found, work, kind, arguments):
    their_kind = faster_type(work, kind, 1 if arguments.quick else 3)
    for count in arguments.streams:
        def measure(who, address, drawn):
            found.add("streams", kind, who, throughput(address, drawn, count, NEW), streams=count)

        def measure_offline():
            if count == 16:
                found.add("offline", kind, "ours", {"tokens_per_s": offline(work, kind)})

        in_turns(work, kind, their_kind, count, PROMPT + NEW + 16, arguments.turns, measure, measure_offline)
    if kind not in arguments.latency:
        return their_kind

    def cached(who, address, drawn):
        found.add("cached", kind, who, first_tokens(address, drawn, 1 if arguments.quick else 5))

    in_turns(work, kind, their_kind, 1, CONTEXT, arguments.turns, cached)

    def gap(who, address, drawn):
        found.add("gap", kind, who, asyncio.run(with_a_long_prompt(address, drawn, 15, arguments.running_tokens)))

    in_turns(work, kind, their_kind, 16, CONTEXT, arguments.turns, gap)
    return their_kind


def verdict(value, name):
    """The project's bar for a row, and whether it is met; some bars are upper limits."""
    bar = BARS.get(name)
    if bar is None:
        return "-"
    met = value <= bar if name in ["cached", "gap"] else value >= bar
    return f"{bar:g}, {'met' if met else 'MISSED'}"


def of_both(found, what, kind, figure, **labels):
    return [found.values(what, kind, who, figure, **labels) for who in ["ours", "llama.cpp"]]


def ratio_of(ours, others):
    """The median of the turns' ratios."""
    return median(a / b for a, b in zip(ours, others))


def stream_rows(found, kind, their_kind):
    counts = {turn["streams"] for turn in found.turns if turn["what"] == "streams" and turn["type"] == kind}
    for count in sorted(counts):
        mine, their = of_both(found, "streams", kind, "tokens_per_s", streams=count)
        ratio = ratio_of(mine, their)
        name = f"{count} stream{'s' if count > 1 else ''}, {kind}"
        yield name, f"{median(mine):.1f} tokens/s", f"{median(their):.1f} (llama.cpp, {their_kind})", f"{ratio:.2f}", verdict(ratio, count)
        if count == 16:
            batch = found.values("offline", kind, "ours", "tokens_per_s")
            ratio = ratio_of(mine, batch)
            name = f"16 streams, {kind}, beside our offline batch"
            yield name, f"{median(mine):.1f} tokens/s", f"{median(batch):.1f}", f"{ratio:.2f}", verdict(ratio, "offline")
            equal, their_equal = map(median, of_both(found, "streams", kind, "jain", streams=16))
            name = f"fairness among 16, {kind}, Jain's index"
            yield name, f"{equal:.4f}", f"{their_equal:.4f} (llama.cpp)", "-", verdict(equal, "jain")


def latency_rows(found, kind):
    def ms(what, figure):
        return f"{1e3 * median(found.values(what, kind, 'ours', figure)):.1f} ms"

    share, their_share = map(median, of_both(found, "cached", kind, "share"))
    beside = f"{ms('cached', 'cold_s')}, a new prompt's; llama.cpp's ratio: {their_share:.3f}"
    name = f"first token after a known beginning of {PREFIX}, {kind}"
    yield name, ms("cached", "cached_s"), beside, f"{share:.3f}", verdict(share, "cached")
    ratio, their_ratio = map(median, of_both(found, "gap", kind, "ratio"))
    beside = f"{ms('gap', 'median_before_s')}, their median before; llama.cpp's ratio: {their_ratio:.1f}"
    name = f"longest gap of 15 streams while {LONG} tokens are read, {kind}"
    yield name, ms("gap", "longest_s"), beside, f"{ratio:.2f}", verdict(ratio, "gap")


def rows(found, kinds):
    """The rows of the table: name, ours, theirs, ratio, bar."""
    for kind, their_kind in kinds.items():
        yield from stream_rows(found, kind, their_kind)
        if found.values("gap", kind, "ours", "ratio"):
            yield from latency_rows(found, kind)


def main():
    if sys.argv[1:2] == ["--llama-server"]:
        return llama_server(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--types", nargs="+", default=list(THEIR_TYPES), choices=list(THEIR_TYPES))
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--latency", nargs="*", default=["f32", "int8"], help="types whose first tokens and gaps are measured")
    parser.add_argument("--running-tokens", type=int, default=256, help="new tokens of each of the 15 streams")
    parser.add_argument("--quick", action="store_true", help="one turn of f32 with 1 and 16 streams: shows that it works")
    parser.add_argument("--work", type=Path, help="where the models are made, and kept")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.turns, arguments.types, arguments.streams, arguments.latency = 1, ["f32"], [1, 16], ["f32"]
    found, kinds = Measured(), {}
    facts = machine([sys.executable])
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        make_models(work, arguments.types)
        for kind in arguments.types:
            kinds[kind] = measure_type(found, work, kind, arguments)
    table = ["| what | Ember | beside | ratio | bar |", "|---|---|---|---|---|"]
    table += ["| " + " | ".join(row) + " |" for row in rows(found, kinds)]
    print("\n".join(table))
    if not arguments.quick:
        folder = Path(os.environ.get("OUT", ROOT / "bench/results"))
        folder.mkdir(parents=True, exist_ok=True)
        result = {"machine": facts, "prompt_tokens": PROMPT, "new_tokens": NEW, "threads": THREADS, "their_types": kinds,
                  "turns": found.turns, "table": table}
        (folder / "serve.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
