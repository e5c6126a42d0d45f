"""Vectors of torchao's safetensors. Usage: torchao.py CHECKOUT | zstd -19 -o torchao.json.zst

flatten_tensor_state_dict of the checkout names the tensors and writes the metadata. It imports the whole package, which
needs a newer torch; here classes of the same names with the same attributes stand for the library's tensors, and a named
object for each dtype that torch 1.13 lacks.
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


class Int8Tensor:
    tensor_data_names = ["qdata", "scale"]
    optional_tensor_data_names = ["zero_point", "act_quant_scale", "act_quant_zero_point", "act_pre_scale"]
    tensor_attribute_names = ["block_size", "dtype"]
    optional_tensor_attribute_names = ["act_quant_kwargs", "reduce_range"]

    def __init__(self, **attributes):
        for name in self.optional_tensor_data_names + self.optional_tensor_attribute_names:
            setattr(self, name, None)
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

def case(codes, scales, zeros, bits, group, asymmetric, weight, linear):
    n, k = codes.shape
    parts, metadata = support.flatten_tensor_state_dict({"m.weight": weight, "m.bias": torch.zeros(n)})
    del parts["m.bias"]
    wide = lambda t: t.to(torch.float32).repeat_interleave(group or k, dim=1)
    weights = (codes - wide(zeros)) * wide(scales)  # _dequantize_affine_no_dtype_check, in float32
    return vectors.case(
        dict(quant_method="torchao"), codes, scales, zeros, bits, group, asymmetric, parts, weights,
        linear=linear, metadata=metadata)


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
        cases.append(case(codes, scales, zeros, bits, group, asymmetric, weight, linear))
for asymmetric in [False, True]:
    seed += 1
    codes, scales, zeros = vectors.rows(seed, 5, 48, 8, 0, asymmetric, torch.float32)
    weight = Int8Tensor(
        qdata=codes, scale=scales, zero_point=zeros if asymmetric else None, block_size=[1, 48], dtype=torch.bfloat16,
        act_quant_scale=None if asymmetric else torch.ones(1), reduce_range=False,
    )
    cases.append(case(codes, scales, zeros, 8, 0, asymmetric, weight, True))
vectors.write(
    "github.com/pytorch/ao, commit 36027d82d1ad9949597ea16002ff4940374b1b94: flatten_tensor_state_dict", cases)
