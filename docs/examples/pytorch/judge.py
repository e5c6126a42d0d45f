"""Holds packed weights to PyTorch with KleidiAI. The script beside this file, judge, fetches a PyTorch and runs it.

    judge.py VECTORS [--write] [FILE...]

1. PyTorch packs matrices of 20 shapes and schemes; the bytes are those of VECTORS (--write stores them instead).
2. PyTorch packs the codes of every tensor of FILEs that its operator can read; the bytes are the file's. The operator
   gives equal outputs for both, and its signal to noise against a float product of the dequantized weights is printed.
3. A whole model, docs/examples/pytorch/llama.py, continues the prompt that stands in FILE.prompt on the mapped bytes.
   The text is that of FILE.text, which `gq run --temperature 0` wrote, at least until two logits are nearly equal.
"""

import argparse
import base64
import json
import sys
from pathlib import Path

import numpy as np
import torch
from compression import zstd

import gqf
import gqf.torch
import llama
from gqf import codes as c

# Rows, columns, group (0: channels) and whether there is a bias.
CASES = [
    (16, 64, 32, False), (16, 64, 32, True), (1, 64, 32, False), (7, 96, 32, True), (37, 128, 64, False),
    (24, 256, 128, True), (40, 192, 64, False), (9, 160, 32, False), (8, 512, 256, True), (65, 128, 32, False),
    (33, 384, 96, True), (3, 1024, 512, False),
    (16, 64, 0, False), (16, 64, 0, True), (1, 32, 0, False), (7, 48, 0, True), (37, 100, 0, False),
    (24, 256, 0, True), (65, 128, 0, False), (40, 34, 0, True),
]  # fmt: skip

# gq run and PyTorch compute the attention in another order of operations, so activations may round to other integers.
# Where the two largest logits are nearer than this, either token is right.
NEAR = 0.05


def pack(codes, scales, bias, group):
    """PyTorch's packed weights. A block of all columns means channels, with float32 scales."""
    rows, cols = codes.shape
    u = (codes + 8).astype(np.uint8)
    nibbles = torch.from_numpy(u[:, 1::2] << 4 | u[:, ::2])
    s = torch.from_numpy(scales).to(torch.bfloat16 if group else torch.float32)
    b = None if bias is None else torch.from_numpy(bias)
    made = torch.ops.aten._dyn_quant_pack_4bit_weight(nibbles, s, b, group or cols, cols, rows)
    return made.reshape(-1).view(torch.uint8)


def case(seed, rows, cols, group, with_bias):
    r = np.random.default_rng(seed)
    codes = r.integers(-8, 8, (rows, cols)).astype(np.int8)
    exponents = r.integers(-100, 30, (rows, cols // group if group else 1))
    mantissas = 1 + r.integers(0, 128, exponents.shape) / 128  # BF16
    scales = (np.ldexp(mantissas, exponents) * r.choice([-1, 1], exponents.shape)).astype(np.float32)
    return codes, scales, r.standard_normal(rows).astype(np.float32) if with_bias else None


def vectors(path, write):
    made = []
    for seed, (rows, cols, group, with_bias) in enumerate(CASES):
        codes, scales, bias = case(seed, rows, cols, group, with_bias)
        arrays = {"codes": codes, "scales": scales, "bias": bias, "packed": pack(codes, scales, bias, group).numpy()}
        texts = {k: "" if v is None else base64.b64encode(v.tobytes()).decode() for k, v in arrays.items()}
        made.append({"rows": rows, "cols": cols, "group": group, **texts})
    if write:
        path.write_bytes(zstd.compress(json.dumps(made).encode(), level=19))
    same = made == json.loads(zstd.decompress(path.read_bytes()))
    print(f"{len(made)} shapes and schemes: {'the bytes' if same else 'NOT the bytes'} of {path.name}", flush=True)
    return same


def tensors(path):
    """Every tensor of a file that the operator can read."""
    right, count, worst = True, 0, np.inf
    with gqf.open(path) as f:
        for t in f.tensors:
            choice = gqf.torch._packed_variant(t) if t.quantized else "unquantized"
            if isinstance(choice, str):
                continue
            variant, block = choice
            payload, m = t.payload(variant), t.matrix(variant=variant)
            rows, cols = m.codes.shape
            assert not payload.header.flags & c.BIAS
            ours, theirs = gqf.torch.payload_bytes(payload), pack(m.codes, m.scales, None, 0 if block == cols else block)
            x = torch.randn(5, cols, generator=torch.Generator().manual_seed(count))
            y, z = (torch.ops.aten._dyn_quant_matmul_4bit(x, w, block, cols, rows) for w in (ours, theirs))
            exact = x @ torch.from_numpy(m.weights()).T
            ratio = 10 * torch.log10(exact.pow(2).sum() / (y - exact).pow(2).sum()).item()
            if not (torch.equal(ours, theirs) and torch.equal(y, z)) or ratio < 30:
                print(f"{path.name}: {t.name} DIFFERS, {ratio:.1f} dB")
                right = False
            count, worst = count + 1, min(worst, ratio)
    print(f"{path.name}: {count} tensors, the mapped bytes are PyTorch's, equal outputs, at least {worst:.1f} dB" if right else path.name)
    return right and count > 0


def text(path):
    """A whole model decodes as gq run does."""
    model, tokenizer, config, report = llama.build(path)
    prompt, want = Path(f"{path}.prompt").read_text(), Path(f"{path}.text").read_text()
    ids = [config["bos_token_id"]] + tokenizer.encode(prompt)
    tokens, near = [], 0
    for token, lead in llama.generate(model, config, ids, 40):
        before = tokenizer.decode(tokens)
        tokens.append(token)
        if not want.startswith(tokenizer.decode(tokens)):
            print(f"{path.name}: other token {len(tokens)} than gq run, where the two largest logits are {lead:.4f} apart")
            print(f"  both: {before!r}\n  gq run: {want[len(before):][:20]!r}, PyTorch: {tokenizer.decode(tokens[-1:])!r}")
            near = lead
            break
    else:
        print(f"{path.name}: {len(tokens)} tokens, the text of gq run")
    print(f"  {len(report.packed)} linear layers on {report.packed_bytes} mapped bytes, 0 bytes repacked", flush=True)
    return near < NEAR and len(report.packed) > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    print("PyTorch", torch.__version__, "kernels of KleidiAI:", torch.backends.kleidiai.is_available(), flush=True)
    right = gqf.torch.supports(c.LOWBIT) and gqf.torch.supports(c.QSI4CXP)
    print("layouts qsi4c32p and qsi4cxp:", "supported" if right else "NOT SUPPORTED", flush=True)
    right &= vectors(args.vectors, args.write)
    for path in args.files:
        right &= tensors(path)
        right &= text(path)
    print("all is as it should be" if right else "SOMETHING DIFFERS")
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
