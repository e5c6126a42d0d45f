"""The program gq, and checkpoints for it to quantize."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
BOOKS = ROOT / "testdata" / "books1.3M-bf16"

# In memory where that is possible: gq syncs every file that it writes.
_scratch = tempfile.mkdtemp(prefix="gqf-tests-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
atexit.register(shutil.rmtree, _scratch, ignore_errors=True)


def scratch(name):
    return Path(_scratch) / name


def gq(*args):
    """Runs gq and returns its standard output. GQ names a binary; otherwise one is built."""
    binary = os.environ.get("GQ") or scratch("gq")
    if not Path(binary).exists():
        subprocess.run(["go", "build", "-o", str(binary), "./cmd/gq"], cwd=ROOT, check=True)
    done = subprocess.run([str(binary), *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"gq {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def write_safetensors(path, tensors):
    """tensors: name to (dtype's name, array); the array's bytes are the elements."""
    header, offset = {}, 0
    for name, (dtype, array) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, array in tensors.values():
            f.write(array.tobytes())


def read_safetensors(directory):
    """Name to (dtype's name, shape, bytes) of a checkpoint in one file."""
    raw = (Path(directory) / "model.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    header.pop("__metadata__", None)
    data = raw[8 + n :]
    return {k: (v["dtype"], tuple(v["shape"]), data[slice(*v["data_offsets"])]) for k, v in header.items()}


def synthetic(directory):
    """A checkpoint of shapes that nothing divides, with experts fused into one tensor, stored inputs x outputs."""
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama4_text"}')
    r = np.random.default_rng(1)

    def f32(*shape):
        return "F32", r.standard_normal(shape).astype(np.float32)

    layer = "model.layers.0."
    write_safetensors(
        directory / "model.safetensors",
        {
            "model.embed_tokens.weight": f32(45, 224),
            "lm_head.weight": f32(45, 224),
            layer + "self_attn.q_proj.weight": f32(37, 172),
            layer + "self_attn.q_proj.bias": f32(37),
            layer + "self_attn.k_proj.weight": f32(35, 100),
            layer + "self_attn.v_proj.weight": f32(32, 32),
            layer + "mlp.down_proj.weight": f32(33, 224),
            layer + "mlp.up_proj.weight": f32(34, 640),
            layer + "mlp.experts.gate_up_proj": f32(3, 64, 36),
            layer + "input_layernorm.weight": ("F16", r.standard_normal(33).astype(np.float16)),
            layer + "counts": ("I64", np.arange(5)),
            layer + "scalar": ("F64", np.array(2.5)),
        },
    )
