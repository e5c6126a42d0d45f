#!/usr/bin/env python3
"""A minimal Llama that continues a prompt with the weights of a .gqf file, all of it in this one file.

    gq quantize CHECKPOINT --target pytorch-aarch64 --embedding-bits 4 -o model.gqf
    PYTHONPATH=python docs/examples/pytorch/llama.py model.gqf --prompt 'It was a dark night' -n 40

On Arm with KleidiAI, every linear layer multiplies with the mapped bytes of the file. Elsewhere the weights are
dequantized. The token of the largest logit is always taken, as `gq run --temperature 0` does.
"""

import argparse
import json
import sys

import torch
from torch import nn
from torch.nn import functional

import gqf
import gqf.torch


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(size)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.size = config.get("head_dim") or hidden // self.heads
        bias = config.get("attention_bias", False)
        self.q_proj = nn.Linear(hidden, self.heads * self.size, bias=bias)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.size, hidden, bias=bias)
        self.theta = config.get("rope_theta", 10000.0)

    def rotate(self, x, start):
        """Rotary positions: column i turns with column i + size/2."""
        half = self.size // 2
        frequency = self.theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angle = torch.arange(start, start + x.shape[1], dtype=torch.float32)[:, None] * frequency
        cos, sin = angle.cos(), angle.sin()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x, cache):
        n, start = x.shape[0], cache[0].shape[1] if cache else 0

        def split(y, heads):
            return y.reshape(n, heads, self.size).transpose(0, 1)

        q = self.rotate(split(self.q_proj(x), self.heads), start)
        k = self.rotate(split(self.k_proj(x), self.kv_heads), start)
        v = split(self.v_proj(x), self.kv_heads)
        if cache:
            k, v = torch.cat([cache[0], k], dim=1), torch.cat([cache[1], v], dim=1)
        cache[:] = [k, v]
        repeat = self.heads // self.kv_heads
        scores = q @ k.repeat_interleave(repeat, dim=0).transpose(1, 2) / self.size**0.5
        future = torch.ones(n, k.shape[1], dtype=torch.bool).triu(start + 1)
        p = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        y = p @ v.repeat_interleave(repeat, dim=0)
        return self.o_proj(y.transpose(0, 1).reshape(n, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner, bias = config["hidden_size"], config["intermediate_size"], config.get("mlp_bias", False)
        self.gate_proj, self.up_proj = nn.Linear(hidden, inner, bias=bias), nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        self.self_attn, self.mlp = Attention(config), MLP(config)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(hidden, eps), RMSNorm(hidden, eps)

    def forward(self, x, cache):
        x = x + self.self_attn(self.input_layernorm(x), cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """The names of parameters are those of Hugging Face's LlamaForCausalLM."""

    def __init__(self, config):
        super().__init__()
        if config.get("model_type") != "llama" or config.get("rope_scaling"):
            sys.exit("this example knows the Llama architecture without rope scaling")
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.model.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.model.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        self.caches = [[] for _ in self.model.layers]

    def forward(self, ids):
        """Logits of the token after ids; earlier calls' tokens come before them."""
        x = self.model.embed_tokens(torch.tensor(ids))
        for layer, cache in zip(self.model.layers, self.caches):
            x = layer(x, cache)
        return self.lm_head(self.model.norm(x[-1:]))[0]


class Tokenizer:
    """BPE over characters with bytes as a fallback, as Llama 2 has it: the kind of tokenizer.json that has no
    pre-tokenizer. For others, take the package tokenizers."""

    def __init__(self, description):
        model = description["model"]
        if model["type"] != "BPE" or description.get("pre_tokenizer") or not model.get("byte_fallback"):
            sys.exit("this example knows tokenizers like Llama 2's")
        self.vocab = model["vocab"]
        self.pieces = {i: piece for piece, i in self.vocab.items()}
        pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}

    def encode(self, text):
        parts = list("\u2581" + text.replace(" ", "\u2581"))
        while True:
            ranks = [self.ranks.get(pair, len(self.ranks)) for pair in zip(parts, parts[1:])]
            if not ranks or min(ranks) == len(self.ranks):
                break
            at = ranks.index(min(ranks))
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids = []
        for part in parts:
            ids += [self.vocab[part]] if part in self.vocab else [self.vocab[f"<0x{b:02X}>"] for b in part.encode()]
        return ids

    def decode(self, ids):
        out = b""
        for i in ids:
            piece = self.pieces[i]
            is_byte = len(piece) == 6 and piece.startswith("<0x")
            out += bytes([int(piece[3:5], 16)]) if is_byte else piece.replace("\u2581", " ").encode()
        return out.decode(errors="replace")


def build(path):
    """The model of a file, its tokenizer, its config, and what gqf.torch.load did."""
    with gqf.open(path) as file:
        config = json.loads(file.asset("config.json"))
        tokenizer = Tokenizer(json.loads(file.asset("tokenizer.json")))
        model = Llama(config)
        return model, tokenizer, config, gqf.torch.load(model, file)


@torch.no_grad()
def generate(model, config, ids, count):
    """Greedy tokens after ids, each with its logit's lead over the second one."""
    end = config.get("eos_token_id")
    ends = end if isinstance(end, list) else [end]
    for _ in range(count):
        best = model(ids).topk(2)
        token = int(best.indices[0])
        if token in ends:
            return
        yield token, float(best.values[0] - best.values[1])
        ids = [token]


def by_reason(dequantized):
    names = {}
    for name, why in dequantized.items():
        names.setdefault(why, []).append(name)
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--prompt", required=True)
    parser.add_argument("-n", "--max-tokens", type=int, default=40)
    parser.add_argument("--verbose", action="store_true", help="print what was loaded, and near ties, to standard error")
    args = parser.parse_args()
    model, tokenizer, config, report = build(args.file)
    if args.verbose:
        print(f"{len(report.packed)} linear layers on {report.packed_bytes} mapped bytes, 0 bytes repacked", file=sys.stderr)
        for why, names in by_reason(report.dequantized).items():
            print(f"{len(names)} weights dequantized, {names[0]} for one: {why}", file=sys.stderr)
    ids = [config["bos_token_id"]] + tokenizer.encode(args.prompt)
    tokens = []
    for token, lead in generate(model, config, ids, args.max_tokens):
        tokens.append(token)
        if args.verbose and lead < 0.05:
            print(f"token {len(tokens)}: the two largest logits are {lead:.4f} apart", file=sys.stderr)
    print(tokenizer.decode(tokens))


if __name__ == "__main__":
    main()
