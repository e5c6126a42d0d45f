"""Models of PyTorch whose linear layers multiply with the mapped bytes of a .gqf file.

    model = LlamaForCausalLM(config)      # any module tree with the checkpoint's names; device meta is fine
    report = gqf.torch.load(model, "model.gqf")

PyTorch on Arm with KleidiAI has an operator for 4-bit weights that KleidiAI packed. The payloads that gq writes for
`--target pytorch-aarch64` are these packed weights, so a layer of this package gives the operator a tensor over the
mapped bytes. Nothing is packed or copied when a model is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from . import codes as c
from . import layouts, packed
from .errors import UnsupportedError
from .file import File, Payload, Tensor, open_file

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "C64": "complex64", "U16": "uint16", "U32": "uint32", "U64": "uint64",
}  # fmt: skip

_OPERATORS: Any = getattr(torch, "ops").aten

# The tile of KleidiAI's kernels that PyTorch calls.
_TILE = (8, 16, 2)


def payload_bytes(payload: Payload) -> torch.Tensor:
    """A tensor of bytes over the mapped data of a payload.

    Writing to it changes this process's private copy of a page and never the file.
    """
    size = payload.data.size  # compares the packed header with its copy
    if size == 0:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(payload._file._map, dtype=torch.uint8, count=size, offset=payload.offset)


def tensor(t: Tensor, variant: int | None = None) -> torch.Tensor:
    """An unquantized tensor over the mapped bytes, or a quantized one dequantized to float32."""
    p = t.payload(variant)
    if p.header.layout != c.PLAIN or t.slices > 1:
        return torch.from_numpy(t.dequantize(variant))
    dtype = getattr(torch, _DTYPES.get(t.dtype, ""), None)
    if dtype is None:
        raise UnsupportedError(t._file.path, f"{t.name}: this PyTorch has no elements of {t.dtype}")
    return payload_bytes(p).view(dtype).reshape(t.shape)


def _multiply(x: torch.Tensor, weights: torch.Tensor, block: int, in_features: int, out_features: int) -> torch.Tensor:
    y: torch.Tensor = _OPERATORS._dyn_quant_matmul_4bit(x, weights, block, in_features, out_features)
    return y


class PackedLinear(nn.Module):
    """A linear layer on packed 4-bit weights, with activations quantized to int8 per row."""

    packed: torch.Tensor
    bias: torch.Tensor | None

    def __init__(self, weights: torch.Tensor, in_features: int, out_features: int, block: int, bias: torch.Tensor | None) -> None:
        """weights are KleidiAI's packed bytes, block the columns that share a scale; bias is not in the panels."""
        super().__init__()
        self.in_features, self.out_features, self.block = in_features, out_features, block
        self.register_buffer("packed", weights, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).to(torch.float32)
        y = _multiply(rows, self.packed, self.block, self.in_features, self.out_features)
        if self.bias is not None:
            y = y + self.bias
        out: torch.Tensor = y.to(x.dtype).reshape(*x.shape[:-1], self.out_features)
        return out

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, block={self.block}"


@dataclass
class Report:
    """What load did."""

    packed: list[str] = field(default_factory=list)  # modules that multiply with mapped bytes
    packed_bytes: int = 0  # of these bytes, none was copied or repacked
    dequantized: dict[str, str] = field(default_factory=dict)  # parameters of quantized tensors, and why
    dequantized_bytes: int = 0
    mapped: list[str] = field(default_factory=list)  # unquantized parameters over the mapped bytes
    converted: list[str] = field(default_factory=list)  # unquantized parameters of another dtype than the model's
    unused: list[str] = field(default_factory=list)  # tensors of the file that the model has no parameter for


def load(model: nn.Module, path: str | os.PathLike[str] | File) -> Report:
    """Gives a model the weights of a file, found by the names of the model's parameters.

    A Linear whose weight is in a layout of PyTorch's 4-bit operator becomes a PackedLinear. Every other parameter gets
    the file's elements in place if the dtypes are equal, otherwise converted or dequantized to the parameter's dtype.
    Parameters of one tensor, such as a tied embedding and lm_head, share one. A parameter that the file lacks is an
    error. Nothing in the model requires a gradient afterwards.
    """
    file = path if isinstance(path, File) else open_file(path)
    return _Loader(model, file).run()


