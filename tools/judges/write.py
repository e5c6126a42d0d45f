"""Writes checkpoints with another library, for gq repack: write.py LIBRARY MODEL TEXT DIR. Each setting becomes a directory
in DIR. TEXT is for calibration."""

import glob
import json
import os
import shutil
import sys
import tempfile


def windows(tokenizer, text, length=128, count=4):
    """The first windows of ids of the text."""
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return [ids[i * length:][:length] for i in range(min(count, len(ids) // length))]


def compressed_tensors(source, directory, text, **weights):
    """Rounds to nearest with the library's own scales, as llm-compressor's QuantizationModifier does."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams
    from transformers import AutoModelForCausalLM

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
    model.save_pretrained(directory)
    compressor.update_config(directory)


def torchao(source, directory, text, dtype, granularity, mapping="SYMMETRIC"):
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, MappingType, PerAxis, PerGroup
    from transformers import AutoModelForCausalLM, TorchAoConfig

    weights = dict(weight_dtype=getattr(torch, dtype), weight_mapping_type=MappingType[mapping],
                   weight_granularity=PerGroup(granularity) if granularity else PerAxis(0))
    config = TorchAoConfig(quant_type=Int8DynamicActivationIntxWeightConfig(**weights))
    AutoModelForCausalLM.from_pretrained(source, quantization_config=config).save_pretrained(directory)


def mlx(source, directory, text, **settings):
    from mlx_lm import convert

    convert(source, directory, quantize=True, **settings)


def llm_compressor(source, directory, text, method, **weights):
    import torch
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source)
    group = dict(config_groups={"group_0": {"targets": ["Linear"], "weights": {"type": "int", **weights}}}, ignore=["lm_head"])
    torch.Tensor.pin_memory = lambda self: self  # AWQModifier calls it, and it needs a GPU
    recipe = [GPTQModifier(**group)] if method == "gptq" else [AWQModifier(), QuantizationModifier(**group)]
    data = windows(tokenizer, text)
    oneshot(model=model, recipe=recipe, dataset=Dataset.from_dict({"input_ids": data, "attention_mask": [[1] * len(w) for w in data]}),
            max_seq_length=len(data[0]), num_calibration_samples=len(data))
    model.save_pretrained(directory, save_compressed=True)


def gptqmodel(source, directory, text, **settings):
    from gptqmodel import GPTQModel, QuantizeConfig

    model = GPTQModel.load(source, QuantizeConfig(**settings), device="cpu")
    data = windows(model.tokenizer, text)
    model.quantize([{"input_ids": w, "attention_mask": [1] * len(w)} for w in data], batch_size=1)
    model.save(directory)


def auto_round(source, directory, text, format, **settings):
    from auto_round import AutoRound
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import torch

    tokenizer = AutoTokenizer.from_pretrained(source)
    data = [torch.tensor([w]) for w in windows(tokenizer, text)]
    job = AutoRound(AutoModelForCausalLM.from_pretrained(source), tokenizer, dataset=data, seqlen=128, nsamples=len(data), iters=1,
                    batch_size=4, device_map="cpu", **settings)
    with tempfile.TemporaryDirectory() as tmp:
        job.quantize_and_save(tmp, format=format)
        (config,) = glob.glob(os.path.join(tmp, "**/config.json"), recursive=True)  # in a directory named by the scheme
        shutil.move(os.path.dirname(config), directory)


def autoawq(source, directory, text, **settings):
    from awq import AutoAWQForCausalLM
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoAWQForCausalLM.from_pretrained(source, device_map="cpu")
    model.quantize(tokenizer, quant_config={"w_bit": 4, **settings}, calib_data=windows(tokenizer, text), max_calib_seq_len=128)
    model.save_quantized(directory)


GROUP = dict(num_bits=4, symmetric=True, strategy="group", group_size=32)
WIDE = {**GROUP, "group_size": 128}
def feeds(source, model, text):
    """Inputs of a graph: windows of a text behind no past."""
    import numpy as np
    from transformers import AutoTokenizer

    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    empty = np.zeros((1, config["num_key_value_heads"], 0, config["hidden_size"] // config["num_attention_heads"]), np.float32)
    past = {i.name: empty for i in model.graph.input if i.name.startswith("past")}
    ids = AutoTokenizer.from_pretrained(source)(text).input_ids
    for at in range(0, min(len(ids), 1024) - 127, 128):
        window = np.array([ids[at:at + 128]], np.int64)
        yield {"input_ids": window, "attention_mask": np.ones_like(window), **past}


def onnx(source, directory, text, program, **settings):
    """A graph of the model builder of ONNX Runtime GenAI, or its graph in float32 as another program quantizes it."""
    import subprocess

    def build(directory, precision, *options):
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", source, "-o", directory, "-p", precision]
            subprocess.run([*command, "-e", "cpu", "-c", cache, "--extra_options", *options], check=True)

    if program == "builder":
        build(directory, settings.pop("precision"), *[f"{k}={v}" for k, v in settings.items()])
    else:
        import onnx as files

        build(directory, "fp32", "shared_embeddings=false")
        graph = os.path.join(directory, "model.onnx")
        model = files.load(graph)
        for name in glob.glob(graph + "*"):
            os.remove(name)
        if program == "quantizer":
            from onnxruntime.quantization import matmul_nbits_quantizer as nbits

            algorithm = settings.pop("algorithm", None)
            if algorithm == "hqq":
                settings["algo_config"] = nbits.HQQWeightOnlyQuantConfig(block_size=settings["block_size"], bits=settings["bits"])
            elif algorithm == "gptq":
                settings["algo_config"] = nbits.GPTQWeightOnlyQuantConfig(list(feeds(source, model, text)), block_size=settings["block_size"])
            quantizer = nbits.MatMulNBitsQuantizer(model, accuracy_level=4, **settings)
            quantizer.process()
            quantizer.model.save_model_to_file(graph, use_external_data_format=settings["bits"] == 4)
        else:
            from olive import run

            with tempfile.TemporaryDirectory() as work:
                files.save(model, os.path.join(work, "float.onnx"))
                run({"input_model": {"type": "ONNXModel", "model_path": os.path.join(work, "float.onnx")}, "output_dir": work + "/out",
                     "cache_dir": work + "/cache", "passes": {"q": {"type": "OnnxBlockWiseRtnQuantization", **settings}}})
                shutil.copy(work + "/out/model.onnx", graph)
    shutil.copy(os.path.join(source, "config.json"), directory)


SETTINGS = {
    # Transformers 5.23 does not load asymmetric checkpoints of compressed-tensors 0.20.
    "compressed-tensors": (compressed_tensors, {"group": GROUP, "channel": dict(num_bits=8, symmetric=True, strategy="channel")}),
    "torchao": (torchao, {
        "group": dict(dtype="int4", granularity=32),
        "asymmetric": dict(dtype="int4", granularity=128, mapping="ASYMMETRIC"),
        "channel": dict(dtype="int8", granularity=0),
    }),
    "mlx": (mlx, {"group": dict(q_bits=4, q_group_size=32), "wide": dict(q_bits=4, q_group_size=128)}),
    "llm-compressor": (llm_compressor, {
        "gptq": dict(method="gptq", **GROUP),
        "gptq-wide-asymmetric": dict(method="gptq", **{**WIDE, "symmetric": False}),
        "awq": dict(method="awq", **WIDE),
        "awq-asymmetric": dict(method="awq", **{**GROUP, "symmetric": False}),
        "gptq-channel8": dict(method="gptq", num_bits=8, symmetric=True, strategy="channel"),
    }),
    "gptq": (gptqmodel, {
        "group": dict(bits=4, group_size=32),
        "wide": dict(bits=4, group_size=128),
        "asymmetric": dict(bits=4, group_size=32, sym=False, format="gptq_v2"),
        "order": dict(bits=4, group_size=32, desc_act=True),
        "channel8": dict(bits=8, group_size=-1, act_group_aware=False),
        "3bits": dict(bits=3, group_size=64),
        "2bits": dict(bits=2, group_size=32),
        "awq": dict(bits=4, group_size=32, method="awq", format="gemm"),
    }),
    "auto-round": (auto_round, {
        "group": dict(format="auto_round", bits=4, group_size=32),
        "wide": dict(format="auto_round", bits=4, group_size=128),
        "asymmetric": dict(format="auto_round", bits=4, group_size=32, sym=False),
        "asymmetric2": dict(format="auto_round", bits=2, group_size=64, sym=False),
        "asymmetric5": dict(format="auto_round", bits=5, group_size=32, sym=False),
        "mixed": dict(format="auto_round", bits=4, group_size=32, layer_config={
            "model.layers.0.mlp.down_proj": {"bits": 8}, "model.layers.1.mlp.down_proj": {"bits": 16}}),
        "gptq": dict(format="auto_gptq", bits=4, group_size=32),
        "gptq-asymmetric": dict(format="auto_gptq", bits=4, group_size=128, sym=False),
        "awq": dict(format="auto_awq", bits=4, group_size=32, sym=False),
    }),
    # The model builder packs zero points without padding where a row has an odd number of blocks: not here.
    "onnx": (onnx, {
        "builder": dict(program="builder", precision="int4", block_size=32),
        "builder-k-quant": dict(program="builder", precision="int4", block_size=32, algo_config="k_quant", is_symmetric="false"),
        "builder-8bits": dict(program="builder", precision="int8", block_size=64, algo_config="rtn", is_symmetric="false"),
        "builder-head": dict(program="builder", precision="int4", block_size=32, nodes_to_exclude="/lm_head/MatMul", shared_embeddings="false"),
        "quantizer": dict(program="quantizer", bits=4, block_size=32, is_symmetric=True),
        "quantizer-8bits": dict(program="quantizer", bits=8, block_size=64, is_symmetric=False),
        "quantizer-hqq": dict(program="quantizer", algorithm="hqq", bits=4, block_size=32),
        "quantizer-gptq": dict(program="quantizer", algorithm="gptq", bits=4, block_size=32),
        "olive": dict(program="olive", bits=4, block_size=32, axis=0),
    }),
    # Version GEMV is written on CPUs as well, but only a GPU multiplies with it.
    "autoawq": (autoawq, {
        "gemm": dict(version="GEMM", q_group_size=32, zero_point=True),
        "wide": dict(version="GEMM", q_group_size=128, zero_point=True),
    }),
}


def main():
    library, source, text, out = sys.argv[1:5]
    with open(text) as f:
        text = f.read()
    write, settings = SETTINGS[library]
    for name in sys.argv[5:] or settings:
        directory = os.path.join(out, name)
        write(source, directory, text, **settings[name])
        if library != "mlx":
            from transformers import AutoTokenizer

            AutoTokenizer.from_pretrained(source).save_pretrained(directory)
        print(directory, flush=True)


if __name__ == "__main__":
    main()
