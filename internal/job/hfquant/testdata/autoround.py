"""Vectors of AutoRound. Usage: autoround.py | zstd -19 -o autoround.json.zst

Needs auto-round installed: its functions for packing and its own layers run on a CPU.
"""

import sys

import torch
import vectors

sys.path.pop(0)  # torchao.py beside this program is not the library

from auto_round.export.export_to_awq.utils import WQLinear_GEMM
from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp


def case(seed, n, k, bits, group, asymmetric, packing):
    codes, scales, zeros = vectors.rows(seed, n, k, bits, group, asymmetric, torch.float16)
    middle = 1 << bits - 1
    if packing == "auto_round:auto_gptq":
        zeros = zeros.clamp(min=1 - middle)  # stored less 1
    of = torch.arange(k) // (group or k)
    weights = (codes.float() - zeros.float()[:, of]) * scales.float()[:, of]
    linear = torch.nn.Linear(k, n, bias=False)
    linear.weight.data = weights
    z = zeros.float() + middle if asymmetric else middle
    if packing == "auto_round:auto_awq":
        m = WQLinear_GEMM.from_linear(linear, bits, group or -1, False, scales.float().T.contiguous(), z.T.contiguous() if asymmetric else z, "cpu")
    else:
        module = qlinear_torch_zp if packing == "auto_round:auto_gptq" else qlinear_torch
        m = module.QuantLinear(bits, group or -1, k, n, False)
        m.device = "cpu"
        m.pack(linear, scales.float(), z, None, "cpu")
    parts = {f"m.{name}": getattr(m, name).clone() for name in ("qweight", "qzeros")}
    parts["m.scales"] = m.scales.half()
    m.scales = m.scales.float()
    if packing != "auto_round:auto_awq":  # multiplies in F16
        assert torch.equal(m(torch.eye(k)).T, weights)
    entry = dict(quant_method="auto-round", bits=bits, group_size=group or -1, sym=not asymmetric, data_type="int", packing_format=packing)
    return vectors.case(entry, codes, scales, zeros, bits, group, asymmetric, parts, weights)


shapes = [
    (32, 96, 4, 32, False, "auto_round:auto_gptq"), (32, 64, 4, 0, True, "auto_round:auto_gptq"), (64, 128, 2, 64, False, "auto_round:auto_gptq"),
    (32, 96, 3, 32, False, "auto_round:auto_gptq"), (32, 64, 8, 32, False, "auto_round:auto_gptq"),
    (32, 96, 2, 32, True, "auto_round"), (64, 128, 3, 64, True, "auto_round"), (32, 96, 5, 32, True, "auto_round"),
    (32, 64, 6, 32, True, "auto_round"), (32, 256, 7, 128, True, "auto_round"), (32, 96, 4, 32, True, "auto_round:gptqmodel"),
    (32, 96, 4, 32, True, "auto_round:auto_awq"), (16, 256, 4, 128, False, "auto_round:auto_awq"),
]
vectors.write(
    "auto-round 0.16.1: QuantLinear.pack and forward of auto_round_extension/torch/qlinear_torch.py and qlinear_torch_zp.py, and "
    "WQLinear_GEMM.from_linear of export/export_to_awq/utils.py",
    [case(seed, *shape) for seed, shape in enumerate(shapes)])