class _Loader:
    def __init__(self, model: nn.Module, file: File) -> None:
        self.model, self.file, self.report = model, file, Report()
        self.used: set[int] = set()
        self.reasons: dict[str, str] = {}  # why the weight of a Linear is not packed
        self.shared: dict[tuple[int, torch.dtype], nn.Parameter] = {}

    def run(self) -> Report:
        tied = self._tied()
        made: dict[int, PackedLinear | None] = {}
        for name, module in list(self.model.named_modules(remove_duplicate=False)):
            if type(module) is not nn.Linear:  # what inherits from it may use the weight in its own way
                continue
            if id(module) not in made:
                made[id(module)] = self._linear(name, module, tied)
            layer = made[id(module)]
            if layer is not None:
                parent, _, leaf = name.rpartition(".")
                setattr(self.model.get_submodule(parent), leaf, layer)
        for name, module, key, value in self._parameters():
            self._assign(name, module, key, value, tied)
        self.report.unused = [t.name for t in self.file.tensors if t.index not in self.used]
        return self.report

    def _parameters(self) -> Iterator[tuple[str, nn.Module, str, torch.Tensor]]:
        """Parameters and buffers that a checkpoint holds, shared ones under each of their names."""
        for prefix, module in self.model.named_modules(remove_duplicate=False):
            if isinstance(module, PackedLinear):
                continue
            for key, value in [*module._parameters.items(), *module._buffers.items()]:
                if value is not None and key not in module._non_persistent_buffers_set:
                    yield (f"{prefix}.{key}" if prefix else key), module, key, value

    def _tied(self) -> dict[int, str]:
        """The file's name of each parameter, by its id; a shared parameter needs one of its names in the file."""
        found: dict[int, str] = {}
        missing: dict[int, str] = {}
        for name, _, _, value in self._parameters():
            (found if name in self.file else missing).setdefault(id(value), name)
        lacking = [name for key, name in missing.items() if key not in found]
        if lacking:
            more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
            raise ValueError(f"{self.file.path}: no tensor for {', '.join(lacking[:5])}{more} of the model")
        return found

    def _linear(self, name: str, module: nn.Linear, tied: dict[int, str]) -> PackedLinear | None:
        """The layer that replaces a Linear, or None where the operator cannot read the weights."""
        t = self.file[tied[id(module.weight)]]
        if not t.quantized:
            return None
        if not name:
            raise ValueError("the model is a single Linear, which cannot be replaced: wrap it in a module")
        self._check_shape(name + ".weight", t, module.weight)
        choice = _packed_variant(t)
        if isinstance(choice, str):
            self.reasons[name + ".weight"] = choice
            return None
        variant, block = choice
        payload = t.payload(variant)
        bias = None
        if module.bias is not None:
            b = self.file[tied[id(module.bias)]]
            self._check_shape(name + ".bias", b, module.bias)
            self.used.add(b.index)
            if not payload.header.flags & c.BIAS:
                bias = tensor(b).to(torch.float32)
        elif payload.header.flags & c.BIAS:
            raise ValueError(f"{self.file.path}: the panels of {t.name} hold a bias, and the model's {name} has none")
        out_features, in_features = module.weight.shape
        layer = PackedLinear(payload_bytes(payload), in_features, out_features, block, bias)
        layer.train(module.training)
        self.used.add(t.index)
        self.report.packed.append(name)
        self.report.packed_bytes += layer.packed.numel()
        return layer

    def _check_shape(self, name: str, t: Tensor, value: torch.Tensor) -> None:
        if t.shape != tuple(value.shape):
            raise ValueError(f"{self.file.path}: {t.name} has shape {list(t.shape)}, the model's {name} {list(value.shape)}")

    def _assign(self, name: str, module: nn.Module, key: str, old: torch.Tensor, tied: dict[int, str]) -> None:
        t = self.file[name] if name in self.file else self.file[tied[id(old)]]
        self._check_shape(name, t, old)
        dtype = old.dtype if old.dtype.is_floating_point else tensor(t).dtype
        if (t.index, dtype) not in self.shared:
            self.shared[t.index, dtype] = nn.Parameter(self._value(name, t, dtype), requires_grad=False)
        self.used.add(t.index)
        value = self.shared[t.index, dtype]
        if key in module._parameters:
            module._parameters[key] = value
        else:
            module._buffers[key] = value.data

    def _value(self, name: str, t: Tensor, dtype: torch.dtype) -> torch.Tensor:
        value = tensor(t)
        if t.quantized:
            value = value.to(dtype)
            self.report.dequantized[name] = self.reasons.get(name, "not the weight of a Linear")
            self.report.dequantized_bytes += value.numel() * value.element_size()
        elif value.dtype == dtype:
            self.report.mapped.append(name)
        else:
            value = value.to(dtype)
            self.report.converted.append(name)
        return value


