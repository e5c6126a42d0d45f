// Runs fully connected nodes of XNNPACK on the payloads of a mapped .gqf file, by GqfWeights, and compares outputs and
// packed bytes with gq's. The script beside this file, judge, compiles and runs it.
//
//     fully_connected FILE.gqf PRODUCTS...
//
// PRODUCTS is what `go run ./docs/examples/products multiply FILE.gqf PRODUCTS` writes.
#include <xnnpack.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "gqf_weights.h"
#include "products.h"

static void check(xnn_status status, const char *what) {
  if (status != xnn_status_success) throw std::runtime_error(std::string(what) + ": status " + std::to_string(status));
}

static pthreadpool_t threads() {
  static pthreadpool_t pool = pthreadpool_create(3);
  return pool;
}

// A graph of one fully connected node with dynamically quantized input. filter and bias define the static tensors.
class Node {
 public:
  Node(size_t rows, size_t cols, xnn_weights_cache_t cache,
       const std::function<void(xnn_subgraph_t, uint32_t *filter, uint32_t *bias)> &define)
      : rows_(rows), cols_(cols) {
    xnn_subgraph_t g;
    check(xnn_create_subgraph(2, 0, &g), "xnn_create_subgraph");
    subgraph_.reset(g);
    size_t in[2] = {1, cols}, out[2] = {1, rows};
    uint32_t x, quantized, filter, bias = XNN_INVALID_VALUE_ID, y;
    check(xnn_define_tensor_value(g, xnn_datatype_fp32, 2, in, nullptr, 0, XNN_VALUE_FLAG_EXTERNAL_INPUT, &x), "input");
    check(xnn_define_dynamically_quantized_tensor_value(g, xnn_datatype_qdint8, 2, 1, in, XNN_INVALID_VALUE_ID, 0,
                                                        &quantized),
          "quantized input");
    check(xnn_define_tensor_value(g, xnn_datatype_fp32, 2, out, nullptr, 1, XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &y),
          "output");
    check(xnn_define_unary(g, xnn_unary_convert, nullptr, x, quantized, 0), "convert");
    define(g, &filter, &bias);
    check(xnn_define_fully_connected(g, -INFINITY, INFINITY, quantized, filter, bias, y, 0), "fully connected");
    xnn_runtime_t runtime;
    check(xnn_create_runtime_v3(g, cache, threads(), 0, &runtime), "runtime");
    runtime_.reset(runtime);
  }

  void multiply(const float *x, size_t m, float *y) {
    size_t dims[2] = {m, cols_};
    check(xnn_reshape_external_value(runtime_.get(), 0, 2, dims), "reshape input");
    check(xnn_reshape_runtime(runtime_.get()), "reshape");
    // XNNPACK may read past the last activation.
    std::vector<float> padded(x, x + m * cols_);
    padded.resize(padded.size() + XNN_EXTRA_BYTES / sizeof(float));
    xnn_external_value values[2] = {{0, padded.data()}, {1, y}};
    check(xnn_setup_runtime_v2(runtime_.get(), 2, values), "setup");
    check(xnn_invoke_runtime(runtime_.get()), "invoke");
  }

 private:
  struct Delete {
    void operator()(xnn_subgraph_t s) { xnn_delete_subgraph(s); }
    void operator()(xnn_runtime_t r) { xnn_delete_runtime(r); }
  };
  size_t rows_, cols_;
  std::unique_ptr<xnn_subgraph, Delete> subgraph_;
  std::unique_ptr<xnn_runtime, Delete> runtime_;
};

// A cache that keeps what XNNPACK packs, for one node.
class Recorder {
 public:
  xnn_weights_cache_provider cache{};

