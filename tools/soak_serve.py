"""Runs 256 clients on one `ember-generate serve` for a while, half of them misbehaving, and checks the effect on the others and on the server.

    python tools/soak_serve.py CHECKPOINT [--minutes 30] [--connections 256] [--seed 1]

The well-behaved clients request texts whose answers were recorded beforehand by a single client, and must get exactly the same. The
others read slowly or not at all, disconnect midway, send invalid HTTP and JSON, endless bodies, thousands of headers, many requests at
once and infinitely recursive grammars: they may be refused, but no answer may have a status of 500 or more. At the end:
- /metrics shows no running and no waiting requests;
- memory, threads and open files are back at their level (memory within 64 MiB, because an allocator's reserve fluctuates);
- there was no panic, and SIGTERM ends the server with 0, even while clients hold connections open.
The program is EMBER_GENERATE, by default target/release/ember-generate. Needs /proc. Exits with 1 when a check fails.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import random
import socket
import struct
import sys
import time
from pathlib import Path

from check_serve import Report, Server, context_length

KEPT_BYTES = 64 << 20
ROUNDS = 3
WORDS = "One day Tom came to Paris with a ball The fox ate its plum and got one pear In the end".split()
ANSWER_S = 300


# Requests and their expected answers


def make_questions(drawn, context):
    """Requests of many kinds, each with a single possible answer."""
    for number in range(24):
        prompt = " ".join(drawn.choice(WORDS) for _ in range(drawn.randint(1, 12)))
        ask = {"prompt": prompt, "max_tokens": drawn.randint(1, min(48, context // 4)), "ignore_eos": True}
        kind = number % 4
        if kind == 0:
            ask |= {"temperature": 0}
        elif kind == 1:
            ask |= {"temperature": 1, "seed": number, "top_p": 0.9}
        elif kind == 2:
            ask |= {"temperature": 0.7, "seed": number, "n": 3, "logprobs": 2}
        else:
            ask |= {"temperature": 0, "echo": True, "logprobs": 1}
        yield ask


def essence(choices):
    """The part of an answer that must be the same."""
    return [(choice["text"], choice["logprobs"] and choice["logprobs"]["token_logprobs"]) for choice in choices]


def joined(events, n):
    """The choices of a stream, reassembled."""
    texts, values = [""] * n, [[] for _ in range(n)]
    for event in events:
        if "error" in event:
            raise ValueError(f"an error in a stream: {event['error']}")
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
            values[choice["index"]] += (choice["logprobs"] or {}).get("token_logprobs", [])
    return list(zip(texts, values))


# One client


class Client:
    """Raw HTTP over one connection; the caller decides what to send."""

    def __init__(self, host, port):
        self.host, self.port = host, port

    @contextlib.asynccontextmanager
    async def connected(self, buffer=None, reset=False):
        """A connection with a receive buffer of at most `buffer` bytes."""
        made = socket.socket()
        made.setblocking(False)
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        await asyncio.get_running_loop().sock_connect(made, (self.host, self.port))
        reader, writer = await asyncio.open_connection(sock=made, limit=buffer or 1 << 20)
        try:
            yield reader, writer
        finally:
            if reset:
                # Disconnects immediately, by a reset.
                lingers = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, lingers)
                writer.transport.abort()
            else:
                writer.close()

    def head(self, path, length, more=""):
        host = f"Host: {self.host}:{self.port}\r\nContent-Type: application/json"
        return f"POST {path} HTTP/1.1\r\n{host}\r\nContent-Length: {length}\r\n{more}\r\n".encode()

    def request(self, body, path="/v1/completions", more="Connection: close\r\n"):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.head(path, len(text), more) + text

    async def answer(self, reader):
        """(status, body) of an answer that ends with the connection."""
        text = await asyncio.wait_for(reader.read(), ANSWER_S)
        head, _, body = text.partition(b"\r\n\r\n")
        status = status_of(head)
        return status, unchunked(body) if b"chunked" in head.lower() else body

    async def ask(self, body):
        async with self.connected() as (reader, writer):
            writer.write(self.request(body))
            return await self.answer(reader)


def status_of(head):
    """The status in an answer's first line; 0 if there is none."""
    words = head.split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else 0


def unchunked(body):
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size or b"0", 16)
        whole, body = whole + body[:count], body[count + 2 :]
        if count == 0:
            break
    return whole


