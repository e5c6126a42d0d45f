// Writes blocks of every quantized type with their weights, computed by ggml: see README.md.
// usage: vectors >blocks.bin
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GGML_COMMON_DECL_C
#include "ggml-common.h"
#include "ggml.h"

void dequantize_row_q8_K(const void * x, float * y, int64_t k);

static uint64_t state = 1;

static uint64_t next(void) { // splitmix64
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

// The offsets of F16 scales and minima in a block.
static int halves(enum ggml_type t, size_t off[2]) {
    switch (t) {
    case GGML_TYPE_Q2_K: off[0] = offsetof(block_q2_K, d); off[1] = offsetof(block_q2_K, dmin); return 2;
    case GGML_TYPE_Q3_K: off[0] = offsetof(block_q3_K, d); return 1;
    case GGML_TYPE_Q6_K: off[0] = offsetof(block_q6_K, d); return 1;
    case GGML_TYPE_TQ1_0: off[0] = offsetof(block_tq1_0, d); return 1;
    case GGML_TYPE_TQ2_0: off[0] = offsetof(block_tq2_0, d); return 1;
    case GGML_TYPE_Q4_1: case GGML_TYPE_Q5_1: case GGML_TYPE_Q4_K: case GGML_TYPE_Q5_K: off[0] = 0; off[1] = 2; return 2;
    case GGML_TYPE_MXFP4: case GGML_TYPE_NVFP4: case GGML_TYPE_IQ1_M: case GGML_TYPE_Q8_K: return 0;
    default: off[0] = 0; return 1;
    }
}

static const uint16_t edges[][2] = {
    {0x0000, 0x0000}, // zero
    {0x8000, 0x0001}, // negative zero, the smallest subnormal
    {0x0001, 0x8001}, {0x03ff, 0x83ff}, {0x8155, 0x0155}, // subnormal
    {0x0400, 0x8400}, {0x8400, 0x0000}, // the smallest normal
    {0x7bff, 0xfbff}, {0xfbff, 0x7bff}, // the largest
    {0xbc00, 0x3c00}, // -1 and 1
};
enum { n_edges = sizeof(edges) / sizeof(edges[0]), n_random = 6, n_ref = 4 };

static void dequantize(enum ggml_type t, const void * src, float * dst, int64_t n) {
    if (t == GGML_TYPE_Q8_K) {
        dequantize_row_q8_K(src, dst, n);
    } else {
        ggml_get_type_traits(t)->to_float(src, dst, n);
    }
}

static void put(const void * p, size_t n) {
    if (fwrite(p, 1, n, stdout) != n) { exit(1); }
}

static void record(enum ggml_type t, uint32_t kind, const void * block, const float * weights) {
    uint32_t head[2] = { (uint32_t) t, kind };
    put(head, sizeof(head));
    put(block, ggml_type_size(t));
    put(weights, sizeof(float) * ggml_blck_size(t));
}

static int all_finite(const float * w, int n) {
    for (int i = 0; i < n; i++) {
        if (!isfinite(w[i])) { return 0; }
    }
    return 1;
}

int main(void) {
    struct ggml_init_params params = { 1 << 20, NULL, true };
    ggml_free(ggml_init(params)); // fills the tables of ggml
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const struct ggml_type_traits * traits = ggml_get_type_traits(t);
        if (!traits->is_quantized || (!traits->to_float && t != GGML_TYPE_Q8_K)) { continue; }
        const int n = (int) traits->blck_size;
        uint8_t block[512];
        float weights[256];
        size_t off[2];
        const int scales = halves(t, off);
        for (int i = 0; i < n_edges + n_random; i++) {
            do {
                for (size_t j = 0; j < traits->type_size; j++) { block[j] = (uint8_t) next(); }
                if (t == GGML_TYPE_MXFP4 && i < n_edges) { block[0] = (uint8_t[]){0, 1, 2, 3, 127, 128, 250, 251, 252, 64}[i]; }
                if (t == GGML_TYPE_NVFP4 && i < n_edges) { memcpy(block, (uint8_t[][4]){
                    {0, 1, 7, 8}, {9, 15, 16, 17}, {0x7e, 0x7f, 0x80, 0x81}, {0xfe, 0xff, 0x87, 0x88}, {0x38, 0x39, 0x40, 0xb8},
                    {2, 3, 4, 5}, {6, 10, 11, 12}, {13, 14, 18, 19}, {0x70, 0x71, 0x77, 0x78}, {0x79, 0x7a, 0x7b, 0x7c}}[i], 4); }
                for (int s = 0; i < n_edges && s < scales; s++) { memcpy(block + off[s], &edges[i][s], 2); }
                dequantize(t, block, weights, n);
            } while (!all_finite(weights, n));
            record(t, 0, block, weights);
        }
        ggml_quantize_init(t);
        // What ggml's own quantization makes of a row: the weights that follow are the row.
        for (int i = 0; traits->from_float_ref && i < n_ref; i++) {
            float x[256];
            const float scale = (float[]){1, 1e-7f, 300, 1}[i];
            for (int j = 0; j < n; j++) {
                float sum = 0;
                for (int k = 0; k < 4; k++) { sum += (float) (next() >> 40) / (1 << 24) - 0.5f; }
                x[j] = i == 3 ? 0 : sum * scale;
            }
            traits->from_float_ref(x, block, n);
            record(t, 1, block, x);
        }
    }
    return fflush(stdout) != 0;
}
