// An XNNPACK weights cache that finds the payloads of a mapped .gqf file: XNNPACK multiplies with the mapped bytes, and
// neither packs nor copies them.
//
//     GqfWeights weights(&file);             // a gqf_file of include/gqf.h
//     GqfWeights::Entry w;
//     uint32_t filter;
//     if (weights.find("model.layers.0.mlp.up_proj.weight", 0, &w)) {
//       weights.define(subgraph, w, &filter);
//       xnn_define_fully_connected(subgraph, lowest, highest, input, filter, XNN_INVALID_VALUE_ID, output, 0);
//     }
//     xnn_create_runtime_v4(subgraph, weights.cache(), ...);
//
// The input of the node is dynamically quantized (xnn_datatype_qdint8), as in graphs with unpacked weights. Payloads
// hold the bias, so the node has none. File and GqfWeights have to outlive the runtime.
//
// XNNPACK looks packed weights up by the address of the unpacked ones. There are none here, so the address is the
// payload's own. XNNPACK would read it as unpacked weights only in order to pack them; where a payload does not fit,
// the cache offers no space for packed weights, and creating the runtime fails. Other weights are packed as usual.
#ifndef GQF_WEIGHTS_H
#define GQF_WEIGHTS_H

#include <sys/auxv.h>
#include <xnnpack.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gqf.h"

// From XNNPACK's include/experimental.h, which is not installed. A fingerprint is a hash of what the packing function
// that XNNPACK chose for this CPU makes of fixed weights, so it identifies a layout and tile. XNNPACK computes it when
// it creates an operator, before it looks up the weights.
extern "C" {
struct xnn_fingerprint {
  uint32_t id, value;
};
const struct xnn_fingerprint *xnn_get_fingerprint(uint32_t id);
}

class GqfWeights {
 public:
  struct Entry {
    gqf_packed header;
    const void *data;
  };

  explicit GqfWeights(const gqf_file *file) : file_(file) {
    cache_.context = this;
    cache_.look_up = [](void *self, const xnn_weights_cache_look_up_key *key) { return of(self)->look_up(key); };
    cache_.reserve_space = [](void *self, size_t bytes) { return of(self)->reserve(bytes); };
    cache_.look_up_or_insert = [](void *self, const xnn_weights_cache_look_up_key *, void *packed, size_t) {
      return of(self)->offset(packed);
    };
    cache_.is_finalized = [](void *) { return true; };
    cache_.offset_to_addr = [](void *self, size_t offset) -> void * {
      return const_cast<uint8_t *>(of(self)->file_->data) + offset;
    };
    cache_.delete_cache = [](void *) { return xnn_status_success; };

    size_t most = 0;  // scales of a tensor
    for (uint32_t i = 0; i < file->section[GQF_SECTION_PAYLOADS].count; i++) {
      gqf_payload p;
      if (!gqf_payload_at(file, i, &p) || !p.known || packing(p.header) == nullptr) continue;
      size_t scales = p.header.rows * (p.header.group ? p.header.cols / p.header.group : 1);
      if (scales > most) most = scales;
    }
    positive_.assign(most, 0x3F803F80);
  }
  GqfWeights(const GqfWeights &) = delete;

  xnn_weights_cache_t cache() { return &cache_; }

  // Finds the variant of a tensor that XNNPACK reads on this CPU; false if there is none.
  bool find(const char *name, uint32_t slice, Entry *e) const {
    gqf_tensor t;
    gqf_payload p;
    if (!gqf_find(file_, name, std::strlen(name), &t)) return false;
    for (uint32_t v = 0; gqf_payload_find(file_, &t, v, slice, GQF_KIND_WEIGHTS, &p); v++) {
      const Packing *k = p.known ? packing(p.header) : nullptr;
      if (k != nullptr && k->i8mm == cpu_has_i8mm() && gqf_payload_data(file_, &p, &e->data).code == GQF_OK) {
        e->header = p.header;
        return true;
      }
    }
    return false;
  }

