"""Writes checkpoints as compressed-tensors and torchao write these, for gq repack: write_hf.py LIBRARY MODEL DIR.

Prints the names of the directories in DIR.
"""

import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def compressed_tensors(source, **weights):
    """Rounds to nearest with the library's own scales, as llm-compressor's QuantizationModifier does."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams

    model = AutoModelForCausalLM.from_pretrained(source)
    group = {"targets": ["Linear"], "weights": {"type": "int", **weights}}
    config = QuantizationConfig(config_groups={"group_0": group}, ignore=["lm_head"], quantization_status="frozen")
    apply_quantization_config(model, config)
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        w = module.weight.data
        grouped = w.unflatten(-1, (-1, scheme.weights.group_size or w.shape[-1]))
        scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), scheme.weights)
        module.weight_scale.data.copy_(scale)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)

    def save(directory):
        model.save_pretrained(directory)
        compressor.update_config(directory)

    return save


def torchao(source, **weights):
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from transformers import TorchAoConfig

    config = TorchAoConfig(quant_type=Int8DynamicActivationIntxWeightConfig(**weights))
    return AutoModelForCausalLM.from_pretrained(source, quantization_config=config).save_pretrained


def main():
    library, source, out = sys.argv[1:]
    if library == "torchao":
        from torchao.quantization import MappingType, PerAxis, PerGroup

        write, settings = torchao, {
            "group": dict(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
            "asymmetric": dict(weight_dtype=torch.int4, weight_granularity=PerGroup(128), weight_mapping_type=MappingType.ASYMMETRIC),
            "channel": dict(weight_dtype=torch.int8, weight_granularity=PerAxis(0)),
        }
    else:
        # Transformers 5.23 does not load asymmetric checkpoints of compressed-tensors 0.20.
        write, settings = compressed_tensors, {
            "group": dict(num_bits=4, symmetric=True, strategy="group", group_size=32),
            "channel": dict(num_bits=8, symmetric=True, strategy="channel"),
        }
    for name, weights in settings.items():
        directory = os.path.join(out, name)
        write(source, **weights)(directory)
        AutoTokenizer.from_pretrained(source).save_pretrained(directory)
        print(directory, flush=True)


main()
