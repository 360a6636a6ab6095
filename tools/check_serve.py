"""Checks that unmodified clients work with `ember-generate serve`.

    python tools/check_serve.py CHECKPOINT [--only openai,node,lm-eval,schemathesis] [--npm FOLDER]

The program is EMBER_GENERATE, by default target/release/ember-generate; servers are started here, on free ports, and stopped again.
The parts:
- `openai`: OpenAI's Python client: models, completions, streams, log-probabilities, several texts, errors by their types, API keys, and
  the cancellation of a request whose client has disconnected;
- `node`: a shorter version with OpenAI's npm client, which is installed into a temporary folder, or taken from FOLDER;
- `lm-eval`: lm-evaluation-harness evaluates the checkpoint through `local-completions` and by its own `hf`: two likelihood tasks and a
  generation task, from files made here; every number must be the same within 1e-3, every text the same;
- `schemathesis`: random requests by /openapi.json: none may be answered with a status of 500 or more.
A part whose package is missing is skipped with a note. CHECKPOINT is a folder that transformers opens, with a tokenizer that splits
plain English. Exits with 1 when a check fails.
"""

import argparse
import importlib.util
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
PROGRAM = os.environ.get("EMBER_GENERATE", str(TOOLS.parent / "target/release/ember-generate"))
OPENAI_NPM = "openai@7.57.0"
TOLERANCE = 1e-3
STARTS_S = 60
ENDS_S = 20
PROMPT = "One day Tom came to"
MOST = 128  # maximum of texts in one request


class Server:
    """A server on a free port, stopped at the end of its `with`."""

    def __init__(self, checkpoint, *flags):
        self.said = tempfile.TemporaryFile()
        command = [PROGRAM, "serve", "--from", str(checkpoint), "--port", "0", "--device", "cpu", *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.said, stdin=subprocess.DEVNULL)
        self.url = self.awaited()

    def awaited(self):
        """Waits for the address, which the server prints when it listens."""
        deadline = time.monotonic() + STARTS_S
        while time.monotonic() < deadline:
            if told := re.search(r"listening on (http://\S+?)[;\s]", self.stderr()):
                return told.group(1)
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}: {self.stderr().strip()}")
            time.sleep(0.02)
        self.process.kill()
        raise SystemExit(f"the server did not listen within {STARTS_S} s")

    def stderr(self):
        self.said.seek(0)
        return self.said.read().decode(errors="replace")

    def ask(self, path, body=None, headers=None):
        """(status, the answer as JSON or as text)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                status, text = response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode(errors="replace")
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def metrics(self):
        """The values of /metrics, by their names without the prefix."""
        text = str(self.ask("/metrics")[1])
        return {name: float(value) for name, value in re.findall(r"^\w+:(\w+) (\S+)$", text, re.M)}

    def stop(self):
        """Asks the server to stop. Returns (exit code, output); the code is None if it had to be killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        return code, self.stderr()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Report:
    """Prints each check at once, and a summary by parts at the end."""

    def __init__(self):
        self.parts = {}
        self.part = None

    def begin(self, part):
        self.part = part
        self.parts[part] = {"passed": 0, "failed": [], "skipped": None}
        print(f"{part}:")

    def check(self, passed, what, detail=""):
        if passed:
            self.parts[self.part]["passed"] += 1
        else:
            self.parts[self.part]["failed"].append(what)
        print(f"  {'ok  ' if passed else 'FAIL'} {what}" + (f": {detail}" if detail else ""), flush=True)

    def same(self, got, want, what):
        self.check(got == want, what, "" if got == want else f"{got!r}, not {want!r}")

    def skip(self, why):
        self.parts[self.part]["skipped"] = why
        print(f"  skipped: {why}", flush=True)

    def attempt(self, what, function, *arguments):
        """Runs a group of checks: an exception fails the group, not the rest."""
        try:
            function(*arguments)
        except Exception as error:
            self.check(False, what, f"{type(error).__name__}: {str(error)[:300]}")

    def table(self):
        print("\n| part | passed | failed | |\n|---|---|---|---|")
        for part, found in self.parts.items():
            note = found["skipped"] or "; ".join(found["failed"])
            print(f"| {part} | {found['passed']} | {len(found['failed'])} | {note} |")
        return any(found["failed"] for found in self.parts.values())