  Recorder() {
    cache.context = this;
    cache.look_up = [](void *, const xnn_weights_cache_look_up_key *) -> size_t { return SIZE_MAX; };
    cache.reserve_space = [](void *self, size_t n) -> void * {
      static_cast<Recorder *>(self)->bytes_.resize(n + 64);
      return static_cast<Recorder *>(self)->packed();
    };
    cache.look_up_or_insert = [](void *, const xnn_weights_cache_look_up_key *, void *, size_t) -> size_t { return 0; };
    cache.is_finalized = [](void *) { return true; };
    cache.offset_to_addr = [](void *self, size_t) -> void * { return static_cast<Recorder *>(self)->packed(); };
    cache.delete_cache = [](void *) { return xnn_status_success; };
  }
  uint8_t *packed() { return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64); }
  size_t size() const { return bytes_.size() - 64; }

 private:
  std::vector<uint8_t> bytes_;  // packed() is aligned
};

// The unpacked weights of a payload, as XNNPACK wants them.
struct Unpacked {
  std::vector<uint8_t> codes;    // int8, or 4-bit codes with 8 added, the even column in the low nibble
  std::vector<uint16_t> blocks;  // BF16 scales

  Unpacked(const products::Record &r, const gqf_packed &h) {
    if (h.bits == 8)
      codes.assign(r.codes.begin(), r.codes.end());
    else {
      size_t bytes = (r.cols + 1) / 2;
      codes.resize(r.rows * bytes);
      for (size_t i = 0; i < r.rows; i++)
        for (size_t k = 0; k < r.cols; k++)
          codes[i * bytes + k / 2] |= static_cast<uint8_t>(r.codes[i * r.cols + k] + 8) << 4 * (k % 2);
    }
    for (float s : r.scales) {
      uint32_t bits;
      std::memcpy(&bits, &s, 4);
      blocks.push_back(static_cast<uint16_t>(bits >> 16));
    }
    codes.resize(codes.size() + XNN_EXTRA_BYTES);
  }

  void define(xnn_subgraph_t g, const products::Record &r, const gqf_packed &h, uint32_t *filter,
              uint32_t *bias) const {
    size_t dims[2] = {r.rows, r.cols};
    if (h.layout == GQF_LAYOUT_LOWBIT)
      check(
          xnn_define_blockwise_quantized_tensor_value(g, xnn_datatype_qbint4, 8, blocks.data(), 2, 0, r.cols / r.groups,
                                                      dims, codes.data(), XNN_INVALID_VALUE_ID, 0, filter),
          "unpacked filter");
    else
      check(xnn_define_channelwise_quantized_tensor_value_v2(g, h.bits == 4 ? xnn_datatype_qcint4 : xnn_datatype_qcint8,
                                                             h.bits == 4 ? 8 : 0, r.scales.data(), 2, 0, dims,
                                                             codes.data(), XNN_INVALID_VALUE_ID, 0, filter),
            "unpacked filter");
    if (h.flags & GQF_PACKED_BIAS)
      check(xnn_define_tensor_value(g, xnn_datatype_fp32, 1, dims, r.bias.data(), XNN_INVALID_VALUE_ID, 0, bias),
            "bias");
  }
};

// How the bytes that XNNPACK packs compare with a payload.
enum Bytes { equal, padding, different };

// In the last panel of 4-bit groups, XNNPACK packs no bias for the rows past the last; the payload repeats the last
// row's bias there. Nothing else may differ.
static Bytes compare_bytes(const uint8_t *made, size_t size, const gqf_packed &h, const void *data) {
  if (size < h.data_size) return different;
  if (std::memcmp(made, data, h.data_size) == 0) return equal;
  if (h.layout != GQF_LAYOUT_LOWBIT) return different;
  size_t bias = (h.nr - h.rows % h.nr) % h.nr * sizeof(float), common = h.data_size - bias;
  bool zero = std::all_of(made + common, made + h.data_size, [](uint8_t b) { return b == 0; });
  return zero && std::memcmp(made, data, common) == 0 ? padding : different;
}

// Whether a payload of another tile, which is for other CPUs, is refused.
static bool refused(GqfWeights &weights, const gqf_packed &h, const void *data) {
  GqfWeights::Entry other = {h, data};
  try {
    Node node(h.rows, h.cols, weights.cache(), [&](xnn_subgraph_t g, uint32_t *filter, uint32_t *) {
      check(weights.define(g, other, filter), "filter");
    });
    return false;
  } catch (const std::runtime_error &) {
    return true;
  }
}

