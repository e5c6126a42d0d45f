"""ONNX Runtime loads graphs: in sessions, in GenAI, and in transformers.js on Node.js."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import onnxruntime_genai

import compare

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = sys.argv[3]  # where npm installed @huggingface/transformers


def decoder(directory):
    with open(os.path.join(directory, "genai_config.json")) as f:
        return json.load(f)["model"]["decoder"]


def graph(directory):
    return os.path.join(directory, decoder(directory)["filename"])


def in_float32(directory):
    """A copy of the directory with a graph whose kernels do not quantize activations."""
    copy = directory + ".float32"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    model = onnx.load(graph(copy), load_external_data=False)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    onnx.save(model, graph(copy))
    return copy


def session(directory):
    s = onnxruntime.InferenceSession(graph(directory), providers=["CPUExecutionProvider"])
    config = decoder(directory)
    empty = np.zeros((1, config["num_key_value_heads"], 0, config["head_size"]), np.float32)
    past = {i.name: empty for i in s.get_inputs() if i.name.startswith("past")}

    def logits(windows):
        ids = np.asarray(windows, np.int64)
        return np.concatenate([s.run([s.get_outputs()[0].name], {"input_ids": w[None], "attention_mask": np.ones_like(w[None]), **past})[0] for w in ids])

    return logits


def genai(directory, case):
    model = onnxruntime_genai.Model(directory)
    compare.tokens(case, onnxruntime_genai.Tokenizer(model).encode)

    def greedy(prompt, count):
        params = onnxruntime_genai.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + count, min_length=len(prompt) + count, do_sample=False)
        generator = onnxruntime_genai.Generator(model, params)
        generator.append_tokens([int(i) for i in prompt])
        while not generator.is_done():
            generator.generate_next_token()
        return [int(i) for i in generator.get_sequence(0)[len(prompt):]]

    return greedy


def transformersjs(directory):
    def greedy(prompt, count):
        command = ["node", os.path.join(HERE, "transformersjs.mjs"), PACKAGES, directory, str(count)]
        return json.loads(subprocess.run(command, input=json.dumps(prompt), check=True, stdout=subprocess.PIPE, text=True).stdout)

    return greedy


def load(case):
    directory = case["dir"]
    exact = in_float32(directory)
    if "olive" in case["name"]:  # Olive renames the outputs, and GenAI looks for logits
        yield compare.Run("float32", "float", session(exact))
        return
    yield compare.Run("float32", "float", session(exact), genai(exact, case))
    # transformers.js finds the graph by its name, and other programs choose other names.
    if not case["name"].startswith("repack"):
        yield compare.Run("float32", "float", session(exact), transformersjs(exact))
    yield compare.Run("float32", "int8", session(directory), genai(directory, case))
    shutil.rmtree(exact)


if __name__ == "__main__":
    versions = {p.__name__: p.__version__ for p in (onnxruntime, onnxruntime_genai, onnx)}
    for package in ("@huggingface/transformers", "onnxruntime-node"):
        with open(os.path.join(PACKAGES, "node_modules", package, "package.json")) as f:
            versions[package] = json.load(f)["version"]
    compare.run(load, versions)
