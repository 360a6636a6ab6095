#!/usr/bin/env python3
"""Makes the seed inputs for fuzzing, in tools/fuzz/seeds/HARNESS: small valid files for each reader, from files of the repository.
Needs pyarrow and zstandard for the Parquet and zstd files, and `ember-train` in target/release or where EMBER_TRAIN says.

  tools/fuzz/make_seeds.py

Archives and PDFs are stored uncompressed: most mutations of compressed data leave nothing to read.
"""

import gzip
import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

import pyarrow
import pyarrow.parquet
import zstandard

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tools/fuzz/seeds"
SERVED = ROOT / "tools/fuzz/served"  # the files of the served model besides its weights
READERS = ROOT / "data/tests/fixtures/readers"
LONGEST = 11_000
TEXT = "The old lighthouse stood on the cliff for many years.\nNobody went there after dark: “Why not?”\n"


def seed(harness, name, content):
    content = content.encode() if isinstance(content, str) else content
    assert len(content) <= LONGEST, f"{harness}/{name} has {len(content)} bytes"
    (SEEDS / harness).mkdir(parents=True, exist_ok=True)
    (SEEDS / harness / name).write_bytes(content)


def copied(harness, *names, most=LONGEST):
    """Copies files of the readers' tests, or the beginning of long ones."""
    for name in names:
        seed(harness, name.replace(" ", "-"), (READERS / name).read_bytes()[:most])


def archive(files, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def safetensors(tensors, kind="F32"):
    letter, width = {"F16": ("e", 2), "F32": ("f", 4), "F64": ("d", 8)}[kind]
    header, place, values = {"__metadata__": {"format": "pt"}}, 0, b""
    for name, shape in tensors.items():
        count = 1
        for size in shape:
            count *= size
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, place + width * count]}
        place += width * count
        drawn = random.Random(name)
        values += struct.pack(f"<{count}{letter}", *(drawn.gauss(0, 0.5) for _ in range(count)))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + values


# A GPT-2 of one layer: 5 tokens, a context of 6, width 4.
SMALLEST = {
    "wte.weight": [5, 4], "wpe.weight": [6, 4], "ln_f.weight": [4], "ln_f.bias": [4],
    "h.0.ln_1.weight": [4], "h.0.ln_1.bias": [4], "h.0.ln_2.weight": [4], "h.0.ln_2.bias": [4],
    "h.0.attn.c_attn.weight": [4, 12], "h.0.attn.c_attn.bias": [12], "h.0.attn.c_proj.weight": [4, 4], "h.0.attn.c_proj.bias": [4],
    "h.0.mlp.c_fc.weight": [4, 16], "h.0.mlp.c_fc.bias": [16], "h.0.mlp.c_proj.weight": [16, 4], "h.0.mlp.c_proj.bias": [4],
}  # fmt: skip


def folders():
    seed("safetensors", "smallest.safetensors", safetensors(SMALLEST))
    seed("safetensors", "prefixed-f16.safetensors", safetensors({f"transformer.{name}": shape for name, shape in SMALLEST.items()}, "F16"))
    seed("safetensors", "f64.safetensors", safetensors({"wte.weight": [5, 4], "empty": [0, 3], "scalar": []}, "F64"))
    config = json.loads((ROOT / "formats/tests/fixtures/gpt2/config.json").read_text())
    config |= {"vocab_size": 5, "n_positions": 6, "n_embd": 4, "n_head": 2, "n_layer": 1, "n_inner": None, "eos_token_id": 4, "bos_token_id": 4}
    seed("config", "smallest.json", json.dumps(config, indent=2) + "\n")
    for place in ["model/tests/fixtures/llama/gqa", "model/tests/fixtures/llama/qwen3", "model/tests/fixtures/llama/old", "model/tests/fixtures/b"]:
        seed("config", f"{Path(place).name}.json", (ROOT / place / "config.json").read_bytes())
    names = {name: "a.safetensors" for name in SMALLEST}
    seed("safetensors-index", "one.json", json.dumps({"metadata": {"total_size": 1000}, "weight_map": names}, indent=1))
    seed("safetensors-index", "two.json", json.dumps({"weight_map": names | {"wte.weight": "b.safetensors"}}))
    for number, line in enumerate((ROOT / "generate/lib/tests/fixtures/generation_configs.jsonl").read_text().splitlines()[:40]):
        if number % 4 == 0:
            seed("generation-config", f"{number}.json", json.dumps(json.loads(line)["ours"]))
    sums = {"config.json": {"bytes": 700, "xxh3": "0123456789abcdef"}, "training/state.json": {"bytes": 1, "xxh3": "00"}}
    seed("checksums", "two.json", json.dumps(sums))


