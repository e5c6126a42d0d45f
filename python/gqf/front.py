"""Header and directory of a file, and every check of docs/FORMAT.md, chapter 9, that opening a file demands."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from . import codes as c
from . import packed
from ._crc32c import crc32c, crc32c_rows
from .errors import FormatError, UnsupportedError

U8 = npt.NDArray[np.uint8]

MAGIC = b"\x89GQF\r\n\x1a\n"
SECTIONS = ["tensors", "payloads", "names", "dims", "strings", "assets", "asset data", "checksums"]
TENSORS, PAYLOADS, NAMES, DIMS, STRINGS, ASSETS, ASSET_DATA, CHECKSUMS = range(8)
_RECORD_SIZES = [48, 96, 32, 8, 0, 48, 0, 4]
_TENSOR = struct.Struct("<IIIBBBBIIIBB2sI12s")
_PAYLOAD = struct.Struct("<QQIIBB2sI")
_NAME = struct.Struct("<IIIIIB3sQ")
_ASSET = struct.Struct("<IIQQQIBB10s")

# The limits of this reader are the smallest that the format allows (chapter 9).
MAX_RECORDS = 1 << 20
MAX_DIRECTORY = 1 << 28
MAX_ASSETS = 1024
MAX_ASSET_BYTES = 1 << 27
_MAX = 1 << 62


def align(n: int, a: int) -> int:
    return -(-n // a) * a


@dataclass
class TensorRecord:
    name: int
    names: int
    shape: tuple[int, ...]
    dtype: int
    role: int
    transposed: bool
    first_payload: int
    payloads: int
    slices: int
    mapping: int
    algorithm: int
    bias: int  # index of a tensor, or -1
    unknown: set[int] = field(default_factory=set)  # variants that this reader cannot read


@dataclass(frozen=True)
class PayloadRecord:
    offset: int  # of the packed header in the file
    size: int
    tensor: int
    slice: int
    kind: int
    variant: int
    cpu: int
    header: packed.Header | None  # None if unsupported, and for companions of such weights
    raw: bytes  # the copy of the packed header


@dataclass(frozen=True)
class NameRecord:
    name: str
    tensor: int
    source_file: int  # index into the provenance's sources, or -1
    source_crc: int
    in_checkpoint: bool
    absorbed: bool
    source_size: int


@dataclass(frozen=True)
class AssetRecord:
    name: str
    offset: int
    stored: int
    raw: int
    crc: int
    kind: int
    codec: int


class Front:
    """The checked directory of a file whose bytes are data."""

    def __init__(self, path: str, data: U8) -> None:
        self.path, self.data = path, data
        self.section: list[tuple[int, int, int]] = []  # offset, size, count
        self._header()
        self._sections()
        self._gaps()
        for i, (offset, size, _) in enumerate(self.section):
            stored = self._u32(32 + 24 * i + 20)
            if crc32c(data[offset : offset + size]) != stored:
                self.fail(offset, f"section {SECTIONS[i]}: its checksum is wrong")
        self.names: list[NameRecord] = []
        self.assets: list[AssetRecord] = []
        self.tensors: list[TensorRecord] = []
        self.payloads: list[PayloadRecord] = []
        end = self._names()
        self._assets(end)
        self._tensors()
        self._name_counts()

    def fail(self, offset: int, message: str) -> NoReturn:
        raise FormatError(self.path, offset, message)

    def _u32(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 4].tobytes(), "little")

    def _u64(self, at: int) -> int:
        return int.from_bytes(self.data[at : at + 8].tobytes(), "little")

    def _bytes(self, section: int) -> bytes:
        offset, size, _ = self.section[section]
        return self.data[offset : offset + size].tobytes()

    def _at(self, section: int, record: int, field: int = 0) -> int:
        return self.section[section][0] + record * _RECORD_SIZES[section] + field

    # Chapter 3.

    def _header(self) -> None:
        size = self.data.size
        if size < 256 or self.data[:8].tobytes() != MAGIC:
            self.fail(0, "this is no .gqf file" if size >= 8 else f"{size} bytes are no .gqf file")
        if crc32c(self.data[:252]) != self._u32(252):
            self.fail(252, "header: its checksum is wrong")
        major, minor = self._u32(8), self._u32(12)
        if major == 0:
            self.fail(8, "header: version 0 does not exist")
        if (major, minor) > (1, 0):
            raise UnsupportedError(self.path, f"version {major}.{minor} of the format: this reader knows 1.0")
        if self._u64(16) != size:
            self.fail(16, f"header: the file has {size} bytes, not {self._u64(16)}: truncated or appended to")
        if self._u32(24) != 256:
            self.fail(24, "header: its size is not 256")
        self.block_log2 = self._u32(28)
        if not 12 <= self.block_log2 <= 30:
            self.fail(28, f"header: checksum blocks of 2^{self.block_log2} bytes, want 2^12 to 2^30")
        if self.data[240:252].any():
            self.fail(240, "header: a reserved byte is not 0")

    def _sections(self) -> None:
        end = 256
        for i, name in enumerate(SECTIONS):
            at = 32 + 24 * i
            offset, size, count = self._u64(at), self._u64(at + 8), self._u32(at + 16)
            if offset != align(end, 64):
                self.fail(at, f"section {name}: at {offset}, want {align(end, 64)}")
            if offset + size > self.data.size:
                self.fail(at + 8, f"section {name}: {size} bytes at {offset}, the file has {self.data.size}")
            record = _RECORD_SIZES[i]
            if count * record != size if record else count != 0:
                self.fail(at + 16, f"section {name}: {count} records in {size} bytes")
            end = offset + size
            self.section.append((offset, size, count))
        self.data_offset, self.data_size = self._u64(224), self._u64(232)
        if self.data_offset != align(end, 1 << 16) or self.data_offset > self.data.size:
            self.fail(224, f"header: data at {self.data_offset}, want {align(end, 1 << 16)}")
        if self.data_offset + self.data_size != self.data.size or self.data_size % 64:
            self.fail(232, f"header: {self.data_size} bytes of data, want {self.data.size - self.data_offset}, a multiple of 64")
        blocks = (self.data_size + (1 << self.block_log2) - 1) >> self.block_log2
        if self.section[CHECKSUMS][2] != blocks:
            self.fail(self._entry(CHECKSUMS, 16), f"section checksums: {self.section[CHECKSUMS][2]} for {blocks} blocks")
        for i in (TENSORS, PAYLOADS):
            if self.section[i][2] > MAX_RECORDS:
                raise UnsupportedError(self.path, f"{self.section[i][2]} {SECTIONS[i]}: this reader takes {MAX_RECORDS}")
        if self.data_offset - self.section[ASSET_DATA][1] > MAX_DIRECTORY:
            raise UnsupportedError(self.path, f"a directory of {self.data_offset} bytes: this reader takes {MAX_DIRECTORY}")

    @staticmethod
    def _entry(section: int, field: int) -> int:
        return 32 + 24 * section + field

    def _gaps(self) -> None:
        ends = [256] + [offset + size for offset, size, _ in self.section]
        starts = [offset for offset, _, _ in self.section] + [self.data_offset]
        for end, start in zip(ends, starts):
            self.zero(end, start, "before the data region")

    def zero(self, start: int, end: int, where: str) -> None:
        found = np.flatnonzero(self.data[start:end])
        if found.size:
            self.fail(start + int(found[0]), f"a byte of a gap {where} is not 0")

    # 4.3, 4.5.

    def _string(self, section: int, i: int, offset: int, size: int, end: int, largest: int, strings: bytes) -> bytes:
        what = f"{SECTIONS[section]} {i}"
        if offset != end:
            self.fail(self._at(section, i), f"{what}: string at {offset}, want {end}")
        if not 1 <= size <= largest or offset + size > len(strings):
            self.fail(self._at(section, i, 4), f"{what}: a string of {size} bytes, want 1 to {largest} within section strings")
        return strings[offset : offset + size]

    def _text(self, offset: int, text: bytes, what: str) -> str:
        try:
            return text.decode("utf-8")
        except UnicodeDecodeError as e:
            self.fail(self.section[STRINGS][0] + offset + e.start, f"{what}: its name is not UTF-8")

    def _names(self) -> int:
        strings, records = self._bytes(STRINGS), self._bytes(NAMES)
        end, before = 0, b""
        for i, (offset, size, tensor, file, crc, flags, reserved, bytes_) in enumerate(_NAME.iter_unpack(records)):
            text = self._string(NAMES, i, offset, size, end, 65535, strings)
            name = self._text(offset, text, f"name {i}")
            end = offset + size
            at = self._at(NAMES, i)
            if "\0" in name:
                self.fail(self.section[STRINGS][0] + offset, f"name {i} holds a zero byte")
            if i and text <= before:
                self.fail(at, f"name {name!r} is not behind the name before it")
            if tensor >= self.section[TENSORS][2]:
                self.fail(at + 8, f"name {name!r}: tensor {tensor} of {self.section[TENSORS][2]}")
            if flags > 3 or any(reserved):
                self.fail(at + 20, f"name {name!r}: a reserved bit or byte is not 0")
            if bytes_ > _MAX:
                self.fail(at + 24, f"name {name!r}: a source of {bytes_} bytes, at most 2^62 are possible")
            if not flags & 1 and (flags & 2 or file != 0xFFFFFFFF or crc or bytes_):
                self.fail(at + 12, f"name {name!r}: a source without being in the checkpoint")
            source = -1 if file == 0xFFFFFFFF else file
            self.names.append(NameRecord(name, tensor, source, crc, bool(flags & 1), bool(flags & 2), bytes_))
            before = text
        return end

    # 4.6, 4.7, 5.6, 5.7.

    def _assets(self, end: int) -> None:
        strings, records, count = self._bytes(STRINGS), self._bytes(ASSETS), self.section[ASSETS][2]
        if count > MAX_ASSETS:
            self.fail(self._entry(ASSETS, 16), f"{count} assets, at most {MAX_ASSETS} are allowed")
        start, size, _ = self.section[ASSET_DATA]
        place, limit = start, start + size
        before, lower, kinds, total, total_raw = b"", set[bytes](), set[int](), 0, 0
        for i, record in enumerate(_ASSET.iter_unpack(records)):
            offset, length, at, stored, raw, crc, kind, codec, reserved = record
            text = self._string(ASSETS, i, offset, length, end, 200, strings)
            name, end = self._text(offset, text, f"asset {i}"), offset + length
            here = self._at(ASSETS, i)

            def need(right: bool, field: int, rule: str) -> None:
                if not right:
                    self.fail(here + field, f"asset {name!r}: {rule}")

            need(i == 0 or text > before, 0, "its name is not behind the name before it")
            need(_fold(text) not in lower, 0, "another asset has this name but for case")
            need(at == align(place, 64), 8, f"its bytes are at {at}, want {align(place, 64)}")
            need(at + stored <= limit, 16, f"{stored} bytes at {at} are not in section asset data")
            need(codec != c.STORED or raw == stored, 24, f"{raw} bytes, stored as {stored}")
            total, total_raw = total + stored, total_raw + raw
            need(total <= MAX_ASSET_BYTES and total_raw <= MAX_ASSET_BYTES, 16, "assets have more than 2^27 bytes")
            need(kind != 0, 36, "kind 0 does not exist")
            need(not any(reserved), 38, "a reserved byte is not 0")
            if kind in c.ASSET_KINDS:
                need(_asset_name(kind, text), 0, f"not a name for an asset of kind {c.ASSET_KINDS[kind]}")
                need(kind == c.FILE or kind not in kinds, 36, f"a second asset of kind {c.ASSET_KINDS[kind]}")
                need(codec <= (c.ZSTD if kind in (c.FILE, c.FOLD) else c.STORED), 37, f"codec {codec} is not allowed")
            self.zero(place, at, "between assets")
            place = at + stored
            before = text
            lower.add(_fold(text))
            kinds.add(kind)
            self.assets.append(AssetRecord(name, at, stored, raw, crc, kind, codec))
        if place != limit:
            self.fail(place, f"section asset data ends at {limit}, its last asset at {place}")
        if end != len(strings):
            self.fail(self.section[STRINGS][0] + end, "section strings has bytes behind the last name")

    # 4.1, 4.4.

    def _tensors(self) -> None:
        count = self.section[TENSORS][2]
        dims = np.frombuffer(self._bytes(DIMS), "<u8")
        payloads = self._bytes(PAYLOADS)
        headers = np.frombuffer(payloads, np.uint8).reshape(-1, 96)[:, 32:92]
        check = _Payloads(self, payloads, [int(x) for x in crc32c_rows(headers)])
        first_dim, with_bias = 0, list[int]()
        for i, record in enumerate(_TENSOR.iter_unpack(self._bytes(TENSORS))):
            (name, names, dim, ndim, dtype, role, flags, payload, n, slices, mapping, algorithm, reserved, bias, more) = record

            def need(right: bool, field: int, rule: str) -> None:
                if not right:
                    self.fail(self._at(TENSORS, i, field), f"tensor {i}: {rule}")

            need(name < len(self.names), 0, f"name {name} of {len(self.names)}")
            canonical = self.names[name]
            need(canonical.tensor == i and not canonical.absorbed, 0, f"{canonical.name!r} is not one of its names")
            need(dim == first_dim, 8, f"its dimensions are at {dim}, want {first_dim}")
            need(ndim <= 8 and dim + ndim <= dims.size, 12, f"{ndim} dimensions, want at most 8 within section dims")
            need(dtype in c.DTYPES, 13, f"element type {dtype} does not exist")
            need(flags <= 1, 15, "a reserved flag is set")
            need(not flags or ndim >= 2, 15, f"{ndim} dimensions cannot be transposed")
            need(payload == len(self.payloads), 16, f"its payloads are at {payload}, want {len(self.payloads)}")
            need(n >= 1 and payload + n <= self.section[PAYLOADS][2], 20, f"{n} payloads from {payload} on")
            need(slices >= 1, 24, "no slices")
            need(not any(reserved), 30, "a reserved byte is not 0")
            need(bias <= count, 32, f"a bias in tensor {bias - 1} of {count}")
            need(bias != i + 1, 32, "it is its own bias")
            need(not any(more), 36, "a reserved byte is not 0")
            shape = tuple(int(d) for d in dims[dim : dim + ndim])
            elements = 1
            for d in shape:
                elements *= max(d, 1)
            need(elements <= _MAX, 8, f"a shape of {shape}, more than 2^62 elements")
            first_dim += ndim
            t = TensorRecord(name, names, shape, dtype, role, bool(flags), payload, n, slices, mapping, algorithm, bias - 1)
            self.tensors.append(t)
            if bias:
                with_bias.append(i)
            check.tensor(i, t)
        if first_dim != dims.size:
            self.fail(self._at(DIMS, first_dim), "section dims has dimensions of no tensor")
        if len(self.payloads) != self.section[PAYLOADS][2]:
            self.fail(self._at(PAYLOADS, len(self.payloads)), "section payloads has payloads of no tensor")
        for i in with_bias:
            if self.tensors[self.tensors[i].bias].bias >= 0:
                self.fail(self._at(TENSORS, i, 32), f"tensor {i}: its bias has a bias")

    def _name_counts(self) -> None:
        counts = [0] * len(self.tensors)
        for n in self.names:
            counts[n.tensor] += not n.absorbed
        for i, t in enumerate(self.tensors):
            if t.names != counts[i]:
                self.fail(self._at(TENSORS, i, 4), f"tensor {i}: it states {t.names} names and has {counts[i]}")


def _fold(text: bytes) -> bytes:
    """Small letters for the letters A to Z; bytes.lower changes no others."""
    return text.lower()


_RESERVED = {b"con", b"prn", b"aux", b"nul", b"conin$", b"conout$"} | {
    device + bytes([digit]) for device in (b"com", b"lpt") for digit in b"0123456789"
}


def _asset_name(kind: int, name: bytes) -> bool:
    fixed = {c.RECIPE: b"gq/recipe.json", c.PROVENANCE: b"gq/provenance.json", c.FOLD: b"gq/fold.json"}
    if kind in fixed:
        return name == fixed[kind]
    if any(b < 0x20 or b > 0x7E or b in b'"*/:<>?\\|' for b in name) or name[-1:] in (b".", b" "):
        return False
    return _fold(name.split(b".")[0].rstrip(b" ")) not in _RESERVED


class _Payloads:
    """Goes through the payloads in the order of their records (4.2)."""

    def __init__(self, front: Front, records: bytes, checksums: list[int]) -> None:
        self.front, self.records, self.checksums = front, records, checksums
        self.end = front.data_offset
        self.known: dict[bytes, packed.Header | None] = {}

    def tensor(self, index: int, t: TensorRecord) -> None:
        """The payloads of a tensor: complete variants, slices and companions, in order."""
        f, limit = self.front, t.first_payload + t.payloads
        variant = 0
        while len(f.payloads) < limit:
            if variant > 7:
                self.fail(25, "a tensor has at most 8 variants")
            model = self.first_slice(index, t, variant, limit)
            for s in range(1, t.slices):
                for m in model:
                    if len(f.payloads) == limit:
                        f.fail(f._at(TENSORS, index, 20), f"tensor {index}: payloads of variant {variant} end before slice {s}")
                    p = self.next(index, variant, s)
                    self.need(p.kind == m.kind, 24, f"kind {p.kind}, want {m.kind} as in slice 0")
                    self.need(p.cpu == m.cpu, 28, "other CPU features than slice 0")
                    self.need(p.raw == m.raw, 32, "another packed header than slice 0")
                    f.payloads.append(p)
            variant += 1

    def first_slice(self, index: int, t: TensorRecord, variant: int, limit: int) -> list[PayloadRecord]:
        f = self.front
        first = len(f.payloads)
        weights = self.next(index, variant, 0)
        self.need(weights.kind == c.WEIGHTS, 24, f"kind {weights.kind} before the weights")
        if weights.header is None:
            t.unknown.add(variant)
        else:
            self.shape(t, weights.header)
        f.payloads.append(weights)
        while len(f.payloads) < limit:
            kind, number, slice_ = self.peek()
            if kind == c.WEIGHTS or (number, slice_) != (variant, 0):
                break
            p = self.next(index, variant, 0)
            self.need(p.kind > f.payloads[-1].kind, 24, f"kind {p.kind} behind kind {f.payloads[-1].kind}")
            self.need(p.cpu == weights.cpu, 28, "other CPU features than its weights")
            if weights.header is not None:
                self.companion(weights.header, p)
            f.payloads.append(p)
        if weights.header is not None:
            kinds = {p.kind for p in f.payloads[first:]}
            for kind in (c.SCALES, c.ZEROS, c.TABLE):
                if weights.header.companion(kind) is not None and kind not in kinds:
                    f.fail(f._at(PAYLOADS, first, 24), f"tensor {index}, variant {variant}: no companion of kind {kind}")
        return f.payloads[first:]

    def fail(self, field: int, message: str) -> NoReturn:
        k = len(self.front.payloads)
        self.front.fail(self.front._at(PAYLOADS, k, field), f"payload {k}: {message}")

    def need(self, right: bool, field: int, message: str) -> None:
        if not right:
            self.fail(field, message)

    def peek(self) -> tuple[int, int, int]:
        """Kind, variant and slice of the next record."""
        r = _PAYLOAD.unpack_from(self.records, 96 * len(self.front.payloads))
        return r[4], r[5], r[3]

    def next(self, tensor: int, variant: int, slice_: int) -> PayloadRecord:
        """Checks the next record by itself, and its place."""
        k = len(self.front.payloads)
        at = 96 * k
        offset, size, of, number, kind, of_variant, reserved, cpu = _PAYLOAD.unpack_from(self.records, at)
        raw = self.records[at + 32 : at + 96]
        self.need(of == tensor, 16, f"of tensor {of}, want {tensor}")
        self.need((of_variant, number) == (variant, slice_), 20, f"variant {of_variant}, slice {number}, want {variant}, {slice_}")
        self.need(not any(reserved), 26, "a reserved byte is not 0")
        try:
            data = packed.check_frame(raw, self.checksums[k])
            header = self.parse(raw)
        except packed.Damaged as e:
            self.fail(32 + e.offset, str(e))
        self.need(offset % 64 == 0 and offset >= self.end, 0, f"at {offset}, want a multiple of 64 from {self.end} on")
        self.need(size == 64 + data, 8, f"{size} bytes, its packed header says {64 + data}")
        self.need(offset + size <= self.front.data.size, 8, f"{size} bytes at {offset}, the file has {self.front.data.size}")
        self.end = offset + size
        return PayloadRecord(offset, size, of, number, kind, of_variant, cpu, header, raw)

    def parse(self, raw: bytes) -> packed.Header | None:
        """The packed header, None if it is unsupported; equal ones are parsed once."""
        if raw not in self.known:
            try:
                self.known[raw] = packed.parse(raw)
            except packed.Unsupported:
                self.known[raw] = None
        return self.known[raw]

    def shape(self, t: TensorRecord, h: packed.Header) -> None:
        """Whether rows and columns of the weights follow from the tensor's shape."""
        plain = h.layout == c.PLAIN
        if plain:
            self.need(h.dtype == t.dtype, 32 + 15, f"elements of type {h.dtype}, the tensor's are {t.dtype}")
        if plain and t.slices == 1:
            rows, cols = _product(t.shape[:-1]), t.shape[-1] if t.shape else 1
        else:
            self.need(len(t.shape) >= 2, 32, f"a tensor of shape {t.shape} can only be one plain slice")
            self.need(_product(t.shape[:-2]) == t.slices, 32, f"{t.slices} slices of a tensor of shape {t.shape}")
            rows, cols = t.shape[-2:]
            if t.transposed and not plain:
                rows, cols = cols, rows
        self.need((h.rows, h.cols) == (rows, cols), 32 + 16, f"{h.rows} x {h.cols}, the shape {t.shape} needs {rows} x {cols}")

    def companion(self, weights: packed.Header, p: PayloadRecord) -> None:
        want, h = weights.companion(p.kind), p.header
        if want is None or h is None:
            self.fail(24, f"a companion of kind {p.kind} that weights of layout {weights.layout_name} do not have")
        self.need(h.layout == c.PLAIN, 32 + 6, f"a companion in layout {h.layout_name}, want plain")
        found = (h.dtype, h.rows, h.cols)
        self.need(found == want, 32, f"a companion of dtype, rows and columns {found}, the weights need {want}")


def _product(dims: tuple[int, ...]) -> int:
    n = 1
    for d in dims:
        n *= d
    return n
