"""Continues a prompt in ONNX Runtime GenAI: generate.py DIR PROMPT. Needs the package onnxruntime-genai."""

import sys

import onnxruntime_genai as og

directory, prompt = sys.argv[1:3]
model = og.Model(directory)
tokenizer = og.Tokenizer(model)
stream = tokenizer.create_stream()
ids = tokenizer.encode(prompt)
params = og.GeneratorParams(model)
params.set_search_options(max_length=len(ids) + 60, do_sample=False)
generator = og.Generator(model, params)
generator.append_tokens(ids)
while not generator.is_done():
    generator.generate_next_token()
    print(stream.decode(generator.get_next_tokens()[0]), end="", flush=True)
print()
