"""Compares gq with other quantizers at equal bytes, on trained models: see README.md.

    python3 rivals.py MODEL texts
    python3 rivals.py MODEL quantize BITS/GROUP METHOD...
    python3 rivals.py MODEL judge
    python3 rivals.py MODEL run BITS/GROUP METHOD...
    python3 rivals.py MODEL wide BITS/GROUP METHOD...
    python3 rivals.py tables

run quantizes and judges one method after the other, and writes the tables of RECORD.md, docs/QUALITY.md and README.md
after each. A method that fails is printed, and the next begins. wide judges what was quantized on twelve times the text.
"""

import json
import math
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "../judges"))
import run as judges  # noqa: E402

REAL = os.environ.get("GQ_REAL") or os.path.expanduser("~/.cache/gq-real")  # where realmodels checkpoints were made
FIGURES, RECORD = os.path.join(HERE, "figures.json"), os.path.join(HERE, "RECORD.md")
# Windows of each text that the judge reads. The vocabulary of Gemma makes each of them five times as dear.
MODELS = {"smollm2-135m": 8, "gemma3-270m": 4}
WIDE = 98  # the same for wide: 49,980 tokens

# Threads that wait for each other must not take CPU time: it counts.
ENVIRONMENT = {**judges.ENVIRONMENT, "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0",
               "GPTQMODEL_CPU_WORKERS": "2"}  # GPTQModel fails to start with one, its default on two cores

SKIP = ["--rule", "*embed_tokens*=skip"]
GOOD = ["--quality", "good", "--calibrate", "calibration.ids"]
BEST = ["--quality", "best", "--calibrate", "calibration.ids"]
GQ = {
    "gq-search": [],
    "gq-good": GOOD,
    "gq-good-self": ["--quality", "good"],
    "gq-good-fractions": [*GOOD, "--mapping", "asymmetric"],
    "gq-best": BEST,
    "gq-good-mixed": [*GOOD, "--target-bpw"],
    "gq-best-mixed": [*BEST, "--target-bpw"],
    "gq-max-mixed": ["--quality", "max", "--calibrate", "calibration.ids", "--target-bpw"],
}

# The table of docs/QUALITY.md: its columns, the first with the CPU time, and its rows.
COLUMNS = {
    ("smollm2-135m", "4/32"): "SmolLM2, 4 bits",
    ("smollm2-135m", "4/64"): "groups of 64",
    ("smollm2-135m", "3/32"): "3 bits",
    ("smollm2-135m", "2/32"): "2 bits",
    ("gemma3-270m", "4/32"): "Gemma, 4 bits",
    ("gemma3-270m", "3/32"): "Gemma, 3 bits",
    ("gemma3-270m", "2/32"): "Gemma, 2 bits",
}
NAMES = {
    "torchao-rtn": "torchao RTN",
    "torchao-hqq": "torchao HQQ",
    "llamacpp-q4_0": "llama.cpp Q4_0",
    "llamacpp-iq4_nl": "llama.cpp IQ4_NL",
    "gptqmodel-gptq": "GPTQModel GPTQ",
    "gptqmodel-gptaq": "GPTQModel GPTAQ",
    "gptqmodel-foem": "GPTQModel FOEM",
    "llmcompressor-gptq": "llm-compressor GPTQ",
    "llmcompressor-awq": "llm-compressor AWQ",
    "nncf-awq-se": "NNCF",
    "autoround-light": "AutoRound light",
    "autoround-200": "AutoRound",
    "mlx-gptq": "mlx-lm gptq",
    "mlx-awq": "mlx-lm awq",
    "mlx-dwq": "mlx-lm dwq",
    "mlx-dynamic": "mlx-lm dynamic",
    "gq-search": "gq `search`",
    "gq-good": "gq `good`",
    "gq-best": "gq `best`",
    "gq-good-fractions": "gq `good`, fractional zero points",
    "gq-good-mixed": "gq `good`, mixed",
    "gq-best-mixed": "gq `best`, mixed",
    "gq-max-mixed": "gq `max`, mixed",
}


def environment(method):
    if method.startswith("mlx"):
        return judges.environment("mlx")
    return judges.environment("llmcompressor" if method.startswith("llmcompressor") else "torch", HERE)


def work(model, *names):
    return os.path.join(REAL, "rivals", model, *names)


def read(path, default=None):
    if not os.path.exists(path):
        return default
    with open(path) as f:
        return json.load(f)


def figures():
    return read(FIGURES, {})


def save(out):
    """Writes figures with a line for each method."""
    def lines(value, depth):
        if depth == 0:
            return json.dumps(value)
        indent = " " * (4 - depth)
        return "{\n" + ",\n".join(f"{indent}{json.dumps(k)}: {lines(v, depth - 1)}" for k, v in value.items()) + "\n" + indent[1:] + "}"
    with open(FIGURES, "w") as f:
        f.write(lines(out, 3) + "\n")


