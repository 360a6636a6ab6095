"""A lexical view of Rust sources: comments, strings, and code that is compiled only for tests.

Used by tools/lines and tools/imports. It is no parser: it does not rely on rustfmt's layout, but does not expand macros.
"""

import io
import re
import subprocess
import tarfile
import tomllib
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
COMMENT_OR_LITERAL = re.compile(
    r"""(?P<line>//[^\n]*) | (?P<block>/\*)
      | (?P<raw>\b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)) | (?P<text>"(?:\\.|[^"\\])*")
      | (?P<letter>'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])')""",
    re.VERBOSE | re.DOTALL,
)
TEST_ONLY = re.compile(r"#\[cfg\((?:test|all\([^\]]*\btest\b[^\]]*\))\)\]")
ITEM = re.compile(r"\s*(?:(?:pub|mod|fn|use|impl|struct|enum|const|static|type|trait|unsafe|async|extern|let)\b|macro_rules!)")
ATTRIBUTE = re.compile(r"\s*#\[")


def sources(ref=None):
    """The text of every .rs and Cargo.toml by its path: of a git ref, or of the working tree including untracked files."""
    if ref:
        archive = subprocess.run(["git", "archive", ref], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            return {file.name: files.extractfile(file).read().decode() for file in files if file.isfile() and wanted(file.name)}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return {name: (ROOT / name).read_text() for name in listed if wanted(name) and (ROOT / name).is_file()}


def wanted(name):
    return name.endswith(".rs") or PurePosixPath(name).name == "Cargo.toml"


def masked(text):
    """The text with comments replaced by blanks and the contents of literals by underscores; length and lines are unchanged."""
    out, at = [], 0
    while found := COMMENT_OR_LITERAL.search(text, at):
        end = after_block(text, found.start()) if found["block"] else found.end()
        piece = text[found.start() : end]
        blank = " " if found["line"] or found["block"] else "_"
        out += [text[at : found.start()], re.sub(r"\S", blank, piece)]
        at = end
    return "".join(out) + text[at:]


def after_block(text, start):
    """The end of a block comment; they nest."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return start + mark.end()
    return len(text)


def after_bracket(code, start):
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for mark in re.finditer(r"[\[({})\]]", code[start:]):
        depth += 1 if mark[0] in "[({" else -1
        if depth == 0:
            return start + mark.end()
    return len(code)


def after_item(code, start):
    """The position after the item, statement, field or match arm that begins at `start`, attributes included."""
    while attribute := ATTRIBUTE.match(code, start):
        start = after_bracket(code, attribute.end() - 1)
    item = ITEM.match(code, start)
    ends = ";" if item else ",;"
    body_ends = item and not re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:use|let|static|const(?!\s+fn)|type)\b", code[start:])
    at = start
    while mark := re.compile(rf"[{ends}\[({{)}}\]]").search(code, at):
        if mark[0] in ends:
            return mark.end()
        if mark[0] in ")]}":
            return mark.start()  # the last of a list, without a comma
        at = after_bracket(code, mark.start())
        if mark[0] == "{" and body_ends:
            return at
    return len(code)


def without_tests(code):
    """Masked code with blanks for every `#[cfg(test)]` item, and the names of such modules in their own files."""
    files = []
    while found := TEST_ONLY.search(code):
        end = after_item(code, found.end())
        item = code[found.end() : end]
        if declared := re.fullmatch(r"(?:\s*#\[[^\]]*\])*\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", item):
            files.append(declared[1])
        code = code[: found.start()] + re.sub(r"\S", " ", code[found.start() : end]) + code[end:]
    return code, files


def module_file(tree, owner, name, roots=()):
    """The file of `mod name;` in the file `owner`; None if it is in neither place."""
    folder = home(owner, roots)
    return next((path for path in (f"{folder}/{name}.rs", f"{folder}/{name}/mod.rs") if path in tree), None)


def home(file, roots=()):
    """The folder of a file's child modules: its own for mod.rs and for crate roots, else the one named like it."""
    path = PurePosixPath(file)
    face = path.name in ("mod.rs", "lib.rs", "main.rs") or file in roots
    return str(path.parent if face else path.with_suffix(""))


def program_code(tree):
    """The code of a build without tests, by path: masked, test items blanked, without test files, examples and the crates of tools."""
    code, test_files = {}, []
    for path, text in tree.items():
        parts = PurePosixPath(path).parts
        if path.endswith(".rs") and not {"tests", "examples", "benches", "softcuda", "pretend", "shaders", "fuzz"} & set(parts):
            code[path], names = without_tests(masked(text))
            test_files += [module_file(tree, path, name) for name in names]
    for file in filter(None, test_files):
        below = home(file) + "/"
        code = {path: text for path, text in code.items() if path != file and not path.startswith(below)}
    return code


def crates(tree):
    """Every crate's folder with its parsed Cargo.toml; `.` for the root."""
    manifests = {str(PurePosixPath(path).parent): tomllib.loads(text) for path, text in tree.items() if path.endswith("Cargo.toml")}
    return {folder: manifest for folder, manifest in manifests.items() if "package" in manifest}


def crate_of(path, folders):
    """The folder of the nearest Cargo.toml above a file."""
    return next((str(above) for above in PurePosixPath(path).parents if str(above) in folders), ".")


def targets(folder, manifest, code):
    """The crate roots: the library's file with its name, the programs' files without."""
    at = "" if folder == "." else folder + "/"
    library, name = manifest.get("lib", {}), manifest["package"]["name"].replace("-", "_")
    programs = [at + program["path"] for program in manifest.get("bin", []) if "path" in program]
    programs += [path for path in code if re.fullmatch(re.escape(at) + r"src/(main|bin/\w+|bin/\w+/main)\.rs", path)]
    files = {at + library.get("path", "src/lib.rs"): library.get("name", name)} | dict.fromkeys(programs)
    return {file: name for file, name in files.items() if file in code}
