"""ExecuTorch lowers what Transformers loads of torchao directories to the XNNPACK delegate, and runs it in its runtime."""

import os
import sys
import tempfile

import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackDynamicallyQuantizedPartitioner, XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization import IntxUnpackedToInt8Tensor
from torchao.utils import unwrap_tensor_subclass
from transformers import AutoModelForCausalLM, AutoTokenizer

import compare


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


def lower(model, length):
    """The bytes of a program for windows of a length, and how many of the linear layers are in the delegate."""
    program = torch.export.export(Logits(model), (torch.zeros(1, length, dtype=torch.long),), strict=False)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackDynamicallyQuantizedPartitioner(), XnnpackPartitioner()])
    left = [n.name for n in lowered.exported_program().graph.nodes if "linear" in str(n.target) or "dequantize_affine" in str(n.target)]
    if left:
        raise ValueError(f"not in the delegate: {left}")
    return lowered.to_executorch().buffer


def load(case):
    tokenizer = AutoTokenizer.from_pretrained(case["dir"])
    compare.tokens(case, lambda text: tokenizer(text, add_special_tokens=False).input_ids)
    windows = compare.reference(case)[0]
    model = AutoModelForCausalLM.from_pretrained(case["dir"], attn_implementation="eager")
    for module in model.modules():  # XNNPACK has no bfloat16 for these weights
        w = getattr(module, "weight", None)
        if isinstance(w, IntxUnpackedToInt8Tensor):
            module.weight = torch.nn.Parameter(w.to(dtype=torch.float32), requires_grad=False)
    torch.nn.Module.float(model).requires_grad_(False)
    unwrap_tensor_subclass(model)
    with tempfile.TemporaryDirectory() as tmp, torch.no_grad():
        path = os.path.join(tmp, "model.pte")
        with open(path, "wb") as f:
            f.write(lower(model, windows.shape[1]))
        method = Runtime.get().load_program(path).load_method("forward")

        def logits(ids):
            return np.concatenate([method.execute([torch.tensor(w[None])])[0].float().numpy() for w in ids])

        yield compare.Run(str(model.dtype).removeprefix("torch."), "int8", logits)


if __name__ == "__main__":
    compare.run(load, sys.argv[3:])
