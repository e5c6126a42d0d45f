"""Vectors of compressed-tensors. Usage: compressed.py CHECKOUT | zstd -19 -o compressed.json.zst

pack_to_int32 and unpack_from_int32 come from the checkout's pack_quantized/helpers.py and _dequantize from
forward_helpers.py. The package itself needs a newer torch than these functions do.
"""

import ast
import importlib.util
import pathlib
import sys

import torch
import vectors

source = pathlib.Path(sys.argv[1]) / "src/compressed_tensors"
spec = importlib.util.spec_from_file_location("helpers", source / "compressors/pack_quantized/helpers.py")
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)

tree = ast.parse((source / "quantization/lifecycle/forward_helpers.py").read_text())
tree.body = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "_dequantize"]
names = {"torch": torch}
exec(compile(tree, "forward_helpers.py", "exec"), names)


def dequantize(codes, scales, zeros, group):
    wide = lambda t: t.repeat_interleave(group or codes.shape[1], dim=1)
    return names["_dequantize"](codes, wide(scales.to(torch.float32)), wide(zeros))


def config(kind, bits, group, asymmetric):
    weights = dict(num_bits=bits, type="int", symmetric=not asymmetric, strategy="group" if group else "channel")
    if group:
        weights["group_size"] = group
    return dict(quant_method="compressed-tensors", format=kind, config_groups=dict(group_0=dict(targets=["Linear"], weights=weights)))


def packed(seed, n, k, bits, group, asymmetric, dtype):
    codes, scales, zeros = vectors.rows(seed, n, k, bits, group, asymmetric, dtype)
    parts = {
        "m.weight_packed": helpers.pack_to_int32(codes, bits),
        "m.weight_scale": scales,
        "m.weight_shape": torch.tensor(codes.shape),
    }
    if asymmetric:
        parts["m.weight_zero_point"] = helpers.pack_to_int32(zeros, bits, packed_dim=0)
        zeros = helpers.unpack_from_int32(parts["m.weight_zero_point"], bits, scales.shape, packed_dim=0)
    unpacked = helpers.unpack_from_int32(parts["m.weight_packed"], bits, codes.shape)
    assert torch.equal(unpacked, codes)
    weights = dequantize(unpacked, scales, zeros, group)
    return vectors.case(
        config("pack-quantized", bits, group, asymmetric), codes, scales, zeros, bits, group, asymmetric, parts, weights)


def integers(seed, n, k, bits, group, dtype):
    codes, scales, zeros = vectors.rows(seed, n, k, bits, group, False, dtype)
    weights = dequantize(codes, scales, zeros, group)
    parts = {"m.weight": codes, "m.weight_scale": scales}
    return vectors.case(
        config("int-quantized", bits, group, False), codes, scales, zeros, bits, group, False, parts, weights)


cases, seed = [], 0
for bits in range(1, 9):
    for n, k, group in [(5, 96, 32), (33, 64, 16), (70, 37, 0), (1, 48, 48)]:
        for asymmetric in [False, True]:
            seed += 1
            dtype = [torch.bfloat16, torch.float16, torch.float32][seed % 3]
            cases.append(packed(seed, n, k, bits, group, asymmetric, dtype))
for bits in [4, 8]:
    for n, k, group in [(5, 96, 32), (7, 33, 0)]:
        seed += 1
        cases.append(integers(seed, n, k, bits, group, torch.bfloat16))
vectors.write(
    "github.com/vllm-project/compressed-tensors, commit ac8e2ba82f4e0d5eaa40069f8fc642738f124cd4: pack_to_int32, "
    "unpack_from_int32, _dequantize", cases)
