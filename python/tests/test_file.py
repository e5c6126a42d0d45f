"""Opening, looking up, errors with positions, and what is not copied."""

import ctypes
import gc
import struct
import tracemalloc
import unittest
import weakref

import numpy as np

import gqf
from gqf._crc32c import crc32c
from gqf._zstd import decompress

from .program import BOOKS, ROOT, gq, scratch


def example():
    """The file of docs/FORMAT.md, chapter 12."""
    text = (ROOT / "docs" / "FORMAT.md").read_text()
    dump = text[text.index("## 12.") :]
    size = 0x10080
    data = bytearray(size)
    for line in dump.splitlines():
        head, _, tail = line.strip().partition("  ")
        if len(head) == 5 and all(c in "0123456789abcdef" for c in head):
            row = bytes.fromhex(tail)
            data[int(head, 16) : int(head, 16) + len(row)] = row
    return data


def seal(data):
    """Makes the checksums of sections, packed headers' copies left as they are, and header right."""
    for i in range(8):
        at = 32 + 24 * i
        offset, size = struct.unpack_from("<QQ", data, at)
        struct.pack_into("<I", data, at + 20, crc32c(bytes(data[offset : offset + size])))
    struct.pack_into("<I", data, 252, crc32c(bytes(data[:252])))


class Checksum(unittest.TestCase):
    def test_vectors(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(crc32c(b""), 0)
        self.assertEqual(crc32c(bytes(32)), 0x8A9136AA)  # RFC 3720, B.4
        self.assertEqual(crc32c(b"\xff" * 32), 0x62A8AB43)
        self.assertEqual(crc32c(bytes(range(32))), 0x46DD794E)

    def test_lengths(self):
        data = np.random.default_rng(3).integers(0, 256, (1 << 20) + 700, np.uint8).tobytes()

        def slow(data, crc=0xFFFFFFFF):
            for byte in data:
                crc ^= byte
                for _ in range(8):
                    crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
            return crc ^ 0xFFFFFFFF

        for n in (1, 2, 3, 4, 5, 63, 255, 256, 257, 511, 513, 4097):
            self.assertEqual(crc32c(data[:n]), slow(data[:n]), n)
        whole = crc32c(data[: 1 << 20])
        self.assertEqual(crc32c(data), slow(data[1 << 20 :], whole ^ 0xFFFFFFFF))


class Example(unittest.TestCase):
    def test_document(self):
        f = gqf.File.from_bytes(bytes(example()))
        f.verify()
        self.assertEqual(list(f), ["head", "w"])
        self.assertEqual(f["head"].index, f["w"].index)
        self.assertEqual(f["w"].array().tolist(), [[1, -2], [0.5, 3]])
        self.assertEqual((f["w"].role, f["w"].name, f.asset("config.json")), ("embedding", "w", b"{}"))
        with self.assertRaises(KeyError):
            f["absent"]

    def refused(self, change, offset, message, kind=gqf.FormatError):
        data = example()
        change(data)
        with self.assertRaisesRegex(kind, message) as caught:
            gqf.File.from_bytes(bytes(data)).verify()
        if offset is not None:
            self.assertEqual(caught.exception.offset, offset)

    def test_damage(self):
        def sealed(at, byte):
            def change(data):
                data[at] = byte
                seal(data)

            return change

        def flip(at):
            def change(data):
                data[at] ^= 1

            return change

        self.refused(flip(0), 0, "no .gqf file")
        self.refused(flip(40), 252, "header: its checksum")
        self.refused(flip(0x100), 0x100, "section tensors: its checksum")
        self.refused(flip(0x19C), 0x140, "section payloads: its checksum")
        self.refused(flip(0x300 - 1), 0x2FF, "gap before the data region")
        self.refused(flip(0x10044), 0x10000, "checksum of block 0")
        self.refused(flip(0x1007F), 0x10000, "checksum of block 0")
        self.refused(sealed(12, 1), None, "version 1.1", gqf.UnsupportedError)
        self.refused(sealed(0x10C, 9), 0x10C, "9 dimensions")
        self.refused(sealed(0x10D, 23), 0x10D, "element type 23")
        self.refused(sealed(0x140, 1), 0x140, "payload 0: at 65537")
        self.refused(sealed(0x1E8, 1), 0x1E8, "tensor 1 of 1")
        self.refused(sealed(0x240, 0x78), None, "is not behind the name before it")
        self.refused(lambda data: data.extend(bytes(64)), 16, "truncated or appended")
        self.refused(lambda data: data.__delitem__(slice(100, None)), 0, "no .gqf file")

    def test_huge_counts(self):
        """Numbers of a hostile file must not become memory."""

        def change(data):
            struct.pack_into("<QI", data, 32 + 24 + 8, 96 * 0xFFFFFFFF, 0xFFFFFFFF)
            struct.pack_into("<I", data, 252, crc32c(bytes(data[:252])))

        tracemalloc.start()
        self.refused(change, 32 + 24 + 8, "bytes at 320, the file has")
        self.assertLess(tracemalloc.get_traced_memory()[1], 8 << 20)
        tracemalloc.stop()


class Mapped(unittest.TestCase):
    def setUp(self):
        self.path = scratch("mapped.gqf")
        gq("quantize", BOOKS, "-q", "-o", self.path)

    def test_in_place(self):
        f = gqf.open(self.path)
        payload = f["model.layers.0.mlp.down_proj.weight"].payload()
        start = ctypes.addressof(ctypes.c_char.from_buffer(f._map))
        self.assertEqual(payload.data.ctypes.data, start + payload.offset)
        self.assertEqual(f["model.norm.weight"].array().ctypes.data % 64, 0)
        with self.assertRaises(ValueError):
            payload.data[0] = 1
        self.assertIs(f["lm_head.weight"], f["model.embed_tokens.weight"])
        data, before = payload.data, payload.data.tobytes()
        f.close()
        del f, payload
        gc.collect()
        self.assertEqual(data.tobytes(), before)

    def test_closed(self):
        """A closed file keeps no map, and is not called damaged."""
        f = gqf.open(self.path)
        mapped = weakref.ref(f._map)
        f.close()
        gc.collect()
        self.assertIsNone(mapped())
        tensor = f["model.norm.weight"]
        for use in (f.verify, tensor.dequantize, lambda: tensor.payload().data, lambda: f.asset("config.json")):
            with self.assertRaisesRegex(ValueError, "mapped.gqf: the file is closed") as caught:
                use()
            self.assertNotIsInstance(caught.exception, gqf.FormatError)

    def test_assets(self):
        with gqf.open(self.path) as f:
            f.verify()
            for name in ("config.json", "tokenizer.json"):
                self.assertEqual(f.asset(name), (BOOKS / name).read_bytes())
            with self.assertRaisesRegex(KeyError, "no asset 'x'; it has config.json"):
                f.asset("x")

    def test_frames(self):
        """Frames of other forms than 5.7 demands."""
        with gqf.open(self.path) as f:
            a = next(a for a in f._front.assets if a.name == "tokenizer.json")
            frame = f.data[a.offset : a.offset + a.stored].tobytes()
        self.assertEqual(decompress("x", "a", 0, frame, a.raw), (BOOKS / "tokenizer.json").read_bytes())
        for bad, size, message in (
            (frame + b"\0", a.raw, "not exactly one complete frame"),
            (frame + frame, a.raw, "not exactly one complete frame"),
            (frame[:-1], a.raw, "not exactly one complete frame"),
            (frame, a.raw - 1, "the record says"),
            (b"PK" + frame, a.raw, "not a zstd frame"),
            (frame[:4] + bytes([frame[4] | 8]) + frame[5:], a.raw, "reserved bit"),
            (frame[:4] + bytes([frame[4] | 1]) + b"\1" + frame[5:], a.raw, "dictionary|the record says"),
            (frame[: len(frame) // 2] + bytes(9) + frame[len(frame) // 2 + 9 :], a.raw, "asset 'a'"),
        ):
            with self.assertRaisesRegex(gqf.FormatError, message):
                decompress("x", "a", 0, bad, size)

    def test_empty(self):
        path = scratch("empty.gqf")
        path.write_bytes(b"")
        with self.assertRaisesRegex(gqf.FormatError, "empty.gqf: byte 0: 0 bytes are no .gqf file"):
            gqf.open(path)

    def test_rows(self):
        with gqf.open(self.path) as f:
            t = f["model.embed_tokens.weight"]
            self.assertTrue(np.array_equal(t.matrix(16, 21).weights(), t.dequantize()[16:21]))
            with self.assertRaisesRegex(ValueError, "multiple of 8"):
                t.matrix(3, 5)


if __name__ == "__main__":
    unittest.main()