def tokenizers():
    for name in ["bytes", "closing", "llama", "said", "words"]:
        seed("tokenizer", f"{name}.json", (ROOT / "data/tests/fixtures/prompts" / name / "tokenizer.json").read_bytes())
    seed("tokenizer", "characters.json", (ROOT / "formats/tests/fixtures/gpt2/tokenizer.json").read_bytes())
    vocabulary = {token: id for id, token in enumerate(["a", "b", "c", "Ġ", "ab", "abc", "Ġa", "<|endoftext|>"])}
    seed("vocabulary-and-merges", "small.txt", json.dumps(vocabulary) + "\n---\n#version: 0.2\na b\nab c\nĠ a\n")
    end = {"content": "<|endoftext|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    names = {"tokenizer_class": "GPT2Tokenizer", "eos_token": "<|endoftext|>", "bos_token": end | {"__type": "AddedToken"}}
    flags = {"add_prefix_space": True, "add_bos_token": True, "add_eos_token": False}
    added = {"added_tokens_decoder": {"4": end | {"special": True}, "5": end | {"content": "[PAD]"}}, "pad_token": "[PAD]"}
    seed("tokenizer-config", "gpt2.json", json.dumps(names | flags))
    seed("tokenizer-config", "added.json", json.dumps(names | added))
    seed("tokenizer-config", "llama.json", json.dumps({"tokenizer_class": "LlamaTokenizer", "eos_token": "b", "add_prefix_space": False}))
    payload = struct.pack("<8H", *range(8))
    header = b"EMBERTOK" + struct.pack("<IIQQQQ", 1, 2, 8, 300, 0, 0)
    seed("tokens", "eight.bin", header.ljust(64, b"\0") + payload)


def formats():
    """Model files: the beginnings of the formats' test files, which are too large for random mutations to matter, and small ones."""
    fixtures = ROOT / "formats/tests/fixtures"
    for kind in ["gpt2", "llama", "qwen3"]:
        content = (fixtures / kind / "q4_0.gguf").read_bytes()
        seed("gguf", f"{kind}.gguf", content[:LONGEST])
    seed("gguf", "keys.gguf", gguf({"general.architecture": "llama", "llama.block_count": 1, "llama.rope.freq_base": 1e4}))
    # Width, inner width, blocks, heads, key heads, tokens, context: 204 numbers, and 8 for angles in the first version.
    shape = struct.pack("<7i", 4, 8, 1, 2, 2, 8, 4)
    seed("llama2c", "v0.bin", shape + random.Random(1).randbytes(4 * 212))
    header = (struct.pack("<Ii", 0x616B3432, 1) + shape + b"\1").ljust(256, b"\0")
    seed("llama2c", "v1.bin", header + random.Random(2).randbytes(4 * 204))
    words = ["<unk>", "<s>", "</s>", "<0x0A>", " ", "a", "b", " ab"]
    tokens = b"".join(struct.pack("<fi", -number, len(word)) + word.encode() for number, word in enumerate(words))
    seed("llama2c-tokens", "eight.bin", struct.pack("<i", 6) + tokens)
    seed("nanogpt-meta", "meta.pkl", (fixtures / "nanogpt/meta.pkl").read_bytes())
    with zipfile.ZipFile(fixtures / "nanogpt/ckpt.pt") as packed:
        seed("nanogpt", "data.pkl", packed.read("ckpt/data.pkl"))


def gguf(keys):
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    for key, value in keys.items():
        kind = {str: 8, int: 4, float: 6}[type(value)]
        out += text(key) + struct.pack("<I", kind)
        out += text(value) if kind == 8 else struct.pack("<I" if kind == 4 else "<f", value)
    return out


def texts():
    seed("text", "plain.txt", TEXT + "<|endoftext|>" + TEXT)
    copied("text", "japanese shift_jis.txt", "latin utf-16.txt", "latin utf-32.txt", "cyrillic koi8-r.txt", most=1600)
    mail_copy = "On Monday, Ann wrote:\n> Hello\n> there\n\nHi.\n-- \nAnn\n\nPage 1 of 3\n\x0cPage 2 of 3\nsoft\u00adhy-\nphen ﬁne\n"
    seed("text", "quoted.txt", mail_copy)
    copied("markdown", "latin.md")
    seed("markdown", "front.md", "---\ntitle: A\ndate: 2024\n---\n# One\n\ntext *of* `code`\n\n```rust\nfn main() {}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    seed("jsonl", "text.jsonl", '{"text": "One \\u00e9\\ud83e\\udd80"}\n{"text": "Two\\nlines", "id": [1, {"a": null}]}\n\n{"text": ""}\n')
    copied("whatsapp", "android cyrillic.txt", "ios latin.txt", most=1500)
    copied("csv", "latin.csv", "cyrillic.tsv")
    seed("csv", "quoted.csv", 'id;text\n1;"a ""b""\nc"\n2;d\n')
    copied("rtf", "chinese.rtf", "cyrillic-1251.rtf")
    seed("rtf", "small.rtf", r"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset204 A;}}{\info{\title T}}{\*\x y}\pard\f0 a\'e9\u8364?\par\bin3 abc\tab b\line c{\pict 0102}\uc2\u1234 ab}")
    copied("html", "hebrew.html")
    seed("html", "small.html", '<!doctype html><html><head><meta charset="utf-8"><title>T</title><script>x<y</script></head><body><nav>n</nav><article><h1>A</h1><p>b &amp; &#x41;<br>c<table><tr><td>1<td>2</table><ul><li>x<li>y</ul><pre> a\n b</pre></article></body></html>')
    copied("latex", "latin.tex")
    copied("notebook", "latin.ipynb")
    copied("subtitles", "greek.srt", "hebrew.vtt", most=1500)
    copied("mail", "cyrillic-0.eml", "japanese-0.eml")
    copied("mail", "greek-1.eml", most=6000)
    copied("mbox", "latin.mbox", most=6000)
    copied("chats", "discord japanese.json", "telegram latin.json")
    newest_first = [
        {"sender_name": "A", "timestamp_ms": 3, "content": "caf\u00c3\u00a9", "reactions": []},
        {"sender_name": "B", "timestamp_ms": 2, "content": "B sent an attachment."},
        {"sender_name": "B", "timestamp_ms": 1, "content": "One", "is_unsent": False},
    ]
    seed("chats", "facebook.json", json.dumps({"participants": [{"name": "A"}, {"name": "B"}], "messages": newest_first, "title": "A"}))
    page = "<html><head><title>T</title></head><body><p>caf=C3=A9 an=\r\nd more</p></body></html>\r\n"
    parts = [f"Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{page}", "Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n"]
    head = "From: <Saved by Blink>\r\nSubject: T\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related; type=\"text/html\"; boundary=\"b\"\r\n\r\n"
    seed("mhtml", "page.mhtml", head + "".join(f"--b\r\n{part}" for part in parts) + "--b--\r\n")


def preparing():
    with tempfile.TemporaryDirectory() as place:
        # The text that the harness prepares, so that the manifest fits its other files.
        Path(place, "text.txt").write_text("The old lighthouse stood on the cliff for many years.\n" * 20)
        program = os.environ.get("EMBER_TRAIN", ROOT / "target/release/ember-train")
        command = [program, "prepare", "text.txt", "--out", "data", "--tokenizer", "bytes", "--seed", "0"]
        subprocess.run(command, cwd=place, check=True, capture_output=True)
        seed("manifest", "text.json", Path(place, "data/manifest.json").read_bytes())
    told = "Write to ann.lee@example.org or call +44 20 7946 0958, (212) 555-0147; card 4111 1111 1111 1111, IBAN GB82 WEST 1234 5698 7654 32.\n"
    keys = "api_key = 'sk-abcdefghijklmnopqrstuvwx1234567890ABCD'\nAKIAIOSFODNN7EXAMPLE\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
    seed("masking", "all.txt", told + keys)
    seed("prepare", "plain.txt", TEXT * 4 + told)
    seed("prepare", "documents.txt", "<|endoftext|>".join(f"{TEXT}{number} apples\n" for number in range(6)))


def packed():
    """Containers of text: archives, compressed files, documents made of parts."""
    seed("gzip", "two.gz", gzip.compress(TEXT.encode(), mtime=0) + gzip.compress(b"more\n", mtime=0))
    stored = zlib.compressobj(0, zlib.DEFLATED, 31)
    seed("gzip", "stored.gz", stored.compress(TEXT.encode()) + stored.flush())
    seed("zstd", "text.zst", zstandard.ZstdCompressor(write_checksum=True).compress(TEXT.encode() * 9))
    seed("zstd", "two.zst", zstandard.compress(b"one\n") + b"\x50\x2a\x4d\x18\x04\0\0\0skip" + zstandard.compress(b"two\n"))
    seed("archives", "stored.zip", archive({"a.txt": TEXT, "b/c.md": "# B\n", "d.jsonl": '{"text": "e"}\n'}))
    seed("archives", "deflated.zip", archive({"a.txt": TEXT * 3}, zipfile.ZIP_DEFLATED))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in {"a.txt": TEXT, "é" * 60 + ".txt": "b\n"}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content.encode())
            tar.addfile(entry, io.BytesIO(content.encode()))
    seed("archives", "two.tar", out.getvalue()[:8192])
    seed("archives", "two.tar.gz", gzip.compress(out.getvalue(), mtime=0))
    word = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    document = f'<?xml version="1.0" encoding="UTF-8"?><w:document {word}><w:body><w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr><w:r><w:t>T &amp; t</w:t></w:r></w:p><w:p><w:r><w:t xml:space="preserve">a </w:t><w:tab/><w:br/><w:t>b</w:t></w:r><w:del><w:r><w:delText>x</w:delText></w:r></w:del></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:body></w:document>'
    seed("docx", "document.xml", document)
    seed("docx", "stored.docx", archive({"[Content_Types].xml": "<Types/>", "word/document.xml": document}))
    office = 'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    content = f'<?xml version="1.0"?><office:document-content {office}><office:body><office:text><text:h>H</text:h><text:p>a<text:s text:c="3"/>b<text:tab/><text:line-break/><text:span>c</text:span></text:p><text:list><text:list-item><text:p>d</text:p></text:list-item></text:list></office:text></office:body></office:document-content>'
    kind = "application/vnd.oasis.opendocument.text"
    seed("odt", "content.xml", content)
    flat = content.replace("document-content", "document").replace("<office:body>", "<office:meta><dc:title>T</dc:title></office:meta><office:body>")
    seed("fodt", "text.fodt", flat.replace("<office:document ", f'<office:document office:mimetype="{kind}" '))
    seed("odt", "stored.odt", archive({"mimetype": kind, "content.xml": content}))
    book = '<package><metadata><dc:title>T</dc:title></metadata><manifest><item id="c" href="c.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="c"/></spine></package>'
    container = '<container><rootfiles><rootfile full-path="a.opf"/></rootfiles></container>'
    parts = {"mimetype": "application/epub+zip", "META-INF/container.xml": container, "a.opf": book, "c.xhtml": "<h1>C</h1><p>text</p>"}
    seed("epub", "book.opf", book)
    seed("epub", "stored.epub", archive(parts))
    columns = {"text": ["One", "Zwei é", ""], "id": [1, 2, None]}
    for codec in ["none", "snappy", "zstd"]:
        out = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), out, compression=codec, store_schema=False)
        seed("parquet", f"{codec}.parquet", out.getvalue())


