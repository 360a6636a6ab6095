"""Runs the tests of llama.cpp's own server against `ember-generate serve`.

    python tools/check_llama_tests.py LLAMA_CPP [--all] [-k EXPRESSION]

LLAMA_CPP is a source tree of llama.cpp, as in the source archive of the Python package llama-cpp-python 0.3.36 under vendor/llama.cpp.
The tests run unchanged, by pytest, of which this file is also a plugin: code that starts their server starts ours instead, with a tiny
Llama of random weights made here, whose context, chat template and defaults follow their server's options. Their model writes stories:
where a test expects its words or counts its tokens, any words and any count are accepted (MODELS_WORDS, MODELS_COUNTS). Tests that
cannot apply are skipped by name, with the reason (EXCEPTED); `--all` runs them too. The program is EMBER_GENERATE, by default
target/release/ember-generate. Needs pytest, requests, filelock and openai. Exits with 1 when a test fails.
"""

import argparse
import array
import fnmatch
import json
import os
import random
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PROGRAM = os.environ.get("EMBER_GENERATE", str(TOOLS.parent / "target/release/ember-generate"))
TESTS = "tools/server/tests"
FILES = ["basic", "chat_completion", "completion", "ctx_shift", "ignore_eos", "kv_keep_only_active", "metrics", "security", "stream",
         "template", "tokenize"]

# The reasons why tests cannot apply here, by patterns of their names with parameters.
EXCEPTED = {
    "test_basic.py::test_load_split_model": "a GGUF file in parts, from a registry",
    "test_basic.py::test_server_multiple_addresses": "one address, by --host",
    "test_kv_keep_only_active.py::*": "reads their log",
    "test_basic.py::test_server_model_aliases_and_tags": "a model has one name, and no tags",
    "test_stream.py::*": "a router of several models that resumes streams",
    "test_security.py::test_cors_options*": "any origin is echoed there; here only those of --cors are",
    "test_security.py::test_cors_origins_defaults_to_localhost_with_tools_enabled": "tools on the server",
    "test_security.py::test_cors_proxy_only_forwards_explicit_proxy_headers": "a proxy for web pages",
    "test_security.py::test_local_media_file*": "pictures",
    "test_metrics.py::test_metrics_embedding_prompt_is_counted": "an embedding model",
    "test_completion.py::test_completion_stream_with_openai_library_stops": "a model from a registry",
    "test_chat_completion.py::test_chat_template_assistant_prefill[prefill1-*": "parts of a text are joined by one line break, not two",
    "test_completion.py::test_completion_stream[*": "names a sampler that is not here, adaptive_target",
    "test_ctx_shift.py::test_ctx_shift_disabled_short_prompt[-1-248-True]": "there a full context's last token takes a place",
    "test_security.py::test_access_static_assets_without_api_key": "files of their page",
    "test_chat_completion.py::test_chat_template": "theirs shows the beginning-of-text token before the text of a conversation",
    "test_chat_completion.py::test_completion_with_response_format[response_format1-*": "a schema with `items` and no type allows anything",
    "test_chat_completion.py::test_chat_completion_cached_tokens": "counts the tokens of their tokenizer",
}

# Texts of their model, by the tests' patterns for them.
MODELS_WORDS = {
    "(going|bed)+", "(princesses|everyone|kids|Anna|forest)+", "But she couldn't", "(Suddenly)+|\\{ \" Sarax.", "(Suddenly)+", "^ blue",
    "(Aside|she|felter|alonger)+", "Whillicter",
}
# Parameters of tests that count tokens of their tokenizer, or batches of them.
MODELS_COUNTS = {"n_prompt", "batch_count"}

# Their meaning of the origin `localhost`; our server needs explicit origins.
LOCAL_ORIGINS = [f"http://{host}{port}" for host, port in [("localhost", ":8080"), ("127.0.0.1", ":3000"), ("[::1]", ":3000")]
                 for port in ["", port]]
