"""Assets that are compressed (docs/FORMAT.md, 5.7)."""

from __future__ import annotations

from .errors import FormatError


def _check_frame(frame: bytes, size: int) -> str:
    """What is wrong with a frame's header, or nothing (RFC 8878, 3.1.1.1)."""
    if frame[:4] != b"\x28\xb5\x2f\xfd" or len(frame) < 6:
        return "not a zstd frame"
    descriptor = frame[4]
    single, dictionary = descriptor >> 5 & 1, (0, 1, 2, 4)[descriptor & 3]
    field = (single, 2, 4, 8)[descriptor >> 6]
    at = 5
    if descriptor & 8:
        return "a reserved bit of the frame is set"
    if not field:
        return "a frame without its content's size"
    if not single:
        exponent, mantissa = frame[at] >> 3, frame[at] & 7
        window = (1 << (10 + exponent)) // 8 * (8 + mantissa)
        if window > 32 << 20:
            return f"a window of {window} bytes, at most 32 MiB are allowed"
        at += 1
    if any(frame[at : at + dictionary]):
        return "a frame with a dictionary"
    at += dictionary
    content = int.from_bytes(frame[at : at + field], "little") + (256 if field == 2 else 0)
    if len(frame) < at + field or content != size:
        return f"{content} bytes of content, the record says {size}"
    if _end(frame, at + field) + (4 if descriptor & 4 else 0) != len(frame):
        return "not exactly one complete frame"
    return ""


def _end(frame: bytes, at: int) -> int:
    """The end of the blocks that begin at a place, beyond the frame if they are not complete (3.1.1.2)."""
    while at + 3 <= len(frame):
        header = int.from_bytes(frame[at : at + 3], "little")
        kind, size = header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else size)
        if header & 1:
            return at
    return len(frame) + 1


def decompress(path: str, name: str, offset: int, frame: bytes, size: int) -> bytes:
    wrong = _check_frame(frame, size)
    if wrong:
        raise FormatError(path, offset, f"asset {name!r}: {wrong}")
    try:
        raw = _decompress(frame, size + 1)
    except ImportError:
        raise
    except Exception as e:
        raise FormatError(path, offset, f"asset {name!r}: {e}") from e
    if len(raw) != size:
        raise FormatError(path, offset, f"asset {name!r}: {len(raw)} bytes of content or more, want {size}")
    return raw


def _decompress(frame: bytes, limit: int) -> bytes:
    """The content of a frame, at most limit bytes: what a frame states may be less than what is in it."""
    try:
        from compression.zstd import ZstdDecompressor
    except ImportError:
        pass
    else:
        return bytes(ZstdDecompressor().decompress(frame, limit))
    try:
        import zstandard
    except ImportError:
        raise ImportError("compressed assets need Python 3.14, or the package zstandard") from None
    with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
        return bytes(reader.read(limit))
