"""Quantizes a checkpoint with mlx-lm, and writes the dequantized weights: quantize.py for a library without torch.

    python quantize_mlx.py METHOD CHECKPOINT BITS GROUP DATA OUT

MLX stores a scale and a bias for each group. Groups of 2 * GROUP weights have as many bytes as symmetric codes with a
scale for each GROUP. Everything is computed in float32; scales and biases are rounded to float16 in the end.
"""

import copy
import importlib.metadata
import json
import os
import resource
import sys

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optimizers
from mlx.utils import tree_flatten
from mlx_lm.quant import awq, dwq, dynamic_quant, gptq
from mlx_lm.utils import load

# For dwq: times that it reads the calibration in batches of 4, and the rate for Adam; its command's 1e-6 is meant for
# 512 batches of larger models.
EPOCHS, RATE = 4, 1e-5


class Embedding(nn.Module):
    """An embedding that no method quantizes."""
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def __call__(self, ids):
        return self.weight[ids]

    def as_linear(self, x):
        return x @ self.weight.T


def run_awq(model, data, bits, group, config):
    model.model.embed_tokens.to_quantized = lambda **_: model.model.embed_tokens
    awq.awq_quantize(model, data, awq.AWQ_MODEL_CONFIGS[config["model_type"]], bits=bits, group_size=group)
    return model


def run_gptq(model, data, bits, group, config):
    return gptq.gptq_quantize(model, data, bits, group, bits, group)[0]


def run_dwq(model, data, bits, group, config):
    student = copy.deepcopy(model)
    nn.quantize(student, group_size=group, bits=bits)
    student.freeze()
    rows = [(ids, 0) for ids in data.tolist()]
    dwq.dwq_quantize(student, lambda batch, index, split: model(batch), optimizers.Adam(learning_rate=RATE, bias_correction=True),
                     rows * EPOCHS, rows[::8], 4, len(rows[0][0]), 1, dtype=mx.float32)
    return student


def run_dynamic(model, data, bits, group, config):
    """Chooses between one bit less and one more. 16-bit scales count, and nothing but the linear layers."""
    low, high = dict(bits=bits - 1, group_size=group), dict(bits=bits + 1, group_size=group)
    sensitivities = dict(dynamic_quant.estimate_sensitivities(model, data, low["bits"], group, high["bits"], group))
    half = copy.deepcopy(model)
    half.set_dtype(mx.float16)
    linear = sum(m.weight.size for k, m in half.named_modules() if k in sensitivities)
    total = sum(v.size for _, v in tree_flatten(half.parameters()))
    target = ((bits + 32 / group) * linear + 16 * (total - linear)) / total
    threshold = dynamic_quant.estimate_threshold(half, sensitivities, target, low["bits"], group, high["bits"], group)
    nn.quantize(model, **low, class_predicate=lambda k, m: hasattr(m, "to_quantized") and (sensitivities[k] <= threshold or high))
    return model


METHODS = {"mlx-awq": run_awq, "mlx-gptq": run_gptq, "mlx-dwq": run_dwq, "mlx-dynamic": run_dynamic}


def main():
    method, checkpoint, bits, group, data, out = sys.argv[1:]
    with open(os.path.join(data, "calibration.json")) as f:
        ids = mx.array(json.load(f))
    model, _, config = load(checkpoint, return_config=True)
    model.set_dtype(mx.float32)
    embedding = model.model.embed_tokens = Embedding(model.model.embed_tokens.weight)
    model = METHODS[method](model, ids, int(bits), 2 * int(group), config)
    mx.eval(model.parameters())
    usage = resource.getrusage(resource.RUSAGE_SELF)

    weights, size, count = {}, 0, 0
    for name, value in tree_flatten(model.parameters()):
        if value is not embedding.weight and "lm_head" not in name:
            weights[name] = value
    for name, m in model.named_modules():
        if hasattr(m, "bits"):
            scales, biases = (v.astype(mx.float16).astype(mx.float32) for v in (m.scales, m.biases))
            weights[name + ".weight"] = w = mx.dequantize(m.weight, scales, biases, group_size=m.group_size, bits=m.bits)
            del weights[name + ".scales"], weights[name + ".biases"]
            size, count = size + (m.bits + 32 / m.group_size) * w.size, count + w.size
    mx.save_safetensors(out + ".safetensors", weights)
    with open(out + ".json", "w") as f:
        json.dump({"cpu": round(usage.ru_utime + usage.ru_stime, 1), "rss": usage.ru_maxrss >> 10, "bpw": size / count,
                   "versions": {p: importlib.metadata.version(p) for p in ("mlx", "mlx-lm")}}, f)


main()