class Soak:
    """All clients and their findings."""

    def __init__(self, client, questions, answers, drawn, ends):
        self.client, self.questions, self.answers, self.drawn, self.ends = client, questions, answers, drawn, ends
        self.right = 0
        self.wrong, self.bad = [], []
        self.statuses = collections.Counter()

    def over(self):
        return time.monotonic() > self.ends

    # The well-behaved

    async def behave(self):
        while not self.over():
            number = self.drawn.randrange(len(self.questions))
            ask = {**self.questions[number], "stream": self.drawn.random() < 0.5}
            try:
                status, body = await self.client.ask(ask)
                if status == 429:
                    self.statuses["well-behaved, told to try again later"] += 1
                    await asyncio.sleep(1)
                    continue
                got = read_answer(body, ask) if status == 200 else f"status {status}: {body[:200]}"
            except (OSError, ValueError, KeyError, asyncio.TimeoutError) as error:
                got = f"{type(error).__name__}: {error}"
            if got == self.answers[number]:
                self.right += 1
            else:
                self.wrong.append(f"question {number}: {got!r}"[:600])

    # The ill-behaved

    async def misbehave(self):
        ways = [self.reads_slowly, self.goes_mid_stream, self.goes_before, self.sends_half, self.sends_garbage, self.is_gigantic,
                self.pipelines, self.has_many_headers, self.sends_slowly, self.says_nothing, self.asks_nonsense]
        while not self.over():
            way = self.drawn.choice(ways)
            try:
                async with asyncio.timeout(30):
                    await way()
                self.statuses[way.__name__] += 1
            except TimeoutError:
                self.statuses[f"{way.__name__}, left after 30 s"] += 1
            except OSError:
                self.statuses[f"{way.__name__}, cut off"] += 1
            except ValueError as error:
                self.bad.append(f"{way.__name__} was answered by what is no HTTP: {error}")

    def saw(self, status, what):
        if status >= 500:
            self.bad.append(f"{what} was answered by {status}")

    def long(self):
        return {"prompt": "One day", "n": 16, "temperature": 1, "max_tokens": 64, "ignore_eos": True, "stream": True}

    async def reads_slowly(self):
        async with self.client.connected(buffer=2048, reset=True) as (reader, writer):
            writer.write(self.client.request(self.long()))
            for _ in range(40):
                if not await reader.read(20):
                    break
                await asyncio.sleep(0.5)

    async def goes_mid_stream(self):
        async with self.client.connected(reset=True) as (reader, writer):
            writer.write(self.client.request(self.long()))
            try:
                await reader.readuntil(b"data: ")
            except asyncio.IncompleteReadError as refused:
                self.saw(status_of(refused.partial), "a stream that would be left")
            await asyncio.sleep(self.drawn.random() / 4)

    async def goes_before(self):
        async with self.client.connected(reset=self.drawn.random() < 0.5) as (_, writer):
            writer.write(self.client.request({**self.long(), "stream": False}))
            await writer.drain()
            await asyncio.sleep(self.drawn.random() / 4)

    async def sends_half(self):
        async with self.client.connected() as (_, writer):
            text = self.client.request(self.long())
            writer.write(text[: self.drawn.randrange(1, len(text))])
            await asyncio.sleep(self.drawn.choice([0, 5]))

    async def sends_garbage(self):
        things = [self.drawn.randbytes(4000), b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/completions\r\n\r\n", b"\x16\x03\x01\x02\x00" * 50,
                  b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                  *map(self.client.request, [b"{" + self.drawn.randbytes(100), b'{"prompt": "a', b"null"])]
        async with self.client.connected() as (reader, writer):
            writer.write(self.drawn.choice(things))
            writer.write_eof()
            status, _ = await self.client.answer(reader)
            self.saw(status, "garbage")

    async def is_gigantic(self):
        """A body of 10 GB by Content-Length, or in endless chunks; sent until it is refused."""
        async with self.client.connected() as (reader, writer):
            chunked = self.drawn.random() < 0.5
            head = self.client.head("/v1/completions", 10**10)
            writer.write(head.replace(b"Content-Length: 10000000000", b"Transfer-Encoding: chunked") if chunked else head)
            piece = b"a" * 65536
            piece = b"10000\r\n" + piece + b"\r\n" if chunked else piece
            answer = asyncio.ensure_future(reader.read(100))
            # It may fail when nobody awaits it any more.
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())
            for _ in range(1024):
                writer.write(piece)
                await writer.drain()
                if answer.done():
                    break
            with contextlib.suppress(OSError):
                self.saw(status_of(await answer), "a gigantic body")

    async def pipelines(self):
        """Sends twenty requests before the first is answered."""
        async with self.client.connected() as (reader, writer):
            body = {"prompt": "Tom", "max_tokens": 2, "temperature": 0}
            writer.write(self.client.request(body, more="") * 19 + self.client.request(body))
            text = await reader.read()
            statuses = [int(part[:3]) for part in text.split(b"HTTP/1.1 ")[1:]]
            for status in statuses:
                self.saw(status, "a request among twenty")
            if len(statuses) != 20:
                self.bad.append(f"of twenty requests at once {len(statuses)} were answered")

    async def has_many_headers(self):
        more = self.drawn.choice(["".join(f"X-{i}: {i}\r\n" for i in range(5000)), f"X-Long: {'a' * (1 << 20)}\r\n"])
        async with self.client.connected() as (reader, writer):
            writer.write(self.client.request({"prompt": "a"}, more=more))
            self.saw((await self.client.answer(reader))[0], "thousands of headers")

    async def sends_slowly(self):
        async with self.client.connected() as (_, writer):
            for byte in self.client.request(self.long())[:60]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.2)

    async def says_nothing(self):
        async with self.client.connected() as (reader, _):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await reader.read(1)

    async def asks_nonsense(self):
        deep = 60000
        body = self.drawn.choice([
            b"[" * deep, b'{"a":' * deep, {"prompt": "a", "regex": "(" * deep},
            {"prompt": "a", "regex": "(" * deep + "a" + ")" * deep}, {"prompt": "a", "regex": "(a{1,1000}){1,1000}"},
            {"prompt": "a", "json_schema": {"$ref": "#"}},
            {"prompt": "a", "json_schema": {"type": "hiccup"}}, {"prompt": "a", "lark_grammar": "start: start"},
            {"prompt": "a", "n": 10**9}, {"prompt": "a", "max_tokens": 2**64}, {"prompt": "a", "max_tokens": -1},
            {"prompt": ["a"] * 10000}, {"prompt": [0] * 10**6}, {"prompt": "a", "temperature": 1e308},
            {"prompt": "a", "seed": -(2**63)}, {"prompt": "a", "top_k": 2**63},
            {"prompt": "a", "stop": ["x" * 10**5] * 100}, {"prompt": "a", "logit_bias": {str(i): 100 for i in range(10**4)}},
            {"prompt": "a", "num_beams": 10**6}, {"prompt": "a", "logprobs": 10**6}, {"prompt": "\ud800"}, {"prompt": "a" * 10**6},
        ])
        status, _ = await self.client.ask(body)
        self.saw(status, f"nonsense {str(body)[:80]}")


