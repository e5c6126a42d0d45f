"""Quantizes a checkpoint with one library, and writes the dequantized weights.

    python quantize.py METHOD CHECKPOINT BITS GROUP DATA OUT

METHOD is a key of METHODS. All linear layers of the decoder get symmetric codes; embedding and lm_head are left alone.
DATA/calibration.json has the token ids of the calibration. OUT.safetensors gets all tensors that changed, in float32,
and OUT.json the CPU time and the memory of this process up to the last code.
"""

import ctypes
import glob
import importlib.metadata
import json
import os
import resource
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


def load(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def linears(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in name}


def tensors(model):
    """All tensors of a model that was quantized in place."""
    return {k: v for k, v in model.state_dict().items() if "lm_head" not in k}


def torchao(algorithm):
    def quantize(job):
        from torchao.quantization import IntxWeightOnlyConfig, PerGroup, quantize_
        from torchao.quantization.quantize_.workflows.intx.intx_choose_qparams_algorithm import IntxChooseQParamsAlgorithm

        model = load(job.checkpoint)
        config = IntxWeightOnlyConfig(weight_dtype=getattr(torch, f"int{job.bits}"), granularity=PerGroup(job.group),
                                      scale_dtype=torch.bfloat16,
                                      intx_choose_qparams_algorithm=IntxChooseQParamsAlgorithm(algorithm))
        quantize_(model, config, filter_fn=lambda m, name: isinstance(m, torch.nn.Linear) and "lm_head" not in name)
        return lambda: {name + ".weight": m.weight.dequantize() for name, m in linears(model).items()}
    return quantize, ["torchao"]


def gptq_weights(saved, prefix, bits):
    """Dequantizes a matrix of GPTQ's format with symmetric codes, which lie bit after bit in each column of qweight."""
    words, groups = saved[prefix + "qweight"], saved[prefix + "g_idx"].long()
    stream = (words[:, None, :] >> torch.arange(32)[None, :, None] & 1).reshape(-1, words.shape[1])
    codes = (stream.reshape(len(groups), bits, -1) << torch.arange(bits)[None, :, None]).sum(1)
    return ((codes - 2 ** (bits - 1)) * saved[prefix + "scales"].float()[groups]).T


def gptqmodel(**options):
    def quantize(job):
        from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

        config = QuantizeConfig(bits=job.bits, group_size=job.group, sym=True, device="cpu", **options_of(options))
        model = GPTQModel.load(job.checkpoint, config, dtype=torch.float32)
        model.quantize([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in job.calibration], batch_size=4,
                       backend=BACKEND.TORCH)

        def result():
            with tempfile.TemporaryDirectory() as folder:
                model.save(folder)
                saved = {k: v for file in glob.glob(folder + "/*.safetensors") for k, v in load_file(file).items()}
            return {k.removesuffix(".qweight") + ".weight": gptq_weights(saved, k.removesuffix("qweight"), job.bits)
                    for k in saved if k.endswith(".qweight")}
        return result

    def options_of(options):
        from gptqmodel.quantization import config

        return {k: getattr(config, v)() if isinstance(v, str) else v for k, v in options.items()}
    return quantize, ["gptqmodel"]


def llmcompressor(algorithm):
    def quantize(job):
        from compressed_tensors.quantization import QuantizationScheme
        from compressed_tensors.quantization.lifecycle.forward import fake_quantize
        from llmcompressor import oneshot
        from llmcompressor.modifiers.gptq import GPTQModifier
        from llmcompressor.modifiers.quantization import QuantizationModifier
        from llmcompressor.modifiers.transform.awq import AWQModifier
        from torch.utils.data import DataLoader

        weights = {"num_bits": job.bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": job.group}
        scheme = {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]}
        recipe = [GPTQModifier(**scheme)] if algorithm == "gptq" else [AWQModifier(), QuantizationModifier(**scheme)]
        torch.Tensor.pin_memory = lambda self: self  # AWQModifier calls it, and it needs a GPU
        model = load(job.checkpoint)
        data = [{"input_ids": torch.tensor(ids), "attention_mask": torch.ones(len(ids), dtype=torch.int64)} for ids in job.calibration]
        model = oneshot(model=model, recipe=recipe, dataset=DataLoader(data, batch_size=1), output_dir=None,
                        num_calibration_samples=len(data), max_seq_length=len(job.calibration[0])) or model

        def result():
            out = {k: v for k, v in tensors(model).items() if not k.endswith(("_scale", "_zero_point", "_g_idx"))}
            for name, m in linears(model).items():
                out[name + ".weight"] = fake_quantize(m.weight, m.weight_scale, m.weight_zero_point, m.quantization_scheme.weights)
            return out
        return result
    return quantize, ["llmcompressor", "compressed-tensors"]


def autoround(iters, lr, batch):
    def quantize(job):
        from auto_round import AutoRound
        from transformers import AutoTokenizer

        data = [torch.tensor([ids]) for ids in job.calibration]
        ar = AutoRound(load(job.checkpoint), AutoTokenizer.from_pretrained(job.checkpoint), scheme="W4A16", bits=job.bits,
                       group_size=job.group, sym=True, dataset=data, iters=iters, lr=lr, nsamples=len(data),
                       seqlen=len(job.calibration[0]), batch_size=batch, device_map="cpu", enable_torch_compile=False,
                       # Without AVX-512 float32 is faster: 107 s of CPU time a layer of SmolLM2, 122 s in bfloat16.
                       amp=torch.backends.cpu.get_cpu_capability() == "AVX512")
        model, _ = ar.quantize()
        return lambda: {name + ".weight": m.weight for name, m in linears(model).items()}
    return quantize, ["auto-round"]


def nncf(job):
    import nncf
    from nncf.torch.function_hook import get_hook_storage

    model = load(job.checkpoint)
    data = [{"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.int64), "use_cache": False}
            for ids in job.calibration]
    model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode(f"int{job.bits}_sym"), group_size=job.group, ratio=1.0,
                                  ignored_scope=nncf.IgnoredScope(patterns=[".*lm_head.*", ".*embed_tokens.*"], validate=False),
                                  dataset=nncf.Dataset(data), subset_size=len(data), awq=True, scale_estimation=True,
                                  backup_mode=nncf.BackupMode.NONE)

    def result():
        out = {k: v for k, v in tensors(model).items() if "__nncf_hooks" not in k}
        for name, hook in get_hook_storage(model).named_hooks():
            if name.startswith("post_hooks.") and name.split(".")[1].endswith("weight__0"):
                key = name.split(".")[1].removesuffix("__0").replace(":", ".")
                out[key] = hook(out[key]).reshape(model.get_submodule(key.removesuffix(".weight")).out_features, -1)
        return out
    return result


def llamacpp(number, name):
    """A block type of llama.cpp with an importance matrix. number is the type's in ggml.h, name its function's."""
    def quantize(job):
        ggml = ctypes.CDLL(os.environ["GGML"])
        ggml.ggml_quantize_chunk.restype = ggml.ggml_row_size.restype = ctypes.c_size_t
        model = load(job.checkpoint)
        sums, out = {}, {}

        def add(name):
            def hook(_, inputs):
                sums[name] = sums.get(name, 0) + inputs[0].double().square().sum((0, 1))
            return hook

        hooks = [m.register_forward_pre_hook(add(n)) for n, m in linears(model).items()]
        with torch.inference_mode():
            for ids in job.calibration:
                model(torch.tensor([ids]), logits_to_keep=1)
        for hook in hooks:
            hook.remove()
        for n, m in linears(model).items():
            weight, importance = m.weight.detach().contiguous(), (sums[n] / sum(map(len, job.calibration))).float().contiguous()
            rows, columns = weight.shape
            blocks = ctypes.create_string_buffer(rows * ggml.ggml_row_size(number, ctypes.c_int64(columns)))
            ggml.ggml_quantize_chunk(number, ctypes.c_void_p(weight.data_ptr()), blocks, ctypes.c_int64(0), ctypes.c_int64(rows),
                                     ctypes.c_int64(columns), ctypes.c_void_p(importance.data_ptr()))
            out[n + ".weight"] = torch.empty_like(weight)
            getattr(ggml, "dequantize_row_" + name)(blocks, ctypes.c_void_p(out[n + ".weight"].data_ptr()), ctypes.c_int64(rows * columns))
        return lambda: out
    return quantize, []


METHODS = {
    "llamacpp-q4_0": llamacpp(2, "q4_0"),
    "llamacpp-iq4_nl": llamacpp(20, "iq4_nl"),
    "torchao-rtn": torchao("affine"),
    "torchao-hqq": torchao("hqq_scale_only"),
    "gptqmodel-gptq": gptqmodel(),
    "gptqmodel-gptaq": gptqmodel(gptaq="GPTAQConfig"),
    "gptqmodel-foem": gptqmodel(foem="FOEMConfig"),
    "llmcompressor-gptq": llmcompressor("gptq"),
    "llmcompressor-awq": llmcompressor("awq"),
    "autoround-light": autoround(50, 5e-3, 2),
    "autoround-200": autoround(200, None, 2),
    "nncf-awq-se": (nncf, ["nncf"]),
}


class Job:
    def __init__(self, checkpoint, bits, group, data):
        self.checkpoint, self.bits, self.group = checkpoint, int(bits), int(group)
        with open(os.path.join(data, "calibration.json")) as f:
            self.calibration = json.load(f)


def main():
    method, checkpoint, bits, group, data, out = sys.argv[1:]
    quantize, packages = METHODS[method]
    torch.manual_seed(1)
    dequantized = quantize(Job(checkpoint, bits, group, data))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"cpu": round(usage.ru_utime + usage.ru_stime, 1), "rss": usage.ru_maxrss >> 10,
               "versions": {p: importlib.metadata.version(p) for p in [*packages, "torch", "transformers"]}}
    with torch.no_grad():
        weights = {k: v.detach().float().contiguous().clone() for k, v in dequantized().items()}
    save_file(weights, out + ".safetensors")
    with open(out + ".json", "w") as f:
        json.dump(figures, f)


main()
