"""llama.cpp loads .gguf files, by testdata/llamacpp.mjs, which Go's tests use too."""

import json
import os
import subprocess
import sys

import numpy as np

import compare

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../testdata/llamacpp.mjs")
PACKAGES = sys.argv[3]  # where npm installed node-llama-cpp


def load(case):
    windows, _, prompt, greedy = compare.reference(case)
    with open(case["text"]) as f:
        request = {"model": os.path.join(case["dir"], "model.gguf"), "texts": [f.read()], "sequences": windows.tolist(),
                   "greedy": prompt, "count": len(greedy)}
    with subprocess.Popen(["node", SCRIPT, PACKAGES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        node.stdin.write(json.dumps(request) + "\n")
        node.stdin.flush()
        answer = json.loads(node.stdout.readline())  # it ends, with output unwritten, when its input ends
    if "error" in answer:
        raise ValueError(answer["error"])
    compare.tokens(case, lambda _: answer["tokens"][0])
    # llama.cpp multiplies BF16 weights with BF16 activations, and codes with activations of 8 bits in groups of 32.
    bf16 = " unquantized " in case["name"]
    yield compare.Run("bfloat16" if bf16 else "float32", "float" if bf16 else "int8", lambda _: np.log(answer["probabilities"]),
                      lambda *_: answer["greedy"], probabilities=True)


if __name__ == "__main__":
    with open(os.path.join(PACKAGES, "node_modules/node-llama-cpp/package.json")) as f:
        compare.run(load, {"node-llama-cpp": json.load(f)["version"]})
