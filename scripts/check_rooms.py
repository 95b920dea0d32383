#!/usr/bin/env python3
"""Checks the house rules that a compiler does not: who may call whom, sizes, names, unsafe, paths.

    check_rooms.py [--sizes]      # with --sizes: also lists what is beyond the aims (500 lines, 60 lines)

Exit 1 and one line per breach. The rules are those of docs/architecture.md.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Room -> rooms it may use. Calls go down only.
LEAVES = {"image"}
GRAPH = {"graph"}
WEIGHTS = {"weights", "files"} | GRAPH
LAYER = {"layer"} | WEIGHTS
NET = {"net", "text"} | LAYER | LEAVES
FAMILY = {"family", "sample", "adapt"} | NET
MAY_USE = {
    "capi": {"engine"} | LEAVES,
    "engine": {"pipeline"} | FAMILY,
    "pipeline": FAMILY,
    "family": FAMILY,
    "sample": {"sample"} | NET,
    "adapt": {"adapt"} | NET,
    "net": NET,
    "text": {"text"} | LAYER,
    "layer": LAYER,
    "weights": WEIGHTS,
    "graph": {"graph", "kernels"},
    "kernels": {"kernels"},
    "files": {"files"},
    "image": {"image"},
}
# Usable by every room: plain data and what a call tells its caller.
COMMON = {"error", "Error", "Result", "tensor", "HostTensor", "report", "cancel"}
COMMON |= {"log_debug", "log_info", "log_warn", "log_error"}
# Data of requests, readable below the engine.
REQUEST_READERS = {"pipeline", "family", "adapt"}
REQUEST_PATHS = ("engine::request", "engine::choice")
GGML_USERS = {"graph", "kernels"}

UNSAFE_ROOMS = {"graph", "kernels", "capi"}
UNSAFE_FILES = {"src/files/mmap.rs", "src/files/mod.rs"}
LINE_LIMIT, LINE_AIM = 1000, 500
FUNCTION_LIMIT, FUNCTION_AIM = 100, 60
# Generated code and tables.
LONG_FILES = re.compile(r"(bindings|_table|_tables|/tables?)\.rs$|/tables/")

FAMILY_WORDS = {
    "sd1", "sd15", "sd2", "sd21", "sdxl", "sd3", "sd35", "flux", "flux1", "flux2", "kontext", "wan", "wan21", "wan22",
    "ltx", "ltxv", "chroma", "qwenimage", "zimage", "hidream", "ovis", "longcat", "anima", "boogu", "ideogram",
    "krea", "minit2i", "sefi", "ernie", "sdxs", "ssd1b", "vega", "svd", "lumina",
}
# Names of C values and fields, schedules, file spellings, tokenizers and latent formats are not knowledge of a family.
FAMILY_WORDS_OK = re.compile(
    r"^src/(family|capi|text)/|^src/engine/(choice|request)\.rs|^src/sample/(schedule|prediction)|^src/weights/names|"
    r"^src/adapt/.*names|^src/net/(flux|mod)")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|home/\w+)/")


def tracked():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True)
    return sorted(p for p in listed.stdout.decode().split("\0") if p and (ROOT / p).is_file())


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?c?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL)


def bare(source):
    """The source with comments, strings and characters blanked, lines kept."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), source)


def room_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def check_calls(path, code):
    room = room_of(path)
    if room is None or room not in MAY_USE:
        return
    for number, line in enumerate(code.split("\n"), 1):
        # Paths, and the first segments of a braced list.
        used = re.findall(r"\bcrate::((?:\w+)(?:::\w+)?)", line)
        for group in re.findall(r"\bcrate::\{([^}]*)\}", line):
            used += [part.strip() for part in group.split(",") if part.strip()]
        for use in used:
            top = use.split("::")[0]
            if top in COMMON or top == room or top in MAY_USE[room]:
                continue
            if room in REQUEST_READERS and use.startswith(REQUEST_PATHS):
                continue
            yield f"{path}:{number}: {room} may not use {use}"
        if re.search(r"\bggml_sys\b", line) and room not in GGML_USERS:
            yield f"{path}:{number}: only {' and '.join(sorted(GGML_USERS))} may use ggml_sys"


def check_unsafe(path, source):
    room = room_of(path)
    # A test module inherits it from the file it tests.
    if path.endswith("/tests.rs"):
        return
    if not path.startswith("src/") or path in UNSAFE_FILES or room in UNSAFE_ROOMS or path == "src/lib.rs":
        return
    if "#![forbid(unsafe_code)]" not in source:
        yield f"{path}:1: lacks #![forbid(unsafe_code)]"


def functions(code):
    """Line of the head and number of lines of every function with a body."""
    for match in re.finditer(r"\bfn\s+\w+", code):
        i, depth = match.end(), 0
        while i < len(code) and (code[i] not in "{;" or depth):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[i], 0)
            i += 1
        if i >= len(code) or code[i] == ";":
            continue
        level, j = 0, i
        while j < len(code):
            level += {"{": 1, "}": -1}.get(code[j], 0)
            if level == 0:
                break
            j += 1
        head = code.count("\n", 0, match.start()) + 1
        yield head, match.group(0).split()[-1], code.count("\n", match.start(), j) + 1


def check_sizes(path, source, code, aims):
    lines = source.count("\n")
    if not LONG_FILES.search(path):
        if lines >= LINE_LIMIT:
            yield f"{path}:1: {lines} lines, the limit is {LINE_LIMIT}"
        elif aims and lines > LINE_AIM:
            print(f"note: {path}: {lines} lines, the aim is {LINE_AIM}")
    for line, name, length in functions(code):
        if length > FUNCTION_LIMIT:
            yield f"{path}:{line}: {name} has {length} lines, the limit is {FUNCTION_LIMIT}"
        elif aims and length > FUNCTION_AIM:
            print(f"note: {path}:{line}: {name} has {length} lines, the aim is {FUNCTION_AIM}")


def check_family_names(path, code):
    if not path.startswith("src/") or FAMILY_WORDS_OK.search(path):
        return
    for number, line in enumerate(code.split("\n"), 1):
        for word in re.findall(r"[A-Za-z][A-Za-z0-9_]*", line):
            # snake_case and CamelCase into words; pairs for names of two words
            words = [w.lower() for w in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", word)]
            pairs = {a + b for a, b in zip(words, words[1:])}
            if FAMILY_WORDS & (set(words) | pairs):
                yield f"{path}:{number}: {word} names a model family outside src/family"


def check_paths(path, text):
    if path == "scripts/check_rooms.py":
        return
    for number, line in enumerate(text.split("\n"), 1):
        if MACHINE_PATH.search(line):
            yield f"{path}:{number}: a path of one machine"


def main(arguments):
    breaches = []
    for path in tracked():
        raw = (ROOT / path).read_bytes()
        if b"\0" in raw or len(raw) > 4_000_000:
            continue
        text = raw.decode("utf-8", "replace")
        breaches += check_paths(path, text)
        if path.endswith(".rs"):
            code = bare(text)
            breaches += check_calls(path, code)
            breaches += check_unsafe(path, text)
            breaches += check_sizes(path, text, code, "--sizes" in arguments)
            breaches += check_family_names(path, code)
    print("\n".join(breaches) if breaches else "the house is in order")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
