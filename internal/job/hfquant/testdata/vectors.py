"""What the programs that make vectors share: random rows, and their form in JSON."""

import ast
import base64
import hashlib
import json
import pathlib
import re
import sys

import torch

DTYPES = {
    torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32",
    torch.int64: "I64", torch.int32: "I32", torch.int8: "I8",
}


class Package:
    """The source of a package that is not installed."""

    def __init__(self, checkout, name):
        self.root = pathlib.Path(checkout) / name

    def functions(self, path, patterns, names):
        """Runs the definitions of a file whose names match, methods too, with and into names."""
        matches = re.compile("|".join(patterns)).fullmatch
        for node in ast.walk(ast.parse((self.root / path).read_text())):
            if isinstance(node, ast.FunctionDef) and matches(node.name):
                node.decorator_list, node.returns = [], None
                for argument in node.args.args + node.args.kwonlyargs:
                    argument.annotation = None
            elif not (isinstance(node, ast.ClassDef) and matches(node.name) or
                      isinstance(node, ast.Assign) and matches(getattr(node.targets[0], "id", ""))):
                continue
            exec(compile(ast.Module([node], []), path, "exec"), names)


def text(tensor):
    """The bytes of a tensor in base64; torch 1.13 has no numpy of bfloat16."""
    tensor = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)
    return base64.b64encode(tensor.numpy().tobytes()).decode()


def rows(seed, n, k, bits, group, asymmetric, dtype):
    """Random codes, scales and zero points: int8 [n, k], dtype [n, groups], int8 [n, groups]."""
    random = torch.Generator().manual_seed(seed)
    low, high = -(1 << bits - 1), 1 << bits - 1
    groups = k // group if group else 1
    codes = torch.randint(low, high, (n, k), generator=random).to(torch.int8)
    codes[0, 0], codes[-1, -1] = low, high - 1
    scales = (torch.randn(n, groups, generator=random) / 64).to(dtype)
    zeros = torch.zeros(n, groups, dtype=torch.int8)
    if asymmetric:
        zeros = torch.randint(low, high, (n, groups), generator=random).to(torch.int8)
        zeros[0, 0], zeros[-1, -1] = low, high - 1
    return codes, scales, zeros


def case(config, codes, scales, zeros, bits, group, asymmetric, tensors, weights, **more):
    """One vector. weights are the float32 values that the library gives, of which it has the SHA-256."""
    n, k = codes.shape
    return dict(
        config=dict(quantization_config=config), n=n, k=k, bits=bits, group=group, zeros_kind=int(asymmetric),
        scales=DTYPES[scales.dtype], codes=text(codes), zeros=text(zeros),
        dequantized=hashlib.sha256(weights.contiguous().numpy().tobytes()).hexdigest(),
        tensors=[dict(name=name, dtype=DTYPES[t.dtype], shape=list(t.shape), data=text(t)) for name, t in tensors.items()],
        **more,
    )


def write(source, cases):
    json.dump(dict(source=source, cases=cases), sys.stdout, indent=0)
