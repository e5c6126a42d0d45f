"""The other end of a Go test, include/python_test.go: what this package says of damaged files.

    driver.py mutants FILE
    driver.py panels FILE

reads changes of FILE from standard input and prints a line for each: 0 (fine), 1 (malformed) or 2 (unsupported) for
opening and for verifying, and the CRC32C of a dump of everything that the package hands out. panels prints how each
file verifies: "." (fine), "s" (a checksum is wrong) or "p" (a scale is). A change is, in little-endian u32: the new
size, the number of edits, and for each edit offset, size and bytes.
"""

import functools
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import gqf
from gqf import codes
from gqf._crc32c import crc32c as crc32c_of


@functools.lru_cache(maxsize=4096)
def crc32c_of_bytes(data):
    return crc32c_of(data)


def crc32c(data):
    """Most changes leave most payloads as they are."""
    return crc32c_of_bytes(bytes(data))


SCALES = ["none", "bf16", "f16", "f32"]
CPUS = [0, 1, 3, 1 << 16]


def dump_header(h):
    dtype = codes.DTYPES[h.dtype][0] if h.dtype else "?"
    tile = " ".join(map(str, h.tile))
    return (
        f" {h.layout_name} flags {h.flags} bits {h.bits} grid {h.grid} scale {SCALES[h.scale_dtype]} zero {h.zero_kind}"
        f" tile {tile} dtype {dtype} {h.rows} x {h.cols} group {h.group} data {h.data_size} groups {h.groups}"
    )


def dump_payload(f, t, k, p):
    r = p._record
    line = f"payload {k} tensor {t.index} slice {p.slice} kind {p.kind} variant {p.variant} cpu {p.cpu} at {r.offset} size {r.size}"
    if p.variant not in t.variants:
        return f"{line} skipped layout {r.raw[6]} data {r.size - 64}\n"
    line += dump_header(p.header)
    try:
        return f"{line} crc {crc32c(p.data):08x}\n"
    except gqf.FormatError:
        return f"{line} damaged\n"


def dump(f):
    out, k = [], 0
    front = f._front
    for t in f.tensors:
        shape = "".join(f" {d}" for d in t.shape)
        r = t._record
        out.append(
            f"tensor {t.index} {t.dtype} {t.role} {t.mapping} {t.algorithm} transposed {int(t.transposed)} slices {t.slices}"
            f" names {r.names} payloads {len(t.payloads)} bias {t.bias.index if t.bias else -1} shape{shape} {t.name}\n"
        )
        for p in t.payloads:
            out.append(dump_payload(f, t, k, p))
            k += 1
        for cpu in CPUS:
            chosen = t.choose(cpu)
            out.append(f"cpu {cpu}: {-1 if chosen is None else chosen}\n")
    for n in front.names:
        found = f[n.name].index if n.name in f else -1
        out.append(
            f"name tensor {n.tensor} file {n.source_file} crc {n.source_crc:08x} size {n.source_size}"
            f" in checkpoint {int(n.in_checkpoint)} absorbed {int(n.absorbed)} found {found} {n.name}\n"
        )
    for a in front.assets:
        try:
            sum_ = f"crc {crc32c(f._asset(a)):08x}"
        except gqf.FormatError:
            sum_ = "damaged"
        out.append(f"asset {a.kind} {a.codec} stored {a.stored} raw {a.raw} found 1 {sum_} {a.name}\n")
    return "".join(out).encode()


def verdict(data):
    try:
        f = gqf.File.from_bytes(data)
    except gqf.UnsupportedError as e:
        return 2, 0, 0, e
    except gqf.FormatError as e:
        assert 0 <= e.offset <= len(data), e
        return 1, 0, 0, e
    text = dump(f)
    try:
        f.verify()
    except gqf.FormatError as e:
        assert 0 <= e.offset <= len(data), e
        return 0, 1, crc32c(text), e
    return 0, 0, crc32c(text), ""


def panels(data):
    f = gqf.File.from_bytes(data)
    for scales, verdict in ((False, "s"), (True, "p")):
        try:
            f.verify(scales)
        except gqf.FormatError:
            return verdict
    return "."


def changed(path):
    base = Path(path).read_bytes()
    stream = sys.stdin.buffer
    while head := stream.read(8):
        size, edits = struct.unpack("<II", head)
        data = bytearray(base[:size].ljust(size, b"\0"))
        for _ in range(edits):
            offset, n = struct.unpack("<II", stream.read(8))
            data[offset : offset + n] = stream.read(n)
        yield bytes(data)


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        sys.stdout.buffer.write(dump(gqf.open(sys.argv[2])))
    for data in changed(sys.argv[2]) if sys.argv[1] == "panels" else ():
        print(panels(data))
    for data in changed(sys.argv[2]) if sys.argv[1] == "mutants" else ():
        opened, verified, text, message = verdict(data)
        print(opened, verified, f"{text:08x}", message)
