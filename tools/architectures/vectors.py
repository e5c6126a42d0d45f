"""Logits of small random models of many architectures, computed by Transformers.

Each directory of internal/lm/forward/testdata/transformers has a config.json, written by hand as published files are.
This program adds vectors.json, with the tensors that Transformers saves for the configuration and some token ids, and
logits.f32. Weights follow from the tensors' names, so that they need not be stored. Packages run in the environment of
tools/judges/requirements/hf.txt, which is installed if it is not there.
"""

import argparse
import json
import math
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VECTORS = os.path.join(HERE, "../../internal/lm/forward/testdata/transformers")

# The tokens of each sequence, and the positions with stored logits. The longest sequence is longer than every window.
SEQUENCES = {8: range(8), 30: (9, 19, 29), 300: (31, 63, 64, 99, 127, 150, 200, 249, 298, 299)}


def seed(name):
    """FNV-1a of a name."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def numbers(name, n):
    """n numbers from -1 to 1, multiples of 2^-23: SplitMix64 from a seed. testmodels.Numbers gives the same numbers."""
    import numpy

    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed(name)) + numpy.uint64(0x9E3779B97F4A7C15) * numpy.arange(1, n + 1, dtype=numpy.uint64)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
    return (z >> numpy.uint64(40)).astype(numpy.float64) / 2**23 - 1


# Norms of these multiply by 1 + weight.
PLUS_ONE = {"gemma", "nemotron", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}


# Names that Transformers saves, and the names in published files.
PUBLISHED = {"kimi_linear": (r"layers\.0\.block_sparse_moe\.", "layers.0.mlp.")}


def weights(name, shape, mean):
    """The weights of a tensor: norms and factors about their mean, small biases, and matrices that keep the size of their
    inputs."""
    x = numbers(name, math.prod(shape))
    if name.endswith("A_log"):  # decays over one token to over fifty
        x = 2 * x - 2
    elif len(shape) > 1:
        x *= 1.5 * math.sqrt(3 / shape[-1])
        if name.endswith("router.proj.weight"):  # Gemma 4 divides its router's inputs by the square root of their number
            x *= math.sqrt(shape[-1])
    elif name.endswith(("norm.weight", "norm_1.weight", "norm_2.weight")):
        x = mean + 0.5 * x
    elif name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        x = 1 + 0.25 * x
    else:
        x *= 0.25
    return x.astype("float32").reshape(shape)


def tokens(name, n, vocab):
    return [int(abs(x) * 2**23) % vocab for x in numbers(f"{name} {n}", n)]


def make(name):
    """Writes the vectors of the model in a directory with a config.json."""
    import numpy
    import safetensors
    import safetensors.torch
    import torch
    import transformers

    directory = os.path.join(VECTORS, name)
    config = transformers.AutoConfig.from_pretrained(directory)
    text = config.get_text_config()
    mean = 0 if text.model_type in PLUS_ONE else 1
    of = transformers.AutoModelForCausalLM if text is config else transformers.AutoModelForImageTextToText
    with tempfile.TemporaryDirectory() as tmp:
        # The names and shapes are those that Transformers saves.
        of.from_config(config, dtype=torch.float32).save_pretrained(tmp)
        path = os.path.join(tmp, "model.safetensors")
        with safetensors.safe_open(path, "np") as f:
            shapes = {re.sub(*PUBLISHED.get(text.model_type, ("", "")), key): f.get_slice(key).get_shape() for key in f.keys()}
            shapes = dict(sorted(shapes.items()))
        safetensors.torch.save_file({key: torch.tensor(weights(key, shape, mean)) for key, shape in shapes.items()}, path, {"format": "pt"})
        model, info = of.from_pretrained(tmp, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        sys.exit(f"{name}: {info}")
    model.eval()
    rows, sequences = [], []
    for n, positions in SEQUENCES.items():
        ids = tokens(name, n, text.vocab_size)
        with torch.no_grad():
            # Without a mask, Transformers asks CUDA about multimodal models, and PyTorch for CPUs crashes.
            logits = model(torch.tensor([ids]), attention_mask=torch.ones(1, n, dtype=torch.long)).logits[0]
        rows += [logits[p].numpy() for p in positions]
        sequences.append({"tokens": ids, "positions": list(positions)})
    rows = numpy.stack(rows).astype("<f4")
    rows.tofile(os.path.join(directory, "logits.f32"))
    with open(os.path.join(directory, "vectors.json"), "w") as f:
        lines = [f'"transformers": "{transformers.__version__}"',
                 f'"norms": {mean}',
                 '"tensors": {\n' + ",\n".join(f"  {json.dumps(key)}: {json.dumps(shape)}" for key, shape in shapes.items()) + "\n }",
                 '"sequences": [\n' + ",\n".join("  " + json.dumps(s) for s in sequences) + "\n ]"]
        f.write("{\n " + ",\n ".join(lines) + "\n}\n")
    size = sum(os.path.getsize(os.path.join(directory, file)) for file in os.listdir(directory))
    print(f"{name}: {len(shapes)} tensors, largest logit {abs(rows).max():.3g}, standard deviation {rows.std():.3g}, {size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="directories of internal/lm/forward/testdata/transformers; default all")
    args = parser.parse_args()
    try:
        import transformers
    except ImportError:  # again, in the environment of the judge that needs Transformers
        sys.path.insert(0, os.path.join(HERE, "../judges"))
        import run

        python = run.environment("hf")
        if sys.executable == python:
            raise
        os.execve(python, [python, __file__, *args.names], run.ENVIRONMENT)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    for name in args.names or sorted(os.listdir(VECTORS)):
        make(name)


if __name__ == "__main__":
    main()
