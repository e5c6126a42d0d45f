"""Compares gq's directories for ONNX Runtime with other programs' graphs, on trained models: see README.md.

    python3 onnx_models.py MODEL run BITS/GROUP METHOD...
    python3 onnx_models.py MODEL judge
    python3 onnx_models.py tables

run quantizes with one method after the other, and judges. ONNX Runtime computes each graph's predictions in float32;
Transformers computes the float checkpoint's. The linear layers of the decoder are quantized; lm_head and embedding stay
in float32. tables writes the tables of ONNX.md.
"""

import contextlib
import glob
import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REAL = os.environ.get("GQ_REAL") or os.path.expanduser("~/.cache/gq-real")
FIGURES, RECORD = os.path.join(HERE, "onnx.json"), os.path.join(HERE, "ONNX.md")
HEAD = "/lm_head/MatMul"
EVERY = 2  # of the windows of rivals.py texts


def read(path, default=None):
    if not os.path.exists(path):
        return default
    with open(path) as f:
        return json.load(f)


def work(model, *names):
    return os.path.join(REAL, "rivals", model, *names)


# The methods run in a process of their own, with the packages of requirements/onnx.txt.


def no_past(checkpoint):
    """Keys or values of no tokens."""
    import numpy as np

    config = read(os.path.join(checkpoint, "config.json"))
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return np.zeros((1, config["num_key_value_heads"], 0, size), np.float32)


class Job:
    def __init__(self, checkpoint, bits, group, data, out):
        self.checkpoint, self.bits, self.group, self.out = checkpoint, int(bits), int(group), out
        self.calibration = read(os.path.join(data, "calibration.json"))

    @property
    def graph(self):
        return os.path.join(self.out, "model.onnx")

    def build(self, source, directory, precision, **options):
        """Runs the model builder of ONNX Runtime GenAI."""
        command = [sys.executable, os.path.abspath(__file__), "builder", "-i", source, "-o", directory, "-p", precision,
                   "-e", "cpu", "-c", self.out + ".cache", "--extra_options", *[f"{k}={v}" for k, v in options.items()]]
        subprocess.run(command, check=True)
        shutil.rmtree(self.out + ".cache", ignore_errors=True)

    def floats(self):
        """The builder's graph in float32, as the other programs quantize it."""
        import onnx

        self.build(self.checkpoint, self.out, "fp32", shared_embeddings="false")
        model = onnx.load(self.graph)
        for name in glob.glob(self.graph + "*"):
            os.remove(name)
        return model

    def feeds(self, model):
        """The inputs of a graph for each sequence of the calibration."""
        import numpy as np

        empty = no_past(self.checkpoint)
        past = {i.name: empty for i in model.graph.input if i.name.startswith("past")}
        for ids in self.calibration:
            ids = np.array([ids], np.int64)
            yield {"input_ids": ids, "attention_mask": np.ones_like(ids), **past}

    def save(self, model):
        import onnx

        onnx.save(model, self.graph, save_as_external_data=True, location="model.onnx.data")


def main_of_builder(*arguments):
    """GenAI 0.18.0 looks for both bases of Gemma 3's rotations where Transformers 4 had them."""
    import runpy

    import onnxruntime_genai.models  # noqa: F401, it adds the folder of builders to the path
    from builders import gemma

    init = gemma.Gemma3Model.__init__

    def patched(self, config, *rest):
        whole, sliding = (config.rope_parameters[kind]["rope_theta"] for kind in ("full_attention", "sliding_attention"))
        config.rope_theta, config.rope_local_base_freq = whole, sliding
        config.rope_parameters = {"rope_type": "default", "rope_theta": whole}
        init(self, config, *rest)

    gemma.Gemma3Model.__init__ = patched
    sys.argv[1:] = arguments
    runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")


def builder(**options):
    def quantize(job):
        job.build(job.checkpoint, job.out, f"int{job.bits}", block_size=job.group, nodes_to_exclude=HEAD, shared_embeddings="false", **options)
    return quantize, ["onnxruntime-genai", "onnxruntime"]


