"""Vectors of AutoAWQ. Usage: awq.py CHECKOUT | zstd -19 -o awq.json.zst

WQLinear_GEMM and WQLinear_GEMV come from the checkout's modules/linear, dequantize_gemm from utils/packing_utils.py. The
package itself needs CUDA.
"""

import sys

import torch
import vectors

package = vectors.Package(sys.argv[1], "awq")
names = dict(torch=torch, nn=torch.nn, get_best_device=lambda: "cpu")
package.functions("modules/linear/gemm.py", ["WQLinear_GEMM"], names)
package.functions("modules/linear/gemv.py", ["WQLinear_GEMV", "make_divisible", "calculate_zeros_width"], names)
package.functions("utils/packing_utils.py", ["AWQ_REVERSE_ORDER", "unpack_awq", "reverse_awq_order", "dequantize_gemm"], names)
arange = torch.arange  # torch 1.13 has no int32 indices
names["torch"] = type("Torch", (), {"__getattr__": lambda _, name: getattr(torch, name),
                                    "arange": staticmethod(lambda *a, dtype=None, **more: arange(*a, **more))})()


def case(seed, n, k, group, asymmetric, version):
    codes, scales, zeros = vectors.rows(seed, n, k, 4, group, asymmetric, torch.float16)
    of = torch.arange(k) // (group or k)
    weights = (codes.float() - zeros.float()[:, of]) * scales.float()[:, of]
    linear = torch.nn.Linear(k, n, bias=False)
    linear.weight.data = weights
    s, z = scales.float(), zeros.float() + 8
    if version == "gemm":
        m = names["WQLinear_GEMM"].from_linear(linear, 4, group or k, False, s.T.contiguous(), z.T.contiguous())
        assert torch.equal(names["dequantize_gemm"](m.qweight, m.qzeros, m.scales.float(), 4, group or k).T, weights)
    else:
        m = names["WQLinear_GEMV"].from_linear(linear, 4, group or k, False, s, z)
    parts = {"m.qweight": m.qweight, "m.qzeros": m.qzeros, "m.scales": m.scales.half()}
    entry = dict(quant_method="awq", bits=4, group_size=group or -1, zero_point=True, version=version)
    return vectors.case(entry, codes, scales, zeros, 4, group, asymmetric, parts, weights)


shapes = [
    (32, 96, 32, True, "gemm"), (32, 64, 0, False, "gemm"), (32, 256, 128, True, "gemm"), (160, 64, 32, True, "gemm"),
    (8, 96, 32, True, "gemv"), (16, 192, 64, True, "gemv"), (8, 1280, 128, True, "gemv"),
]
vectors.write(
    "github.com/casper-hansen/AutoAWQ, commit 88e4c76b20755db275574e6a03c83c84ba3bece5: WQLinear_GEMM.from_linear, "
    "dequantize_gemm with scales in float32, and WQLinear_GEMV.from_linear",
    [case(seed, *shape) for seed, shape in enumerate(shapes)])