def pdf(objects):
    out, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table)


def stream(dictionary, content):
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (dictionary, len(content), content)


def pdfs():
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Resources << /Font << /F 4 0 R >> >> /Contents 5 0 R >>"
    ops = b"BT /F 12 Tf 20 200 Td (The old light-) Tj 0 -14 Td (house stood) Tj [(on) -300 (the cliff)] TJ T* <48656c6c6f> ' ET"
    unicode = b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange 2 beginbfchar <41> <0041> <42> <d83edd80> endbfchar 1 beginbfrange <61> <7a> <0061> endbfrange endcmap end"
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Type /Encoding /Differences [65 /A /eacute] >> /ToUnicode 6 0 R >>"
    catalogue, pages = b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    seed("pdf", "plain.pdf", pdf([catalogue, pages, page, font, stream(b"", ops), stream(b"", unicode)]))
    composite = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [7 0 R] /ToUnicode 6 0 R >>"
    descendant = b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /DW 1000 /W [0 [500]] >>"
    seed("pdf", "composite.pdf", pdf([catalogue, pages, page, composite, stream(b"", ops), stream(b"", unicode), descendant]))
    filtered = stream(b"/Filter [/ASCIIHexDecode /FlateDecode]", zlib.compress(ops).hex().encode() + b">")
    form = stream(b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << >>", b"q 1 0 0 1 5 5 cm Q")
    seed("pdf", "filtered.pdf", pdf([catalogue, pages, page.replace(b"/Font", b"/XObject << /X 6 0 R >> /Font"), font, filtered, form]))
    copied("pdf", "latin.pdf")


def decoding():
    schemas = {
        "object": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name"], "additionalProperties": False},
        "any": {"anyOf": [{"const": "a"}, {"enum": [1, None, True]}, {"$ref": "#/$defs/b"}], "$defs": {"b": {"type": "array", "items": {"type": "number", "multipleOf": 0.5}, "minItems": 1, "maxItems": 3}}},
        "formats": {"type": "object", "patternProperties": {"^x": {"type": "string", "format": "date"}}, "properties": {"y": {"pattern": "^[a-c]{2,3}$"}}},
        "all": {"allOf": [{"type": "object", "properties": {"a": {}}}, {"required": ["a"]}], "oneOf": [{"type": "null"}, {"type": "object"}]},
    }  # fmt: skip
    for name, schema in schemas.items():
        seed("json-schema", f"{name}.json", json.dumps(schema))
    for number, expression in enumerate(["[a-c]{2,5}(x|yy)*", r"\d{4}-\d\d-\d\d", "(?i:yes|no)?.", r"\p{Greek}+[^\s\w]", "(a(b(c)?)*)+z", r"[[:alpha:]&&[^x]]\u{1F980}"]):
        seed("regex", f"{number}.txt", expression)
    seed("lark", "sum.lark", 'start: sum\nsum: number (("+" | "-") number)*\nnumber: /[0-9]{1,3}/\n%ignore /[ ]+/\n')
    seed("lark", "json.lark", 'start: "{" pair ("," pair)* "}" | item\npair: STRING ":" item\nitem: STRING | %json {"type": "integer"}\nSTRING: /"[^"]*"/\n')
    seed("lark", "tokens.lark", 'start[max_tokens=5]: <|endoftext|> a~2..3 | b?\na: "x"i\nb: /y+/ & /.{2}/\n')


def training():
    for path in sorted((ROOT / "train/lib/configs").glob("*.toml")):
        text = "\n".join(line for line in re.sub(r" *#.*", "", path.read_text()).splitlines() if line)
        seed("recipe", path.name, text + "\n")
    seed("setting", "some.txt", "n_layer=4\nlearning_rate=1e-3\ntokenizer=bpe:512\nclean=off\ntext=[\"a\"]\narchitecture=qwen3\noptimizer=muon\nmax_steps=auto\n")
    rows = [
        {"step": 0, "run": {"parameters": 100, "max_steps": 20}},
        {"step": 1, "train_loss": 2.5, "tokens": 100, "elapsed_s": 0.5, "learning_rate": 0.001},
        {"step": 2, "val_loss": 2.25, "eval_s": 0.1, "tokens": 200, "elapsed_s": 1.5},
    ]
    seed("metrics", "three.jsonl", "".join(json.dumps(row) + "\n" for row in rows[1:]))
    seed("metrics", "run.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    seed("run-folder", "config.toml", 'text = ["a.txt"]\nn_layer = 2\nmax_steps = 20\npatience = 3\narchitecture = "gpt2"\n')
    seed("run-folder", "pointer", "checkpoints/step-00000020\n")


def program():
    vocabulary = {"a": 0, "b": 1, " ": 2, "\n": 3, "<|endoftext|>": 4}
    tokenizer = json.loads((ROOT / "formats/tests/fixtures/gpt2/tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = vocabulary
    tokenizer["added_tokens"] = [token | {"id": 4} for token in tokenizer["added_tokens"]]
    SERVED.mkdir(exist_ok=True)
    (SERVED / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1) + "\n")
    template = "{% for message in messages %}{{ message.role[:1] | replace('u', 'a') }} {{ message.content }}\n{% endfor %}"
    (SERVED / "chat_template.jinja").write_text(template + "\n")
    bodies = {
        0: {"prompt": "ab", "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "stop": ["b"], "logprobs": 1, "seed": 1, "n": 2, "echo": True},
        1: {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}], "max_completion_tokens": 2, "stream": True, "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["a"]}}}},
        2: {"prompt": [0, "ab"], "n_predict": 2, "grammar": "root ::= [ab]{1,3} | \"a\" (\"b\" root)?", "logit_bias": [[1, False], ["a", 1.5]], "samplers": ["top_k"], "n_probs": 2, "cache_prompt": True},
        3: {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}], "add_generation_prompt": True},
        4: {"content": "ab a", "add_special": True, "with_pieces": True},
        5: {"tokens": [0, 1, 2]},
        6: {"prompt": "a", "strategy": "beam", "num_beams": 2, "max_tokens": 2, "regex": "[ab]+", "trace": 2},
    }
    seed("gbnf", "words.gbnf", 'root ::= (word " ")* last # a comment\nword ::= [ab]{1,3} | "a" ("b" word)?\nlast ::= [^\\n\\x41-Z]+ "\\u00e9"?\n')
    seed("gbnf", "json.gbnf", 'root ::= "[" ws (item ("," ws item)*)? "]"\nitem ::= "\\"" [^"\\\\]* "\\"" | root\nws ::= [ \\t\\n]*\n')
    for number, body in bodies.items():
        seed("requests", f"{number}.json", bytes([number]) + json.dumps(body).encode())
    body = json.dumps(bodies[0])
    head = "Host: localhost\r\nContent-Type: application/json\r\n"
    seed("http", "post", f"POST /v1/completions HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}")
    seed("http", "chunked", f"POST /tokenize HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n5\r\n" '{"con\r\nb\r\ntent":"ab"}\r\n0\r\n\r\n')
    for number, path in enumerate(["/health", "/v1/models", "/props", "/slots", "/metrics", "/openapi.json", "/models/tiny", "/x"]):
        seed("http", f"get-{number}", f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nAuthorization: Bearer x\r\n\r\n")
    seed("prompts", "plain.txt", "Once upon\n\n two \r\nthree")
    seed("prompts", "objects.jsonl", '{"prompt": "a", "id": 7}\n{"prompt_ids": [3, 4], "note": []}\n')
    header = {
        "event": "run", "version": "0.1.0", "checkpoint": "runs/a", "weights": "9d3e8134450678f4", "weight_type": "f32", "device": "cpu",
        "machine": {"device_name": "a processor", "simd": "avx2"}, "special_tokens": "parse", "grammar": None,
        "config": {"strategy": "sample", "semantics": "hf", "max_new_tokens": 2, "temperature": 0.8, "eos_token_id": [4], "num_return_sequences": 1, "seed": 7},
        "prompts": [{"prompt": "ab", "prompt_ids": [0, 1]}], "batches": [[[0], 0, 1]],
    }  # fmt: skip
    lines = [header, {"event": "choice", "prompt_index": 0, "sequence_index": 0, "step": 0}, {"event": "end", "ids": [1, 4], "finish_reason": "eos"}]
    seed("trace", "sampled.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    seed("questions", "two.jsonl", '{"context": "a", "choices": ["b", "c"], "answer": 0}\n{"context": "", "choices": ["x"], "id": 1}\n')


def main():
    shutil.rmtree(SEEDS, ignore_errors=True)
    for make in [folders, tokenizers, formats, texts, preparing, packed, pdfs, decoding, training, program]:
        make()
    files = [path for path in SEEDS.rglob("*") if path.is_file()]
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files):,} bytes")


if __name__ == "__main__":
    main()
