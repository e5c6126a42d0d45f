"""The codes of docs/FORMAT.md, chapter 5 and 8.1, and their names."""

from __future__ import annotations

# Element types: name and bits (5.1).
DTYPES: dict[int, tuple[str, int]] = {
    1: ("F64", 64), 2: ("F32", 32), 3: ("F16", 16), 4: ("BF16", 16), 5: ("I64", 64), 6: ("I32", 32), 7: ("I16", 16),
    8: ("I8", 8), 9: ("U64", 64), 10: ("U32", 32), 11: ("U16", 16), 12: ("U8", 8), 13: ("BOOL", 8), 14: ("F8_E4M3", 8),
    15: ("F8_E5M2", 8), 16: ("F8_E8M0", 8), 17: ("F8_E4M3FNUZ", 8), 18: ("F8_E5M2FNUZ", 8), 19: ("F4", 4),
    20: ("F6_E2M3", 6), 21: ("F6_E3M2", 6), 22: ("C64", 64),
}  # fmt: skip
F32, F16, BF16, I8 = 2, 3, 4, 8

ROLES = ["other", "embedding", "head", "projection", "expert", "router", "norm", "bias", "conv", "position"]
MAPPINGS = ["none", "full-range", "symmetric", "symmetric-no-clip", "asymmetric", "half-step", "k-quant",
            "nonlinear", "nonlinear-k", "ternary", "mxfp4", "lattice", "lattice-xs", "lattice-xxs"]
ALGORITHMS = {0: "none", 1: "rtn", 2: "search", 3: "hqq", 4: "mse", 5: "gptq", 6: "gptq-ft", 7: "imatrix", 8: "awq"}

# Kinds of payload (5.5).
WEIGHTS, SCALES, ZEROS, TABLE = 0, 1, 2, 3

# Kinds of asset (5.6) and codecs (5.7).
CONFIG, RECIPE, PROVENANCE, FILE, FOLD = 1, 2, 3, 4, 5
ASSET_KINDS = {CONFIG: "config", RECIPE: "recipe", PROVENANCE: "provenance", FILE: "file", FOLD: "fold"}
STORED, ZSTD = 0, 1

# Layouts (8.1).
PLAIN, LOWBIT, CODES = 1, 2, 3
QSI4CXP, QSI4C32P_F16, QSI8CXP, QAI4C32P, QSU2CXP = 17, 18, 19, 20, 21
TORCHAO_LINEAR, TORCHAO_EMBEDDING, TORCHAO_KLEIDIAI = 33, 34, 35
LAYOUTS = {
    PLAIN: "plain", LOWBIT: "lowbit", CODES: "codes", QSI4CXP: "qsi4cxp", QSI4C32P_F16: "qsi4c32p-f16",
    QSI8CXP: "qsi8cxp", QAI4C32P: "qai4c32p", QSU2CXP: "qsu2cxp", TORCHAO_LINEAR: "torchao-linear",
    TORCHAO_EMBEDDING: "torchao-embedding", TORCHAO_KLEIDIAI: "torchao-kleidiai",
}  # fmt: skip

# Flags of a packed header, grids, dtypes of scales, zero kinds (8.1).
BIAS, IS_QSI4C32P, POSITIVE_SCALES = 1, 2, 4
INTEGER, HALF_STEP = 0, 1
SCALE_BF16, SCALE_F16, SCALE_F32 = 1, 2, 3
SCALE_DTYPES = {SCALE_BF16: BF16, SCALE_F16: F16, SCALE_F32: F32}
NO_ZEROS, INT8_ZEROS, F32_ZEROS, FRACTION_ZEROS = 0, 1, 2, 3
