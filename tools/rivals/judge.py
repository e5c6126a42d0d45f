"""Measures dequantized checkpoints against the float checkpoint: KL divergence and perplexity, token by token.

    python judge.py CHECKPOINT DATA RESULT:WEIGHTS...

DATA is the folder that `run.py texts` filled: DATA/eval.json has the windows of token ids of each text. The float
model's log-probabilities are kept beside it. WEIGHTS is a .safetensors file, or a folder with such files; tensors that
it lacks are the checkpoint's. RESULT, a .json file, gets the mean KL divergence and loss of each window of each text.
"""

import glob
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def weights(path):
    out = {}
    for file in sorted(glob.glob(os.path.join(path, "*.safetensors"))) if os.path.isdir(path) else [path]:
        out.update(load_file(file))
    return out


@torch.inference_mode()
def log_probabilities(model, window):
    return torch.log_softmax(model(torch.tensor([window])).logits[0, :-1].float(), -1)


def main():
    checkpoint, data, *tasks = sys.argv[1:]
    with open(os.path.join(data, "eval.json")) as f:
        texts = json.load(f)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    float_weights = {k: v.clone() for k, v in model.state_dict().items()}
    embedding = model.get_input_embeddings().weight.clone()
    for name, windows in texts.items():
        path = os.path.join(data, f"float-{name}.npy")
        if os.path.exists(path):
            continue
        rows = sum(len(w) - 1 for w in windows)
        out = np.lib.format.open_memmap(path + ".part", "w+", np.float32, (rows, embedding.shape[0]))
        at = 0
        for window in windows:
            p = log_probabilities(model, window)
            out[at:at + len(p)] = p.numpy()
            at += len(p)
        out.flush()
        os.rename(path + ".part", path)
    for task in tasks:
        result, _, path = task.partition(":")
        model.load_state_dict(float_weights)
        changed = {k: v.float() for k, v in weights(path).items() if k in float_weights and k != "lm_head.weight"}
        if not changed:
            sys.exit(f"{path} has no tensor of {checkpoint}")
        model.load_state_dict(changed, strict=False)
        if not torch.equal(model.get_input_embeddings().weight, embedding) or not torch.equal(model.get_output_embeddings().weight, embedding):
            sys.exit(f"{path} changes the embedding")
        figures = {}
        for name, windows in texts.items():
            base = np.load(os.path.join(data, f"float-{name}.npy"), mmap_mode="r")
            at, figure = 0, {"kl": [], "loss": [], "float": []}
            for window in windows:
                q = log_probabilities(model, window)
                p = torch.from_numpy(np.array(base[at:at + len(q)]))
                at += len(q)
                next_ids = torch.tensor(window[1:])[:, None]
                figure["kl"].append((p.exp() * (p - q)).sum(-1))
                figure["loss"].append(-q.gather(1, next_ids)[:, 0])
                figure["float"].append(-p.gather(1, next_ids)[:, 0])
            figures[name] = {k: [float(f"{v.double().mean():.5g}") for v in values] for k, values in figure.items()}
        with open(result, "w") as f:
            json.dump(figures, f)
        print(os.path.basename(result), {name: {k: round(sum(v) / len(v), 5) for k, v in figure.items()}
                                         for name, figure in figures.items()}, flush=True)


main()
