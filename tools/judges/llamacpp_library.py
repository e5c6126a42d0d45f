#!/usr/bin/env python3
"""llama.cpp as a library answers the requests of Go's tests, as testdata/llamacpp.mjs does with node-llama-cpp.

llama-cpp-python is compiled from a newer source than node-llama-cpp's programs. With its Python first in PATH, the
folder of package llama_cpp in GQ_LLAMACPP, and this program in GQ_NODE, `go test -run LlamaCpp .` runs all files in it.
"""

import ctypes
import json
import math
import sys

sys.path.insert(0, sys.argv[2])  # argv[1] is the program for Node.js

import llama_cpp.llama_cpp as lib

TOKENS = 256  # of a context


@lib.llama_log_callback
def log(level, text, _):
    if level == 4:  # GGML_LOG_LEVEL_ERROR
        sys.stderr.write(text.decode(errors="replace"))


def tokenize(vocab, text):
    raw = text.encode()
    ids = (lib.llama_token * (len(raw) + 8))()
    n = lib.llama_tokenize(vocab, raw, len(raw), ids, len(ids), False, True)
    if n < 0:
        raise ValueError(f"{text!r}: {-n} tokens do not fit in {len(ids)}")
    return ids[:n]


def evaluate(context, ids, first, size):
    """Logits after each token, of which the first has the position `first`."""
    batch = lib.llama_batch_init(len(ids), 0, 1)
    try:
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, first + i, 1, 0, 1
        if status := lib.llama_decode(context, batch):
            raise ValueError(f"llama_decode returned {status}")
        return [lib.llama_get_logits_ith(context, i)[:size] for i in range(len(ids))]
    finally:
        lib.llama_batch_free(batch)


def softmax(logits):
    top = max(logits)
    p = [math.exp(x - top) for x in logits]
    total = math.fsum(p)
    return [x / total for x in p]


def run(model, request, size):
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = TOKENS
    params.n_threads = params.n_threads_batch = 1
    params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.type_k = params.type_v = lib.GGML_TYPE_F32
    context = lib.llama_init_from_model(model, params)
    if not context:
        raise ValueError("llama_init_from_model failed")
    try:
        memory = lib.llama_get_memory(context)
        out = {"probabilities": []}
        for ids in request.get("sequences", []):
            lib.llama_memory_clear(memory, True)
            out["probabilities"].append([softmax(row) for row in evaluate(context, ids, 0, size)])
        if "greedy" in request:
            lib.llama_memory_clear(memory, True)
            ids, at, out["greedy"] = request["greedy"], 0, []
            while len(out["greedy"]) < request["count"]:
                last = evaluate(context, ids, at, size)[-1]
                at, ids = at + len(ids), [max(range(size), key=last.__getitem__)]
                out["greedy"] += ids
        return out
    finally:
        lib.llama_free(context)


def answer(request):
    params = lib.llama_model_default_params()
    params.vocab_only = not request.get("sequences") and "greedy" not in request
    model = lib.llama_model_load_from_file(request["model"].encode(), params)
    if not model:
        raise ValueError(f"llama.cpp does not load {request['model']}")
    try:
        vocab = lib.llama_model_get_vocab(model)
        out = {"tokens": [tokenize(vocab, text) for text in request.get("texts", [])], "bos": lib.llama_vocab_get_add_bos(vocab)}
        if not params.vocab_only:
            out |= run(model, request, lib.llama_vocab_n_tokens(vocab))
        return out
    finally:
        lib.llama_model_free(model)


lib.llama_log_set(log, ctypes.c_void_p(0))
lib.llama_backend_init()
for line in sys.stdin:
    try:
        reply = answer(json.loads(line))
    except Exception as e:
        reply = {"error": str(e)}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
