"""Measures dequantized checkpoints against the float checkpoint: KL divergence and perplexity, token by token.

    python judge.py CHECKPOINT EVAL RESULT:WEIGHTS...

EVAL has the windows of token ids of each text: eval.json of `rivals.py texts`. All models are in memory, and read a window
after the float model. WEIGHTS is a .safetensors file, or a folder with such files; tensors that it lacks are the
checkpoint's. RESULT, a .json file, gets the mean KL divergence and loss of each window of each text, window by window:
a judge that is stopped leaves what it read.
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
def logits(model, window):
    return model(torch.tensor([window])).logits[0, :-1]


def load(checkpoint):
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def pack(model):
    """Lets oneDNN multiply: in half the time of the library that torch takes for float32, on an AMD processor."""
    ops = torch.ops.mkldnn
    for m in model.modules():
        if isinstance(m, torch.nn.Linear):
            weight = ops._reorder_linear_weight(m.weight.detach(), 256)
            m.forward = lambda x, weight=weight, bias=m.bias: ops._linear_pointwise(x, weight, bias, "none", [], "")
            m.weight = None


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
    base, students = load(checkpoint), {}
    for task in tasks:
        result, _, path = task.partition(":")
        students[result] = student(checkpoint, path, base.get_input_embeddings().weight)
    for model in base, *students.values():
        pack(model)
    figures = {result: {name: {"kl": [], "loss": [], "float": []} for name in texts} for result in students}
    rows = max(1, 2**20 // base.config.get_text_config().vocab_size)  # blocks of logits that fit a cache
    with torch.inference_mode():
        for windows in zip(*texts.values()):
            for name, window in zip(texts, windows):
                next_ids = torch.tensor(window[1:])[:, None].split(rows)
                p = [torch.log_softmax(block, -1) for block in logits(base, window).split(rows)]
                probability = [block.exp() for block in p]
                entropy = [torch.linalg.vecdot(*pair) for pair in zip(probability, p)]
                loss = [-block.gather(1, ids)[:, 0] for block, ids in zip(p, next_ids)]
                for result, model in students.items():
                    kl, losses = [], []
                    for i, block in enumerate(logits(model, window).split(rows)):
                        q = torch.log_softmax(block, -1)
                        kl.append(entropy[i] - torch.linalg.vecdot(probability[i], q))
                        losses.append(-q.gather(1, next_ids[i])[:, 0])
                    for key, values in ("kl", kl), ("loss", losses), ("float", loss):
                        figures[result][name][key].append(float(f"{torch.cat(values).double().mean():.5g}"))
            for result, figure in figures.items():
                with open(result, "w") as f:
                    json.dump(figure, f)
    for result, figure in figures.items():
        print(os.path.basename(result), {name: {k: round(sum(v) / len(v), 5) for k, v in m.items()} for name, m in figure.items()}, flush=True)


main()