def quantizer(**options):
    """onnxruntime.quantization.matmul_nbits_quantizer."""
    def quantize(job):
        from onnxruntime.quantization import matmul_nbits_quantizer as nbits

        model = job.floats()
        settings = dict(bits=job.bits, block_size=job.group, is_symmetric=True, accuracy_level=4, nodes_to_exclude=[HEAD])
        settings.update(options)
        algorithm = settings.pop("algorithm", None)
        if algorithm == "hqq":
            settings["algo_config"] = nbits.HQQWeightOnlyQuantConfig(block_size=job.group, bits=job.bits)
        elif algorithm == "gptq":
            settings["algo_config"] = nbits.GPTQWeightOnlyQuantConfig(list(job.feeds(model)))
            all_inputs_at_once()
        q = nbits.MatMulNBitsQuantizer(model, **settings)
        # GPTQ does not look at nodes_to_exclude.
        nodes = q._generate_q4_node_config
        q._generate_q4_node_config = lambda: {**nodes(), HEAD: "fp32"}
        q.process()
        job.save(q.model.model)
    return quantize, ["onnxruntime"]


def all_inputs_at_once():
    """GPTQ runs the whole model for the input of each layer. The same numbers from one run for all of them."""
    from onnxruntime.quantization.neural_compressor import weight_only

    class Session:
        def __init__(self, *args, **options):
            self.session, self.found = Session.ort(*args, **options), {}

        def run(self, names, data):
            key = data["input_ids"].tobytes()
            if key not in self.found:
                outputs = [o.name for o in self.session.get_outputs()]
                self.found[key] = dict(zip(outputs, self.session.run(outputs, data)))
            return [self.found[key][name] for name in names]

        def __getattr__(self, name):
            return getattr(self.session, name)

    Session.ort = weight_only.ort.InferenceSession

    class Ort:
        InferenceSession = Session

        def __getattr__(self, name):
            return getattr(ort, name)

    ort, weight_only.ort = weight_only.ort, Ort()


