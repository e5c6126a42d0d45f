"""Shows what ONNX Runtime's operator QMoE reads on CPUs: onnx_qmoe.py, with the packages of requirements/onnx.txt.

fc1 has the rows of gate_proj and up_proj in turns, fc2 those of down_proj, for each expert: bytes as MatMulNBits packs
them (codes + 8, the first in the low bits), and a scale for each block. The router's logits become a softmax over the
chosen experts. Prints the largest difference from float64 as a part of the largest output, with rows in turns and with
gate_proj before up_proj.
"""

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

EXPERTS, HIDDEN, INNER, CHOSEN, BLOCK, TOKENS = 4, 64, 96, 2, 32, 5


def weights(rng, rows, cols):
    """Packed codes, scales, and the weights."""
    codes, scales = rng.integers(-8, 8, (EXPERTS, rows, cols)), rng.uniform(.01, .05, (EXPERTS, rows, cols // BLOCK)).astype(np.float32)
    packed = (codes[..., 0::2] + 8 | codes[..., 1::2] + 8 << 4).astype(np.uint8)
    return packed, scales, codes * np.repeat(scales.astype(np.float64), BLOCK, -1)


def main():
    rng = np.random.default_rng(1)
    (b1, s1, w1), (b2, s2, w2) = weights(rng, 2 * INNER, HIDDEN), weights(rng, HIDDEN, INNER)
    x, router = (rng.standard_normal((TOKENS, n)).astype(np.float32) for n in (HIDDEN, EXPERTS))
    node = helper.make_node("QMoE", ["x", "router", "b1", "s1", "", "b2", "s2", ""], ["y"], domain="com.microsoft", k=CHOSEN, activation_type="swiglu",
                            swiglu_fusion=1, expert_weight_bits=4, block_size=BLOCK, normalize_routing_weights=1, activation_alpha=1.0, activation_beta=0.0)
    values = [numpy_helper.from_array(v, k) for k, v in dict(b1=b1, s1=s1, b2=b2, s2=s2).items()]
    floats = [helper.make_tensor_value_info(k, 1, [TOKENS, n]) for k, n in (("x", HIDDEN), ("router", EXPERTS), ("y", HIDDEN))]
    graph = helper.make_graph([node], "mixture", floats[:2], floats[2:], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, {"x": x, "router": router})[0]
    for name, gate, up in ("in turns", slice(0, None, 2), slice(1, None, 2)), ("gate before up", slice(INNER), slice(INNER, None)):
        want = np.zeros((TOKENS, HIDDEN))
        for t in range(TOKENS):
            chosen = np.argsort(-router[t])[:CHOSEN]
            shares = np.exp(router[t][chosen].astype(np.float64))
            for e, share in zip(chosen, shares / shares.sum()):
                z = w1[e] @ x[t]
                want[t] += share * (w2[e] @ (z[gate] / (1 + np.exp(-z[gate])) * z[up]))
        print(f"{name}: {np.abs(got - want).max() / np.abs(want).max():.2g}")


if __name__ == "__main__":
    main()