  // Adds a payload to a graph, as the filter of a fully connected node.
  xnn_status define(xnn_subgraph_t subgraph, const Entry &e, uint32_t *id) {
    const gqf_packed &h = e.header;
    size_t dims[2] = {h.rows, h.cols};
    {
      std::lock_guard<std::mutex> lock(mutex_);
      entries_[e.data] = packing(h);
    }
    if (h.layout == GQF_LAYOUT_LOWBIT)
      return xnn_define_blockwise_quantized_tensor_value(
          subgraph, xnn_datatype_qbint4, 8, reinterpret_cast<uint16_t *>(positive_.data()), 2, 0,
          h.group ? h.group : h.cols, dims, e.data, XNN_INVALID_VALUE_ID, 0, id);
    bool four = h.layout == GQF_LAYOUT_QSI4CXP;
    return xnn_define_channelwise_quantized_tensor_value_v2(subgraph, four ? xnn_datatype_qcint4 : xnn_datatype_qcint8,
                                                            four ? 8 : 0, reinterpret_cast<float *>(positive_.data()),
                                                            2, 0, dims, e.data, XNN_INVALID_VALUE_ID, 0, id);
  }

  std::atomic<size_t> found{0};   // look-ups that a payload answered
  std::atomic<size_t> packed{0};  // bytes that XNNPACK packed of other weights

 private:
  // What XNNPACK packs for CPUs with i8mm or for those without, and the fingerprint of it (XNNPACK 75db3c0, which uses
  // KleidiAI v1.29.0). A version that packs in another way has another fingerprint.
  struct Packing {
    uint8_t layout, nr, kr, sr;
    bool i8mm;
    uint32_t fingerprint;
  };

  static const Packing *packing(const gqf_packed &h) {
    static const Packing list[] = {
        {GQF_LAYOUT_LOWBIT, 4, 16, 2, true, 0xCBAC8CF3},   // qp8_f32_qb4w
        {GQF_LAYOUT_LOWBIT, 4, 8, 2, false, 0xA9BDC095},   // qp8_f32_qb4w
        {GQF_LAYOUT_QSI4CXP, 8, 16, 2, true, 0x05051CE0},  // qp8_f32_qc4w
        {GQF_LAYOUT_QSI4CXP, 4, 8, 2, false, 0xEA57A87B},  // qp8_f32_qc4w
        {GQF_LAYOUT_QSI8CXP, 4, 8, 1, true, 0x709842E3},   // qp8_f32_qc8w
        {GQF_LAYOUT_QSI8CXP, 4, 4, 1, false, 0xEE15D091},  // qp8_f32_qc8w
    };
    if (h.layout == GQF_LAYOUT_LOWBIT && !(h.flags & GQF_PACKED_QSI4C32P)) return nullptr;
    if (h.layout == GQF_LAYOUT_QSI4CXP && h.cols % 2 != 0) return nullptr;  // XNNPACK reads an activation past each row
    for (const Packing &p : list)
      if (p.layout == h.layout && p.nr == h.nr && p.kr == h.kr && p.sr == h.sr) return &p;
    return nullptr;
  }

  static GqfWeights *of(void *self) { return static_cast<GqfWeights *>(self); }

  size_t offset(const void *address) const {
    return reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(file_->data);
  }

  size_t look_up(const xnn_weights_cache_look_up_key *key) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto e = entries_.find(key->kernel);
    refuse() = e != entries_.end();
    if (!refuse()) return SIZE_MAX;  // other weights
    const xnn_fingerprint *f = xnn_get_fingerprint(key->fingerprint_id);
    if (f == nullptr || e->second == nullptr || f->value != e->second->fingerprint) return SIZE_MAX;
    found++;
    return offset(key->kernel);
  }

  void *reserve(size_t bytes) {
    void *p = refuse() ? nullptr : std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == nullptr) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    packed += bytes;
    others_.emplace_back(p, &std::free);
    return p;
  }

  // Whether the weights that this thread looked up last are a payload that does not fit. XNNPACK reserves space
  // directly after it has looked weights up in vain.
  static bool &refuse() {
    static thread_local bool value;
    return value;
  }

  static bool cpu_has_i8mm() { return (getauxval(AT_HWCAP2) & 1 << 13) != 0; }

  const gqf_file *file_;
  xnn_weights_cache_provider cache_{};
  std::mutex mutex_;
  std::unordered_map<const void *, const Packing *> entries_;
  std::vector<std::unique_ptr<void, void (*)(void *)>> others_;
  // XNNPACK demands scales, checks that they are positive, and uses them only to pack weights: the scales that it
  // multiplies with are in the payloads. This pattern is positive as float32 and as two BF16 numbers.
  std::vector<uint32_t> positive_;
};

#endif
