"""gqf.torch on any CPU: where PyTorch has no kernels of KleidiAI, a stand-in multiplies with the same bytes.

docs/examples/pytorch/judge runs the real operator.
"""

import ctypes
import sys
import unittest
from unittest import mock

import numpy as np
import torch
from torch import nn

import gqf
import gqf.torch
from gqf import codes, layouts, packed

from .program import BOOKS, ROOT, gq, scratch, write_safetensors

sys.path.insert(0, str(ROOT / "docs" / "examples" / "pytorch"))
import llama  # noqa: E402

PROMPT = "It was a dark night, and the old man"


def multiply(x, weights, block, in_features, out_features):
    """_dyn_quant_matmul_4bit on weights of KleidiAI, with float32 activations."""
    layout = codes.QSI4CXP if block == in_features else codes.LOWBIT
    kind, flags = (codes.SCALE_F32, 0) if layout == codes.QSI4CXP else (codes.SCALE_BF16, codes.IS_QSI4C32P)
    group = 0 if layout == codes.QSI4CXP else block
    h = packed.Header(layout, flags, 4, codes.INTEGER, kind, codes.NO_ZEROS, (8, 16, 2), 0, out_features, in_features, group, 0)
    data = weights.numpy()
    assert data.size == packed.data_size(h)
    panels = data.reshape(-1, h.panel_bytes)
    bias = np.ascontiguousarray(panels[:, -32:]).view("<f4").reshape(-1)[:out_features]
    return x @ torch.from_numpy(layouts.decode(h, data, 0, out_features).weights()).T + torch.from_numpy(bias)


def with_kernels():
    return mock.patch.multiple(gqf.torch, supports=lambda layout: True, _multiply=multiply)


def greedy(path, count):
    model, tokenizer, config, report = llama.build(path)
    ids = [config["bos_token_id"]] + tokenizer.encode(PROMPT)
    return tokenizer.decode([token for token, _ in llama.generate(model, config, ids, count)]), report


class Books(unittest.TestCase):
    def quantize(self, *args):
        path = scratch("books-torch.gqf")
        gq("quantize", BOOKS, *args, "-q", "-o", path)
        want = gq("run", path, "--prompt", PROMPT, "--temperature", 0, "-n", 40, "--activations", "float32", "-q")
        return path, want.rstrip("\n")

    def test_dequantized(self):
        path, want = self.quantize("--bits", 5, "--group", 48)
        text, report = greedy(path, 40)
        self.assertEqual(text.rstrip("\n"), want)
        self.assertEqual((report.packed, report.unused), ([], []))
        self.assertIn("5 bits", report.dequantized["model.layers.0.mlp.up_proj.weight"])

    def test_packed(self):
        for group, embedding in (32, 4), ("channel", 8):
            path, want = self.quantize("--target", "pytorch-aarch64", "--group", group, "--embedding-bits", embedding)
            with with_kernels():
                text, report = greedy(path, 40)
            self.assertEqual(text.rstrip("\n"), want)
            self.assertEqual(len(report.packed), 43 if embedding == 4 else 42)
            self.assertIn("model.embed_tokens.weight", report.dequantized)

    def test_in_place(self):
        path, _ = self.quantize("--target", "pytorch-aarch64")
        with gqf.open(path) as f, with_kernels():
            start = ctypes.addressof(ctypes.c_char.from_buffer(f._map))
            end = start + len(f._map)
            model = llama.Llama({**CONFIG, "vocab_size": 1024}).to(torch.bfloat16)
            report = gqf.torch.load(model, f)
        self.assertIs(model.lm_head.weight, model.model.embed_tokens.weight)
        self.assertEqual(report.converted, [])
        self.assertIn("model.norm.weight", report.mapped)
        q = model.model.layers[0].self_attn.q_proj
        for t in (q.packed, model.model.norm.weight):
            self.assertTrue(start <= t.data_ptr() < end)
        self.assertEqual(q.packed.data_ptr() % 64, 0)
        before = path.read_bytes()
        q.packed.zero_()
        self.assertEqual(path.read_bytes(), before)
        self.assertNotIn("packed", "".join(model.state_dict()))


