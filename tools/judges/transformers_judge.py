"""Transformers loads compressed-tensors, torchao, GPTQ, AWQ and AutoRound directories: AutoModelForCausalLM.from_pretrained(DIR)."""

import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

import compare


def functions(model):
    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor(ids)).logits.float().numpy()

    def greedy(prompt, n):
        out = model.generate(torch.tensor([prompt]), max_new_tokens=n, do_sample=False, eos_token_id=None)
        return out[0, len(prompt):].tolist()

    return logits, greedy


def name(dtype):
    return str(dtype).removeprefix("torch.")


def floats(model, case):
    """Stops a model from quantizing activations: what remains is the weights' arithmetic."""
    if case["target"] == "torchao-safetensors":
        from torchao.quantization import IntxUnpackedToInt8Tensor
        from torchao.quantization.quant_primitives import dequantize_affine

        for module in model.modules():
            w = getattr(module, "weight", None)
            if isinstance(w, IntxUnpackedToInt8Tensor):
                info = torch.iinfo(w.qdata.dtype)
                floats = dequantize_affine(w.qdata, w.block_size, w.scale.float(), w.zero_point, w.qdata.dtype, info.min, info.max,
                                           output_dtype=torch.float32)
                module.weight = torch.nn.Parameter(floats, requires_grad=False)
    else:
        from compressed_tensors.quantization import disable_quantization

        model.apply(disable_quantization)
    return torch.nn.Module.float(model)


def float32(model):
    """Computes in float32 throughout: AutoRound rounds the rotary frequencies to the dtype of the model."""
    torch.nn.Module.float(model)
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model


def load(case):
    tokenizer = AutoTokenizer.from_pretrained(case["dir"])
    compare.tokens(case, lambda text: tokenizer(text, add_special_tokens=False).input_ids)
    int8 = case["target"] in ("int-quantized", "torchao-safetensors")
    model = AutoModelForCausalLM.from_pretrained(case["dir"])
    if model.dtype != torch.float32 or int8:
        yield compare.Run(name(model.dtype), "int8" if int8 else "float", *functions(model))
    if model.dtype != torch.float32 and case["target"] != "torchao-safetensors":  # torchao: in the dtype of its file
        model = AutoModelForCausalLM.from_pretrained(case["dir"], dtype=torch.float32)
    if case["target"] == "gptq" and model.dtype == torch.float32:
        yield compare.Run("float16 weights", "float", *functions(model))
    f16 = any(type(module).__name__ == "AwqTorchLinear" for module in model.modules())  # it multiplies in F16 whatever it is told
    yield compare.Run("float16 weights" if f16 else "float32", "float", *functions(floats(model, case) if int8 else float32(model)))


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    compare.run(load, sys.argv[3:])