# Model names in the tests' requests, which their server ignores.
OTHER_NAMES = ["davinci-002", "gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "codellama70b"]


# The checkpoint: a Llama, with any context and any template that a test needs

# Chosen so that prompts have as many tokens as with their model in tests that count them, and others fit the context.
MERGES = """▁ H|e l|l o|▁ t|h e|▁t he|▁ a|r e|▁a re|▁ h|o w|▁h ow|o u|i n|e r|o n|▁ w|▁ b|▁ s|▁ f|▁ m|▁ c|▁ p|▁ d|a n|▁a n|▁an d|a t|i s|▁ is|o r|
i t|▁ l|e n|i c|ic k|▁ q|▁q u|▁qu ick|▁b r|▁br ow|▁brow n|▁f o|▁fo x|u m|▁ j|▁j um|p s|▁jum ps|▁ o|▁o v|▁ov er|a z|▁l az|▁laz y|
▁d o|▁do g|▁m e|an in|▁l i|▁li f|▁lif e|▁b e|▁be l|i e|ie v|▁t o|in g|▁o f|t e|s t|i m|t a|a r|▁ n|▁ e|s s|e s|u r|
h at|▁w hat|o k|▁b o|▁bo ok|▁do lo|▁ u|q u|▁ v""".replace("\n", "").split("|")
WIDTH, INNER, HEADS, LAYERS = 64, 128, 4, 2
# A dimension in which all embeddings are large: a token whose output weights oppose it is never chosen.
NEVER = 0
BOS, EOS = 1, 2


def vocabulary():
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *map(chr, range(33, 127))]
    for merge in MERGES:
        pieces += [piece for piece in ["".join(merge.split())] if piece not in pieces]
    return pieces


def tokenizer():
    """Like Llama 2's: words marked by U+2581, byte fallback, `<s>` before every text."""
    pieces = vocabulary()
    known = [pair for pair in (merge.split() for merge in MERGES) if all(piece in pieces for piece in pair)]
    special = [{"id": id, "content": pieces[id], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for id in range(3)]
    marked = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    begin = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": marked}, "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": begin, "pair": [*begin, {"Sequence": {"id": "B", "type_id": 0}}],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": {piece: id for id, piece in enumerate(pieces)}, "merges": known},
    }


def tensors():
    """Name, shape and random values of each tensor; special tokens and single bytes are never generated, as in a trained model."""
    drawn = random.Random(1)
    size = len(vocabulary())

    def matrix(out, width, scale):
        return [[drawn.gauss(0, scale) for _ in range(width)] for _ in range(out)]

    embedding, head = matrix(size, WIDTH, 1), matrix(size, WIDTH, 0.1)
    for row in embedding:
        row[NEVER] = 4
    for id, row in enumerate(head):
        row[:] = [-8 if i == NEVER else 0 for i in range(WIDTH)] if id < 3 + 256 else [0, *row[1:]]
    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", head
    yield "model.norm.weight", [1.0] * WIDTH
    for layer in range(LAYERS):
        for name in ["input_layernorm", "post_attention_layernorm"]:
            yield f"model.layers.{layer}.{name}.weight", [1.0] * WIDTH
        for name in "qkvo":
            yield f"model.layers.{layer}.self_attn.{name}_proj.weight", matrix(WIDTH, WIDTH, WIDTH**-0.5)
        for name, out, width in [("gate", INNER, WIDTH), ("up", INNER, WIDTH), ("down", WIDTH, INNER)]:
            yield f"model.layers.{layer}.mlp.{name}_proj.weight", matrix(out, width, width**-0.5)


