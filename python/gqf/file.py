"""Files, tensors and payloads, as a program uses them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from . import codes as c
from . import layouts
from ._crc32c import crc32c
from ._zstd import decompress
from .errors import FormatError, UnsupportedError
from .front import CHECKSUMS, AssetRecord, Front, PayloadRecord
from .packed import Header

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

# numpy's types of elements; BF16 and F8 have none.
_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "C64": "<c8",
}  # fmt: skip

# Weights that dequantize decodes at a time, so that its temporary arrays stay small.
_CHUNK_WEIGHTS = 1 << 21


class Payload:
    """A payload: a packed header and the data behind it."""

    def __init__(self, file: File, record: PayloadRecord, name: str) -> None:
        self._file, self._record, self._name = file, record, name
        self.variant, self.slice, self.kind, self.cpu = record.variant, record.slice, record.kind, record.cpu

    @property
    def offset(self) -> int:
        """Offset in the file of the data, behind the packed header: a multiple of 64."""
        return self._record.offset + 64

    @property
    def header(self) -> Header:
        if self._record.header is None or self.variant in self._file._front.tensors[self._record.tensor].unknown:
            raise UnsupportedError(self._file.path, f"{self._name}: variant {self.variant} needs a newer reader")
        return self._record.header

    @property
    def data(self) -> U8:
        """The mapped bytes behind the packed header, not copied, and not writable."""
        start, record = self._record.offset, self._record
        header = self.header
        if self._file.data[start : start + 64].tobytes() != record.raw:
            message = f"{self._name}: the packed header differs from its copy in the directory"
            raise FormatError(self._file.path, start, message)
        return self._file.data[start + 64 : start + 64 + header.data_size]


class Tensor:
    """A tensor of the file, under any of its names."""

    def __init__(self, file: File, index: int) -> None:
        self._file, self.index = file, index
        r = self._record = file._front.tensors[index]
        self.name = file._front.names[r.name].name
        self.shape = r.shape
        self.dtype = c.DTYPES[r.dtype][0]
        self.role = c.ROLES[r.role] if r.role < len(c.ROLES) else "other"
        self.mapping = c.MAPPINGS[r.mapping] if r.mapping < len(c.MAPPINGS) else "other"
        self.algorithm = c.ALGORITHMS.get(r.algorithm, "other")
        self.transposed, self.slices = r.transposed, r.slices

    def __repr__(self) -> str:
        return f"<gqf.Tensor {self.name} {list(self.shape)} {self.dtype} {self.payload().header.layout_name}>"

    @property
    def bias(self) -> Tensor | None:
        """The tensor with the bias of this layer, if the file links one."""
        return self._file.tensors[self._record.bias] if self._record.bias >= 0 else None

    @cached_property
    def payloads(self) -> list[Payload]:
        """All payloads, those of unknown layouts included."""
        r = self._record
        return [Payload(self._file, p, self.name) for p in self._file._front.payloads[r.first_payload :][: r.payloads]]

    @property
    def variants(self) -> list[int]:
        """The variants that this reader can use."""
        return [v for v in range(self.payloads[-1].variant + 1) if v not in self._record.unknown]

    def find(self, kind: int = c.WEIGHTS, variant: int | None = None, slice: int = 0) -> Payload | None:
        """The payload of a kind, or None. variant None: the first that this reader can use."""
        if variant is None:
            if not self.variants:
                raise UnsupportedError(self._file.path, f"{self.name}: every variant needs a newer reader")
            variant = self.variants[0]
        for p in self.payloads:
            if (p.variant, p.slice, p.kind) == (variant, slice, kind):
                return p
        return None

    def payload(self, variant: int | None = None, slice: int = 0) -> Payload:
        """The payload with the weights of a slice."""
        p = self.find(c.WEIGHTS, variant, slice)
        if p is None:
            raise KeyError(f"{self.name}: no variant {variant} of slice {slice}")
        return p

    def choose(self, features: int) -> int | None:
        """The variant for a CPU with these features, bits of docs/FORMAT.md, 5.8; None if this reader can use none."""
        best, chosen = -2, None
        for v in self.variants:
            cpu = self.payload(v).cpu
            count = -1 if cpu & ~features else bin(cpu).count("1")
            if count > best:
                best, chosen = count, v
        return chosen

    @property
    def quantized(self) -> bool:
        return self.payload().header.layout != c.PLAIN

    def matrix(self, first: int = 0, last: int | None = None, variant: int | None = None, slice: int = 0) -> layouts.Matrix:
        """Codes, scales and zero points of rows of a quantized slice; rows are outputs."""
        p = self.payload(variant, slice)
        h = p.header
        if h.layout == c.PLAIN:
            raise ValueError(f"{self.name} is not quantized")
        last = h.rows if last is None else last
        companions = [self.find(kind, variant, slice) for kind in (c.SCALES, c.ZEROS)]
        scales, zeros = (None if x is None else x.data for x in companions)
        return layouts.decode(h, p.data, first, last, scales, zeros)

    def _check_scales(self) -> None:
        for v in self.variants:
            for s in range(self.slices):
                p = self.payload(v, s)
                step = max(_CHUNK_WEIGHTS // max(p.header.cols, 1) // layouts.panel_rows(p.header), 1) * layouts.panel_rows(p.header)
                for first in range(0, 0 if p.header.layout == c.PLAIN else p.header.rows, step):
                    if not self.matrix(first, min(first + step, p.header.rows), v, s).scales_valid():
                        raise FormatError(self._file.path, p.offset, f"{self.name}: a scale is outside the range of its dtype")

    def array(self, variant: int | None = None, slice: int = 0) -> npt.NDArray[Any]:
        """The elements of a tensor that is not quantized, over the mapped bytes, in the tensor's shape.

        Elements without a numpy type come as unsigned integers of their size: BF16 as uint16, F8 as uint8.
        """
        p = self.payload(variant, slice)
        h = p.header
        if h.layout != c.PLAIN:
            raise ValueError(f"{self.name} is quantized: use dequantize")
        name, bits = c.DTYPES[h.dtype]
        if bits < 8:
            raise UnsupportedError(self._file.path, f"{self.name}: elements of {name} are smaller than a byte")
        shape = self.shape if self.slices == 1 else self.shape[-2:]
        return p.data.view(_NUMPY.get(name, f"<u{bits // 8}")).reshape(shape)

    def dequantize(self, variant: int | None = None) -> F32:
        """The weights as float32, in the tensor's shape. A tensor that is not quantized is widened."""
        if not self.quantized and self.slices == 1:
            return _widen(self, self.array(variant))
        return np.stack([self._slice(variant, s) for s in range(self.slices)]).reshape(self.shape)

    def _slice(self, variant: int | None, slice: int) -> F32:
        h = self.payload(variant, slice).header
        if h.layout == c.PLAIN:
            return _widen(self, self.array(variant, slice))
        step = max(_CHUNK_WEIGHTS // h.cols // layouts.panel_rows(h), 1) * layouts.panel_rows(h)
        out = np.empty((h.rows, h.cols), np.float32)
        for first in range(0, h.rows, step):
            last = min(first + step, h.rows)
            out[first:last] = self.matrix(first, last, variant, slice).weights()
        return out.T if self.transposed else out


def _widen(t: Tensor, a: npt.NDArray[Any]) -> F32:
    if t.dtype == "BF16":
        return layouts.bf16_to_f32(a)
    if t.dtype == "F8_E4M3" or t.dtype == "F8_E5M2":
        mantissa = 3 if t.dtype == "F8_E4M3" else 2
        result: F32 = _f8_table(mantissa)[a]
        return result
    if t.dtype in _NUMPY and t.dtype != "C64":
        return a.astype(np.float32)
    raise UnsupportedError(t._file.path, f"{t.name}: elements of {t.dtype} cannot be float32 here")


def _f8_table(mantissa: int) -> F32:
    """The values of the 256 bytes of E4M3 (no infinities, NaN is S.1111.111) or E5M2 (as IEEE 754)."""
    byte = np.arange(256)
    bits, bias = 7 - mantissa, (1 << (6 - mantissa)) - 1
    exponent, fraction = byte >> mantissa & (1 << bits) - 1, byte & (1 << mantissa) - 1
    lead = np.where(exponent > 0, 1 << mantissa, 0)
    value = np.ldexp((fraction + lead).astype(np.float64), np.maximum(exponent, 1) - bias - mantissa)
    if mantissa == 3:
        value[byte & 127 == 127] = np.nan
    else:
        top = exponent == (1 << bits) - 1
        value[top] = np.where(fraction[top] == 0, np.inf, np.nan)
    return np.where(byte >= 128, -value, value).astype(np.float32)


class File(Mapping[str, Tensor]):
    """An open .gqf file: a mapping of names to tensors. Absorbed names are not found.

    The file stays mapped while arrays or tensors over its bytes exist, after close too.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        with open(self.path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            self._map: mmap.mmap | bytes = _map(f.fileno(), size) if size else b""
        self._open()

    @classmethod
    def from_bytes(cls, data: bytes, path: str = "memory") -> File:
        """A file in memory. path is what errors call it."""
        self = cls.__new__(cls)
        self.path, self._map = path, data
        self._open()
        return self

    def _open(self) -> None:
        data: U8 = np.frombuffer(self._map, np.uint8)
        data.flags.writeable = False
        self._bytes: U8 | None = data
        self._front = Front(self.path, data)
        self.tensors = [Tensor(self, i) for i in range(len(self._front.tensors))]
        self._index = {n.name: n.tensor for n in self._front.names if not n.absorbed}

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[self._index[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)

    def __enter__(self) -> File:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Gives up the file's own references to the map."""
        self._map, self._bytes = b"", None
        self._front.data = np.empty(0, np.uint8)

    @property
    def data(self) -> U8:
        """The mapped bytes of the whole file."""
        if self._bytes is None:
            raise ValueError(f"{self.path}: the file is closed")
        return self._bytes

    @property
    def assets(self) -> list[str]:
        """Names of the assets of kinds that this reader knows."""
        return [a.name for a in self._front.assets if a.kind in c.ASSET_KINDS]

    def asset(self, name: str) -> bytes:
        """The content of an asset, with its checksum compared."""
        for a in self._front.assets:
            if a.name == name and a.kind in c.ASSET_KINDS:
                return self._asset(a)
        raise KeyError(f"{self.path}: no asset {name!r}; it has {', '.join(self.assets) or 'none'}")

    def _asset(self, a: AssetRecord) -> bytes:
        stored = self.data[a.offset : a.offset + a.stored].tobytes()
        raw = stored if a.codec == c.STORED else decompress(self.path, a.name, a.offset, stored, a.raw)
        if crc32c(raw) != a.crc:
            raise FormatError(self.path, a.offset, f"asset {a.name!r}: its checksum is wrong")
        return raw

    def verify(self, scales: bool = False) -> None:
        """Reads the whole file and compares every checksum; raises FormatError at the first damage.

        scales checks the range of every scale, too (docs/FORMAT.md, 8.3 and 8.6).
        """
        front, log2, data = self._front, self._front.block_log2, self.data
        sums = np.frombuffer(front._bytes(CHECKSUMS), "<u4")
        for i, want in enumerate(sums):
            start = front.data_offset + (i << log2)
            if crc32c(data[start : min(start + (1 << log2), data.size)]) != want:
                raise FormatError(self.path, start, f"the checksum of block {i} of the data is wrong")
        end = front.data_offset
        for p in front.payloads:
            front.zero(end, p.offset, "between payloads")
            if data[p.offset : p.offset + 64].tobytes() != p.raw:
                raise FormatError(self.path, p.offset, "a packed header differs from its copy in the directory")
            end = p.offset + p.size
        front.zero(end, data.size, "behind the last payload")
        for a in front.assets:
            if a.kind in c.ASSET_KINDS:
                self._asset(a)
        if scales:
            for t in self.tensors:
                t._check_scales()


def _map(fd: int, size: int) -> mmap.mmap:
    """Maps a file privately: torch has no read-only tensors, and what it may write must not reach the file."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
    # Without MAP_NORESERVE, Linux refuses private maps that are larger than its memory.
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
    return mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def open_file(path: str | os.PathLike[str]) -> File:
    """Maps a file and checks its header and directory, as docs/FORMAT.md demands. The weights are not read."""
    return File(path)
