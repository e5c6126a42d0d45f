"""The packed header of a payload (docs/FORMAT.md, 8.1) and its rules."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from . import codes as c

SIZE = 64
MAX_DATA = 1 << 62
_FIELDS = struct.Struct("<4sHBBBBBB3sBQQQQ12sI")

_FRAME_TILES = [(4, 8, 2), (4, 16, 2), (8, 8, 2), (8, 16, 2)]


class Damaged(ValueError):
    """A packed header breaks a rule; offset counts from its start."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


class Unsupported(ValueError):
    """A packed header needs a newer reader."""


@dataclass(frozen=True)
class _Rules:
    """What a layout of KleidiAI or TorchAO allows."""

    bits: range
    scale: int
    zeros: tuple[int, ...]
    tiles: list[tuple[int, int, int]]
    bias: bool
    cols: int  # K is a multiple of it
    group: int  # the group is a multiple of it that divides K; 0: one scale per row


_FOUR, _ANY = range(4, 5), range(1, 9)
_RULES = {
    c.QSI4CXP: _Rules(_FOUR, c.SCALE_F32, (0,), _FRAME_TILES, True, 1, 0),
    c.QSI4C32P_F16: _Rules(_FOUR, c.SCALE_F16, (0,), _FRAME_TILES, False, 32, 32),
    c.QSI8CXP: _Rules(range(8, 9), c.SCALE_F32, (0,), [(4, 4, 1), (4, 8, 1)], True, 1, 0),
    c.QAI4C32P: _Rules(_FOUR, c.SCALE_F32, (2,), [(4, 8, 2), (4, 16, 2)], True, 32, 32),
    c.QSU2CXP: _Rules(range(2, 3), c.SCALE_F32, (0,), [(4, 4, 1)], True, 32, 0),
    c.TORCHAO_LINEAR: _Rules(_ANY, c.SCALE_F32, (0, 1), [(8, 16, 2)], True, 16, 16),
    c.TORCHAO_EMBEDDING: _Rules(_ANY, c.SCALE_F32, (1,), [(0, 0, 0)], False, 32, 32),
    c.TORCHAO_KLEIDIAI: _Rules(_FOUR, c.SCALE_BF16, (0,), [(8, 8, 2), (8, 16, 2)], True, 32, 32),
}


