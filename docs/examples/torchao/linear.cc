// Multiplies with the payloads of a mapped .gqf file by TorchAO's own operator, without PyTorch, and compares outputs
// and bytes with gq's. The script beside this file, judge, compiles and runs it.
//
//     linear FILE.gqf PRODUCTS...
//
// PRODUCTS is what `go run ./docs/examples/products multiply FILE.gqf PRODUCTS` writes. multiply() below is all that a
// program needs that uses such a file.
#include <torchao/csrc/cpu/shared_kernels/linear_8bit_act_xbit_weight/kernel_selector.h>
#include <torchao/csrc/cpu/shared_kernels/linear_8bit_act_xbit_weight/linear_8bit_act_xbit_weight.h>
#include <torchao/csrc/cpu/torch_free_kernels/aarch64/embedding/embedding.h>

#include <algorithm>
#include <type_traits>

#include "gqf.h"
#include "products.h"

namespace op = torchao::ops::linear_8bit_act_xbit_weight;
using torchao::ops::PackedWeightsHeader;

// Calls f with the number of bits as a constant of the compiler, as TorchAO's templates want it.
template <typename F>
static auto with_bits(int bits, F f) {
  switch (bits) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    case 4:
      return f(std::integral_constant<int, 4>());
    case 5:
      return f(std::integral_constant<int, 5>());
    case 6:
      return f(std::integral_constant<int, 6>());
    case 7:
      return f(std::integral_constant<int, 7>());
    case 8:
      return f(std::integral_constant<int, 8>());
  }
  throw std::runtime_error("TorchAO has no kernel for this number of bits");
}

// The kernels that TorchAO has for a packed tensor, by the header in its first 64 bytes.
static op::UKernelConfig kernels(const void *packed) {
  PackedWeightsHeader header = PackedWeightsHeader::read(packed);
  return with_bits(header.params[0], [&](auto bits) { return op::select_ukernel_config<bits>(header); });
}

static int group_of(const gqf_packed &h) { return static_cast<int>(h.group ? h.group : h.cols); }

// y = x times the payload's weights, transposed, plus the bias. data are the bytes behind gq's packed header, in the
// mapped file. TorchAO's header lacks the shape and the group, so they come from gq's.
static void multiply(const op::UKernelConfig &uk, const gqf_packed &header, const void *data, const float *x, int m,
                     float *y) {
  op::linear_operator(uk, std::nullopt, y, m, static_cast<int>(header.rows), static_cast<int>(header.cols),
                      group_of(header), static_cast<const char *>(data) + PackedWeightsHeader::size(), x,
                      /*has_clamp=*/false, 0, 0);
}

// Row index of the weights, from the same bytes, for an embedding that is also the lm_head.
static void look_up(const gqf_packed &h, const void *data, int index, float *row) {
  with_bits(h.bits, [&](auto bits) {
    torchao::kernels::cpu::aarch64::embedding::shared_embedding<bits, 8, 16, 2>(
        row, static_cast<const char *>(data) + PackedWeightsHeader::size(), static_cast<int>(h.rows),
        static_cast<int>(h.cols), group_of(h), h.zero == GQF_ZERO_INT8, (h.flags & GQF_PACKED_BIAS) != 0, index);
  });
}

// Quantizes activations as gq and KleidiAI do, with 0 in the range, into TorchAO's packed rows: f32 scale, int8 zero
// point, then per group the codes and, if the weights have zero points, the int32 sum of the group's codes. TorchAO's
// own function leaves 0 out of the range, so its zero point wraps around for rows of one sign.
static void pack_activations(void *packed, int m, int k, int group, const float *x, bool has_zeros, int, int, int) {
  char *out = static_cast<char *>(packed);
  if (!has_zeros) group = k;
  for (int i = 0; i < m; i++, x += k) {
    float low = std::min(0.0f, *std::min_element(x, x + k)), high = std::max(0.0f, *std::max_element(x, x + k));
    float factor = low == high ? 1.0f : 255.0f / (high - low), scale = 1.0f / factor;
    float a = low * factor, b = high * factor;
    float point = (-128.0f + a) + (127.0f + b) > 0 ? -128.0f - a : 127.0f - b;
    int zero = static_cast<int>(std::nearbyint(std::max(-128.0f, std::min(point, 127.0f))));
    int8_t zero8 = static_cast<int8_t>(zero);
    std::memcpy(out, &scale, 4), std::memcpy(out + 4, &zero8, 1), out += 5;
    for (int from = 0; from < k; from += group) {
      int32_t sum = 0;
      for (int c = from; c < from + group; c++) {
        float rounded = x[c] * factor;
        int q = std::max(-128, std::min(static_cast<int>(std::round(rounded)) + zero, 127));
        *out++ = static_cast<char>(q), sum += q;
      }
      if (has_zeros) std::memcpy(out, &sum, 4), out += 4;
    }
  }
}

