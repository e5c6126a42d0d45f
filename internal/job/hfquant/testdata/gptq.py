"""Vectors of GPTQModel. Usage: gptq.py CHECKOUT | zstd -19 -o gptq.json.zst

pack_original and dequantize_weight come from the checkout's qlinear/__init__.py, and the conversion of zero points from
utils. The package itself needs a newer torch than these functions do.
"""

import contextlib
import math
import re
import sys
import types

import numpy
import torch
import vectors

package = vectors.Package(sys.argv[1], "gptqmodel")
METHODS = ["pack_original", "dequantize_weight", "_dequantize_from_codes", "_init_wf_unsqueeze_buffers"]
never = type("Never", (), {})
config = types.SimpleNamespace(bits=0, pack_dtype=torch.int32)
names = dict(
    t=torch, torch=torch, np=numpy, math=math, _ConvNd=never, BaseQuantLinear=object,
    THREADPOOLCTL=types.SimpleNamespace(threadpool_limits=lambda n: contextlib.nullcontext()),
    transformers=types.SimpleNamespace(pytorch_utils=types.SimpleNamespace(Conv1D=never)),
    log=types.SimpleNamespace(info=types.SimpleNamespace(once=lambda text: None)),
)
package.functions("nn_modules/qlinear/__init__.py", METHODS + ["_torch_(right|left)_shift", "_torch_shift_factor"], names)
package.functions("utils/model_dequant.py", [
    "_(un)?pack_.*", "(un)?pack_cols", "_require_int32_words.*", "_shift_gptq_qzeros", ".*_gptq_v1_qzeros.*"], names)
package.functions("utils/model.py", ["convert_gptq_v2_to_v1_format_module"], names)


class Linear(torch.nn.Module):
    def __init__(self, bits, group, k):
        super().__init__()
        self.bits, self.maxq, self.pack_factor, self.planar = bits, (1 << bits) - 1, 32 // bits, False
        self.pack_dtype, self.pack_dtype_bits = torch.int32, 32
        self.pack_np_dtype, self.pack_np_math_dtype = numpy.int32, numpy.uint32
        self.dequant_dtype = torch.int16 if bits == 8 else torch.int8
        self.enable_wf_unsqueeze = True
        self.register_buffer("g_idx", torch.arange(k) // group)

    def _wf_device(self):
        return "cpu"

    def qzero_format(self, format):
        pass


for name in METHODS:
    setattr(Linear, name, names[name])


def case(seed, n, k, bits, group, asymmetric, version):
    codes, scales, zeros = vectors.rows(seed, n, k - k % (group or k), bits, group, asymmetric, torch.float16)
    if k > codes.shape[1]:  # a short last group
        more = vectors.rows(seed + 1, n, k % group, bits, 0, asymmetric, torch.float16)
        codes, scales, zeros = (torch.cat(pair, dim=1) for pair in zip((codes, scales, zeros), more))
    middle = 1 << bits - 1
    zeros = zeros.clamp(min=1 - middle)  # v1 has no 0
    of = torch.arange(k) // (group or k)
    weights = (codes.float() - zeros.float()[:, of]) * scales.float()[:, of]
    linear = torch.nn.Linear(k, n, bias=False)
    linear.weight.data = weights
    m = Linear(bits, group or k, k)
    m.pack_original(linear, scales.float(), zeros.float() + middle, m.g_idx)
    m.scales = m.scales.float()
    assert torch.equal(m.dequantize_weight().T, weights)
    if version == "gptq":
        names["convert_gptq_v2_to_v1_format_module"](m, config)
    parts = {"m.qweight": m.qweight, "m.qzeros": m.qzeros, "m.scales": m.scales.half(), "m.g_idx": m.g_idx.int()}
    entry = dict(quant_method="gptq", bits=bits, group_size=group or -1, desc_act=False, sym=not asymmetric, checkpoint_format=version)
    return vectors.case(entry, codes, scales, zeros, bits, group if group < k else 0, asymmetric, parts, weights)


shapes = [
    (40, 96, 4, 32, True), (8, 64, 4, 0, False), (16, 256, 4, 128, True), (32, 96, 3, 32, False), (64, 128, 3, 64, True),
    (48, 64, 2, 16, False), (16, 64, 2, 32, True), (12, 64, 8, 32, False), (8, 128, 8, 64, True), (32, 32, 3, 0, True),
    (24, 160, 4, 64, True),
]
vectors.write(
    "github.com/ModelCloud/GPTQModel, commit f4c327a17eb3e24524d5a97a3d682e3696ae6a28: PackableQuantLinear.pack_original, "
    "dequantize_weight with scales in float32, and convert_gptq_v2_to_v1_format_module",
    [case(seed, *shape, version) for seed, shape in enumerate(shapes) for version in ("gptq", "gptq_v2")])
