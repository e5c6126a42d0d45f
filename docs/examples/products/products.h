// Reads the records that main.go beside this file writes, and compares outputs. For the programs of
// docs/examples/torchao and docs/examples/xnnpack.
#ifndef GQ_PRODUCTS_H
#define GQ_PRODUCTS_H

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "gqf.h"

namespace products {

// A file in memory, mapped for reading only: a write to it ends the program.
class Mapped {
 public:
  explicit Mapped(const char *path) {
    int fd = open(path, O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) throw std::runtime_error(std::string(path) + ": cannot be opened");
    size = static_cast<size_t>(st.st_size);
    data = static_cast<const uint8_t *>(mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0));
    close(fd);
    if (data == MAP_FAILED) throw std::runtime_error(std::string(path) + ": cannot be mapped");
  }
  ~Mapped() { munmap(const_cast<uint8_t *>(data), size); }
  Mapped(const Mapped &) = delete;

  const uint8_t *data;
  size_t size;
};

// What a payload packs, and what gq's kernels make of it. groups are the groups of a row; bias is 0 where the payload
// holds none. x has m rows of cols activations, y has m rows of rows outputs.
struct Record {
  std::string name;
  uint32_t variant, slice, rows, cols, groups, m;
  std::vector<int8_t> codes, zeros;
  std::vector<float> scales, bias, x, y;
};

template <typename T>
void read(FILE *f, T *to, size_t n) {
  if (std::fread(to, sizeof(T), n, f) != n) throw std::runtime_error("products: the file ends inside a record");
}

template <typename T>
std::vector<T> read(FILE *f, size_t n) {
  std::vector<T> v(n);
  read(f, v.data(), n);
  return v;
}

inline std::vector<Record> records(const char *path) {
  std::vector<Record> list;
  FILE *f = std::fopen(path, "rb");
  if (f == nullptr) throw std::runtime_error(std::string(path) + ": cannot be opened");
  for (uint32_t head[7]; std::fread(head, sizeof head, 1, f) == 1;) {
    Record r;
    r.variant = head[0], r.slice = head[1], r.rows = head[2], r.cols = head[3], r.groups = head[4], r.m = head[5];
    r.name.resize(head[6]);
    read(f, &r.name[0], head[6]);
    r.codes = read<int8_t>(f, size_t{r.rows} * r.cols);
    r.scales = read<float>(f, size_t{r.rows} * r.groups);
    r.zeros = read<int8_t>(f, size_t{r.rows} * r.groups);
    r.bias = read<float>(f, r.rows);
    r.x = read<float>(f, size_t{r.m} * r.cols);
    r.y = read<float>(f, size_t{r.m} * r.rows);
    list.push_back(std::move(r));
  }
  std::fclose(f);
  return list;
}

// How outputs compare with those of gq's kernels.
struct Comparison {
  size_t outputs = 0, unequal = 0;  // unequal: other bits
  double signal = 0, noise = 0;     // sums of squares

  void add(const float *got, const float *want, size_t n) {
    for (size_t i = 0; i < n; i++) {
      double difference = double{got[i]} - double{want[i]};
      unequal += std::memcmp(got + i, want + i, sizeof(float)) != 0;
      signal += double{want[i]} * want[i];
      noise += difference * difference;
    }
    outputs += n;
  }
  double decibels() const { return 10 * std::log10(signal / noise); }
};

// The payload that a record describes. Its data are those that a mapped file holds.
inline const void *find(const gqf_file &f, const Record &r, gqf_payload *p) {
  gqf_tensor t;
  const void *data;
  if (!gqf_find(&f, r.name.data(), r.name.size(), &t) ||
      !gqf_payload_find(&f, &t, r.variant, r.slice, GQF_KIND_WEIGHTS, p) ||
      gqf_payload_data(&f, p, &data).code != GQF_OK)
    throw std::runtime_error(r.name + ": not in the file");
  return data;
}

inline const char *base(const char *path) {
  const char *slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// Runs judge on each file and its products, the arguments of the program. The exit status is 0 if all were right.
inline int judge_all(int argc, char **argv, bool (*judge)(const char *file, const char *products)) {
  if (argc < 3 || argc % 2 == 0) {
    std::fprintf(stderr, "want: FILE.gqf PRODUCTS, once or more\n");
    return 2;
  }
  int failed = 0;
  for (int i = 1; i < argc; i += 2) try {
      failed |= !judge(argv[i], argv[i + 1]);
    } catch (const std::exception &e) {
      std::fprintf(stderr, "%s: %s\n", argv[i], e.what());
      failed = 1;
    }
  return failed;
}

}  // namespace products

#endif
