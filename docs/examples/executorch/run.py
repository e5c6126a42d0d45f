"""Exports a directory of `gq --target torchao-safetensors --positive-scales` to a .pte file, and continues a text with it:

    run.py DIR MODEL.pte PROMPT

Needs the packages executorch, torchao and transformers. The program reads windows of LENGTH tokens without a cache."""

import sys

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackDynamicallyQuantizedPartitioner, XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
from torchao.quantization import IntxUnpackedToInt8Tensor
from torchao.utils import unwrap_tensor_subclass
from transformers import AutoModelForCausalLM, AutoTokenizer

LENGTH = 48


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


directory, path, prompt = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")
for module in model.modules():  # XNNPACK's delegate takes these weights in float32, not in bfloat16
    weight = getattr(module, "weight", None)
    if isinstance(weight, IntxUnpackedToInt8Tensor):
        module.weight = torch.nn.Parameter(weight.to(dtype=torch.float32), requires_grad=False)
torch.nn.Module.float(model).requires_grad_(False)
unwrap_tensor_subclass(model)

with torch.no_grad():
    program = torch.export.export(Logits(model), (torch.zeros(1, LENGTH, dtype=torch.long),), strict=False)
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackDynamicallyQuantizedPartitioner(), XnnpackPartitioner()])
with open(path, "wb") as f:
    f.write(lowered.to_executorch().buffer)

tokenizer = AutoTokenizer.from_pretrained(directory)
ids, method = tokenizer(prompt).input_ids, Runtime.get().load_program(path).load_method("forward")
first = len(ids)
while len(ids) < LENGTH:  # what follows the last token has no influence on its logits
    window = torch.tensor([ids + [0] * (LENGTH - len(ids))])
    ids.append(int(method.execute([window])[0][0, len(ids) - 1].argmax()))
print(tokenizer.decode(ids[first:]))
