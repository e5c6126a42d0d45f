"""Writes internal/job/lora/testdata: small models, adapters of PEFT, and the weights that PEFT merges.

    pip install -r tools/judges/requirements/hf.txt peft==0.21.2
    python tools/lora/vectors.py

Each adapter has a directory with adapter_config.json, adapter_model.safetensors and, in merged.safetensors, the tensors
that change. The directory also says in base.txt which model the adapter belongs to. Models are float32, so PEFT merges
without further rounding.
"""

import json
import os
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../internal/job/lora/testdata")
SHAPE = dict(vocab_size=24, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=1, max_position_embeddings=32)
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=False)),
    "tied": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=24, n_embd=16, n_layer=1, n_head=2, n_positions=8)),
}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "plain": ("llama", dict(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj", "lm_head"])),
    "rslora": ("llama", dict(r=3, lora_alpha=5, use_rslora=True, target_modules=ALL)),
    "ranks": ("llama", dict(r=2, lora_alpha=3, target_modules=ALL, rank_pattern={"self_attn.v_proj": 4, "^model.layers.0.mlp.*": 3},
                            alpha_pattern={"v_proj|up_proj": 7})),
    "embedding": ("llama", dict(r=2, lora_alpha=4, target_modules=["embed_tokens", "q_proj"])),
    "tied-embedding": ("tied", dict(r=2, lora_alpha=4, target_modules=["embed_tokens"])),
    "saved": ("llama", dict(r=2, lora_alpha=4, target_modules=["v_proj"], modules_to_save=["lm_head", "input_layernorm"])),
    "dora": ("llama", dict(r=3, lora_alpha=6, use_dora=True, target_modules=["q_proj", "k_proj", "gate_proj"])),
    "conv1d": ("gpt2", dict(r=2, lora_alpha=6, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, bias="lora_only")),
}


def randomize(tensors, seed):
    """Gives all tensors random values, because PEFT starts with lora_B = 0."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for t in tensors:
            t.copy_(torch.randn(t.shape, generator=g) * 0.3 + (1 if t.dim() == 1 else 0))


def made(model):
    torch.manual_seed(0)
    m = MODELS[model]()
    randomize(m.parameters(), 1)
    m.tie_weights()
    return m


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for model in MODELS:
        made(model).save_pretrained(os.path.join(OUT, model))
        os.remove(os.path.join(OUT, model, "generation_config.json"))
    for i, (name, (model, config)) in enumerate(CASES.items()):
        dir = os.path.join(OUT, name)
        m = get_peft_model(made(model), LoraConfig(task_type="CAUSAL_LM", **config))
        randomize((p for p in m.parameters() if p.requires_grad), 2 + i)
        m.save_pretrained(dir)
        os.remove(os.path.join(dir, "README.md"))
        path = os.path.join(dir, "adapter_config.json")
        with open(path) as f:
            c = json.load(f)
        c["base_model_name_or_path"] = f"org/{model}"
        c["target_modules"].sort()  # PEFT writes a set, in any order
        with open(path, "w") as f:
            json.dump(c, f, indent=1, sort_keys=False)
        merged = m.merge_and_unload()
        base = made(model).state_dict()
        save_file({k: v.contiguous() for k, v in merged.state_dict().items() if not (k == "lm_head.weight" and merged.config.tie_word_embeddings)
                   and not torch.equal(v, base[k])}, os.path.join(dir, "merged.safetensors"))
        with open(os.path.join(dir, "base.txt"), "w") as f:
            f.write(model + "\n")


if __name__ == "__main__":
    main()