CONFIG = {
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 6, "rms_norm_eps": 1e-5,
}  # fmt: skip


class Odd(nn.Linear):
    pass


class Renamed(gqf.File):
    """A file whose tensors first.* have names of a single Linear."""

    def __getitem__(self, name):
        return super().__getitem__("first." + name)

    def __contains__(self, name):
        return "first." + name in self._index


class Small(unittest.TestCase):
    def setUp(self):
        r = np.random.default_rng(5)
        self.weights = {
            "first.weight": ("F32", r.standard_normal((40, 64)).astype(np.float32)),
            "first.bias": ("F32", r.standard_normal(40).astype(np.float32)),
            "norm.weight": ("F32", r.standard_normal(40).astype(np.float32)),
            "norm.bias": ("F32", r.standard_normal(40).astype(np.float32)),
        }
        checkpoint, self.path = scratch("small.safetensors"), scratch("small.gqf")
        write_safetensors(checkpoint, self.weights)
        gq("quantize", checkpoint, "--target", "pytorch-aarch64", "-q", "-o", self.path)

    def model(self, bias=True):
        m = nn.Module()
        m.first, m.norm = nn.Linear(64, 40, bias=bias), nn.LayerNorm(40)
        return m

    def test_bias(self):
        """The panels of this file hold the bias, which counts once."""
        with gqf.open(self.path) as f:
            self.assertTrue(f["first.weight"].payload().header.flags & codes.BIAS)
        x = torch.randn(3, 5, 64)
        plain, kernels = self.model(), self.model()
        self.assertEqual(gqf.torch.load(plain, self.path).packed, [])
        with with_kernels():
            report = gqf.torch.load(kernels, self.path)
            y = kernels.first(x)
        self.assertEqual((report.packed, report.unused), (["first"], []))
        self.assertEqual(y.shape, (3, 5, 40))
        self.assertTrue(torch.allclose(y, plain.first(x), atol=1e-4))
        self.assertTrue(torch.equal(plain.first.bias, torch.from_numpy(self.weights["first.bias"][1])))

    def test_modules(self):
        """A Linear under two names is replaced under both; what inherits from Linear is left alone."""
        model = self.model()
        model.again = model.first
        model.odd = Odd(64, 40)
        model.odd.weight, model.odd.bias = model.first.weight, model.first.bias
        with with_kernels():
            report = gqf.torch.load(model, self.path)
        self.assertIs(model.again, model.first)
        self.assertEqual((report.packed, list(report.dequantized)), (["first"], ["odd.weight"]))
        self.assertIs(type(model.odd), Odd)
        with self.assertRaisesRegex(ValueError, "wrap it in a module"):
            gqf.torch.load(nn.Linear(64, 40), Renamed(self.path))

    def test_meta(self):
        model = self.model().to("meta")
        gqf.torch.load(model, self.path)
        self.assertTrue(all(p.device.type == "cpu" and not p.requires_grad for p in model.parameters()))

    def test_refused(self):
        model = self.model()
        model.other = nn.Linear(3, 3)
        with self.assertRaisesRegex(ValueError, "small.gqf: no tensor for other.weight, other.bias of the model"):
            gqf.torch.load(model, self.path)
        model = self.model()
        model.norm = nn.LayerNorm(41)
        with self.assertRaisesRegex(ValueError, r"norm.weight has shape \[40\], the model's norm.weight \[41\]"):
            gqf.torch.load(model, self.path)
        model = self.model()
        del model.norm
        self.assertEqual(sorted(gqf.torch.load(model, self.path).unused), ["norm.bias", "norm.weight"])

    def test_support(self):
        """This PyTorch says of itself what it can do; without the operator there is nothing to support."""
        with mock.patch.object(gqf.torch, "_OPERATORS", object()):
            gqf.torch.supports.cache_clear()
            self.assertFalse(gqf.torch.supports(codes.LOWBIT))
        gqf.torch.supports.cache_clear()


if __name__ == "__main__":
    unittest.main()