def olive_gptq(job):
    """Olive's GPTQ of the checkpoint. The model builder makes the graph, with Olive's codes."""
    import torch
    from olive.hardware.accelerator import DEFAULT_CPU_ACCELERATOR
    from olive.model import HfModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.pytorch import quant_utils
    from olive.passes.pytorch.gptq import Gptq

    data = [{"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.int64)} for ids in job.calibration]
    quant_utils.get_calibration_dataset = lambda *args, **options: data
    settings = dict(bits=job.bits, group_size=job.group, sym=True, lm_head=False)
    gptq = create_pass_from_dict(Gptq, settings, disable_search=True, accelerator_spec=DEFAULT_CPU_ACCELERATOR)
    checkpoint = gptq.run(HfModelHandler(job.checkpoint, load_kwargs={"torch_dtype": "float32"}), job.out + ".olive").model_path
    # GenAI 0.18.0 fails to merge q, k and v without zero points.
    job.build(checkpoint, job.out, f"int{job.bits}", block_size=job.group, nodes_to_exclude=HEAD, shared_embeddings="false", fuse_qkv="false")
    shutil.rmtree(job.out + ".olive")


def nncf_onnx(**options):
    """NNCF's path for ONNX. Below opset 21, it writes MatMulNBits."""
    def quantize(job):
        import nncf

        model = job.floats()
        next(o for o in model.opset_import if o.domain == "").version = 20
        feeds = list(job.feeds(model)) if options else None
        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode(f"int{job.bits}_sym"), group_size=job.group, ratio=1.0,
                                      ignored_scope=nncf.IgnoredScope(names=[HEAD]), backup_mode=nncf.BackupMode.NONE,
                                      dataset=nncf.Dataset(feeds) if feeds else None, **({"subset_size": len(feeds)} if feeds else {}), **options)
        job.save(model)
    return quantize, ["nncf", "onnxruntime"]


METHODS = {
    "genai-rtn": builder(algo_config="default"),
    "genai-k-quant": builder(algo_config="k_quant", is_symmetric="false"),
    "genai-k-quant-mixed": builder(algo_config="k_quant_mixed", is_symmetric="false"),
    "ort-rtn-zeros": quantizer(is_symmetric=False),
    "ort-hqq": quantizer(algorithm="hqq"),
    "ort-gptq": quantizer(algorithm="gptq"),
    "ort-gptq-zeros": quantizer(algorithm="gptq", is_symmetric=False),
    "olive-gptq": (olive_gptq, ["olive-ai", "onnxruntime-genai"]),
    "nncf-onnx-awq-se": nncf_onnx(awq=True, scale_estimation=True),
}
SKIP = ["--rule", "*embed_tokens*=skip", "--target", "onnx"]
GOOD = [*SKIP, "--quality", "good", "--calibrate", "calibration.ids"]
GQ = {
    "gq-search": SKIP,
    "gq-search-zeros": [*SKIP, "--mapping", "asymmetric"],
    "gq-good": GOOD,
    "gq-good-zeros": [*GOOD, "--mapping", "asymmetric"],
    "gq-good-mixed": [*GOOD, "--target-bpw", "5"],
    "gq-good-mixed-k-quant": [*GOOD, "--target-bpw", "{genai-k-quant-mixed}"],
}


def main_of_method(method, *arguments):
    quantize, packages = METHODS[method]
    job = Job(*arguments)
    quantize(job)
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open(job.out + ".json", "w") as f:
        json.dump({"cpu": round(sum(u.ru_utime + u.ru_stime for u in usages), 1), "rss": max(u.ru_maxrss for u in usages) >> 10,
                   "versions": {p: importlib.metadata.version(p) for p in packages}}, f)


# The judge.


def graph_of(directory):
    (path,) = glob.glob(os.path.join(directory, "*.onnx")) + glob.glob(os.path.join(directory, "onnx", "*.onnx"))
    return path


def bits_per_weight(path):
    """Counts all bytes of the tensors that multiplications with codes read, and their weights."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    sizes = {}
    for t in graph.initializer:
        lengths = [int(p.value) for p in t.external_data if p.key == "length"]
        elements = 1
        for d in t.dims:
            elements *= d
        sizes[t.name] = lengths[0] if lengths else elements * onnx.helper.tensor_dtype_to_np_dtype(t.data_type).itemsize
    count = weights = 0
    for node in graph.node:
        if node.op_type == "MatMulNBits":
            attributes = {a.name: a.i for a in node.attribute}
            weights += attributes["K"] * attributes["N"]
            count += sum(sizes.get(name, 0) for name in node.input[1:5])
    return 8 * count / weights


def in_float32(path):
    """A graph beside the graph. Its kernels do not quantize activations, and its windows need no cache of their size."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in ("accuracy_level", "sliding_window_cache"):
                attribute.i = 0
    onnx.save(model, path + ".float32")
    return path + ".float32"


def judge(checkpoint, texts, *directories):
    """DIRECTORY.kl.json gets the mean KL divergence of each window of each text, and the bits of a weight."""
    import numpy as np
    import onnxruntime
    import torch
    from transformers import AutoModelForCausalLM

    texts = {name: windows[::EVERY] for name, windows in read(texts).items()}
    windows = [(name, window) for name, list in texts.items() for window in list]
    cache = os.path.join(os.path.dirname(directories[0]), "onnx.float.npy")
    if not os.path.exists(cache):
        base = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
        with torch.inference_mode():
            np.save(cache, np.stack([torch.log_softmax(base(torch.tensor([w])).logits[0, :-1].float(), -1).numpy() for _, w in windows]))
        del base
    base, empty = np.load(cache, mmap_mode="r"), no_past(checkpoint)
    sessions, out = {}, {}
    for d in directories:
        path = in_float32(graph_of(d))
        sessions[d], out[d] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]), {"bpw": bits_per_weight(graph_of(d)), "texts": {}}
        os.remove(path)
    for i, (name, window) in enumerate(windows):
        p, ids = torch.from_numpy(np.array(base[i])), np.array([window], np.int64)
        for d, s in sessions.items():
            past = {i.name: empty for i in s.get_inputs() if i.name.startswith("past")}
            logits = s.run([s.get_outputs()[0].name], {"input_ids": ids, "attention_mask": np.ones_like(ids), **past})[0]
            q = torch.log_softmax(torch.from_numpy(logits)[0, :-1], -1)
            out[d]["texts"].setdefault(name, []).append(float(f"{(p.exp() * (p - q)).sum(-1).double().mean():.5g}"))
    for d, figure in out.items():
        with open(d + ".kl.json", "w") as f:
            json.dump(figure, f)
        print(os.path.basename(d), round(figure["bpw"], 4), {k: round(sum(v) / len(v), 5) for k, v in figure["texts"].items()}, flush=True)