@dataclass(frozen=True)
class Header:
    """The fields of a packed header, which describe the data behind it completely."""

    layout: int
    flags: int
    bits: int
    grid: int
    scale_dtype: int
    zero_kind: int
    tile: tuple[int, int, int]
    dtype: int
    rows: int
    cols: int
    group: int
    data_size: int

    @property
    def layout_name(self) -> str:
        return c.LAYOUTS[self.layout]

    @property
    def padded_cols(self) -> int:
        """K rounded up to 32."""
        return -(-self.cols // 32) * 32

    @property
    def group_size(self) -> int:
        """Columns that share a scale."""
        if self.group:
            return self.group
        return self.padded_cols if self.layout in _RULES else self.cols

    @property
    def groups(self) -> int:
        """Groups in a row; 0 in layout plain."""
        return 0 if self.layout == c.PLAIN else -(-self.cols // self.group_size)

    @property
    def is_qsi4c32p(self) -> bool:
        """Whether the data are KleidiAI's qsi4c32p with BF16 scales."""
        scheme = (self.layout, self.bits, self.grid, self.zero_kind, self.scale_dtype)
        if scheme != (c.LOWBIT, 4, c.INTEGER, c.NO_ZEROS, c.SCALE_BF16) or self.cols % 32:
            return False
        return self.group == 0 or self.group % 32 == 0 and self.cols % self.group == 0

    @property
    def has_int8_zeros(self) -> bool:
        """Whether an int8 is stored for each group."""
        return self.zero_kind in (c.INT8_ZEROS, c.FRACTION_ZEROS)

    @property
    def zero_unit(self) -> float:
        """Unit of the zero points that are stored as int8."""
        return 2.0 ** (self.bits - 8) if self.zero_kind == c.FRACTION_ZEROS else 1.0

    @property
    def record_bytes(self) -> int:
        """Layout lowbit: bytes of a group's scales and zero points in a panel."""
        return self.tile[0] * (scale_bytes(self) + self.has_int8_zeros)

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel of tile[0] rows; of a row in layouts without a tile."""
        nr, k32, groups, size = self.tile[0], self.padded_cols, self.groups, self.group_size
        if self.layout == c.LOWBIT:
            return k32 // 8 * self.bits * nr + groups * self.record_bytes + 8 * nr
        if self.layout == c.QSI4C32P_F16:
            return nr * groups * (size // 2 + 2)
        if self.layout == c.QAI4C32P:
            return nr * (groups * (size // 2 + 8) + 4)
        if self.layout == c.TORCHAO_LINEAR:
            with_zeros = 32 if self.zero_kind == c.INT8_ZEROS else 0
            return groups * (size * self.bits + 64 + with_zeros) + (32 if self.flags & c.BIAS else 0)
        if self.layout == c.TORCHAO_EMBEDDING:
            return self.cols * self.bits // 8
        if self.layout == c.TORCHAO_KLEIDIAI:
            return 8 * (self.cols // 2 + 2 * groups + 8)
        if self.layout == c.CODES:
            return self.cols
        return nr * (self.bits * k32 // 8 + 12)

    def companion(self, kind: int) -> tuple[int, int, int] | None:
        """dtype, rows and columns of the companion of this kind; None if there must be none."""
        if self.layout not in (c.CODES, c.TORCHAO_EMBEDDING):
            return None
        if kind == c.SCALES:
            return c.SCALE_DTYPES[self.scale_dtype], self.rows, self.groups
        if kind == c.ZEROS and self.has_int8_zeros:
            return c.I8, self.rows, self.groups
        return None


def scale_bytes(h: Header) -> int:
    return 4 if h.scale_dtype == c.SCALE_F32 else 2


def data_size(h: Header) -> int:
    """The number of bytes behind the header, which follows from its fields."""
    if h.layout == c.PLAIN:
        bits = h.rows * h.cols * c.DTYPES[h.dtype][1]
        if bits % 8:
            raise Damaged(24, f"{h.rows} x {h.cols} elements of {c.DTYPES[h.dtype][0]} are not a whole number of bytes")
        size = bits // 8
    else:
        prefix = 64 if h.layout >= c.TORCHAO_LINEAR else 0
        size = prefix + -(-h.rows // max(h.tile[0], 1)) * h.panel_bytes
    if size > MAX_DATA:
        raise Damaged(16, f"{h.rows} x {h.cols} weights need more than 2^62 bytes")
    return size


def check_frame(raw: bytes, checksum: int) -> int:
    """Checks what every version keeps: magic, checksum and a possible data size, which is returned."""
    if raw[:4] != b"GQPK":
        raise Damaged(0, f"packed header: magic {raw[:4]!r}, want b'GQPK'")
    stored = int.from_bytes(raw[60:64], "little")
    if stored != checksum:
        raise Damaged(60, f"packed header: checksum {stored:#010x} stored, {checksum:#010x} computed")
    size = int.from_bytes(raw[40:48], "little")
    if size > MAX_DATA:
        raise Damaged(40, f"packed header: {size} bytes of data, at most 2^62 are possible")
    return size


def parse(raw: bytes) -> Header:
    """The header in 64 bytes whose frame was checked. Raises Damaged or Unsupported."""
    _, version, layout, flags, bits, grid, scale, zero, tile, dtype, rows, cols, group, size, reserved, _ = _FIELDS.unpack(raw)
    if version == 0:
        raise Damaged(4, "packed header: version 0 does not exist")
    if version > 1:
        raise Unsupported(f"packed header: version {version}, this reader knows 1")
    if any(reserved):
        raise Damaged(48, "packed header: a reserved byte is not 0")
    if layout == 0:
        raise Damaged(6, "packed header: layout 0 does not exist")
    if layout not in c.LAYOUTS:
        raise Unsupported(f"packed header: layout {layout} is not known to this reader")
    h = Header(layout, flags, bits, grid, scale, zero, (tile[0], tile[1], tile[2]), dtype, rows, cols, group, size)
    _check_known(h)
    _check_fields(h)
    want = data_size(h)
    if h.data_size != want:
        raise Damaged(40, f"packed header: {h.data_size} bytes of data stored, the fields need {want}")
    return h


def _check_known(h: Header) -> None:
    """Finds codes that a newer version may define; in layout plain, also fields that must be 0."""
    if h.layout == c.PLAIN:
        empty = (h.flags, h.bits, h.grid, h.scale_dtype, h.zero_kind, h.group, *h.tile)
        if any(empty):
            raise Damaged(7, f"packed header: layout plain has no flags, bits, grid, scales, zero points, tile or group: {h}")
        if h.dtype > max(c.DTYPES):
            raise Unsupported(f"packed header: element type {h.dtype} is not known to this reader")
        return
    tiles = _FRAME_TILES if h.layout == c.LOWBIT else _RULES[h.layout].tiles if h.layout in _RULES else [(0, 0, 0)]
    for what, value, known in (
        ("flags", h.flags, range(8)),
        ("grid", h.grid, range(2)),
        ("scale dtype", h.scale_dtype, range(4)),
        ("zero kind", h.zero_kind, range(4)),
        ("tile", h.tile, tiles),
    ):
        if value not in known:
            raise Unsupported(f"packed header: {what} {value} is not known to this reader in layout {h.layout_name}")


def _check_fields(h: Header) -> None:
    """The rules of the layout but for the data size."""

    def need(right: bool, offset: int, rule: str) -> None:
        if not right:
            raise Damaged(offset, f"packed header: {rule} in layout {h.layout_name}: {h}")

    if h.layout == c.PLAIN:
        need(h.dtype != 0, 15, "an element type")
        return
    need(1 <= h.bits <= 8, 8, "1 to 8 bits")
    need(h.dtype == 0, 15, "no element type")
    need(h.rows > 0 and h.cols > 0, 16, "at least one weight")
    need(h.scale_dtype != 0, 10, "a scale dtype")
    rules = _RULES.get(h.layout)
    if rules is None:
        need(h.grid == c.INTEGER or h.bits <= 2 and h.zero_kind == c.NO_ZEROS, 9, "half steps at 1 and 2 bits alone")
        need(h.zero_kind != c.F32_ZEROS, 11, "no float32 zero points")
        need(h.zero_kind != c.FRACTION_ZEROS or h.bits < 8, 11, "fractional zero points at 1 to 7 bits alone")
        need(h.group % 16 == 0, 32, "groups of a multiple of 16")
        need(h.layout == c.LOWBIT or not h.flags & c.BIAS, 7, "no bias")
        need(bool(h.flags & c.IS_QSI4C32P) == h.is_qsi4c32p, 7, "flag 2 exactly on qsi4c32p")
        return
    need(h.bits in rules.bits, 8, f"{rules.bits.start} bits")
    need(h.grid == c.INTEGER, 9, "the integer grid")
    need(h.scale_dtype == rules.scale, 10, f"scale dtype {rules.scale}")
    need(h.zero_kind in rules.zeros, 11, f"zero kind {rules.zeros}")
    need(not h.flags & c.IS_QSI4C32P, 7, "no flag 2")
    need(rules.bias or not h.flags & c.BIAS, 7, "no bias")
    need(h.cols % rules.cols == 0, 24, f"columns of a multiple of {rules.cols}")
    if h.group:
        need(rules.group > 0, 32, "one scale per row (group 0)")
        need(h.group % rules.group == 0 and h.cols % h.group == 0, 32, f"groups of a multiple of {rules.group} that divide the columns")
    if h.layout == c.TORCHAO_LINEAR:
        need(h.group_size << (h.bits - 1) < 1 << 31, 32, "groups whose sum of codes fits in 32 bits")
