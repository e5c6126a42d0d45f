"""What the judges share: a judge loads each case's directory, and its logits are compared with gq's.

A judge's program calls run() with a function that loads a directory and returns the runs of it. It prints JSON: for
each case and run the figures that run.py holds to limits.
"""

import dataclasses
import json
import sys
import traceback
from importlib.metadata import version
from typing import Callable

import numpy as np


@dataclasses.dataclass
class Run:
    """One way in which a program computes with a loaded directory.

    logits turns ids [windows, length] into logits, and greedy continues a prompt by a number of ids. dtype is what
    the program computes in, and activations what the inputs of quantized layers are: float, or int8 that the program
    quantizes in its own way.
    """

    dtype: str
    activations: str
    logits: Callable
    greedy: Callable | None = None
    probabilities: bool = False  # logits are logarithms of probabilities


def perplexity(logits, ids):
    logits = logits[:, :-1].astype(np.float64)
    top = logits.max(-1)
    total = np.log(np.exp(logits - top[..., None]).sum(-1)) + top
    chosen = np.take_along_axis(logits, ids[:, 1:, None], -1)[..., 0]
    return float(np.exp((total - chosen).mean()))


def reference(case):
    with open(case["logits"] + ".json") as f:
        ids = json.load(f)
    windows = np.array(ids["windows"])
    logits = np.fromfile(case["logits"] + ".f32", np.float32).reshape(*windows.shape, -1)
    return windows, logits, ids["prompt"], ids["greedy"]


def measure(case, run):
    windows, want, prompt, greedy = reference(case)
    got = np.asarray(run.logits(windows), np.float32)
    if run.probabilities:
        top = want.max(-1, keepdims=True)
        want = want - top - np.log(np.exp(want - top).sum(-1, keepdims=True))
    figures = {
        "case": case["name"],
        "dtype": run.dtype,
        "activations": run.activations,
        "logits": float(np.abs(got - want).max() / np.abs(want).max()),
        "perplexity": perplexity(got, windows),
        "gq": perplexity(want, windows),
        "same_top": float((got.argmax(-1) == want.argmax(-1)).mean()),
    }
    if run.greedy:
        ids = [int(i) for i in run.greedy(prompt, len(greedy))]
        figures["greedy"] = next((i for i, (a, b) in enumerate(zip(ids, greedy)) if a != b), min(len(ids), len(greedy)))
    return figures


def run(load, packages):
    """load(case) yields the Runs of a case; packages are the names of installed packages, or versions by name."""
    with open(sys.argv[1]) as f:
        cases = json.load(f)
    results = []
    for case in cases:
        try:
            for r in load(case):
                results.append(measure(case, r))
                print({k: round(v, 7) if isinstance(v, float) else v for k, v in results[-1].items()}, file=sys.stderr)
        except Exception as e:  # what a program refuses is a result
            traceback.print_exc()
            results.append({"case": case["name"], "error": f"{type(e).__name__}: {e}"[:500]})
    versions = packages if isinstance(packages, dict) else {p: version(p) for p in packages}
    out = {"versions": versions, "results": results}
    with open(sys.argv[2], "w") as f:
        json.dump(out, f, indent=1)


def tokens(case, encode):
    """Fails unless a program's own tokenizer gives gq's ids."""
    with open(case["text"]) as f:
        text = f.read()
    want = [i for window in reference(case)[0].tolist() for i in window]
    if list(encode(text))[: len(want)] != want:
        raise ValueError("the tokenizer's ids differ from gq's")
