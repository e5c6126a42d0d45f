"""Packed bytes become codes, scales, zero points and weights (docs/FORMAT.md, chapter 8), with numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import codes as c
from .packed import Header, scale_bytes

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]
I16 = npt.NDArray[np.int16]


@dataclass(frozen=True)
class Matrix:
    """Consecutive rows of a quantized matrix, as the layout stores them.

    codes are n x K. scales are n x G and meant: weight = (code - zero) * scale. zeros are n x G numbers, or in layout
    qai4c32p numbers that are added to code * scale, or None.
    """

    header: Header
    codes: I16
    scales: F32
    zeros: F32 | None

    def weights(self) -> F32:
        """The float32 weights, each product rounded once."""
        h, cols = self.header, self.header.cols

        def spread(x: F32) -> F32:
            return np.repeat(x, h.group_size, axis=1)[:, :cols]

        q = self.codes.astype(np.float32)
        if h.grid == c.HALF_STEP:
            q += np.float32(0.5)
        if self.zeros is not None and h.has_int8_zeros:
            q -= spread(self.zeros)
        q *= spread(self.scales)
        if self.zeros is not None and h.zero_kind == c.F32_ZEROS:
            q += spread(self.zeros)
        return q


    def scales_valid(self) -> bool:
        """Whether the layout allows all scales: 8.3 and 8.6."""
        h, size = self.header, np.abs(self.scales)
        least = 2.0**-24 if h.scale_dtype == c.SCALE_F16 else 2.0**-126
        if h.layout in (c.QSI4CXP, c.QAI4C32P):
            least *= 16  # stored divided by 16
        valid = (size >= least) & (size < np.inf)
        if h.scale_dtype == c.SCALE_F16 or h.scale_dtype == c.SCALE_F32 and h.layout in (c.LOWBIT, c.CODES):
            valid |= size == 0
        if h.flags & c.POSITIVE_SCALES:
            valid &= self.scales >= 0
        return bool(valid.all())


def bf16_to_f32(raw: npt.NDArray[np.uint16]) -> F32:
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)


def numbers(raw: U8, scale_dtype: int) -> F32:
    """Scales stored in the last axis of bytes."""
    raw = np.ascontiguousarray(raw)
    if scale_dtype == c.SCALE_F32:
        return raw.view("<f4").astype(np.float32, copy=False)
    if scale_dtype == c.SCALE_F16:
        return raw.view("<f2").astype(np.float32)
    return bf16_to_f32(raw.view("<u2"))


def int8_zeros(h: Header, raw: U8) -> F32:
    """Zero points stored as int8: integers, or fractions in units of 2^(bits-8)."""
    return raw.view(np.int8).astype(np.float32) * np.float32(h.zero_unit)


def panel_rows(h: Header) -> int:
    """Rows that lie together: a caller reads ranges that begin at a multiple of it."""
    return max(h.tile[0], 1)


def decode(h: Header, data: U8, first: int, last: int, scales: U8 | None = None, zeros: U8 | None = None) -> Matrix:
    """Rows first to last - 1, first being a multiple of panel_rows. scales and zeros are the companions' data."""
    nr = panel_rows(h)
    if first % nr:
        raise ValueError(f"row {first}: want a multiple of {nr}, the rows of a panel")
    prefix = 64 if h.layout >= c.TORCHAO_LINEAR else 0
    panels = data[prefix:].reshape(-1, h.panel_bytes)[first // nr : -(-last // nr)]
    if h.layout in (c.LOWBIT, c.TORCHAO_KLEIDIAI):
        q, s, z = _lowbit(h, panels)
    elif h.layout == c.TORCHAO_LINEAR:
        q, s, z = _torchao_linear(h, panels)
    elif h.layout in (c.CODES, c.TORCHAO_EMBEDDING):
        assert scales is not None
        q = panels.view(np.int8).astype(np.int16) if h.layout == c.CODES else _torchao_embedding(h, panels)
        s = numbers(scales.reshape(h.rows, -1)[first:last], h.scale_dtype)
        z = None if zeros is None else int8_zeros(h, zeros.reshape(h.rows, -1)[first:last])
    else:
        q, s, z = _kleidiai(h, panels)
    n = last - first
    return Matrix(h, q[:n, : h.cols], s[:n], None if z is None else z[:n])


def _signed(u: U8, bits: int, twos: bool) -> I16:
    half = 1 << (bits - 1)
    wide = u.astype(np.int16)
    return (wide ^ half) - half if twos else wide - half


def _cut(x: U8, shift: int, bits: int) -> U8:
    """Bits of each byte, from shift on."""
    return (x >> np.uint8(shift)) & np.uint8((1 << bits) - 1)


def _join(*parts: tuple[U8, int]) -> U8:
    """Small numbers, each moved up by its shift, in one byte."""
    out = np.zeros_like(parts[0][0])
    for x, shift in parts:
        out |= x << np.uint8(shift)
    return out


def unpack_planes(planes: U8, bits: int) -> U8:
    """Planes (..., bits, n) become the stored codes of eight lanes (..., 8, n), by the table of 8.3."""
    p = [planes[..., i, :] for i in range(bits)]
    x: list[U8]
    if bits == 1:
        x = [_cut(p[0], 7 - j, 1) for j in range(8)]
    elif bits == 2:
        x = [_cut(p[j // 4], 6 - 2 * (j % 4), 2) for j in range(8)]
    elif bits == 3:
        x = [_cut(p[j // 2], 3 - j % 2 * 3, 3) for j in range(6)]
        x += [_join((_cut(p[j], 6, 2), 0), (_cut(p[2], 7 - j, 1), 2)) for j in range(2)]
    elif bits == 4:
        x = [_cut(p[j // 2], 4 * (j % 2), 4) for j in range(8)]
    elif bits == 5:
        x = []
        for j in range(4):
            x += [_cut(p[j], 0, 5), _join((_cut(p[j], 5, 3), 0), (_cut(p[4], 2 * j, 2), 3))]
    elif bits == 6:
        x = []
        for three in (p[:3], p[3:]):
            x += [_cut(plane, 0, 6) for plane in three]
            x.append(_join(*((_cut(plane, 6, 2), 2 * j) for j, plane in enumerate(three))))
    elif bits == 7:
        x = [_cut(plane, 0, 7) for plane in p]
        x.append(_join(*((_cut(plane, 7, 1), j) for j, plane in enumerate(p))))
    else:
        x = p
    return np.stack(x, axis=-2)


def _lowbit(h: Header, panels: U8) -> tuple[I16, F32, F32 | None]:
    nr, kr, _ = h.tile
    lane_columns, k32, size, bits = kr // 2, h.padded_cols, h.group_size, h.bits
    blocks, block = k32 // 32, 4 * bits * nr
    record = h.record_bytes
    n = len(panels)

    # Blocks and records take turns: groups that end in a block have their records behind it.
    index = np.arange(blocks)
    starts = index * block + 32 * index // size * record
    raw = panels[:, starts[:, None] + np.arange(block)]
    u = unpack_planes(raw.reshape(n, blocks, nr // 4, bits, 16), bits)
    # Lanes (s, p, h) of 16 positions: row (16/L) p + i/L, column 16 h + L s + i%L.
    lane_rows = 16 // lane_columns
    u = u.reshape(n, blocks, lane_rows, nr // lane_rows, 2, lane_rows, lane_columns)
    u = u.transpose(0, 3, 5, 1, 4, 2, 6).reshape(n * nr, k32)

    g = np.arange(h.groups)
    ends = np.minimum((g + 1) * size, h.cols)
    records = panels[:, (((ends - 1) // 32 + 1) * block + g * record)[:, None] + np.arange(record)]
    at = nr * scale_bytes(h)
    s = numbers(records[..., :at], h.scale_dtype).transpose(0, 2, 1).reshape(n * nr, h.groups)
    z = None
    if h.has_int8_zeros:
        z = int8_zeros(h, records[..., at:]).transpose(0, 2, 1).reshape(n * nr, h.groups)
    return _signed(u, bits, bits in (4, 8)), s, z


def _kleidiai(h: Header, panels: U8) -> tuple[I16, F32, F32 | None]:
    nr, kr, sr = h.tile
    run = {c.QSI8CXP: kr, c.QSU2CXP: 4}.get(h.layout, kr // sr)
    n, groups, size = len(panels), h.groups, h.group_size
    stream = h.bits * size // 8  # bytes of a row's codes in a group
    z = None
    if h.layout == c.QSI4C32P_F16:
        parts = panels.reshape(n, groups, -1)
        s, raw = numbers(parts[..., : 2 * nr], h.scale_dtype), parts[..., 2 * nr :]
    elif h.layout == c.QAI4C32P:
        parts = panels[:, : -4 * nr].reshape(n, groups, -1)
        raw, tail = parts[..., : nr * stream], numbers(parts[..., nr * stream :], h.scale_dtype)
        z, s = tail[..., :nr], tail[..., nr:]
    else:
        raw = panels[:, None, : nr * stream]
        s = numbers(panels[:, None, nr * (stream + 4) : nr * (stream + 8)], h.scale_dtype)
    if h.layout in (c.QSI4CXP, c.QAI4C32P):
        s = s * np.float32(16)  # these kernels see the codes times 16

    # Byte o of row i is at nr L floor(o/L) + L i + o%L.
    o = np.ascontiguousarray(raw).reshape(n, groups, stream // run, nr, run).transpose(0, 3, 1, 2, 4)
    o = o.reshape(n * nr, groups, stream)
    if h.layout == c.QSI8CXP:
        u = o
    elif h.layout == c.QSU2CXP:
        fours = o.reshape(n * nr, groups, -1, 4)
        u = np.stack([_cut(fours, 2 * j, 2) for j in range(4)], axis=-2)
    elif h.layout == c.QSI4C32P_F16:
        u = np.concatenate(_halves(o), axis=-1)
    else:
        u = np.stack(_halves(o.reshape(n * nr, groups, -1, 16)), axis=-2)
    q = _signed(u.reshape(n * nr, groups * size), h.bits, h.layout != c.QSU2CXP)

    def by_row(x: F32) -> F32:
        return x.transpose(0, 2, 1).reshape(n * nr, groups)

    return q, by_row(s), None if z is None else by_row(z)


def _torchao_linear(h: Header, panels: U8) -> tuple[I16, F32, F32 | None]:
    n, groups, size, bits = len(panels), h.groups, h.group_size, h.bits
    zeros = h.zero_kind == c.INT8_ZEROS
    group = size * bits + 64 + (32 if zeros else 0)
    parts = panels[:, : groups * group].reshape(n, groups, group)
    units = parts[..., : size * bits].reshape(n, groups, size // 16, bits, 16)
    # Lane 4h + p of a unit has at position i row 2p + i/8, column 8h + i%8.
    u = unpack_planes(units, bits).reshape(n, groups, size // 16, 2, 4, 2, 8)
    u = u.transpose(0, 4, 5, 1, 2, 3, 6).reshape(8 * n, h.cols)
    tail = np.ascontiguousarray(parts[..., size * bits :])
    s = tail[..., :32].copy().view("<f4").astype(np.float32).transpose(0, 2, 1).reshape(8 * n, groups)
    z = None
    if zeros:
        z = tail[..., 64:].copy().view("<i4").astype(np.float32).transpose(0, 2, 1).reshape(8 * n, groups)
    return _signed(u, bits, bits == 8), s, z


def _torchao_embedding(h: Header, rows: U8) -> I16:
    n, bits, cols = len(rows), h.bits, h.cols
    u = np.empty((n, cols), np.uint8)
    whole = cols // 128
    split = whole * 16 * bits
    u[:, : 128 * whole] = unpack_planes(rows[:, :split].reshape(n, whole, bits, 16), bits).reshape(n, -1)
    rest, k = rows[:, split:], 128 * whole
    if cols - k >= 64:
        u[:, k : k + 64] = _unit64(rest[:, : 8 * bits], bits)
        rest, k = rest[:, 8 * bits :], k + 64
    if cols - k:
        u[:, k:] = _unit32(rest, bits)
    return _signed(u, bits, bits == 8)


def _halves(x: U8) -> list[U8]:
    return [_cut(x, 0, 4), _cut(x, 4, 4)]


def _top_bits(planes: U8) -> U8:
    """Rows of planes whose top two bits together are the codes past the last plane."""
    return _join(*((_cut(planes[:, p], 6, 2), 2 * p) for p in range(planes.shape[1])))


def _unit64(raw: U8, bits: int) -> U8:
    n = len(raw)
    if bits == 1:
        return np.concatenate([_cut(raw, shift, 1) for shift in (3, 7, 2, 6, 1, 5, 0, 4)], axis=1)
    if bits in (3, 7):
        return unpack_planes(raw.reshape(n, bits, 8), bits).reshape(n, 64)
    if bits == 2:
        return np.concatenate([_cut(raw, shift, 2) for shift in (6, 4, 2, 0)], axis=1)
    if bits == 4:
        return np.concatenate(_halves(raw[:, :16]) + _halves(raw[:, 16:]), axis=1)
    if bits == 5:
        parts, top = [], raw[:, 32:]
        for j in range(2):
            part = raw[:, 16 * j : 16 * j + 16]
            high = np.concatenate([_cut(top, 4 * j, 2), _cut(top, 4 * j + 2, 2)], axis=1)
            parts += [_cut(part, 0, 5), _join((_cut(part, 5, 3), 0), (high, 3))]
        return np.concatenate(parts, axis=1)
    if bits == 6:
        return np.concatenate([_cut(raw, 0, 6), _top_bits(raw.reshape(n, 3, 16))], axis=1)
    return raw


def _unit32(raw: U8, bits: int) -> U8:
    n = len(raw)
    if bits == 1:
        return np.stack([_cut(raw, 7 - j, 1) for j in range(8)], axis=-1).reshape(n, 32)
    if bits in (3, 5, 7):
        return unpack_planes(raw.reshape(n, 4, bits, 1), bits).reshape(n, 32)
    if bits == 2:
        return np.concatenate([_cut(raw, shift, 2) for shift in (6, 4, 2, 0)], axis=1)
    if bits == 4:
        return np.concatenate(_halves(raw), axis=1)
    if bits == 6:
        return np.concatenate([_cut(raw, 0, 6), _top_bits(raw.reshape(n, 3, 8))], axis=1)
    return raw