// Whether TorchAO's own packer makes the same bytes of the codes.
static bool same_bytes(const op::UKernelConfig &uk, const products::Record &r, const gqf_packed &h, const void *data) {
  int n = static_cast<int>(r.rows), k = static_cast<int>(r.cols), group = group_of(h);
  size_t size =
      uk.packed_weights_size(n, k, group, uk.weight_nbit, uk.has_weight_zeros, uk.has_bias, uk.nr, uk.kr, uk.sr);
  std::vector<char> made(PackedWeightsHeader::size() + size);
  PackedWeightsHeader::read(data).write(made.data());
  op::pack_weights_operator(uk, made.data() + PackedWeightsHeader::size(), n, k, group, r.codes.data(), r.scales.data(),
                            uk.has_weight_zeros ? r.zeros.data() : nullptr, uk.has_bias ? r.bias.data() : nullptr);
  return made.size() == h.data_size && std::memcmp(made.data(), data, made.size()) == 0;
}

// Compares all rows with the weights that the codes stand for.
static void compare_rows(products::Comparison &rows, const products::Record &r, const gqf_packed &h, const void *data) {
  std::vector<float> got(r.cols), want(r.cols);
  for (uint32_t i = 0; i < r.rows; i++) {
    for (uint32_t k = 0; k < r.cols; k++) {
      size_t g = size_t{i} * r.groups + k / static_cast<uint32_t>(group_of(h));
      want[k] = static_cast<float>(r.codes[size_t{i} * r.cols + k] - r.zeros[g]) * r.scales[g];
    }
    look_up(h, data, static_cast<int>(i), got.data());
    rows.add(got.data(), want.data(), r.cols);
  }
}

// Whether the smallest activation is below 0 and the largest above.
static bool both_signs(const float *x, size_t k) {
  return *std::min_element(x, x + k) < 0 && *std::max_element(x, x + k) > 0;
}

// TorchAO reads layout 35 by KleidiAI's kernels, which quantize activations as gq does.
#ifdef TORCHAO_ENABLE_KLEIDI
constexpr int kleidiai = GQF_LAYOUT_TORCHAO_KLEIDIAI;
#else
constexpr int kleidiai = -1;
#endif

static double median(std::vector<double> v) {
  if (v.empty()) return INFINITY;
  std::nth_element(v.begin(), v.begin() + v.size() / 2, v.end());
  return v[v.size() / 2];
}

static bool judge(const char *file, const char *expected) {
  products::Mapped map(file);
  gqf_file f;
  gqf_error e = gqf_open(map.data, map.size, &f);
  if (e.code != GQF_OK) throw std::runtime_error(std::string(file) + ": " + gqf_strerror(e.code));
  products::Comparison outputs, rows;
  std::vector<double> two_signs, one_sign;  // decibels of rows
  int tensors = 0, packed = 0;
  for (const products::Record &r : products::records(expected)) {
    gqf_payload p;
    const void *data = products::find(f, r, &p);
    if (p.header.layout != GQF_LAYOUT_TORCHAO_LINEAR && p.header.layout != kleidiai) continue;  // stays lowbit
    op::UKernelConfig own = kernels(data), corrected = own;
    tensors++, packed += same_bytes(own, r, p.header, data);
    if (p.header.layout == GQF_LAYOUT_TORCHAO_LINEAR) {
      corrected.linear_configs[0].pack_activations = pack_activations;
      compare_rows(rows, r, p.header, data);
    }
    std::vector<float> y(r.y.size());
    for (uint32_t m : {1u, 2u, 5u, r.m}) {
      multiply(corrected, p.header, data, r.x.data(), static_cast<int>(m), y.data());
      outputs.add(y.data(), r.y.data(), size_t{m} * r.rows);
    }
    multiply(own, p.header, data, r.x.data(), static_cast<int>(r.m), y.data());
    for (uint32_t i = 0; i < r.m; i++) {
      products::Comparison row;
      row.add(&y[size_t{i} * r.rows], &r.y[size_t{i} * r.rows], r.rows);
      if (row.noise != 0)
        (both_signs(&r.x[size_t{i} * r.cols], r.cols) ? two_signs : one_sign).push_back(row.decibels());
    }
  }
  std::printf(
      "%-16s %2d tensors, %d with the bytes of TorchAO's packer; %zu of %zu outputs differ from gq's (%.1f dB)\n",
      products::base(file), tensors, packed, outputs.unequal, outputs.outputs, outputs.decibels());
  std::printf("%-16s %zu of %zu weights differ in the shared embedding\n", "", rows.unequal, rows.outputs);
  std::printf(
      "%-16s where TorchAO quantizes activations, the median row of two signs has %.1f dB, of one sign %.1f dB\n", "",
      median(two_signs), median(one_sign));
  return tensors > 0 && packed == tensors && outputs.unequal == 0 && rows.unequal == 0;
}

int main(int argc, char **argv) { return products::judge_all(argc, argv, judge); }
