#!/usr/bin/env python3
"""Reads a converted file with the gguf and safetensors packages and compares it with its source.

    check_gguf.py OUTPUT.gguf SOURCE.safetensors [LIMIT]

Every tensor of the output has to lie at a multiple of the alignment, have the shape of the source's tensor of the same
name, and differ from it by at most LIMIT (default 0.25) times the source's root mean square on average.
"""
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import safe_open


def source_values(file, name):
    values = file.get_slice(name)[...] if file.get_slice(name).get_shape() else file.get_tensor(name)
    return numpy.asarray(values, dtype=numpy.float32)


def main(output, source, limit=0.25):
    reader = GGUFReader(output)
    wrong = 0
    with safe_open(source, "np") as file:
        names = set(file.keys())
        for tensor in reader.tensors:
            if tensor.data_offset % reader.alignment:
                print(f"{tensor.name}: at {tensor.data_offset}, no multiple of {reader.alignment}")
                wrong += 1
            if tensor.name not in names:
                print(f"{tensor.name}: not in the source")
                wrong += 1
                continue
            want = source_values(file, tensor.name)
            found = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
            size = float(numpy.sqrt(numpy.mean(want * want))) if want.size else 0.0
            error = float(numpy.sqrt(numpy.mean((found.reshape(-1) - want.reshape(-1)) ** 2))) if want.size else 0.0
            if error > float(limit) * size + 1e-6:
                print(f"{tensor.name} as {tensor.tensor_type.name}: error {error:.4g} of {size:.4g}")
                wrong += 1
    print(f"{len(reader.tensors)} tensors read, {wrong} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
