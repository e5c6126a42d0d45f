"""AutoAWQ loads its own directories: AutoAWQForCausalLM.from_quantized(DIR)."""

import sys

import awq
import torch
from awq import AutoAWQForCausalLM
from awq.modules.linear import WQLinear_GEMM
from awq.utils.packing_utils import dequantize_gemm
from transformers import AutoTokenizer

import compare
from transformers_judge import functions, name


def floats(model):
    """Replaces quantized layers, which multiply in F16, by the library's dequantized weights in float32."""
    for path, module in list(model.named_modules()):
        if isinstance(module, WQLinear_GEMM):
            linear = torch.nn.Linear(module.in_features, module.out_features, bias=False)
            linear.weight.data = dequantize_gemm(module.qweight, module.qzeros, module.scales.float(), module.w_bit, module.group_size).T.contiguous()
            model.set_submodule(path, linear)
    return model.float()


def load(case):
    tokenizer = AutoTokenizer.from_pretrained(case["dir"])
    compare.tokens(case, lambda text: tokenizer(text, add_special_tokens=False).input_ids)
    # On a CPU the library demands Intel's extension, which there is for torch 2.8 and older; its own layers need no GPU.
    awq.models.base.get_best_device = lambda: "cuda:0"
    model = AutoAWQForCausalLM.from_quantized(case["dir"], fuse_layers=False, device_map={"": "cpu"}).model
    yield compare.Run(name(model.dtype), "float", *functions(model))
    yield compare.Run("float32", "float", *functions(floats(model)))


if __name__ == "__main__":
    compare.run(load, sys.argv[3:])