def write_weights(path):
    header, parts, end = {}, [], 0
    for name, rows in tensors():
        sizes = [len(rows), len(rows[0])] if isinstance(rows[0], list) else [len(rows)]
        values = array.array("f", [value for row in rows for value in row] if len(sizes) == 2 else rows).tobytes()
        header[name] = {"dtype": "F32", "shape": sizes, "data_offsets": [end, end + len(values)]}
        parts.append(values)
        end += len(values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def make_checkpoint(folder, context, template=None, defaults=None):
    """Makes a folder in the format of Hugging Face; `defaults` go into generation_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder.parent / "model.safetensors"
    if not weights.exists():
        write_weights(weights)
    (folder / "model.safetensors").unlink(missing_ok=True)
    os.link(weights, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(vocabulary()), "hidden_size": WIDTH,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
        "head_dim": WIDTH // HEADS, "hidden_act": "silu", "max_position_embeddings": context, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "bos_token_id": BOS, "eos_token_id": EOS,
        "dtype": "float32",
    }
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, "bos_token": "<s>", "eos_token": "</s>",
             "unk_token": "<unk>"}
    if template is not None:
        names["chat_template"] = template
    files = {"config.json": config, "tokenizer.json": tokenizer(), "tokenizer_config.json": names,
             "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS, **(defaults or {})}}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


# Their server's options as ours

CHATML = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# Chat templates that their server knows by name.
NAMED_TEMPLATES = {
    None: CHATML,
    "chatml": CHATML,
    "llama3": "{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n{{ message['content'] | trim }}"
              "<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": "{% for message in messages %}<|START_OF_TURN_TOKEN|><|{{ {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}"
                 "[message['role']] }}_TOKEN|>{{ message['content'] | trim }}<|END_OF_TURN_TOKEN|>{% endfor %}"
                 "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}


def template_of(options):
    if options.chat_template_file:
        return Path(options.chat_template_file).read_text()
    return NAMED_TEMPLATES.get(options.chat_template, options.chat_template)


def flags_of(options, folder):
    """The command line of our server for their options."""
    slots = options.n_slots or 1
    context = options.n_ctx if options.kv_unified else options.n_ctx // slots
    alias = (options.model_alias or "tiny").split(",")[0]
    defaults = {"max_new_tokens": options.n_predict} if options.n_predict and options.n_predict > 0 else {}
    # Their model is a file, which a test expects in the path.
    checkpoint = make_checkpoint(folder / "no.gguf" / alias, context, template_of(options), defaults)
    flags = ["--from", checkpoint, "--host", options.server_host, "--port", options.server_port, "--device", "cpu", "--threads", 1,
             "--at-once", slots, "--seed", options.seed]
    if "test_basic.py" not in os.environ["PYTEST_CURRENT_TEST"]:
        # Their server accepts any model name.
        flags += [flag for name in OTHER_NAMES for flag in ["--model", f"{name}={checkpoint}"]]
    if options.api_key:
        (folder / "keys").write_text(options.api_key + "\n")
        flags += ["--api-key-file", folder / "keys"]
    if options.n_batch:
        flags += ["--tokens-per-step", options.n_batch]
    without = {"slots": not options.server_slots, "metrics": not options.server_metrics, "page": options.no_ui}
    flags += [flag for what, is_out in without.items() if is_out for flag in ["--without", what]]
    if options.cors_origins == "localhost":
        flags += [flag for origin in LOCAL_ORIGINS for flag in ["--cors", origin]]
    return [str(flag) for flag in flags]


# The plugin

class AnyCount(int):
    """Equals any integer."""

    def __eq__(self, other):
        return isinstance(other, int)

    __hash__ = int.__hash__


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(options, timeout_seconds=60):
    """Replaces ServerProcess.start."""
    import utils

    # A test that restarts the server uses its old address.
    options.server_port = getattr(options, "own_port", None) or free_port()
    options.own_port = options.server_port
    options.folder = tempfile.TemporaryDirectory(dir=os.environ["EMBER_TESTS_FOLDER"])
    command = [PROGRAM, "serve", *flags_of(options, Path(options.folder.name))]
    print("tests: starting server with:", " ".join(command))
    options.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    utils.server_instances.add(options)
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if options.process.poll() is not None:
            raise RuntimeError(f"the server ended with {options.process.returncode}")
        try:
            with socket.create_connection((options.server_host, options.server_port), timeout=1):
                return
        except OSError:
            time.sleep(0.02)
    raise TimeoutError(f"the server does not listen after {timeout_seconds} s")


def asking(make_request):
    """Adapts requests and answers to the tests' server: its options become those of requests, and header names ignore case."""

    def ask(options, method, path, data=None, *more, **named):
        import requests

        if isinstance(data, dict) and "prompt" in data:
            data = {**({"overflow": "slide"} if options.enable_ctx_shift else {}),
                    **({} if options.temperature else {"temperature": 0.0}), **data}
        if isinstance(data, dict) and "messages" in data:
            data = {**({"verbose": True} if options.debug and path.endswith("/completions") else {}), **data}
            if options.reasoning == "off":
                data["chat_template_kwargs"] = {"enable_thinking": False}
        answer = make_request(options, method, path, data, *more, **named)
        if hasattr(answer, "headers"):
            answer.headers = requests.structures.CaseInsensitiveDict(answer.headers)
        return answer

    return ask


def pytest_sessionstart(session):
    """Called before the test modules import names from `utils`."""
    sys.modules.setdefault("wget", types.ModuleType("wget"))
    sys.path.insert(0, str(Path.cwd()))
    import utils

    matches = utils.match_regex
    utils.ServerProcess.start = start
    utils.ServerProcess.make_request = asking(utils.ServerProcess.make_request)
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.match_regex = lambda regex, text: isinstance(text, str) if regex in MODELS_WORDS else matches(regex, text)


def reason_of(item):
    """The reason why a test is skipped. Only stars are special in a pattern, not the brackets around parameters."""
    patterns = ((re.sub(r"\[", "[[]", f"unit/{pattern}"), reason) for pattern, reason in EXCEPTED.items())
    return next((reason for pattern, reason in patterns if fnmatch.fnmatchcase(item.nodeid, pattern)), None)


def pytest_collection_modifyitems(items):
    import pytest

    for item in items:
        for name, value in getattr(item, "callspec", types.SimpleNamespace(params={})).params.items():
            if name in MODELS_COUNTS:
                item.callspec.params[name] = AnyCount(value)
        reason = reason_of(item)
        if reason and not os.environ.get("EMBER_TESTS_ALL"):
            item.add_marker(pytest.mark.skip(reason=f"excepted: {reason}"))


def pytest_terminal_summary(terminalreporter):
    """Prints a row per file, then the reasons for skipped tests."""
    counts, reasons = {}, {}
    for outcome in ["passed", "failed", "error", "skipped"]:
        for report in terminalreporter.stats.get(outcome, []):
            file = counts.setdefault(Path(report.nodeid.split("::")[0]).name, {})
            why = report.longrepr[2] if outcome == "skipped" else ""
            kind = "excepted" if "excepted" in why else outcome
            file[kind] = file.get(kind, 0) + 1
            if kind == "excepted":
                reasons.setdefault(report.nodeid.split("[")[0].removeprefix("unit/"), why.split("excepted: ")[1])
    write = terminalreporter.write_line
    kinds = ["passed", "failed", "error", "excepted", "skipped"]
    write("\n| file | " + " | ".join(kinds) + " |\n|---|" + "---|" * len(kinds))
    for name, file in sorted(counts.items()):
        write(f"| {name} | " + " | ".join(str(file.get(kind, 0)) for kind in kinds) + " |")
    sums = [sum(file.get(kind, 0) for file in counts.values()) for kind in kinds]
    write("| all | " + " | ".join(map(str, sums)) + " |\n\n| excepted | why |\n|---|---|")
    for name, why in sorted(reasons.items()):
        write(f"| {name} | {why} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("--all", action="store_true", help="what is excepted too")
    parser.add_argument("-k", help="only tests that pytest finds by this")
    arguments = parser.parse_args()
    folder = arguments.llama_cpp.resolve() / TESTS
    files = [f"unit/test_{name}.py" for name in FILES]
    select = ["-k", arguments.k] if arguments.k else []
    with tempfile.TemporaryDirectory() as work:
        env = {**os.environ, "EMBER_TESTS_FOLDER": work, "PYTHONDONTWRITEBYTECODE": "1", "EMBER_TESTS_ALL": "1" if arguments.all else "",
               "PYTHONPATH": os.pathsep.join([str(TOOLS), str(folder)])}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "check_llama_tests", *select, *files]
        sys.exit(subprocess.run(command, cwd=folder, env=env).returncode)


if __name__ == "__main__":
    main()