def timed(command, log, **options):
    """Runs a command, and returns its CPU time in seconds and its largest resident set in MiB."""
    with open(log, "w") as f:
        process = subprocess.Popen(command, stdout=f, stderr=f, **options)
        _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        with open(log) as f:
            print(f.read()[-1500:])
        raise subprocess.CalledProcessError(status, command)
    return {"cpu": round(usage.ru_utime + usage.ru_stime, 1), "rss": usage.ru_maxrss >> 10}


def quantize_gq(model, cell, method, out):
    bits, group = cell.split("/")
    settings = GQ[method]
    if settings[-1:] == ["--target-bpw"]:
        uniform = read(work(model, f"{bits}-{group}.gq-search.json")) or sys.exit(f"quantize {cell} gq-search first: its size is the limit")
        settings = [*settings, str(uniform["bpw"])]
    else:
        # An 8-bit zero point and a scale for 48 weights have the bytes of a scale for 32.
        group = int(group) * 3 // 2 if "asymmetric" in settings else group
        settings = [*settings, "--bits", bits, "--group", str(group)]
    command = [os.environ.get("GQ", "gq"), "quantize", os.path.join(REAL, model), *SKIP, *settings, "-q", "--json", "-o", out + ".gqf"]
    result = timed(command, out + ".log", cwd=work(model))
    with open(out + ".log") as f:
        report = json.loads(f.read())
    shutil.rmtree(out, ignore_errors=True)
    judges.run(command[0], "dequantize", out + ".gqf", "--dtype", "f32", "-q", "-o", out, stdout=subprocess.DEVNULL)
    return {**result, "bpw": report["bits_per_weight"]}


def quantize_rival(model, cell, method, out):
    bits, group = cell.split("/")
    program = "quantize_mlx.py" if method.startswith("mlx") else "quantize.py"
    command = [environment(method), os.path.join(HERE, program), method, os.path.join(REAL, model), bits, group, work(model), out]
    timed(command, out + ".log", env=ENVIRONMENT)
    return {"bpw": int(bits) + 16 / int(group), **read(out + ".json")}


def quantize(model, cell, methods):
    for method in methods:
        out = work(model, f"{cell.replace('/', '-')}.{method}")
        try:
            result = (quantize_gq if method in GQ else quantize_rival)(model, cell, method, out)
        except subprocess.CalledProcessError as err:
            print(model, cell, method, err, flush=True)
            continue
        with open(out + ".json", "w") as f:
            json.dump(result, f)
        print(model, cell, method, result, flush=True)


def texts(model, windows, *folder):
    judges.run(environment(""), os.path.join(HERE, "texts.py"), os.path.join(REAL, model), os.path.join(ROOT, "../shared/text"),
               work(model, *folder), str(windows))


def measure(model, paths, *folder):
    """Judges dequantized weights on the texts of a folder, where the results go."""
    tasks = []
    for path in paths:
        weights = path if os.path.isdir(path) else path + ".safetensors"
        if os.path.exists(weights):
            tasks.append(work(model, *folder, os.path.basename(path) + ".kl.json") + ":" + weights)
    if tasks:
        judges.run(environment(""), os.path.join(HERE, "judge.py"), os.path.join(REAL, model), work(model, *folder, "eval.json"),
                   *tasks, env=ENVIRONMENT)


def judge(model):
    """Measures what was quantized and not measured yet."""
    names = [name.removesuffix(".json") for name in sorted(os.listdir(work(model))) if name.count(".") == 2 and name.endswith(".json")]
    measure(model, [work(model, name) for name in names if not os.path.exists(work(model, name + ".kl.json"))])
    out = figures()
    for name in sorted(os.listdir(work(model))):
        if not name.endswith(".kl.json") or name.count(".") != 3:  # CELL.METHOD.kl.json
            continue
        path = work(model, name.removesuffix(".kl.json"))
        cell, _, method = os.path.basename(path).partition(".")
        measured = read(path + ".kl.json")
        cells = out.setdefault(model, {})
        cells["float"] = {text: round(math.exp(mean(m.pop("float"))), 3) for text, m in measured.items()}
        figure = {**read(path + ".json"), "texts": measured}
        if wide := read(work(model, "wide", os.path.basename(path) + ".kl.json")):
            figure["wide"] = {text: {"kl": m["kl"], "loss": [round(mean(m["loss"]), 4)], "float": round(mean(m["float"]), 4)}
                              for text, m in wide.items()}
        cells.setdefault(cell.replace("-", "/"), {})[method] = figure
    save(out)


def mean(values):
    return sum(values) / len(values)


def ratio(a, b, texts="texts"):
    """The ratio of two methods' mean KL divergence over all windows, and its standard error over windows."""
    x, y = ([kl for text in m[texts].values() for kl in text["kl"]] for m in (a, b))
    r, n = mean(x) / mean(y), len(x)
    return r, math.sqrt(sum((p - r * q) ** 2 for p, q in zip(x, y)) / (n * (n - 1))) / mean(y)


def overall(m, texts="texts"):
    return mean([kl for text in m[texts].values() for kl in text["kl"]])