// What the payloads of a file gave.
struct Tally {
  size_t nodes = 0, bytes = 0;     // multiplied with in place
  size_t others = 0, refused = 0;  // payloads for other CPUs
  size_t negative = 0;             // payloads with a negative scale, which XNNPACK does not pack
  size_t made[3] = {0, 0, 0};      // by Bytes
  products::Comparison mapped, packed;
};

static void compare_products(products::Comparison &c, Node &node, const products::Record &r) {
  std::vector<float> y(r.y.size());
  for (uint32_t m : {1u, 2u, 5u, r.m}) {
    node.multiply(r.x.data(), m, y.data());
    c.add(y.data(), r.y.data(), size_t{m} * r.rows);
  }
}

// Multiplies with a payload.
static void use(Tally &tally, GqfWeights &weights, const GqfWeights::Entry &w, const products::Record &r) {
  Node node(r.rows, r.cols, weights.cache(),
            [&](xnn_subgraph_t g, uint32_t *filter, uint32_t *) { check(weights.define(g, w, filter), "filter"); });
  compare_products(tally.mapped, node, r);
  tally.nodes++, tally.bytes += w.header.data_size;
}

// Has XNNPACK pack the same codes and multiply with them.
static void pack(Tally &tally, const GqfWeights::Entry &w, const products::Record &r) {
  if (*std::min_element(r.scales.begin(), r.scales.end()) < 0) {
    tally.negative++;
    return;
  }
  Unpacked unpacked(r, w.header);
  Recorder recorder;
  Node node(r.rows, r.cols, &recorder.cache,
            [&](xnn_subgraph_t g, uint32_t *filter, uint32_t *bias) { unpacked.define(g, r, w.header, filter, bias); });
  compare_products(tally.packed, node, r);
  tally.made[compare_bytes(recorder.packed(), recorder.size(), w.header, w.data)]++;
}

static bool judge(const char *file, const char *expected) {
  products::Mapped map(file);
  gqf_file f;
  gqf_error e = gqf_open(map.data, map.size, &f);
  if (e.code != GQF_OK) throw std::runtime_error(std::string(file) + ": " + gqf_strerror(e.code));
  GqfWeights weights(&f);
  Tally tally;
  for (const products::Record &r : products::records(expected)) {
    GqfWeights::Entry w;
    gqf_payload p;
    const void *data = products::find(f, r, &p);
    if (!weights.find(r.name.c_str(), r.slice, &w)) continue;  // stays lowbit
    if (data == w.data)
      use(tally, weights, w, r), pack(tally, w, r);
    else
      tally.others++, tally.refused += refused(weights, p.header, data);
  }
  std::printf("%-16s %2zu nodes on %zu mapped bytes, %zu bytes packed; %zu of %zu outputs differ from gq's\n",
              products::base(file), tally.nodes, tally.bytes, weights.packed.load(), tally.mapped.unequal,
              tally.mapped.outputs);
  std::printf(
      "%-16s XNNPACK packs the same bytes for %zu, all but the padding's bias for %zu, others for %zu, none for %zu "
      "with "
      "negative scales; then %zu of %zu outputs differ\n",
      "", tally.made[equal], tally.made[padding], tally.made[different], tally.negative, tally.packed.unequal,
      tally.packed.outputs);
  std::printf("%-16s %zu of %zu payloads for other CPUs refused\n", "", tally.refused, tally.others);
  return tally.nodes > 0 && weights.found == tally.nodes && weights.packed == 0 && tally.mapped.unequal == 0 &&
         tally.packed.unequal == 0 && tally.made[different] == 0 && tally.refused == tally.others;
}

int main(int argc, char **argv) {
  if (xnn_initialize(nullptr) != xnn_status_success) {
    std::fprintf(stderr, "XNNPACK does not run on this CPU\n");
    return 1;
  }
  return products::judge_all(argc, argv, judge);
}
