#!/usr/bin/env python3
"""Compares the C interface of a header with the recorded one.

    abi_check.py [HEADER [RECORD]]      # include/stable-diffusion.h, tests/abi/abi.json
    abi_check.py --dump HEADER          # prints a record

Enums with their values, structs with sizes and offsets, functions, callbacks. One line per difference and exit 1.
Needs the Python package libclang. Layouts are those of x86-64 Linux (LP64).
"""
import json
import subprocess
import sys
from pathlib import Path

from clang import cindex

ROOT = Path(__file__).resolve().parent.parent
K = cindex.CursorKind


def compiler_includes():
    """Folder of stddef.h and stdbool.h, which libclang's package lacks."""
    found = subprocess.run(["gcc", "-print-file-name=include"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def spelled(kind):
    return kind.spelling.replace("_Bool", "bool")


def struct(cursor):
    kind = cursor.type
    fields = [{"name": f.spelling, "type": spelled(f.type), "offset": kind.get_offset(f.spelling) // 8,
               "size": f.type.get_size()} for f in kind.get_fields()]
    return {"size": kind.get_size(), "align": kind.get_align(), "fields": fields}


def typedef(cursor, out):
    under = cursor.underlying_typedef_type.get_canonical()
    if under.kind == cindex.TypeKind.RECORD:
        known = under.get_size() > 0
        out["structs"][cursor.spelling] = struct(under.get_declaration()) if known else {"opaque": True}
    elif under.kind == cindex.TypeKind.POINTER:
        target = under.get_pointee()
        if target.kind == cindex.TypeKind.FUNCTIONPROTO:
            out["callbacks"][cursor.spelling] = {"returns": spelled(target.get_result()),
                                                 "params": [spelled(a) for a in target.argument_types()]}


def facts(header):
    arguments = ["-x", "c", "-std=c11", "-target", "x86_64-unknown-linux-gnu", "-I" + compiler_includes()]
    unit = cindex.Index.create().parse(header, args=arguments)
    errors = [str(d) for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise SystemExit("\n".join(errors))
    out = {"enums": {}, "structs": {}, "functions": {}, "callbacks": {}, "variables": {}}
    for c in unit.cursor.get_children():
        if not c.location.file or c.location.file.name != header:
            continue
        if c.kind == K.ENUM_DECL:
            out["enums"][c.spelling] = {v.spelling: v.enum_value for v in c.get_children()
                                        if v.kind == K.ENUM_CONSTANT_DECL}
        elif c.kind == K.TYPEDEF_DECL:
            typedef(c, out)
        elif c.kind == K.FUNCTION_DECL:
            parameters = [{"name": a.spelling, "type": spelled(a.type)} for a in c.get_arguments()]
            out["functions"][c.spelling] = {"returns": spelled(c.result_type), "params": parameters}
        elif c.kind == K.VAR_DECL:
            out["variables"][c.spelling] = spelled(c.type)
    return out


def differences(want, got, path=""):
    if isinstance(want, dict) and isinstance(got, dict):
        for k in want:
            if k in got:
                yield from differences(want[k], got[k], f"{path}/{k}")
            else:
                yield f"missing {path}/{k}"
        yield from (f"extra {path}/{k}" for k in got if k not in want)
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{path}: {len(want)} entries wanted, {len(got)} found"
        for i, (a, b) in enumerate(zip(want, got)):
            yield from differences(a, b, f"{path}[{a.get('name', i) if isinstance(a, dict) else i}]")
    elif normal(want) != normal(got):
        yield f"{path}: {want!r} wanted, {got!r} found"


def normal(value):
    """'enum sd_type_t' and 'sd_type_t' name the same type."""
    if isinstance(value, str):
        return " ".join(w for w in value.replace("*", " * ").split() if w not in ("enum", "struct"))
    return value


def main(arguments):
    if arguments[:1] == ["--dump"] and len(arguments) == 2:
        print(json.dumps(facts(arguments[1]), indent=1))
        return 0
    header = arguments[0] if arguments else str(ROOT / "include/stable-diffusion.h")
    record = arguments[1] if len(arguments) > 1 else str(ROOT / "tests/abi/abi.json")
    found = list(differences(json.loads(Path(record).read_text()), facts(header)))
    print("\n".join(found) if found else "the interface is the recorded one")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