# The driver.


def environment():
    sys.path.insert(0, os.path.join(HERE, "../judges"))
    import run as judges

    return judges.environment("onnx", HERE), judges.ENVIRONMENT


def run(model, cell, methods):
    python, variables = environment()
    bits, group = cell.split("/")
    for method in methods:
        out = work(model, f"onnx.{bits}-{group}.{method}")
        print(method, flush=True)
        shutil.rmtree(out, ignore_errors=True)
        if method in GQ:
            settings = [s if not s.startswith("{") else str(read(work(model, f"onnx.{bits}-{group}.{s[1:-1]}.kl.json"))["bpw"]) for s in GQ[method]]
            if "--target-bpw" not in settings:
                settings += ["--bits", bits, "--group", group]
            command = [os.environ.get("GQ", "gq"), "quantize", os.path.join(REAL, model), *settings, "-q", "-o", out]
        else:
            command = [python, os.path.abspath(__file__), "method", method, os.path.join(REAL, model), bits, group, work(model), out]
        with open(out + ".log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=work(model), env=variables)
            _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            print(method, "failed, see", log.name, flush=True)
            continue
        if method in GQ:
            with open(out + ".json", "w") as f:
                json.dump({"cpu": round(usage.ru_utime + usage.ru_stime, 1), "rss": usage.ru_maxrss >> 10}, f)
        judged = subprocess.run([python, os.path.abspath(__file__), "judge", os.path.join(REAL, model), work(model, "eval.json"), out],
                                env=variables)
        if judged.returncode != 0:
            print(method, "could not be judged", flush=True)
            continue
        figures = read(FIGURES, {})
        figures.setdefault(model, {}).setdefault(cell, {})[method] = {**read(out + ".json"), **read(out + ".kl.json")}
        with open(FIGURES, "w") as f:
            f.write(lines(figures, 3) + "\n")
        shutil.rmtree(out)
        write_tables()


def lines(value, depth):
    if depth == 0:
        return json.dumps(value)
    indent = " " * (4 - depth)
    return "{\n" + ",\n".join(f"{indent}{json.dumps(k)}: {lines(v, depth - 1)}" for k, v in value.items()) + "\n" + indent[1:] + "}"


def mean(figure):
    values = [kl for text in figure["texts"].values() for kl in text]
    return sum(values) / len(values)


def write_tables():
    out = []
    for model, cells in read(FIGURES).items():
        for cell, methods in cells.items():
            bits, group = cell.split("/")
            out += ["", f"{model}, {bits} bits, blocks of {group}:", "", "| | bits of a weight | KL books | KL wikitext | mean KL | CPU s | MiB |", "|---" * 7 + "|"]
            for method in sorted(methods, key=lambda m: (m in GQ, mean(methods[m]))):
                m = methods[method]
                kl = [f"{sum(v) / len(v):.4f}" for v in m["texts"].values()]
                out.append("| " + " | ".join([method, f"{m['bpw']:.3f}", *kl, f"{mean(m):.4f}", f"{m['cpu']:.0f}", str(m["rss"])]) + " |")
    with open(RECORD) as f:
        before, begin, _ = f.read().partition("<!-- tables -->\n")
    with open(RECORD, "w") as f:
        f.write(before + begin + "\n".join(out) + "\n")


def main():
    jobs = {"method": main_of_method, "builder": main_of_builder, "judge": judge, "tables": write_tables}
    if job := jobs.get(sys.argv[1]):
        return job(*sys.argv[2:])
    model, job, cell, *methods = sys.argv[1:]
    if job != "run":
        sys.exit(__doc__)
    run(model, cell, methods)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
