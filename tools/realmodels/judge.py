"""Compares gq's answers on a checkpoint of realmodels with other programs' answers.

    python3 judge.py REALMODELS CHECKPOINT JOB... TEXTFILE...

Jobs: tokens (against tokenizers, and transformers if that is installed), chat (against jinja2), logits (against
transformers), llamacpp (CHECKPOINT.gguf against llama.cpp; NODE_LLAMA_CPP names the folder in which npm installed
node-llama-cpp). REALMODELS is the program that `go build ./realmodels` makes in tools/. The requirements are in
requirements.txt. The exit status is 1 if an answer differs.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import numpy as np

TEXTS = 2000
LOGIT_TOKENS = 600  # more than the sliding window of Gemma 3
LOGIT_TOLERANCE = 1e-4  # of the largest logit
LLAMACPP_TOKENS = 128
LLAMACPP_LOGITS = 8 << 20  # of a sequence: JSON in node has at most 512 MB
LLAMACPP_KL = 2e-2  # nats per token: llama.cpp quantizes the activations of quantized layers to 8 bits
LLAMACPP_F32_KL = 1e-6


class GQ:
    """Answers of `realmodels answer`."""

    def __init__(self, program, path):
        self.process = subprocess.Popen([program, "answer", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("realmodels answer ended")
        return json.loads(line)

    def logits(self, ids):
        with tempfile.NamedTemporaryFile() as f:
            self.ask(tokens=ids, logits=f.name)
            return np.fromfile(f.name, dtype=np.float32).reshape(len(ids), -1)


def odd_string(rng, names):
    """A string of what tokenizers treat specially."""
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0x00, 0x20), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF),
              (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2070, 0x24FF), (0x2580, 0x25FF),
              (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xFE00, 0xFFFD),
              (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0xE0000, 0xE01EF)]
    words = ["'s", "'LL", "’re", "don't", "  ", "   ", "\n\n", "\r\n", "\t\t", " \n ", "1234567", "3.14", "0x1F", "½", "²", "Ⅷ",
             "ﬁ", "ſ", "İ", "ß", "e\u0301", "\u1e9b\u0323", "\u200b", "\u200d", "\ufeff", "\u2581", "\u00a0", "\u3000",
             "<0x0A>", "<|", "|>", "<", "http://a.b/c?d=e&f#g", "snake_case", "CamelCase", "{}[]()", "...", "--", "==", "//",
             "👩‍👩‍👧", "🏳️‍🌈", "🇩🇪", "Ġ", "Ċ", "x" * 50, " " * 40, "\n" * 20, "7" * 30, "!" * 33, "\t" * 17]
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.45:
            low, high = rng.choice(ranges)
            out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
        elif kind < 0.9:
            out.append(rng.choice(words))
        else:
            out.append(rng.choice(names))
        if rng.random() < 0.4:
            out.append(" ")
    return "".join(out)


def texts(files, names):
    """Half of the texts are pieces of files, half are odd strings."""
    rng = random.Random(29)
    sources = [open(f, encoding="utf-8").read() for f in files]
    for i in range(TEXTS // 2):
        s = sources[i % len(sources)]
        at = rng.randrange(len(s))
        yield s[at:at + rng.choice([1, 10, 100, 400, 1500])]
    for _ in range(TEXTS // 2):
        yield odd_string(rng, names)


def judge_tokens(gq, path, files):
    import tokenizers
    tok = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    names = [t.content for t in tok.get_added_tokens_decoder().values()]
    bad = count = 0
    for text in texts(files, names):
        count += 1
        special = count % 2 == 0
        r = gq.ask(text=text, special=special)
        ids = r.get("ids", [])
        want = tok.encode(text, add_special_tokens=special).ids
        if ids != want or r.get("text", "") != tok.decode(want, skip_special_tokens=False):
            bad += 1
            if bad <= 5:
                print("  differs:", repr(text), ids, want, repr(r.get("text", "")), repr(tok.decode(want, skip_special_tokens=False)))
    print(f"tokens: {count - bad} of {count} texts equal to tokenizers {tokenizers.__version__}")
    return bad


def judge_auto_tokenizer(path, files):
    """transformers' own class of tokenizers reads the files too, and may change what they say."""
    try:
        import transformers
    except ImportError:
        return 0
    import tokenizers
    tok = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    auto = transformers.AutoTokenizer.from_pretrained(path)
    names = [t.content for t in tok.get_added_tokens_decoder().values()]
    bad = count = 0
    for text in texts(files, names):
        count += 1
        want, got = tok.encode(text).ids, auto(text)["input_ids"]
        if got != want:
            bad += 1
            if bad <= 5:
                print("  differs:", repr(text), got, want)
    print(f"tokens: {count - bad} of {count} texts equal in transformers {transformers.__version__}'s {type(auto).__name__}")
    return bad


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def judge_llamacpp(program, path, files, model, tolerance):
    import tokenizers
    tok = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../testdata/llamacpp.mjs")
    node = subprocess.Popen(["node", script, os.environ["NODE_LLAMA_CPP"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(**request):
        node.stdin.write(json.dumps({"model": model, **request}).encode() + b"\n")
        node.stdin.flush()
        return json.loads(node.stdout.readline())

    names = [t.content for t in tok.get_added_tokens_decoder().values()]
    # JavaScript's strings end a text at its first NUL.
    list_ = [t for t in texts(files, names) if "\0" not in t]
    bad = 0
    for text, got in zip(list_, ask(texts=list_)["tokens"]):
        want = tok.encode(text, add_special_tokens=False).ids
        if got != want:
            bad += 1
            if bad <= 5:
                print("  differs:", repr(text), got, want)
    print(f"llamacpp: {len(list_) - bad} of {len(list_)} texts have the tokens of {os.path.basename(model)}")
    gq = GQ(program, model)
    for file in files:
        ids = tok.encode(open(file, encoding="utf-8").read()[:8 * LLAMACPP_TOKENS]).ids
        ids = ids[:min(LLAMACPP_TOKENS, LLAMACPP_LOGITS // tok.get_vocab_size())]
        p = np.array(ask(sequences=[ids])["probabilities"][0])
        p /= p.sum(-1, keepdims=True)  # a sum of 262,144 float32 numbers is not 1
        got = log_softmax(gq.logits(ids))
        kl = float((p * (np.log(np.maximum(p, 1e-30)) - got)).sum(-1).mean())
        same = int((got.argmax(-1) == p.argmax(-1)).sum())
        print(f"llamacpp: {os.path.basename(model)}, {os.path.basename(file)}: mean KL {kl:.2g} nats over {len(ids)} tokens, {same} of {len(ids)} greedy tokens equal")
        bad += not kl < tolerance
    return bad


def conversations(rng):
    system = {"role": "system", "content": "Answer in one sentence."}
    turns = ["Hello", "  spaces  \n", "", "What is <|im_end|>?", "été ✓ 漢字", "{{ 7 * 7 }} {% if x %}", "a\n\nb", "'quotes\" & <tags>"]
    for _ in range(200):
        messages = [system] if rng.random() < 0.5 else []
        for i in range(rng.randint(0, 5)):
            messages.append({"role": "user" if i % 2 == 0 or rng.random() < 0.1 else "assistant", "content": rng.choice(turns)})
        yield messages


def judge_chat(gq, path):
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    config = json.load(open(os.path.join(path, "tokenizer_config.json")))
    if "chat_template" not in config:
        print("chat: the model has no template")
        return 0

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.globals["raise_exception"] = refuse
    template = env.from_string(config["chat_template"])
    bad = count = 0
    for messages in conversations(random.Random(29)):
        for generate in (False, True):
            count += 1
            try:
                want = template.render(messages=messages, add_generation_prompt=generate, bos_token=config.get("bos_token"),
                                       eos_token=config.get("eos_token"))
            except jinja2.exceptions.TemplateError:
                want = None
            r = gq.ask(messages=messages, generate=generate)
            got = None if "refused" in r else r.get("prompt", "")
            if got != want:
                bad += 1
                if bad <= 5:
                    print("  differs:", messages, repr(got), repr(want), r)
    print(f"chat: {count - bad} of {count} prompts equal to jinja2 {jinja2.__version__}")
    return bad


def judge_logits(gq, path, files):
    import tokenizers
    import torch
    import transformers
    tok = tokenizers.Tokenizer.from_file(os.path.join(path, "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    bad = 0
    for file in files:
        ids = tok.encode(open(file, encoding="utf-8").read()[:8 * LOGIT_TOKENS]).ids[:LOGIT_TOKENS]
        got = gq.logits(ids)
        with torch.no_grad():
            want = model(torch.tensor([ids])).logits[0].numpy()
        worst, largest = float(np.abs(got - want).max()), float(np.abs(want).max())
        same = int((got.argmax(-1) == want.argmax(-1)).sum())
        print(f"logits: {os.path.basename(file)}: {worst / largest:.2g} of the largest logit from transformers "
              f"{transformers.__version__} over {len(ids)} tokens, {same} of {len(ids)} greedy tokens equal")
        bad += worst > LOGIT_TOLERANCE * largest
    return bad


def main():
    program, path, *rest = sys.argv[1:]
    jobs = [a for a in rest if a in ("tokens", "chat", "logits", "llamacpp")]
    files = [a for a in rest if a not in jobs]
    gq = GQ(program, path)
    bad = 0
    if "tokens" in jobs:
        bad += judge_tokens(gq, path, files) + judge_auto_tokenizer(path, files)
    if "chat" in jobs:
        bad += judge_chat(gq, path)
    if "logits" in jobs:
        bad += judge_logits(gq, path, files)
    if "llamacpp" in jobs:
        bad += judge_llamacpp(program, path, files, path + ".gguf", LLAMACPP_KL)
        bad += judge_llamacpp(program, path, files, path + "-f32.gguf", LLAMACPP_F32_KL)
    sys.exit(bad > 0)


main()
