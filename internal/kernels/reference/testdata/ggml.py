"""Writes ggml.bin.gz: products of ggml's CPU library with random blocks of every quantized type.

    python3 ggml.py DIR

DIR has libggml-base.so and libggml-cpu-haswell.so, as node-llama-cpp 3.22.1 (llama.cpp v0.5.0)
installs them. A record, little-endian: uint32 type, rows and columns; float32 activations; the rows'
blocks; a float32 result for each row. ggml quantizes the activations with its portable functions.
"""

import ctypes
import gzip
import pathlib
import random
import struct
import sys

ROWS, COLS = 3, 512
# number: (name, weights, bytes, offsets of F16 numbers)
TYPES = {
    2: ("Q4_0", 32, 18, (0,)), 3: ("Q4_1", 32, 20, (0, 2)), 6: ("Q5_0", 32, 22, (0,)), 7: ("Q5_1", 32, 24, (0, 2)),
    8: ("Q8_0", 32, 34, (0,)), 10: ("Q2_K", 256, 84, (80, 82)), 11: ("Q3_K", 256, 110, (108,)),
    12: ("Q4_K", 256, 144, (0, 2)), 13: ("Q5_K", 256, 176, (0, 2)), 14: ("Q6_K", 256, 210, (208,)),
    16: ("IQ2_XXS", 256, 66, (0,)), 17: ("IQ2_XS", 256, 74, (0,)), 18: ("IQ3_XXS", 256, 98, (0,)),
    19: ("IQ1_S", 256, 50, (0,)), 20: ("IQ4_NL", 32, 18, (0,)), 21: ("IQ3_S", 256, 110, (0,)),
    22: ("IQ2_S", 256, 82, (0,)), 23: ("IQ4_XS", 256, 136, (0,)), 29: ("IQ1_M", 256, 56, ()),
    34: ("TQ1_0", 256, 54, (52,)), 35: ("TQ2_0", 256, 66, (64,)), 39: ("MXFP4", 32, 17, ()),
    40: ("NVFP4", 64, 36, ()), 41: ("Q1_0", 128, 18, (0,)), 42: ("Q2_0", 64, 18, (0,)),
}


class Traits(ctypes.Structure):
    _fields_ = [("from_float", ctypes.c_void_p), ("vec_dot", ctypes.c_void_p), ("vec_dot_type", ctypes.c_int), ("nrows", ctypes.c_int64)]


def block(r, kind, size, halves):
    b = bytearray(r.randbytes(size))
    for at in halves:
        struct.pack_into("<e", b, at, r.uniform(0.001, 0.05))
    if kind == 29:  # the scale is in the high bits of four words
        scale = struct.unpack("<H", struct.pack("<e", r.uniform(0.001, 0.05)))[0]
        for i in range(4):
            b[49 + 2 * i] = b[49 + 2 * i] & 15 | scale >> 4 * i << 4 & 0xF0
    if kind == 39:
        b[0] = r.randint(115, 130)
    if kind == 40:
        for i in range(4):
            b[i] = r.randint(0x20, 0x40)
    if kind == 35:  # codes 0, 1, 2
        for i in range(64):
            b[i] = sum(r.randint(0, 2) << 2 * j for j in range(4))
    return bytes(b)


def main():
    where = pathlib.Path(sys.argv[1])
    base = ctypes.CDLL(str(where / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(where / "libggml-cpu-haswell.so"), mode=ctypes.RTLD_GLOBAL)
    cpu.ggml_cpu_init()
    cpu.ggml_get_type_traits_cpu.restype = ctypes.POINTER(Traits)
    base.ggml_type_name.restype = ctypes.c_char_p
    names = {8: "q8_0", 9: "q8_1", 15: "q8_K"}
    r, out = random.Random(31), []
    for kind, (name, weights, size, halves) in TYPES.items():
        if (base.ggml_type_name(kind) or b"").decode().upper() != name:
            print("not in this library:", name, base.ggml_type_name(kind))
            continue
        traits = cpu.ggml_get_type_traits_cpu(kind).contents
        x = struct.pack("<%df" % COLS, *(r.gauss(0, 1) for _ in range(COLS)))
        data = b"".join(block(r, kind, size, halves) for _ in range(ROWS * COLS // weights))
        quantized = ctypes.create_string_buffer(8 * COLS)
        quantize = getattr(base, "quantize_row_%s_ref" % names[traits.vec_dot_type])
        quantize.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
        quantize(x, quantized, COLS)
        dot = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_float), ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(traits.vec_dot)
        row, results = len(data) // ROWS, []
        for i in range(ROWS):
            s = ctypes.c_float()
            dot(COLS, ctypes.byref(s), 0, data[i * row:(i + 1) * row], 0, ctypes.addressof(quantized), 0, 1)
            results.append(s.value)
        out.append(struct.pack("<3I", kind, ROWS, COLS) + x + data + struct.pack("<%df" % ROWS, *results))
        print(name, names[traits.vec_dot_type], results)
    (pathlib.Path(__file__).parent / "ggml.bin.gz").write_bytes(gzip.compress(b"".join(out), 9, mtime=0))


main()
