"""mlx-lm loads MLX directories: mlx_lm.load(DIR)."""

import sys

import mlx.core as mx
import numpy as np
from mlx_lm import load as mlx_load
from mlx_lm.generate import generate_step

import compare


def functions(model):
    def logits(ids):
        return np.array(model(mx.array(ids)).astype(mx.float32))

    def greedy(prompt, n):
        return [int(id) for _, (id, _) in zip(range(n), generate_step(mx.array(prompt), model, max_tokens=n))]

    return logits, greedy


def load(case):
    model, tokenizer = mlx_load(case["dir"])
    compare.tokens(case, lambda text: tokenizer.encode(text, add_special_tokens=False))
    dtype = str(model.model.embed_tokens.scales.dtype).rpartition(".")[2]  # MLX computes in the dtype of scales
    if not case["brief"]:
        yield compare.Run("bfloat16 sums" if dtype == "bfloat16" else dtype, "float", *functions(model))
    model.set_dtype(mx.float32)
    yield compare.Run("float32", "float", *functions(model))


if __name__ == "__main__":
    compare.run(load, sys.argv[3:])
