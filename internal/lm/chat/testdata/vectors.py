#!/usr/bin/python3
"""Renders chat templates with jinja2, configured as transformers does it, and writes test vectors.

usage: vectors.py templates/*.jinja >vectors.json             (Debian: apt-get install python3-jinja2)
       vectors.py --hash TEMPLATE ... >published.json
       vectors.py --tools templates/tools.jinja >tools_vectors.json
       vectors.py --tools --hash TEMPLATE ... >tools_published.json

TEMPLATE is a .jinja file or a tokenizer_config.json. The conversations are in conversations.json;
with --tools, conversations and tools are in tools.json.
A vector has the SHA-256 of the template's text and, for each conversation with and without the
prompt for an answer, the rendered text, or the words with which the template refuses it. With
--hash it has a hash of the text: published templates are not copied.
"""
import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """transformers' generation block: it marks text for training and changes nothing."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


class Refused(Exception):
    pass


def raise_exception(message):
    raise Refused(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(format):
    return datetime.datetime(2026, 7, 4, 15, 6, 7).strftime(format)


env = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = strftime_now

here = pathlib.Path(__file__).parent
args = sys.argv[1:]
tools = None
if args[0] == "--tools":
    args.pop(0)
    file = json.loads((here / "tools.json").read_text())
    tools, conversations = file["tools"], file["conversations"]
else:
    conversations = json.loads((here / "conversations.json").read_text())
vectors = []
hashed = args[0] == "--hash"
for name in args[1 if hashed else 0:]:
    text = pathlib.Path(name).read_text()
    if name.endswith(".json"):
        text = json.loads(text)["chat_template"]
    if isinstance(text, list):
        text = next(t["template"] for t in text if t["name"] == "default")
    template = env.from_string(text)
    results = []
    for c in conversations:
        for prompt in (True, False):
            try:
                text_out = template.render(messages=c, tools=tools, documents=None, add_generation_prompt=prompt,
                                           bos_token="<BOS>", eos_token="<EOS>", unk_token="<UNK>")
                results.append({"hash": hashlib.sha256(text_out.encode()).hexdigest()[:16]} if hashed else {"text": text_out})
            except Refused as e:
                results.append({"refused": str(e)})
            except Exception as e:
                results.append({"error": type(e).__name__})
    path = pathlib.Path(name)
    shown = path.name if path.suffix == ".jinja" else path.parent.name
    vectors.append({"name": shown, "sha256": hashlib.sha256(text.encode()).hexdigest(), "results": results})
json.dump(vectors, sys.stdout, indent=None if hashed else 1, ensure_ascii=False)
print()
