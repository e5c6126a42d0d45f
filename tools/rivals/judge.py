"""Measures dequantized checkpoints against the float checkpoint: KL divergence and perplexity, token by token.

    python judge.py CHECKPOINT EVAL RESULT:WEIGHTS...

EVAL has the windows of token ids of each text: eval.json of `rivals.py texts`. All models are in memory, and read a window
after the float model. WEIGHTS is a .safetensors file, or a folder with such files; tensors that it lacks are the
checkpoint's. RESULT, a .json file, gets the mean KL divergence and loss of each window of each text.
"""

import glob
import json
import os
import sys

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


def load(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def student(checkpoint, path, embedding):
    model = load(checkpoint)
    names = model.state_dict().keys()
    changed = {k: v.float() for k, v in weights(path).items() if k in names and k != "lm_head.weight"}
    if not changed:
        sys.exit(f"{path} has no tensor of {checkpoint}")
    model.load_state_dict(changed, strict=False)
    if not torch.equal(model.get_input_embeddings().weight, embedding) or not torch.equal(model.get_output_embeddings().weight, embedding):
        sys.exit(f"{path} changes the embedding")
    return model


def main():
    checkpoint, texts, *tasks = sys.argv[1:]
    with open(texts) as f:
        texts = json.load(f)
    base = load(checkpoint)
    students = {}
    for task in tasks:
        result, _, path = task.partition(":")
        students[result] = student(checkpoint, path, base.get_input_embeddings().weight)
    figures = {result: {name: {"kl": [], "loss": [], "float": []} for name in texts} for result in students}
    for name, windows in texts.items():
        for window in windows:
            p, next_ids = log_probabilities(base, window), torch.tensor(window[1:])[:, None]
            for result, model in students.items():
                q, figure = log_probabilities(model, window), figures[result][name]
                for key, values in ("kl", (p.exp() * (p - q)).sum(-1)), ("loss", -q.gather(1, next_ids)), ("float", -p.gather(1, next_ids)):
                    figure[key].append(float(f"{values.double().mean():.5g}"))
    for result, texts in figures.items():
        with open(result, "w") as f:
            json.dump(texts, f)
        print(os.path.basename(result), {name: {k: round(sum(v) / len(v), 5) for k, v in figure.items()}
                                         for name, figure in texts.items()}, flush=True)


main()
