"""Writes mxfp4.json: random blocks and scales of experts, and the weights that Transformers makes of them."""

import json
import pathlib

import torch
import transformers
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

torch.manual_seed(1)
blocks = torch.randint(0, 256, (2, 3, 2, 16), dtype=torch.uint8)
scales = torch.randint(90, 160, (2, 3, 2), dtype=torch.uint8)
scales[0, 0, 0], scales[1, 2, 1] = 0, 252  # subnormal numbers, and large ones
weights = convert_moe_packed_tensors(blocks, scales).float()
path = pathlib.Path(__file__).with_name("mxfp4.json")
path.write_text(json.dumps({
    "transformers": transformers.__version__, "blocks": blocks.flatten().tolist(), "scales": scales.flatten().tolist(),
    "shape": list(weights.shape), "weights": weights.contiguous().flatten().tolist(),
}) + "\n")
