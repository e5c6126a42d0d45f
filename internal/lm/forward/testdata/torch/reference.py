#!/usr/bin/env python3
"""Logits of tiny random models, by an implementation of their own.

Written from the architectures' published definitions (the papers and the model cards' descriptions of config.json's
keys), apart from package model and without looking at it. Needs Debian's python3-torch and zstd, nothing else:

    python3 reference.py            # writes a folder per model beside this file

Each folder holds config.json, model.safetensors (F32), vectors.json ({"tokens": [[ids]], "logits_file": ...}) and the
logits of all positions of all sequences, float32 little-endian, zstd. Arithmetic is float64 throughout, so the logits
are those of the definition to float32's precision.
"""
import json, math, os, struct, subprocess
import torch

torch.manual_seed(20261121)
HERE = os.path.dirname(os.path.abspath(__file__))
F = torch.float64


def rms(x, w, eps, plus_one=False):
    y = x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)
    return y * (1 + w) if plus_one else y * w


def act(name, x):
    if name == "silu":
        return x * torch.sigmoid(x)
    assert name == "gelu_pytorch_tanh", name
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def frequencies(c, base, rot, scaling, length):
    """Inverse frequencies of the rotary pairs, and the factor on cos and sin."""
    inv = [base ** (-2.0 * i / rot) for i in range(rot // 2)]
    if not scaling:
        return inv, 1.0
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return inv, 1.0
    if kind == "linear":
        return [f / scaling["factor"] for f in inv], 1.0
    if kind == "llama3":
        orig, out = scaling["original_max_position_embeddings"], []
        lo, hi = orig / scaling["low_freq_factor"], orig / scaling["high_freq_factor"]
        for f in inv:
            wave = 2 * math.pi / f
            if wave > lo:
                out.append(f / scaling["factor"])
            elif wave < hi:
                out.append(f)
            else:
                s = (orig / wave - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
                out.append((1 - s) * f / scaling["factor"] + s * f)
        return out, 1.0
    if kind == "yarn":
        orig = scaling.get("original_max_position_embeddings", c["max_position_embeddings"])
        dim_of = lambda turns: rot * math.log(orig / (turns * 2 * math.pi)) / (2 * math.log(base))
        lo = max(math.floor(dim_of(scaling.get("beta_fast", 32))), 0)
        hi = min(math.ceil(dim_of(scaling.get("beta_slow", 1))), rot - 1)
        if lo == hi:
            hi += 0.001
        out = []
        for i, f in enumerate(inv):
            ramp = min(max((i - lo) / (hi - lo), 0), 1)  # 0: keep the frequency, 1: interpolate
            out.append(f * (1 - ramp) + f / scaling["factor"] * ramp)
        return out, 0.1 * math.log(scaling["factor"]) + 1 if scaling["factor"] > 1 else 1.0
    assert kind == "longrope", kind
    orig = c["original_max_position_embeddings"]
    factors = scaling["long_factor"] if length > orig else scaling["short_factor"]
    s = c["max_position_embeddings"] / orig
    return [f / k for f, k in zip(inv, factors)], 1.0 if s <= 1 else math.sqrt(1 + math.log(s) / math.log(orig))


def rotate(x, inv, factor):
    """x: heads x positions x head_dim; the first 2*len(inv) dimensions turn, i with i + len(inv)."""
    n = len(inv)
    angle = torch.arange(x.shape[1], dtype=F)[:, None] * torch.tensor(inv, dtype=F)[None, :]
    cos, sin = torch.cos(angle) * factor, torch.sin(angle) * factor
    a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class Model:
    def __init__(self, c, w):
        self.c, self.w = c, {k: v.to(F) for k, v in w.items()}
        self.gemma = c["model_type"].startswith("gemma")
        self.eps = c["rms_norm_eps"]

    def lin(self, name, x):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def norm(self, name, x):
        return rms(x, self.w[name + ".weight"], self.eps, self.gemma)

    def window(self, i):
        """The sliding window of layer i, None for full attention."""
        c, t = self.c, self.c["model_type"]
        if "layer_types" in c:
            return c["sliding_window"] if c["layer_types"][i] == "sliding_attention" else None
        if t in ("mistral", "mixtral", "phi3"):
            return c.get("sliding_window")
        if t in ("qwen2", "qwen3", "qwen3_moe"):
            return c["sliding_window"] if c.get("use_sliding_window") and i >= c.get("max_window_layers", 0) else None
        if t == "gemma2":
            return c["sliding_window"] if i % 2 == 0 else None
        if t == "gemma3_text":
            return None if (i + 1) % c["sliding_window_pattern"] == 0 else c["sliding_window"]
        return None

    def attention(self, i, x):
        c, p = self.c, f"model.layers.{i}.self_attn."
        T, nh, nkv = x.shape[0], c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
        hd = c.get("head_dim") or c["hidden_size"] // nh
        if c["model_type"] == "phi3":
            q, k, v = torch.split(self.lin(p + "qkv_proj", x), [nh * hd, nkv * hd, nkv * hd], -1)
        else:
            q, k, v = (self.lin(p + n + "_proj", x) for n in "qkv")
        q, k, v = (t.view(T, -1, hd).transpose(0, 1) for t in (q, k, v))
        if p + "q_norm.weight" in self.w:
            q, k = self.norm(p + "q_norm", q), self.norm(p + "k_norm", k)
        w = self.window(i)
        base, scaling = c["rope_theta"], c.get("rope_scaling")
        if c["model_type"] == "gemma3_text" and w is not None:
            base, scaling = c["rope_local_base_freq"], None
        turns = True
        if c["model_type"] == "smollm3":
            turns = c["no_rope_layers"][i] == 1
        if turns:
            inv, factor = frequencies(c, base, int(hd * c.get("partial_rotary_factor", 1.0)), scaling, T)
            q, k = rotate(q, inv, factor), rotate(k, inv, factor)
        k, v = (t.repeat_interleave(nh // nkv, 0) for t in (k, v))
        scale = c["query_pre_attn_scalar"] ** -0.5 if "query_pre_attn_scalar" in c else hd ** -0.5
        s = q @ k.transpose(1, 2) * scale
        if c.get("attn_logit_softcapping"):
            s = c["attn_logit_softcapping"] * torch.tanh(s / c["attn_logit_softcapping"])
        qi, ki = torch.arange(T)[:, None], torch.arange(T)[None, :]
        hidden = ki > qi
        if w is not None:
            hidden = hidden | (qi - ki >= w)
        s = s.masked_fill(hidden, float("-inf"))
        y = (torch.softmax(s, -1) @ v).transpose(0, 1).reshape(T, nh * hd)
        return self.lin(p + "o_proj", y)

    def gated(self, name, x, names):
        gate, up, down = names
        return self.lin(name + down, act(self.activation(), self.lin(name + gate, x)) * self.lin(name + up, x))

    def activation(self):
        return self.c.get("hidden_activation") or self.c["hidden_act"]

    def experts(self, x, router, top, renormalize, expert):
        probs = torch.softmax(self.lin(router, x), -1)
        y = torch.zeros_like(x)
        for t in range(x.shape[0]):
            p, e = torch.topk(probs[t], top)
            if renormalize:
                p = p / p.sum()
            for weight, which in zip(p, e):
                y[t] += weight * expert(int(which), x[t:t + 1])[0]
        return y

    def mlp(self, i, x):
        c, p = self.c, f"model.layers.{i}."
        t = c["model_type"]
        if t == "mixtral":
            b = p + "block_sparse_moe."
            return self.experts(x, b + "gate", c["num_experts_per_tok"], True,
                                lambda e, v: self.gated(f"{b}experts.{e}.", v, ("w1", "w3", "w2")))
        if t == "qwen3_moe" and i not in c["mlp_only_layers"] and (i + 1) % c["decoder_sparse_step"] == 0:
            b = p + "mlp."
            return self.experts(x, b + "gate", c["num_experts_per_tok"], c["norm_topk_prob"],
                                lambda e, v: self.gated(f"{b}experts.{e}.", v, ("gate_proj", "up_proj", "down_proj")))
        if t == "phi3":
            gate, up = torch.chunk(self.lin(p + "mlp.gate_up_proj", x), 2, -1)
            return self.lin(p + "mlp.down_proj", up * act(self.activation(), gate))
        return self.gated(p + "mlp.", x, ("gate_proj", "up_proj", "down_proj"))

    def logits(self, ids):
        c = self.c
        x = self.w["model.embed_tokens.weight"][torch.tensor(ids)]
        if self.gemma:
            x = x * math.sqrt(c["hidden_size"])
        post = self.gemma  # norms behind attention and MLP, before the residual sum
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            y = self.attention(i, self.norm(p + "input_layernorm", x))
            x = x + (self.norm(p + "post_attention_layernorm", y) if post else y)
            if post:
                y = self.mlp(i, self.norm(p + "pre_feedforward_layernorm", x))
                x = x + self.norm(p + "post_feedforward_layernorm", y)
            else:
                x = x + self.mlp(i, self.norm(p + "post_attention_layernorm", x))
        x = self.norm("model.norm", x)
        head = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
        y = x @ self.w[head + ".weight"].T
        if c.get("final_logit_softcapping"):
            y = c["final_logit_softcapping"] * torch.tanh(y / c["final_logit_softcapping"])
        return y


def random_weights(c, qkv_bias=False, qk_norm=False, attention_bias=False, mlp_bias=False):
    h, nh, nkv = c["hidden_size"], c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    hd, inter, w = c.get("head_dim") or h // nh, c["intermediate_size"], {}
    mat = lambda n, k: torch.randn(n, k) * (1.6 / math.sqrt(k))
    gain = lambda n: torch.randn(n) * 0.1 + (0.0 if c["model_type"].startswith("gemma") else 1.0)

    def put(name, n, k, bias=False):
        w[name + ".weight"] = mat(n, k)
        if bias:
            w[name + ".bias"] = torch.randn(n) * 0.3

    w["model.embed_tokens.weight"] = torch.randn(c["vocab_size"], h) * (0.15 if c["model_type"].startswith("gemma") else 0.7)
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        if c["model_type"] == "phi3":
            put(p + "self_attn.qkv_proj", (nh + 2 * nkv) * hd, h)
        else:
            for n, heads in (("q", nh), ("k", nkv), ("v", nkv)):
                put(p + f"self_attn.{n}_proj", heads * hd, h, qkv_bias or attention_bias)
        put(p + "self_attn.o_proj", h, nh * hd, attention_bias)
        if qk_norm:
            w[p + "self_attn.q_norm.weight"], w[p + "self_attn.k_norm.weight"] = gain(hd), gain(hd)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if c["model_type"].startswith("gemma"):
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for n in norms:
            w[p + n + ".weight"] = gain(h)
        if c["model_type"] == "mixtral":
            put(p + "block_sparse_moe.gate", c["num_local_experts"], h)
            for e in range(c["num_local_experts"]):
                for n, a, b in (("w1", inter, h), ("w3", inter, h), ("w2", h, inter)):
                    put(p + f"block_sparse_moe.experts.{e}.{n}", a, b)
        elif c["model_type"] == "qwen3_moe" and i not in c["mlp_only_layers"] and (i + 1) % c["decoder_sparse_step"] == 0:
            m = c["moe_intermediate_size"]
            put(p + "mlp.gate", c["num_experts"], h)
            for e in range(c["num_experts"]):
                for n, a, b in (("gate_proj", m, h), ("up_proj", m, h), ("down_proj", h, m)):
                    put(p + f"mlp.experts.{e}.{n}", a, b)
        elif c["model_type"] == "phi3":
            put(p + "mlp.gate_up_proj", 2 * inter, h)
            put(p + "mlp.down_proj", h, inter)
        else:
            for n, a, b in (("gate_proj", inter, h), ("up_proj", inter, h), ("down_proj", h, inter)):
                put(p + "mlp." + n, a, b, mlp_bias)
    w["model.norm.weight"] = gain(h)
    if not c["tie_word_embeddings"]:
        w["lm_head.weight"] = mat(c["vocab_size"], h)
    return w


def save(name, c, w, lengths):
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    json.dump(c, open(os.path.join(folder, "config.json"), "w"), indent=1)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for k in sorted(w):
        raw = w[k].to(torch.float32).contiguous().numpy().astype("<f4").tobytes()
        header[k] = {"dtype": "F32", "shape": list(w[k].shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    open(os.path.join(folder, "model.safetensors"), "wb").write(struct.pack("<Q", len(head)) + head + data)
    m = Model(c, {k: v.to(torch.float32) for k, v in w.items()})
    tokens = [torch.randint(0, c["vocab_size"], (n,)).tolist() for n in lengths]
    raw = b"".join(m.logits(t).to(torch.float32).numpy().astype("<f4").tobytes() for t in tokens)
    json.dump({"tokens": tokens, "logits_file": "logits.f32.zst"}, open(os.path.join(folder, "vectors.json"), "w"))
    subprocess.run(["zstd", "-q", "-19", "-f", "-o", os.path.join(folder, "logits.f32.zst")], input=raw, check=True)
    print(name, len(data), "bytes of weights, |logit| <=", max(float(m.logits(t).abs().max()) for t in tokens))


def base(kind, arch, **more):
    c = {"architectures": [arch], "model_type": kind, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
         "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48,
         "max_position_embeddings": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
         "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": False,
         "torch_dtype": "float32", "transformers_version": "4.51.0", "use_cache": True, "vocab_size": 67}
    c.update(more)
    return c


def main():
    llama3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 32,
              "rope_type": "llama3"}
    c = base("llama", "LlamaForCausalLM", attention_bias=False, mlp_bias=False, head_dim=16, rope_theta=500000.0,
             rope_scaling=llama3, pretraining_tp=1, eos_token_id=[2, 3])
    save("llama3", c, random_weights(c), [40, 1, 7])
    c = base("llama", "LlamaForCausalLM", attention_bias=False, pretraining_tp=1, rope_scaling={"type": "linear", "factor": 4.0})
    del c["num_key_value_heads"]
    save("llama2-linear", c, random_weights(c), [24])
    c = base("llama", "LlamaForCausalLM", attention_bias=True, mlp_bias=True, tie_word_embeddings=True, is_llama_config=True, rope_interleaved=False)
    save("llama-bias-tied", c, random_weights(c, attention_bias=True, mlp_bias=True), [20])
    c = base("mistral", "MistralForCausalLM", sliding_window=8, head_dim=None)
    save("mistral", c, random_weights(c), [30])
    c = base("qwen2", "Qwen2ForCausalLM", sliding_window=8, use_sliding_window=False, max_window_layers=2, rms_norm_eps=1e-6,
             rope_theta=1000000.0, tie_word_embeddings=True, use_mrope=False)
    save("qwen2", c, random_weights(c, qkv_bias=True), [30])
    c = base("qwen2", "Qwen2ForCausalLM", sliding_window=8, use_sliding_window=True, max_window_layers=1, rms_norm_eps=1e-6,
             num_hidden_layers=3)
    save("qwen2-window", c, random_weights(c, qkv_bias=True), [30])
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32, "type": "yarn"}
    c = base("qwen2", "Qwen2ForCausalLM", sliding_window=8, use_sliding_window=False, max_window_layers=2, rope_scaling=yarn,
             rope_theta=1000000.0, head_dim=16)
    save("qwen2-yarn", c, random_weights(c, qkv_bias=True), [48])
    c = base("qwen3", "Qwen3ForCausalLM", attention_bias=False, head_dim=16, max_window_layers=2, rms_norm_eps=1e-6,
             rope_theta=1000000, sliding_window=None, use_sliding_window=False, tie_word_embeddings=True)
    save("qwen3", c, random_weights(c, qk_norm=True), [30])
    c = base("gemma2", "Gemma2ForCausalLM", attention_bias=False, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
             cache_implementation="hybrid", head_dim=16, hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh",
             query_pre_attn_scalar=24, sliding_window=8, tie_word_embeddings=True, rms_norm_eps=1e-6, pad_token_id=0,
             num_hidden_layers=3)
    save("gemma2", c, random_weights(c), [30])
    c = base("gemma3_text", "Gemma3ForCausalLM", attention_bias=False, attn_logit_softcapping=None, final_logit_softcapping=None,
             cache_implementation="hybrid", head_dim=16, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24,
             rope_local_base_freq=10000, rope_theta=1000000, sliding_window=8, sliding_window_pattern=3,
             rope_scaling={"factor": 8.0, "rope_type": "linear"}, num_hidden_layers=4,
             tie_word_embeddings=True, rms_norm_eps=1e-6, pad_token_id=0)
    del c["hidden_act"]
    save("gemma3", c, random_weights(c, qk_norm=True), [30])
    half = 6
    longrope = {"long_factor": [1.0 + 0.7 * i for i in range(half)], "short_factor": [1.0 + 0.05 * i for i in range(half)],
                "type": "longrope"}
    c = base("phi3", "Phi3ForCausalLM", attention_bias=False, embd_pdrop=0.0, resid_pdrop=0.0, full_attn_mod=1,
             lm_head_bias=False, mlp_bias=False, interpolate_factor=1, original_max_position_embeddings=24,
             partial_rotary_factor=0.75, rope_scaling=longrope, sliding_window=262144, tie_word_embeddings=True,
             hidden_size=64, pad_token_id=0)
    save("phi4-mini", c, random_weights(c), [20, 40])
    c = base("phi3", "Phi3ForCausalLM", attention_bias=False, embd_pdrop=0.0, resid_pdrop=0.0, sliding_window=8,
             original_max_position_embeddings=256, pad_token_id=0)
    save("phi3", c, random_weights(c), [30])
    c = base("smollm3", "SmolLM3ForCausalLM", attention_bias=False, mlp_bias=False, layer_types=["full_attention"] * 5,
             max_window_layers=5, no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0, 1], num_hidden_layers=5,
             pad_token_id=2, pretraining_tp=2, rope_theta=5000000.0, sliding_window=None, use_sliding_window=False,
             tie_word_embeddings=True)
    save("smollm3", c, random_weights(c), [30])
    c = base("mixtral", "MixtralForCausalLM", num_experts_per_tok=2, num_local_experts=4, output_router_logits=False,
             router_aux_loss_coef=0.02, sliding_window=None, router_jitter_noise=0.0)
    save("mixtral", c, random_weights(c), [30])
    moe = dict(attention_bias=False, decoder_sparse_step=1, head_dim=16, max_window_layers=3, mlp_only_layers=[1],
               moe_intermediate_size=24, num_experts=6, num_experts_per_tok=2, num_hidden_layers=3, output_router_logits=False,
               router_aux_loss_coef=0.001, sliding_window=None, use_sliding_window=False, rms_norm_eps=1e-6)
    for name, norm in (("qwen3-moe", True), ("qwen3-moe-unnormalized", False)):
        c = base("qwen3_moe", "Qwen3MoeForCausalLM", norm_topk_prob=norm, **moe)
        save(name, c, random_weights(c, qk_norm=True), [30])


main()