def read_answer(body, ask):
    if not ask["stream"]:
        return essence(json.loads(body)["choices"])
    lines = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]":
        raise ValueError("a stream without its end")
    texts = joined([json.loads(line) for line in lines[:-1]], ask.get("n", 1))
    return [(text, values if "logprobs" in ask else None) for text, values in texts]


# The server as the system sees it


def status_figures(pid):
    """Memory in bytes, number of threads and of open files."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return {"memory": int(lines["VmRSS"].split()[0]) * 1024, "threads": int(lines["Threads"]), "files": files}


async def watch(server, seconds, ends):
    """Measures memory, threads and open files at intervals, and prints them."""
    seen = []
    while time.monotonic() < ends:
        await asyncio.sleep(min(seconds, max(0, ends - time.monotonic()) + 0.1))
        figures = {**status_figures(server.process.pid), **await asyncio.to_thread(server.metrics)}
        seen.append(figures)
        print(f"  {figures['memory'] >> 20} MiB, {figures['threads']} threads, {figures['files']} files, "
              f"{figures['requests_processing']:.0f} running, {figures['requests_deferred']:.0f} waiting, "
              f"{figures['tokens_predicted_total']:.0f} tokens written, {figures['requests_cancelled_total']:.0f} cancelled", flush=True)
    return seen


async def soaked(soak, server, connections, every, ends):
    clients = [soak.behave() if i % 2 else soak.misbehave() for i in range(connections)]
    *_, seen = await asyncio.gather(*clients, watch(server, every, ends))
    return seen


def settled(server, before, seconds=30):
    """The values after all clients are gone, once they no longer decrease."""
    deadline = time.monotonic() + seconds
    while True:
        now = {**status_figures(server.process.pid), **server.metrics()}
        free = not now["requests_processing"] and not now["requests_deferred"]
        if (free and now["threads"] <= before["threads"] and now["files"] <= before["files"]) or time.monotonic() > deadline:
            return now
        time.sleep(0.5)


def warmed_up(server, clients, arguments):
    """The values before: the maximum after some short rounds of everything, because an allocator's reserve fluctuates."""
    levels = []
    for _ in range(ROUNDS):
        soak = clients(time.monotonic() + min(20, 10 * arguments.minutes))
        asyncio.run(soaked(soak, server, arguments.connections, 10, soak.ends))
        levels.append(settled(server, {"threads": 0, "files": 0}, seconds=12))
    return {name: max(level[name] for level in levels) for name in ["memory"]} | {
        name: min(level[name] for level in levels) for name in ["threads", "files"]
    }


