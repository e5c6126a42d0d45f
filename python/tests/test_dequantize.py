"""The reader's weights are those that `gq dequantize --dtype f32` writes, to the bit, in every layout."""

import shutil
import unittest

import numpy as np

import gqf
from gqf import codes

from .program import BOOKS, gq, read_safetensors, scratch, synthetic


def cases():
    tiles = ["4x8x2", "4x16x2", "8x8x2", "8x16x2"]
    for bits in range(1, 9):
        common = ["--bits", bits, "--embedding-bits", bits]
        tile = ["--layout", "lowbit:" + tiles[bits % 4]]
        yield [*common, *tile, "--group", 32, "--scale-dtype", "bf16"]
        yield [*common, *tile, "--group", 48, "--scale-dtype", "f16", "--mapping", "asymmetric"]
        symmetric = ["--mapping", "symmetric"] if bits > 1 else []
        yield [*common, *tile, "--group", "channel", "--scale-dtype", "f32", *symmetric]
        yield [*common, *tile, "--group", 16, "--scale-dtype", "bf16", "--mapping", "asymmetric"]
        yield [*common, "--layout", "codes", "--group", 48, "--scale-dtype", "f16", "--mapping", "asymmetric"]
        yield [*common, "--layout", "torchao", "--group", 32, "--scale-dtype", "f32"]
        yield [*common, "--target", "torchao", "--group", 32, "--mapping", "asymmetric"]
        yield [*common, "--target", "torchao", "--group", "channel"]
    for bits in (1, 2):
        yield ["--bits", bits, "--group", 32, "--mapping", "half-step"]
        yield ["--bits", bits, "--group", "channel", "--mapping", "half-step", "--layout", "codes"]
    yield ["--bits", 3, "--layout", "codes", "--group", "channel", "--scale-dtype", "f32"]
    yield ["--bits", 5, "--layout", "codes", "--group", 32, "--scale-dtype", "bf16", "--mapping", "symmetric-no-clip"]
    yield ["--bits", 4, "--layout", "torchao", "--group", 32, "--scale-dtype", "bf16"]
    for tile in tiles:
        yield ["--bits", 4, "--group", "channel", "--scale-dtype", "f32", "--layout", f"kleidiai:{tile}"]
        yield ["--bits", 4, "--group", 32, "--scale-dtype", "f16", "--layout", f"kleidiai:{tile}"]
        if tile.startswith("4"):
            zeros = ["--mapping", "asymmetric", "--scale-dtype", "f32"]
            yield ["--bits", 4, "--group", 32, *zeros, "--layout", f"kleidiai:{tile}"]
            yield ["--bits", 4, "--group", "channel", *zeros, "--layout", f"kleidiai:{tile}"]
    for tile in ("4x4x1", "4x8x1"):
        yield ["--bits", 8, "--group", "channel", "--scale-dtype", "f32", "--layout", f"kleidiai:{tile}"]
    yield ["--bits", 2, "--group", "channel", "--scale-dtype", "f32", "--layout", "kleidiai:4x4x1"]
    yield ["--target", "pytorch-aarch64"]
    yield ["--target", "xnnpack-i8mm,xnnpack-dotprod"]


class Dequantize(unittest.TestCase):
    """seen collects what the cases came to, so that none of the format is left out without notice."""

    def setUp(self):
        self.seen, self.slices = set(), set()

    def hold(self, path):
        restored = scratch("restored")
        shutil.rmtree(restored, ignore_errors=True)
        gq("dequantize", path, "-o", restored, "--dtype", "f32", "-q")
        want = read_safetensors(restored)
        with gqf.open(path) as f:
            self.assertEqual(set(want) - set(f), set())
            for name, (dtype, shape, data) in want.items():
                t = f[name]
                self.slices |= {(t.slices, t.transposed)}
                for variant in t.variants:
                    h = t.payload(variant).header
                    self.seen.add((h.layout, h.bits, h.tile, h.scale_dtype, h.zero_kind, h.grid))
                    if h.layout == codes.PLAIN:
                        self.assertEqual((t.dtype, t.array(variant).tobytes()), (dtype, data), name)
                        continue
                    w = t.dequantize(variant)
                    self.assertEqual(w.shape, shape, name)
                    self.assertTrue(
                        np.array_equal(w.view(np.uint32).ravel(), np.frombuffer(data, np.uint32)),
                        f"{name} {h}: {w.ravel()[:8]} {np.frombuffer(data, np.float32)[:8]}",
                    )

    def test_every_layout(self):
        source, path = scratch("synthetic"), scratch("case.gqf")
        synthetic(source)
        for args in cases():
            with self.subTest(args=" ".join(map(str, args))):
                gq("quantize", source, *args, "-q", "-o", path)
                self.hold(path)
        self.assertEqual({layout for layout, *_ in self.seen}, set(codes.LAYOUTS))
        for layout in (codes.LOWBIT, codes.CODES, codes.TORCHAO_LINEAR, codes.TORCHAO_EMBEDDING):
            self.assertEqual({s[1] for s in self.seen if s[0] == layout}, set(range(1, 9)), codes.LAYOUTS[layout])
        self.assertEqual({s[2] for s in self.seen if s[0] == codes.LOWBIT}, {(4, 8, 2), (4, 16, 2), (8, 8, 2), (8, 16, 2)})
        schemes = {s[3:] for s in self.seen if s[0] == codes.LOWBIT}
        self.assertLessEqual({(1, False), (3, True)}, self.slices)
        self.assertLessEqual({(1, 0, 0), (2, 1, 0), (3, 0, 0), (1, 1, 0), (1, 0, 1)}, schemes)

    def test_model(self):
        path = scratch("books.gqf")
        gq("quantize", BOOKS, "-q", "-o", path)
        self.hold(path)


if __name__ == "__main__":
    unittest.main()
