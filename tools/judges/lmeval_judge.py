"""lm-eval asks gq serve and Transformers the same questions: local-completions against hf with the weights that
gq dequantize writes. The questions come from the text: which half of a sentence follows this half?
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version

TASK = """task: judges
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_target: "{{answer}}"
doc_to_choice: "{{endings}}"
metric_list: [{metric: acc}]
"""


def questions(text):
    halves = []
    for sentence in re.split(r"(?<=[.!?])\s+", " ".join(text.split())):
        words = sentence.split()
        if 8 <= len(words) <= 40:
            halves.append((" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2:])))
    for i, (context, _) in enumerate(halves):
        yield {"context": context, "endings": [halves[(i + j) % len(halves)][1] for j in range(4)], "answer": 0}


def evaluate(tmp, name, *model):
    out = os.path.join(tmp, name)
    subprocess.run([os.path.join(os.path.dirname(sys.executable), "lm_eval"), *model, "--tasks", "judges", "--include_path", tmp,
                    "--log_samples", "--output_path", out], check=True, stdout=sys.stderr,
                   env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": os.path.join(tmp, "data")})
    with open(glob.glob(os.path.join(out, "**/samples_*.jsonl"), recursive=True)[0]) as f:
        samples = sorted(map(json.loads, f), key=lambda s: s["doc_id"])
    return [[float(r[0][0]) for r in s["resps"]] for s in samples]


def ask(case, tmp):
    # A window of these models is 256 tokens.
    with open(case["text"]) as f, open(os.path.join(tmp, "questions.jsonl"), "w") as out:
        out.writelines(json.dumps(q) + "\n" for q in questions(f.read()))
    with open(os.path.join(tmp, "task.yaml"), "w") as f:
        f.write(TASK % os.path.join(tmp, "questions.jsonl"))
    hf = evaluate(tmp, "hf", "--model", "hf", "--model_args", f"pretrained={case['dir']},dtype=float32,max_length=256", "--device", "cpu")
    server = subprocess.Popen([case["gq"], "serve", case["dir"] + ".gqf", "--port", "0", "--activations", "float32", "-q"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(m[0] for line in server.stdout if (m := re.search(r"http://[\w.:]+", line)))
        model = os.path.basename(case["dir"])
        # Transformers puts a BOS before the text where the tokenizer's files ask for one; local-completions only if told.
        served = evaluate(tmp, "gq", "--model", "local-completions", "--model_args",
                          f"model={model},base_url={address}/v1/completions,tokenizer={case['dir']},tokenizer_backend=huggingface,add_bos_token=True,max_length=256")
    finally:
        server.terminate()
        server.wait()
    different = sum(a.index(max(a)) != b.index(max(b)) for a, b in zip(hf, served, strict=True))
    likelihoods = [(a, b) for q, r in zip(hf, served) for a, b in zip(q, r, strict=True)]
    return {"case": case["name"], "dtype": "float32", "activations": "float", "questions": len(hf), "different": different,
            "logits": max(abs(a - b) for a, b in likelihoods) / max(abs(a) for a, _ in likelihoods)}


def main():
    with open(sys.argv[1]) as f:
        cases = json.load(f)
    results = []
    for case in cases:
        with tempfile.TemporaryDirectory() as tmp:
            results.append(ask(case, tmp))
    with open(sys.argv[2], "w") as f:
        json.dump({"versions": {p: version(p) for p in sys.argv[3:]}, "results": results}, f)


main()
