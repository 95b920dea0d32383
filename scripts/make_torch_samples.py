#!/usr/bin/env python3
"""Writes the torch checkpoints of tests/data/files with Python's own pickle and zipfile, without torch.

The pickles name torch's classes and functions as torch's writer does, so stand-ins of the same names
suffice. Run from the repository's root: python3 scripts/make_torch_samples.py
"""

import collections
import io
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path

OUT = Path("tests/data/files")


def module(name):
    m = types.ModuleType(name)
    sys.modules[name] = m
    return m


torch, utils, storage_module = module("torch"), module("torch._utils"), module("torch.storage")

KINDS = {
    "FloatStorage": "f", "DoubleStorage": "d", "HalfStorage": "e", "BFloat16Storage": "H", "LongStorage": "q",
    "IntStorage": "i", "ShortStorage": "h", "CharStorage": "b", "ByteStorage": "B", "BoolStorage": "?",
    "UntypedStorage": "B",
}
for name in KINDS:
    where = storage_module if name == "UntypedStorage" else torch
    setattr(where, name, type(name, (), {"__module__": where.__name__, "__qualname__": name}))


def stand_in(where, name):
    def function(*args):
        raise AssertionError("only named, never called")

    function.__module__, function.__name__, function.__qualname__ = where.__name__, name, name
    setattr(where, name, function)
    return function


rebuild_v2 = stand_in(utils, "_rebuild_tensor_v2")
rebuild_v3 = stand_in(utils, "_rebuild_tensor_v3")
rebuild_parameter = stand_in(utils, "_rebuild_parameter")


class Dtype:
    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        return self.name


for name in ("float8_e4m3fn", "float8_e5m2"):
    value = Dtype(name)
    value.__module__ = "torch"
    setattr(torch, name, value)


class Storage:
    def __init__(self, kind, values):
        self.kind, self.values = kind, values

    def data(self):
        return struct.pack(f"<{len(self.values)}{KINDS[self.kind]}", *self.values)


class Tensor:
    def __init__(self, storage, shape, stride, offset=0, dtype=None, parameter=False):
        self.storage, self.shape, self.stride, self.offset = storage, shape, stride, offset
        self.dtype, self.parameter = dtype, parameter

    def __reduce__(self):
        hooks = collections.OrderedDict()
        if self.parameter:
            plain = Tensor(self.storage, self.shape, self.stride, self.offset)
            return rebuild_parameter, (plain, True, hooks)
        args = (self.storage, self.offset, self.shape, self.stride, False, hooks)
        if self.dtype is not None:
            return rebuild_v3, args + (self.dtype,)
        return rebuild_v2, args


class Pickler(pickle.Pickler):
    def __init__(self, out, protocol):
        super().__init__(out, protocol)
        self.storages = {}

    def persistent_id(self, value):
        if not isinstance(value, Storage):
            return None
        key = self.storages.setdefault(id(value), (str(len(self.storages)), value))[0]
        where = storage_module if value.kind == "UntypedStorage" else torch
        return ("storage", getattr(where, value.kind), key, "cpu", len(value.values))


def checkpoint(float8):
    state = collections.OrderedDict()
    for i, kind in enumerate(k for k in KINDS if k != "UntypedStorage"):
        values = [0x3F80, 0xC000, 0x4040] if kind == "BFloat16Storage" else [1, 0, 1] if kind == "BoolStorage" else [1, 2, 3]
        state["type." + kind] = Tensor(Storage(kind, values), (3,), (1,))
    shared = Storage("FloatStorage", [float(i) for i in range(24)])
    state["whole"] = Tensor(shared, (4, 6), (6, 1))
    state["transposed"] = Tensor(shared, (6, 4), (1, 6))
    state["slice"] = Tensor(shared, (2, 3), (6, 1), 7)
    state["row"] = Tensor(shared, (6,), (1,), 12)
    state["expanded"] = Tensor(shared, (2, 3), (0, 1), 3)
    state["parameter"] = Tensor(shared, (2,), (1,), 22, parameter=True)
    state["scalar"] = Tensor(shared, (), (), 5)
    state["empty"] = Tensor(Storage("HalfStorage", []), (0, 4), (4, 1))
    state["conv"] = Tensor(shared, (2, 3, 2, 2), (12, 4, 2, 1))
    state["channels_last"] = Tensor(shared, (2, 3, 2, 2), (12, 1, 6, 3))
    if float8:
        raw = Storage("UntypedStorage", [0x38, 0xC0, 0x7E])
        state["float8_e4m3"] = Tensor(raw, (3,), (1,), dtype=torch.float8_e4m3fn)
        state["float8_e5m2"] = Tensor(raw, (2,), (1,), 1, dtype=torch.float8_e5m2)
    return {
        "epoch": 3, "global_step": 470000, "version": "1.4.2", "rate": 0.5, "done": True, "nothing": None,
        "callbacks": {"best": Tensor(shared, (2,), (1,))},
        "optimizer_states": [{"state": {0: {"exp_avg": Tensor(shared, (2,), (1,))}}}],
        "hyper": {"list": [1, 2, (3, "four")], "large": 1 << 40, "larger": 1 << 100, 5: Tensor(shared, (1,), (1,))},
        "state_dict": state,
    }


def dump(value, protocol):
    out = io.BytesIO()
    pickler = Pickler(out, protocol)
    pickler.dump(value)
    return out.getvalue(), [v for _, v in sorted(pickler.storages.values(), key=lambda kv: int(kv[0]))]


def write_zip(path, value, protocol, method):
    data, storages = dump(value, protocol)
    members = [("archive/data.pkl", data), ("archive/byteorder", b"little")]
    members += [(f"archive/data/{i}", s.data()) for i, s in enumerate(storages)]
    members += [("archive/version", b"3\n")]
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)


def write_legacy(path, value):
    out = b""
    for part in (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}):
        out += pickle.dumps(part, 2)
    data, storages = dump(value, 2)
    out += data + pickle.dumps([str(i) for i in reversed(range(len(storages)))], 2)
    for storage in reversed(storages):
        out += struct.pack("<q", len(storage.values)) + storage.data()
    Path(path).write_bytes(out)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write_zip(OUT / "stored.pt", checkpoint(True), 2, zipfile.ZIP_STORED)
    write_zip(OUT / "deflated.pt", checkpoint(True), 4, zipfile.ZIP_DEFLATED)
    write_legacy(OUT / "legacy.pt", checkpoint(False))
    small = Storage("FloatStorage", [0.5, 1.5])
    upscaler = {"params": {"w": Tensor(small, (1,), (1,))}, "params_ema": {"w": Tensor(small, (1,), (1,), 1)}}
    write_zip(OUT / "small.pt", upscaler, 2, zipfile.ZIP_STORED)
    write_zip(OUT / "small_deflated.pt", upscaler, 2, zipfile.ZIP_DEFLATED)
    write_legacy(OUT / "small_legacy.pt", upscaler)


main()