def _packed_variant(t: Tensor) -> tuple[int, int] | str:
    """The variant that PyTorch's operator reads and its block size, or why there is none."""
    if len(t.shape) != 2 or t.transposed:
        return "stored as inputs x outputs"
    reason = ""
    for variant in t.variants:
        h = t.payload(variant).header
        if h.layout == c.QSI4CXP and h.tile == _TILE:
            block = h.cols
        elif h.is_qsi4c32p and h.tile == _TILE and 0 < h.group < h.cols:
            block = h.group
        else:
            reason = reason or _why_not(h)
            continue
        if not supports(h.layout):
            return "this PyTorch has no 4-bit kernels of KleidiAI for this CPU"
        return variant, block
    return reason


def _why_not(h: packed.Header) -> str:
    if h.bits != 4:
        return f"{h.bits} bits: PyTorch's operator takes 4"
    return f"layout {h.layout_name} {'x'.join(map(str, h.tile))}, group {h.group or 'channel'}: use gq's --target pytorch-aarch64"


@lru_cache(maxsize=None)
def supports(layout: int) -> bool:
    """Whether PyTorch here packs 4-bit weights into this layout, and so multiplies with it.

    The operators exist in every recent PyTorch, but what they take for packed weights depends on the build and on the
    CPU. So this packs a small matrix and reads the result by docs/FORMAT.md.
    """
    pack = getattr(_OPERATORS, "_dyn_quant_pack_4bit_weight", None)
    if pack is None:
        return False
    rows, cols = 16, 64
    codes = (np.arange(rows * cols).reshape(rows, cols) * 7 % 16 - 8).astype(np.int16)
    group = 32 if layout == c.LOWBIT else 0
    groups = cols // group if group else 1
    scales = np.ldexp(1.0 + np.arange(rows * groups).reshape(rows, groups) / 64, -4).astype(np.float32)
    kind, flags = (c.SCALE_BF16, c.IS_QSI4C32P) if layout == c.LOWBIT else (c.SCALE_F32, 0)
    h = packed.Header(layout, flags, 4, c.INTEGER, kind, c.NO_ZEROS, _TILE, 0, rows, cols, group, 0)
    u = (codes + 8).astype(np.uint8)
    nibbles = torch.from_numpy(u[:, 1::2] << 4 | u[:, ::2])
    s = torch.from_numpy(scales).to(torch.bfloat16 if layout == c.LOWBIT else torch.float32)
    try:
        made: Any = pack(nibbles, s, None, group or cols, cols, rows)
    except RuntimeError:
        return False
    data = made.reshape(-1).view(torch.uint8).numpy()
    if data.size != packed.data_size(h):
        return False
    m = layouts.decode(h, data, 0, rows)
    return np.array_equal(m.codes, codes) and np.array_equal(m.scales, s.to(torch.float32).numpy())