def check_end_with_clients(report, checkpoint):
    """Sends SIGTERM while one request is half sent, one answer is unread, and one connection is idle."""
    with Server(checkpoint) as server:
        host, port = server.url.removeprefix("http://").split(":")
        client = Client(host, int(port))
        half, unread, idle = (socket.create_connection((host, int(port))) for _ in range(3))
        half.sendall(client.request({"prompt": "a"})[:50])
        unread.sendall(client.request({"prompt": "One day", "n": 40, "max_tokens": 64, "ignore_eos": True, "stream": True}))
        time.sleep(0.5)
        began = time.monotonic()
        code, _ = server.stop()
        took = time.monotonic() - began
        for connection in [half, unread, idle]:
            connection.close()
        report.check(code == 0, "SIGTERM ends it while clients hold connections", f"exit code {code} after {took:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    drawn = random.Random(arguments.seed)
    report = Report()
    report.begin("soak")
    questions = list(make_questions(drawn, context_length(arguments.checkpoint)))
    # A small cache, so that it is full soon and does not count as growth.
    with Server(arguments.checkpoint, "--cache-mib", 16) as server:
        host, port = server.url.removeprefix("http://").split(":")
        client = Client(host, int(port))
        answers = []
        for ask in questions:
            status, body = asyncio.run(client.ask(ask))
            if status != 200:
                raise SystemExit(f"{ask}: status {status}: {body.decode(errors='replace')}")
            answers.append(read_answer(body, {**ask, "stream": False}))
        before = warmed_up(server, lambda ends: Soak(client, questions, answers, drawn, ends), arguments)
        soak = Soak(client, questions, answers, drawn, time.monotonic() + 60 * arguments.minutes)
        seen = asyncio.run(soaked(soak, server, arguments.connections, max(5, arguments.minutes), soak.ends))
        after = settled(server, before)
        print("  " + ", ".join(f"{way} {count}" for way, count in sorted(soak.statuses.items())))
        report.check(not soak.wrong and soak.right > 0, f"{soak.right} well-behaved answers as alone", "; ".join(soak.wrong[:3]))
        report.check(not soak.bad, "no misbehaviour is the server's fault", "; ".join(sorted(set(soak.bad))[:5]))
        report.same((after["requests_processing"], after["requests_deferred"]), (0, 0), "nothing is left at work or waiting")
        most = max(figures["memory"] for figures in seen) >> 20
        detail = f"{before['memory'] >> 20} MiB before, {most} at most, {after['memory'] >> 20} after"
        report.check(after["memory"] <= before["memory"] + KEPT_BYTES, "memory is back at its level", detail)
        for what, says in [("threads", "no thread is left behind"), ("files", "no connection is left open")]:
            report.check(after[what] <= before[what], says, f"{before[what]} before, {after[what]} after")
        code, said = server.stop()
        report.check(code == 0, "SIGTERM ends it", f"exit code {code}")
        report.check("panicked" not in said, "nothing panicked", said[-500:] if "panicked" in said else "")
    check_end_with_clients(report, arguments.checkpoint)
    sys.exit(report.table())


if __name__ == "__main__":
    main()
