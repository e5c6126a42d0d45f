"""CRC32C (docs/FORMAT.md, chapter 1) with numpy.

The CRC is linear over GF(2). A register that starts at 0 ignores leading zeros, so data are padded in front and cut
into lanes of equal length. All lanes advance together, four bytes a step, by two tables of 65,536 entries. Then
neighbouring lanes are joined pairwise: the left lane's register is advanced over as many zeros as the right lane is
long, which is one linear map for all pairs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78
_LANE_WORDS = 64  # four-byte words in a lane
_CHUNK = 4096 * _LANE_WORDS * 4  # bytes that are processed together, 1 MiB


def _tables(columns: list[int]) -> tuple[U32, U32]:
    """The linear map with these 32 columns as tables for the low and the high half of a word."""
    halves = []
    for half in (columns[:16], columns[16:]):
        table = np.zeros(1, np.uint32)
        for column in half:
            table = np.concatenate([table, table ^ np.uint32(column)])
        halves.append(table)
    return halves[0], halves[1]


def _apply(columns: list[int], x: int) -> int:
    y = 0
    for column in columns:
        if x & 1:
            y ^= column
        x >>= 1
    return y


@lru_cache(maxsize=None)
def _zero_columns(log2: int) -> tuple[int, ...]:
    """Columns of the map that advances a register over 2^log2 zero bytes."""
    if log2 == 0:
        columns = []
        for bit in range(32):
            x = 1 << bit
            for _ in range(8):
                x = x >> 1 ^ (_POLYNOMIAL if x & 1 else 0)
            columns.append(x)
        return tuple(columns)
    half = list(_zero_columns(log2 - 1))
    return tuple(_apply(half, c) for c in half)


def _advance(register: int, zeros: int) -> int:
    log2 = 0
    while zeros:
        if zeros & 1:
            register = _apply(list(_zero_columns(log2)), register)
        zeros >>= 1
        log2 += 1
    return register


@lru_cache(maxsize=None)
def _zero_tables(log2: int) -> tuple[U32, U32]:
    return _tables(list(_zero_columns(log2)))


def _step(tables: tuple[U32, U32], x: U32) -> U32:
    low, high = tables
    return np.take(low, x & np.uint32(0xFFFF)) ^ np.take(high, x >> np.uint32(16))


def _lanes(words: U32) -> U32:
    """The register, from 0, after each row of little-endian words."""
    tables = _zero_tables(2)
    columns = np.ascontiguousarray(words.T)
    state = np.zeros(words.shape[0], np.uint32)
    for column in columns:
        state = _step(tables, state ^ column)
    return state


def crc32c_rows(rows: npt.NDArray[np.uint8]) -> U32:
    """The CRC32C of each row of a matrix of bytes, whose length is a multiple of 4."""
    words = np.ascontiguousarray(rows).view("<u4").astype(np.uint32, copy=False)
    start = _advance(0xFFFFFFFF, rows.shape[1])
    result: U32 = _lanes(words) ^ np.uint32(start ^ 0xFFFFFFFF)
    return result


def _raw(data: npt.NDArray[np.uint8]) -> int:
    """The register, from 0, after data of at most _CHUNK bytes."""
    lanes, log2 = 1, 8
    while lanes * 4 * _LANE_WORDS < data.size:
        lanes *= 2
    padded = np.zeros(lanes * 4 * _LANE_WORDS, np.uint8)
    if data.size:
        padded[-data.size:] = data
    state = _lanes(padded.view("<u4").astype(np.uint32, copy=False).reshape(lanes, _LANE_WORDS))
    while state.size > 1:
        state = _step(_zero_tables(log2), state[0::2]) ^ state[1::2]
        log2 += 1
    return int(state[0])


def crc32c(data: Any) -> int:
    """The CRC32C of bytes."""
    array = np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data
    register = 0xFFFFFFFF
    for at in range(0, array.size, _CHUNK):
        part = array[at : at + _CHUNK]
        register = _advance(register, part.size) ^ _raw(part)
    return register ^ 0xFFFFFFFF