def table(methods, texts, base):
    """The rivals by their KL divergence, then gq. base has the float model's perplexity by text."""
    rivals = sorted((m for m in methods if m not in GQ), key=lambda m: overall(methods[m], texts))
    lines = ["| | KL " + " | KL ".join(base) + " | of the best rival | "
             + " | ".join(f"perplexity {n} (float {base[n]:.2f})" for n in base) + " | CPU s | MiB |",
             "|---" * (4 + 2 * len(base)) + "|"]
    for method in [*rivals, *[m for m in GQ if m in methods]]:
        m, r = methods[method], "-"
        if rivals:
            r = "1" if method == rivals[0] else "{:.2f} ± {:.2f}".format(*ratio(m, methods[rivals[0]], texts))
        cols = [method, *[f"{mean(m[texts][n]['kl']):.4f}" for n in base], r,
                *[f"{math.exp(mean(m[texts][n]['loss'])):.2f}" for n in base], f"{m['cpu']:.0f}", str(m.get("rss", "-"))]
        lines.append("| " + " | ".join(cols) + " |")
    return lines


def tables():
    """A table a model and cell, and another of what was judged on more text."""
    lines = []
    for model, cells in figures().items():
        base = cells.pop("float")
        for cell, methods in sorted(cells.items(), reverse=True):
            bits, _, group = cell.partition("/")
            lines += ["", f"{model}, {bits} bits, groups of {group}:", "", *table(methods, "texts", base)]
            wide = {name: m for name, m in methods.items() if "wide" in m}
            if wide:
                floats = {text: math.exp(m["float"]) for text, m in next(iter(wide.values()))["wide"].items()}
                tokens = 255 * sum(len(m["kl"]) for m in next(iter(wide.values()))["wide"].values())
                lines += ["", f"The same files, judged on {tokens:,} tokens:", "", *table(wide, "wide", floats)]
    return "\n".join(lines) + "\n\n"


def put(path, name, text):
    """Replaces the text between two marks of a document."""
    with open(path) as f:
        before, begin, rest = f.read().partition(f"<!-- rivals:begin {name} -->\n")
    _, end, after = rest.partition(f"<!-- rivals:end {name} -->\n")
    if not end:
        sys.exit(f"{path} has no marks of {name}")
    with open(path, "w") as f:
        f.write(before + begin + text + end + after)


def best(methods, allowed):
    return min((m for m in methods if allowed(m)), key=lambda m: overall(methods[m]), default=None)


def short(x):
    return f"{x:.3g}" if x >= 1 else f"{x:.3f}".removeprefix("0")


def documents():
    """The table of QUALITY.md, and the lines of README.md."""
    cells = {(model, cell): methods for model, all in figures().items() for cell, methods in all.items() if (model, cell) in COLUMNS}
    columns = [c for c in COLUMNS if c in cells]
    lines = ["| | " + " | ".join(COLUMNS[c] for c in columns) + " | CPU s |", "|---" * (len(columns) + 2) + "|"]
    for method, name in NAMES.items():
        values = [short(overall(cells[c][method])) if method in cells[c] else "-" for c in columns]
        if set(values) != {"-"}:
            cpu = cells[columns[0]].get(method)
            lines.append("| " + " | ".join([name, *values, f"{cpu['cpu']:.0f}" if cpu else "-"]) + " |")
    put(os.path.join(ROOT, "docs/QUALITY.md"), "all", "\n".join(lines) + "\n")

    columns = [c for c in columns if c[1] == "4/32"]
    lines = ["| 4 bits | " + " | ".join(c[0] for c in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    row = []
    for c in columns:
        rival = best(cells[c], lambda m: m not in GQ)
        row.append(f"{short(overall(cells[c][rival]))} ({NAMES[rival]})" if rival else "-")
    lines.append("| " + " | ".join(["best other program", *row]) + " |")
    for method in "gq-search", "gq-good", "gq-good-mixed":
        lines.append("| " + " | ".join([NAMES[method].removeprefix("gq "), *[short(overall(cells[c][method])) if method in cells[c] else "-" for c in columns]]) + " |")
    put(os.path.join(ROOT, "README.md"), "best", "\n".join(lines) + "\n")


def write_tables():
    put(RECORD, "tables", tables())
    documents()


def main():
    if sys.argv[1:] == ["tables"]:
        return write_tables()
    model, job, *args = sys.argv[1:]
    if job == "texts":
        texts(model, MODELS[model])
    elif job == "quantize":
        quantize(model, args[0], args[1:])
    elif job == "judge":
        judge(model)
    elif job == "run":
        for method in args[1:]:
            quantize(model, args[0], [method])
            judge(model)
            write_tables()
    elif job == "wide":
        texts(model, WIDE, "wide")
        measure(model, [work(model, f"{args[0].replace('/', '-')}.{method}") for method in args[1:]], "wide")
        judge(model)
        write_tables()
    else:
        sys.exit(__doc__)


main()