def context_length(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    return config.get("n_positions") or config["max_position_embeddings"]


# OpenAI's Python client


def openai_part(report, checkpoint):
    if importlib.util.find_spec("openai") is None:
        return report.skip("the Python package openai is not installed")
    from openai import OpenAI

    with Server(checkpoint) as server:
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
        model = client.models.list().data[0].id
        asking = Asking(report, server, client, model, context_length(checkpoint))
        for check in [asking.models, asking.whole, asking.streams, asking.logprobs, asking.echoes, asking.several, asking.stops,
                      asking.biased, asking.errors, asking.chats, asking.closed_stream, asking.gone]:
            report.attempt(check.__name__, check)
    report.attempt("keys", check_keys, report, checkpoint)


class Asking:
    """The checks with OpenAI's client and one server."""

    def __init__(self, report, server, client, model, context):
        self.report, self.server, self.client, self.model, self.context = report, server, client, model, context

    def write(self, prompt=PROMPT, **more):
        return self.client.completions.create(**{"model": self.model, "prompt": prompt, "max_tokens": 16, "temperature": 0, **more})

    def models(self):
        listed = self.client.models.list().data
        self.report.same([model.object for model in listed], ["model"], "one model is listed")
        self.report.same(self.client.models.retrieve(self.model).id, self.model, "and can be asked for by its name")

    def whole(self):
        first, second = self.write(), self.write()
        self.report.check(first.choices[0].text != "", "a completion has text")
        self.report.same(first.choices[0].text, second.choices[0].text, "greedy writes the same twice")
        usage = first.usage
        self.report.same(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "usage adds up")
        ends = first.choices[0].finish_reason
        self.report.check(ends == "stop" or (ends == "length" and usage.completion_tokens == 16), "it ends as its length says", ends)
        drawn = [self.write(temperature=1, seed=seed).choices[0].text for seed in [7, 7, 8]]
        self.report.check(drawn[0] == drawn[1] != drawn[2], "a seed draws the same, another something else")

    def streams(self):
        knobs = {"temperature": 1, "seed": 3, "max_tokens": 40}
        whole = self.write(**knobs)
        pieces = list(self.write(**knobs, stream=True, stream_options={"include_usage": True}))
        text = "".join(piece.choices[0].text for piece in pieces if piece.choices)
        self.report.same(text, whole.choices[0].text, "the pieces of a stream are the whole")
        reasons = [piece.choices[0].finish_reason for piece in pieces if piece.choices]
        self.report.same(reasons[-1], whole.choices[0].finish_reason, "the last piece says why it ends")
        self.report.check(not any(reasons[:-1]), "and no other does")
        self.report.same(pieces[-1].usage and pieces[-1].usage.completion_tokens, whole.usage.completion_tokens, "usage comes last")
        self.report.same(len({piece.id for piece in pieces}), 1, "all pieces have one id")

    def logprobs(self):
        choice = self.write(logprobs=3).choices[0]
        told = choice.logprobs
        lengths = {len(told.tokens), len(told.token_logprobs), len(told.top_logprobs), len(told.text_offset)}
        self.report.same(len(lengths), 1, "the four lists of logprobs are as long as each other")
        self.report.check(all(value <= 0 for value in told.token_logprobs), "no logprob is above 0")
        best = [max(top.values()) for top in told.top_logprobs]
        near = all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(best, told.token_logprobs))
        self.report.check(near, "greedy takes the best of the top")
        if not any(token.startswith("bytes:") for token in told.tokens):
            self.report.same("".join(told.tokens), choice.text, "the tokens are the text")
        streamed = [piece.choices[0].logprobs for piece in self.write(logprobs=3, stream=True) if piece.choices]
        values = [value for piece in streamed if piece for value in piece.token_logprobs]
        self.report.same(values, told.token_logprobs, "a stream tells the same logprobs")

    def echoes(self):
        choice = self.write(max_tokens=0, echo=True, logprobs=1).choices[0]
        self.report.same(choice.text, PROMPT, "max_tokens 0 with echo gives the prompt")
        self.report.check(choice.logprobs.token_logprobs[0] is None, "its first token has no logprob")
        longer = self.write(max_tokens=1, echo=True, logprobs=1).choices[0]
        self.report.same(longer.logprobs.token_logprobs[:-1], choice.logprobs.token_logprobs, "one token more changes none before it")

    def several(self):
        asked = {"n": 3, "temperature": 1, "seed": 5}
        first = self.write(**asked)
        self.report.same([choice.index for choice in first.choices], [0, 1, 2], "n = 3 gives three texts")
        texts = [choice.text for choice in first.choices]
        self.report.same([choice.text for choice in self.write(**asked).choices], texts, "the same again")
        streamed = [""] * 3
        for piece in self.write(**asked, stream=True):
            for choice in piece.choices:
                streamed[choice.index] += choice.text
        self.report.same(streamed, texts, "and the same in a stream")
        other = "The fox ate its"
        both = [choice.text for choice in self.write([PROMPT, other]).choices]
        alone = [self.write(text).choices[0].text for text in [PROMPT, other]]
        self.report.same(both, alone, "two prompts at once are written as each alone")
        ids = self.server.ask("/tokenize", {"content": PROMPT, "add_special": True})[1]["tokens"]
        self.report.same(self.write(ids).choices[0].text, alone[0], "a prompt as ids is the prompt")

    def stops(self):
        text = self.write().choices[0].text
        middle = text[len(text) // 2 :].lstrip()[:3]
        if not middle:
            return self.report.check(False, "a stop string from the middle of a text", f"there is none in {text!r}")
        choice = self.write(stop=[middle]).choices[0]
        self.report.same((choice.text, choice.finish_reason), (text[: text.index(middle)], "stop"), "a stop string ends the text before it")
        streamed = "".join(piece.choices[0].text for piece in self.write(stop=[middle], stream=True) if piece.choices)
        self.report.same(streamed, choice.text, "in a stream too")

    def biased(self):
        text = self.write(logprobs=1, max_tokens=1).choices[0]
        ids = self.write(logprobs=1, max_tokens=1, extra_body={"return_token_ids": True}).choices[0]
        first = getattr(ids, "token_ids", None) or self.server.ask("/tokenize", {"content": text.text})[1]["tokens"]
        other = self.write(max_tokens=1, logit_bias={str(first[0]): -100}).choices[0]
        self.report.check(other.text != text.text, "logit_bias of -100 keeps a token away")

    def errors(self):
        import openai

        cases = [
            ("another model", openai.NotFoundError, "model", {"model": "no-such-model"}),
            ("a temperature that is a word", openai.BadRequestError, "temperature", {"extra_body": {"temperature": "much"}}),
            ("a temperature below 0", openai.BadRequestError, None, {"temperature": -1}),
            ("a name that there is not", openai.BadRequestError, "temperatur", {"extra_body": {"temperatur": 1}}),
            ("a suffix", openai.BadRequestError, "suffix", {"suffix": "x"}),
            ("no prompt at all", openai.BadRequestError, "prompt", {"prompt": []}),
            ("a prompt beyond the context", openai.BadRequestError, None, {"prompt": [5] * (self.context + 1)}),
            ("a token that there is not", openai.BadRequestError, "prompt", {"prompt": [10**7]}),
            ("a bad regex", openai.BadRequestError, "regex", {"extra_body": {"regex": "("}}),
        ]
        for what, kind, param, asked in cases:
            try:
                self.write(**asked)
                self.report.check(False, f"{what} is refused", "it was answered")
            except openai.APIStatusError as error:
                right = isinstance(error, kind) and error.type and (param is None or error.param == param)
                detail = "" if right else f"{type(error).__name__}, type {error.type}, param {error.param}: {error.message}"
                self.report.check(bool(right), f"{what} is a {kind.__name__}", detail)

    def chats(self):
        """Without a chat template the server must refuse chats with that reason; with one it answers."""
        import openai

        messages = [{"role": "user", "content": "Who came to Paris?"}]
        asked = {"model": self.model, "messages": messages, "max_tokens": 8, "temperature": 0}
        try:
            answer = self.client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
        except openai.APIStatusError as error:
            named = "template" in error.message
            return self.report.check(named and error.status_code == 400, "without a chat template, chat says so", error.message)
        self.report.same(answer.choices[0].message.role, "assistant", "chat answers")
        self.report.same(len(answer.choices[0].logprobs.content), answer.usage.completion_tokens, "with the logprobs of each token")
        pieces = [piece.choices[0].delta for piece in self.client.chat.completions.create(**asked, stream=True) if piece.choices]
        text = "".join(piece.content or "" for piece in pieces)
        self.report.same(text, answer.choices[0].message.content, "its stream is the whole")

    def long(self):
        """A request of maximum work: far more than a client here waits for."""
        return {"n": MOST, "temperature": 1, "max_tokens": self.context - 16, "extra_body": {"ignore_eos": True}}

    def is_free(self, what, before):
        """Waits until the server is idle, and compares the count of cancelled requests."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            now = self.server.metrics()
            cancelled = now["requests_cancelled_total"] - before["requests_cancelled_total"]
            if cancelled and not now["requests_processing"] and not now["requests_deferred"]:
                break
            time.sleep(0.05)
        self.report.same(int(cancelled), 1, f"{what} counts as cancelled")
        self.report.same((now["requests_processing"], now["requests_deferred"]), (0, 0), "and leaves nothing at work")

    def closed_stream(self):
        before = self.server.metrics()
        stream = self.write(**self.long(), stream=True)
        next(iter(stream))
        stream.close()
        self.is_free("a stream that is closed", before)
        wrote = self.server.metrics()["tokens_predicted_total"] - before["tokens_predicted_total"]
        self.report.check(wrote < MOST * (self.context - 16), "and does not go on writing", f"{wrote:.0f} tokens")

    def gone(self):
        import openai

        before = self.server.metrics()
        try:
            hurried = self.client.with_options(timeout=openai.Timeout(5, read=0.03))
            hurried.completions.create(model=self.model, prompt=PROMPT, **self.long())
            self.report.check(False, "a client that does not wait", "was answered within 0.03 s")
        except openai.APITimeoutError:
            self.is_free("a client that does not wait", before)
        self.report.check(self.write().choices[0].text != "", "the next one is answered")


def check_keys(report, checkpoint):
    import openai

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "keys"
        file.write_text("right-key\nother-key\n")
        with Server(checkpoint, "--api-key-file", file) as server:
            for key in ["right-key", "other-key"]:
                client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
                report.same(len(client.models.list().data), 1, f"{key} is let in")
            for key in ["right-kez", "right-ke", "right-key2", "x"]:
                try:
                    openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0).models.list()
                    report.check(False, f"{key!r} is not let in")
                except openai.AuthenticationError:
                    report.check(True, f"{key!r} is an AuthenticationError")
            # OpenAI's client sends ASCII only. The space is not HTTP's, so it is part of the key.
            sent = {"Authorization": "Bearer right-key\u2009".encode()}
            report.same(server.ask("/v1/models", headers=sent)[0], 401, "'right-key' with a thin space is not let in")
            report.same(server.ask("/health")[0], 200, "/health needs no key")
            guarded = ["/v1/models", "/metrics", "/tokenizer_info", "/nowhere"]
            report.same([server.ask(path)[0] for path in guarded], [401] * len(guarded), "all else does")


# OpenAI's npm client


def node_part(report, checkpoint, npm):
    if shutil.which("node") is None:
        return report.skip("there is no node")
    with tempfile.TemporaryDirectory() as folder:
        if npm is None:
            install = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", folder, OPENAI_NPM]
            if shutil.which("npm") is None or subprocess.run(install, capture_output=True, timeout=300).returncode != 0:
                return report.skip("npm cannot install openai")
        else:
            (Path(folder) / "node_modules").symlink_to((npm / "node_modules").resolve())
        script = Path(shutil.copy(TOOLS / "serve_client.mjs", folder))
        with Server(checkpoint) as server:
            ran = subprocess.run(["node", script, f"{server.url}/v1", server.url], capture_output=True, text=True, timeout=120)
        for line in ran.stdout.splitlines():
            found = json.loads(line)
            report.check(found["passed"], found["what"], found.get("detail", ""))
        report.check(ran.returncode == 0, "the script comes to its end", ran.stderr.strip()[-300:])


# lm-evaluation-harness

QUESTIONS = [
    ("One day Tom came to Paris with a ball. Tom was in", [" Paris", " Oslo", " the plum"], 0),
    ("The fox ate its plum and got one", [" pear", " Tom", " came to"], 0),
    ("In the end Tom was in", [" a ball", " Oslo"], 1),
    ("Tom left Paris for", [" Oslo.", " the the", " and"], 0),
]
PASSAGES = [
    "One day Tom came to Paris with a ball. One fox came with one plum. Tom lost the ball in Paris and found a drum.",
    "The fox ate its plum and got one pear. Tom left Paris for Oslo. In the end Tom was in Oslo with the drum.",
]
TASKS = {
    "choices": """
        output_type: multiple_choice
        doc_to_text: "{{context}}"
        doc_to_target: "{{answer}}"
        doc_to_choice: "{{choices}}"
        target_delimiter: ""
        metric_list:
          - metric: acc
    """,
    "passages": """
        output_type: loglikelihood_rolling
        doc_to_text: ""
        doc_to_target: "{{text}}"
        metric_list:
          - metric: word_perplexity
    """,
    "writing": """
        output_type: generate_until
        doc_to_text: "{{context}}"
        doc_to_target: ""
        generation_kwargs:
          until: ["\\n\\n"]
          max_gen_toks: 16
          do_sample: false
        metric_list:
          - metric: bypass
    """,
}


def make_tasks(folder):
    """Writes each task as a YAML file, and its documents."""
    questions = [{"context": context, "choices": choices, "answer": answer} for context, choices, answer in QUESTIONS]
    documents = {"choices": questions, "writing": questions, "passages": [{"text": text} for text in PASSAGES]}
    for name, rest in TASKS.items():
        file = folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in documents[name]))
        lines = [line[8:] for line in rest.strip("\n").splitlines()]
        lines += [f"task: ember_{name}", "dataset_path: json", "dataset_kwargs:", "  data_files:", f"    test: {file}"]
        lines += ["test_split: test"]
        (folder / f"{name}.yaml").write_text("\n".join(lines) + "\n")


def evaluate(folder, model, arguments):
    """Lm-eval's results for every document, by task."""
    import logging

    import lm_eval
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    tasks = [f"ember_{name}" for name in TASKS]
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    found = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=tasks, task_manager=manager, batch_size=1, log_samples=True,
                                    bootstrap_iters=0)
    ordered = {task: sorted(samples, key=lambda sample: sample["doc_id"]) for task, samples in found["samples"].items()}
    return {task: [sample["resps"] for sample in samples] for task, samples in ordered.items()}


