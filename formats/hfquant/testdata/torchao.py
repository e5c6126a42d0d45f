"""Vectors of torchao's safetensors. Usage: torchao.py CHECKOUT | zstd -19 -o torchao.json.zst

flatten_tensor_state_dict of the checkout names the tensors and writes the metadata. It imports the whole package, which
needs a newer torch; here a class of the same name with the same attributes stands for IntxUnpackedToInt8Tensor, and a
named object for each dtype that torch 1.13 lacks.
"""

import importlib.util
import pathlib
import sys
import types
from unittest import mock

import torch
import vectors

source = pathlib.Path(sys.argv[1]) / "torchao/prototype/safetensors"


class Dtype:
    def __init__(self, bits):
        self.bits = bits

    def __str__(self):
        return f"torch.int{self.bits}"


class IntxUnpackedToInt8Tensor:
    tensor_data_names = ["qdata", "scale", "zero_point"]
    tensor_attribute_names = ["target_dtype", "block_size", "dtype", "activation_quantization"]

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def load(name):
    spec = importlib.util.spec_from_file_location("torchao.prototype.safetensors." + name, source / (name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


for name in [
    "torchao", "torchao.float8", "torchao.prototype", "torchao.prototype.safetensors", "torchao.prototype.mx_formats",
    "torchao.prototype.mx_formats.config", "torchao.prototype.mx_formats.nvfp4_tensor",
    "torchao.prototype.mx_formats.mx_tensor", "torchao.quantization", "torchao.quantization.quantize_",
    "torchao.quantization.quantize_.common", "torchao.quantization.quantize_.workflows",
]:
    sys.modules[name] = mock.MagicMock()
utils = load("safetensors_utils")
utils.torch = types.SimpleNamespace(dtype=(torch.dtype, Dtype))  # isinstance knows both
support = load("safetensors_support")

cases, seed = [], 0
for bits in range(1, 9):
    for n, k, group, asymmetric, dtype in [
        (5, 96, 32, False, torch.bfloat16), (3, 64, 16, True, torch.float32), (7, 33, 0, False, torch.float16),
    ]:
        seed += 1
        codes, scales, zeros = vectors.rows(seed, n, k, bits, group, asymmetric, dtype)
        linear = seed % 2 == 0
        weight = IntxUnpackedToInt8Tensor(
            qdata=codes, scale=scales, zero_point=zeros, target_dtype=Dtype(bits), block_size=(1, group or k), dtype=dtype,
            activation_quantization="int8_asym_per_token" if linear else None,
        )
        parts, metadata = support.flatten_tensor_state_dict({"m.weight": weight, "m.bias": torch.zeros(n)})
        del parts["m.bias"]
        wide = lambda t: t.to(torch.float32).repeat_interleave(group or k, dim=1)
        weights = (codes - wide(zeros)) * wide(scales)  # _dequantize_affine_no_dtype_check, in float32
        cases.append(vectors.case(
            dict(quant_method="torchao"), codes, scales, zeros, bits, group, asymmetric, parts, weights,
            linear=linear, metadata=metadata))
vectors.write(
    "github.com/pytorch/ao, commit 36027d82d1ad9949597ea16002ff4940374b1b94: flatten_tensor_state_dict", cases)