def flat(value):
    """All numbers and texts of nested lists, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def lm_eval_part(report, checkpoint):
    missing = [name for name in ["lm_eval", "torch", "transformers"] if importlib.util.find_spec(name) is None]
    if missing:
        return report.skip(f"missing: {', '.join(missing)}")
    context = context_length(checkpoint)
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    with tempfile.TemporaryDirectory() as folder, Server(checkpoint) as server:
        os.environ["HF_DATASETS_CACHE"] = str(Path(folder) / "cache")
        make_tasks(Path(folder))
        name = server.ask("/v1/models")[1]["data"][0]["id"]
        hf = f"pretrained={checkpoint},dtype=float32,device=cpu,max_length={context}"
        ours = f"base_url={server.url}/v1/completions,max_length={context},max_retries=1,model={name}"
        local = f"{ours},tokenizer={checkpoint},tokenizer_backend=huggingface"
        # Both with and without the tokens before every text; `remote` supports only the latter.
        without = {"huggingface": local, "remote": f"{ours},tokenizer_backend=remote", "huggingface, 4 at once": f"{local},num_concurrent=4"}
        for begins, backends in {False: without, True: {"huggingface, with what goes before texts": local}}.items():
            theirs = evaluate(folder, "hf", f"{hf},add_bos_token={begins}")
            for backend, arguments in backends.items():
                named = f"tokenizer_backend {backend}"
                report.attempt(named, compare, report, folder, backend, f"{arguments},add_bos_token={begins}", theirs)


def compare(report, folder, backend, arguments, theirs):
    ours = evaluate(folder, "local-completions", arguments)
    for task, want in theirs.items():
        want, got = flat(want), flat(ours[task])
        if task == "ember_writing":
            report.same(got, want, f"{task} by {backend}: the same {len(want)} texts")
            continue
        # Each sum comes with a flag whether it is the greedy text; a rolling sum has none.
        sums = [(a, b) for a, b in zip(got, want) if not isinstance(b, (bool, str))]
        furthest = max(abs(float(a) - float(b)) for a, b in sums)
        alike = len(got) == len(want) and all(str(a) == str(b) for a, b in zip(got, want) if isinstance(b, (bool, str)))
        report.check(alike and furthest <= TOLERANCE, f"{task} by {backend}: {len(sums)} sums", f"at most {furthest:.1e} apart")


# Schemathesis


def schemathesis_part(report, checkpoint):
    program = Path(sys.executable).with_name("schemathesis")
    if not program.exists():
        return report.skip("the Python package schemathesis is not installed")
    with Server(checkpoint) as server:
        status, schema = server.ask("/openapi.json")
        if status != 200:
            return report.check(False, "/openapi.json is there", f"status {status}")
        with tempfile.TemporaryDirectory() as folder:
            command = [program, "run", f"{server.url}/openapi.json", "--checks", "not_a_server_error", "--continue-on-failure", "--no-color",
                       "--phases", "examples,coverage,fuzzing", "--max-examples", "30", "--seed", "1", "--request-timeout", "60"]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=1200, cwd=folder)
        detail = "" if ran.returncode == 0 else ran.stdout[-3000:] + ran.stderr[-500:]
        report.check(ran.returncode == 0, f"no 5xx on {len(schema['paths'])} routes", detail)
        tested = re.search(r"(\d+) generated", ran.stdout)
        report.check(server.process.poll() is None, "the server is still there", f"{tested.group(0)}" if tested else "")
        report.check("panicked" not in server.stderr(), "and nothing panicked")


def main():
    parts = ["openai", "node", "lm-eval", "schemathesis"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--only", default=",".join(parts), help="parts, with commas between them")
    parser.add_argument("--npm", type=Path, help="a folder whose node_modules has openai")
    arguments = parser.parse_args()
    report = Report()
    functions = {
        "openai": openai_part,
        "node": lambda report, checkpoint: node_part(report, checkpoint, arguments.npm),
        "lm-eval": lm_eval_part,
        "schemathesis": schemathesis_part,
    }
    for part in arguments.only.split(","):
        if part not in functions:
            raise SystemExit(f"there is no part {part!r}; there are {', '.join(parts)}")
        report.begin(part)
        report.attempt(part, functions[part], report, arguments.checkpoint.resolve())
    sys.exit(report.table())


if __name__ == "__main__":
    main()
