/*
 * gqf.h: a loader for .gqf files, in one header.
 *
 * A .gqf file holds a model's low-bit weights in the form in which a runtime multiplies with them; docs/FORMAT.md
 * defines it. This header opens a file in memory (usually mapped), checks it, finds tensors by name and describes
 * their bytes. It does not multiply, and of zstd it reads only the frame's header: the caller decompresses assets.
 *
 * C11, or C++11 and later. It needs only the four standard headers below: it allocates nothing, keeps no state outside
 * the caller's structures, and does no I/O. All functions are static inline: include the header to use it. Integers are
 * loaded byte by byte, which compilers turn into one load, so any endianness and alignment will do. The deepest call
 * takes less than 32 kB of stack.
 *
 *     gqf_file f;
 *     gqf_error e = gqf_open(mapped, size, &f);
 *     if (e.code != GQF_OK) { fprintf(stderr, "%s at byte %llu\n", gqf_strerror(e.code), (unsigned long long)e.offset); ... }
 *
 *     gqf_tensor t;
 *     gqf_payload p;
 *     const void *data;
 *     if (gqf_find(&f, "model.norm.weight", strlen("model.norm.weight"), &t) &&
 *         gqf_payload_find(&f, &t, 0, 0, GQF_KIND_WEIGHTS, &p) && (e = gqf_payload_data(&f, &p, &data)).code == GQF_OK)
 *             use(p.header.layout, p.header.rows, p.header.cols, data, p.header.data_size);
 *
 * After gqf_open succeeds, all pointers that the other functions return lie inside the file, with the sizes that
 * docs/FORMAT.md promises, as long as the bytes do not change. gqf_open reads the directory and none of the weights.
 * gqf_verify_checksums finds damage in the weights; gqf_verify_tensor does so for one tensor and can also check panels
 * by the rules of their layouts. Variants in layouts of newer versions are listed and marked as unknown. A layout that
 * stores scales and zero points apart has them in companions with the rows, columns and dtype that it demands. Pointers
 * and strings point into the file: they are valid while it is mapped. Nothing writes to a gqf_file after gqf_open, so
 * threads may share it.
 *
 * Reading a mapped file that another program has shortened raises SIGBUS; the caller must handle it.
 */
#ifndef GQF_H
#define GQF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__ARM_FEATURE_CRC32) && defined(__aarch64__)
#include <arm_acle.h>
#endif

/* The version of the file format that this header knows: it opens files of this major version up to this minor one. */
#define GQF_VERSION_MAJOR 1u
#define GQF_VERSION_MINOR 0u

/*
 * Limits that bound the time of gqf_open with hostile files: a file beyond a limit is refused as unsupported. They
 * equal gq's own limits, well above the needs of the largest models. To change them, define them before including this
 * header.
 */
#ifndef GQF_MAX_TENSORS
#define GQF_MAX_TENSORS 1048576u
#endif
#ifndef GQF_MAX_PAYLOADS
#define GQF_MAX_PAYLOADS 1048576u
#endif
#ifndef GQF_MAX_DIRECTORY
#define GQF_MAX_DIRECTORY 268435456u /* bytes before the data region, without the assets' contents */
#endif

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/*
 * Errors: one code for each rule or group of rules, with its message. The numbers may change: compare with the names.
 * Names that start with GQF_UNSUPPORTED mean that the file may be valid but needs a newer reader; all others mean that
 * it is not a .gqf file or is damaged.
 */
#define GQF_CODES(X)                                                                                             \
	X(GQF_OK, "no error")                                                                                    \
	X(GQF_UNSUPPORTED_VERSION, "the file has a newer version of the format")                                 \
	X(GQF_UNSUPPORTED_SIZE, "the directory is beyond the limits of this reader")                             \
	X(GQF_UNSUPPORTED_PACKED_VERSION, "a packed header has a newer version")                                 \
	X(GQF_UNSUPPORTED_LAYOUT, "a packed header has an unknown layout")                                       \
	X(GQF_UNSUPPORTED_FLAG, "a packed header has an unknown flag")                                           \
	X(GQF_UNSUPPORTED_FIELD, "a packed header has an unknown grid, scale dtype, zero kind or tile")          \
	X(GQF_UNSUPPORTED_DTYPE, "a packed header has an unknown element type")                                  \
	X(GQF_TOO_SHORT, "the file is shorter than its header")                                                  \
	X(GQF_MAGIC, "not a .gqf file: the first eight bytes are not its magic")                                 \
	X(GQF_HEADER_CHECKSUM, "the header's checksum is wrong")                                                 \
	X(GQF_VERSION, "no version of the format has this number")                                               \
	X(GQF_FILE_SIZE, "the file's size is not the size in its header: truncated or extended")                 \
	X(GQF_HEADER_SIZE, "the header size is not 256")                                                         \
	X(GQF_BLOCK_SIZE, "the size of checksum blocks is outside of 2^12 to 2^30")                              \
	X(GQF_RESERVED, "a reserved byte or bit is not zero")                                                    \
	X(GQF_SECTION_PLACE, "a section is not where it has to be")                                              \
	X(GQF_SECTION_SIZE, "a section's size does not fit its count of records or the file")                    \
	X(GQF_DATA_PLACE, "the data region is not where it has to be")                                           \
	X(GQF_GAP, "a byte between sections or payloads is not zero")                                            \
	X(GQF_SECTION_CHECKSUM, "a section's checksum is wrong")                                                 \
	X(GQF_CHECKSUM_COUNT, "the number of checksums does not fit the data region")                            \
	X(GQF_STRINGS, "a string is not where it has to be, or has a size that is not allowed")                  \
	X(GQF_STRING_BYTES, "a name is not valid UTF-8 or holds a byte that is not allowed")                     \
	X(GQF_ORDER, "names are not in ascending order, or one is there twice")                                  \
	X(GQF_INDEX, "an index is beyond the end of its section")                                                \
	X(GQF_NAME_SOURCE, "a name's source fields contradict its flags")                                        \
	X(GQF_TENSOR_NAME, "a tensor's canonical name is not one of its names")                                  \
	X(GQF_TENSOR_NAME_COUNT, "a tensor states another number of names than it has")                          \
	X(GQF_DIMS, "dimensions do not follow each other in order, or their product is too large")               \
	X(GQF_ENUM, "a code of the directory has a value that is not defined")                                   \
	X(GQF_BIAS, "a tensor's link to its bias leads to itself or to a tensor with a bias")                    \
	X(GQF_TRANSPOSED, "a tensor of fewer than two dimensions is transposed")                                 \
	X(GQF_PAYLOAD_RANGE, "the payloads of the tensors do not follow each other in order")                    \
	X(GQF_PAYLOAD_PLACE, "a payload does not follow the one before, aligned and inside the data region")     \
	X(GQF_PAYLOAD_SIZE, "a payload's size is not the size of its packed header and data")                    \
	X(GQF_PAYLOAD_ORDER, "variants, slices and kinds of a tensor's payloads are not complete and in order")  \
	X(GQF_PAYLOAD_SLICES, "slices of a tensor have different packed headers or CPU features")                \
	X(GQF_PAYLOAD_SHAPE, "rows, columns or element type of a packed header do not fit the tensor")           \
	X(GQF_COMPANION, "a tensor lacks a companion that its layout demands, or has another one")               \
	X(GQF_PACKED_MAGIC, "a packed header's magic is wrong")                                                  \
	X(GQF_PACKED_VERSION, "no version of the packed header has this number")                                 \
	X(GQF_PACKED_CHECKSUM, "a packed header's checksum is wrong")                                            \
	X(GQF_PACKED_FIELDS, "a field of a packed header is outside the range that its layout allows")           \
	X(GQF_PACKED_SIZE, "a packed header's data size does not follow from its fields")                        \
	X(GQF_ASSET_COUNT, "there are too many assets")                                                          \
	X(GQF_ASSET_NAME, "an asset's name does not fit its kind, or differs from another only in case")         \
	X(GQF_ASSET_PLACE, "an asset's bytes are not where they have to be")                                     \
	X(GQF_ASSET_SIZE, "the assets are too large, or a raw size differs from the stored size")                \
	X(GQF_ASSET_KIND, "an asset's kind is there twice, or does not allow its codec")                         \
	X(GQF_ASSET_FRAME, "an asset is not a zstd frame of the form that the format demands")                   \
	X(GQF_ASSET_CHECKSUM, "an asset's checksum is wrong")                                                    \
	X(GQF_PACKED_COPY, "a packed header differs from its copy in the directory")                             \
	X(GQF_BLOCK_CHECKSUM, "the checksum of a block of the data region is wrong")                             \
	X(GQF_PANEL, "a panel or a companion holds a value that its layout excludes")

#define GQF_X(name, message) name,
typedef enum gqf_code { GQF_CODES(GQF_X) GQF_CODE_COUNT } gqf_code;
#undef GQF_X

/* A result: GQF_OK, or an error and the absolute offset of the first byte of the wrong field or block. */
typedef struct gqf_error {
	gqf_code code;
	uint64_t offset;
} gqf_error;

/* The message of a code: static, lower case, without a full stop. */
static inline const char *gqf_strerror(gqf_code code)
{
	switch (code) {
#define GQF_X(name, message) \
	case name: return message;
		GQF_CODES(GQF_X)
#undef GQF_X
	case GQF_CODE_COUNT: break;
	}
	return "not a code of gqf.h";
}

/* Reports whether a code means that the file needs a newer reader, rather than damage. */
static inline bool gqf_is_unsupported(gqf_code code)
{
	return code >= GQF_UNSUPPORTED_VERSION && code <= GQF_UNSUPPORTED_DTYPE;
}

/* ---- codes of the file (docs/FORMAT.md, chapters 5 and 8) ------------------------------------------------------- */

/* Element types of checkpoints and of plain payloads. */
enum {
	GQF_DTYPE_NONE = 0, GQF_DTYPE_F64 = 1, GQF_DTYPE_F32 = 2, GQF_DTYPE_F16 = 3, GQF_DTYPE_BF16 = 4, GQF_DTYPE_I64 = 5,
	GQF_DTYPE_I32 = 6, GQF_DTYPE_I16 = 7, GQF_DTYPE_I8 = 8, GQF_DTYPE_U64 = 9, GQF_DTYPE_U32 = 10, GQF_DTYPE_U16 = 11,
	GQF_DTYPE_U8 = 12, GQF_DTYPE_BOOL = 13, GQF_DTYPE_F8_E4M3 = 14, GQF_DTYPE_F8_E5M2 = 15, GQF_DTYPE_F8_E8M0 = 16,
	GQF_DTYPE_F8_E4M3FNUZ = 17, GQF_DTYPE_F8_E5M2FNUZ = 18, GQF_DTYPE_F4 = 19, GQF_DTYPE_F6_E2M3 = 20,
	GQF_DTYPE_F6_E3M2 = 21, GQF_DTYPE_C64 = 22
};

enum {
	GQF_ROLE_OTHER = 0, GQF_ROLE_EMBEDDING = 1, GQF_ROLE_HEAD = 2, GQF_ROLE_PROJECTION = 3, GQF_ROLE_EXPERT = 4,
	GQF_ROLE_ROUTER = 5, GQF_ROLE_NORM = 6, GQF_ROLE_BIAS = 7, GQF_ROLE_CONV = 8, GQF_ROLE_POSITION = 9
};

enum {
	GQF_MAPPING_NONE = 0, GQF_MAPPING_FULL_RANGE = 1, GQF_MAPPING_SYMMETRIC = 2, GQF_MAPPING_SYMMETRIC_NO_CLIP = 3,
	GQF_MAPPING_ASYMMETRIC = 4, GQF_MAPPING_HALF_STEP = 5, GQF_MAPPING_K_QUANT = 6, GQF_MAPPING_OTHER = 255
};

enum {
	GQF_ALGORITHM_NONE = 0, GQF_ALGORITHM_RTN = 1, GQF_ALGORITHM_SEARCH = 2, GQF_ALGORITHM_HQQ = 3, GQF_ALGORITHM_MSE = 4,
	GQF_ALGORITHM_GPTQ = 5, GQF_ALGORITHM_GPTQ_FT = 6, GQF_ALGORITHM_IMATRIX = 7,
	GQF_ALGORITHM_AWQ = 8, GQF_ALGORITHM_OTHER = 255
};

/* Kinds of payload: the weights, and companions, which hold scales and zero points that a layout stores apart. */
enum { GQF_KIND_WEIGHTS = 0, GQF_KIND_SCALES = 1, GQF_KIND_ZEROS = 2, GQF_KIND_TABLE = 3 };

enum {
	GQF_ASSET_CONFIG = 1, GQF_ASSET_RECIPE = 2, GQF_ASSET_PROVENANCE = 3, GQF_ASSET_FILE = 4, GQF_ASSET_FOLD = 5
};

enum { GQF_CODEC_STORED = 0, GQF_CODEC_ZSTD = 1 };

/* Source file of a name without a source file. */
#define GQF_NO_SOURCE 0xFFFFFFFFu

/* Bias of a tensor without a linked bias. */
#define GQF_NO_BIAS 0xFFFFFFFFu

/* Features of the CPUs that a variant is for (5.8). No CPU is known to have a feature that is not listed. */
enum {
	GQF_CPU_DOTPROD = 1 << 0, GQF_CPU_I8MM = 1 << 1, GQF_CPU_SVE = 1 << 2, GQF_CPU_SVE2 = 1 << 3, GQF_CPU_SME = 1 << 4,
	GQF_CPU_SME2 = 1 << 5, GQF_CPU_AVX2 = 1 << 16, GQF_CPU_AVXVNNI = 1 << 17, GQF_CPU_AVX512VNNI = 1 << 18,
	GQF_CPU_AMX_INT8 = 1 << 19
};

enum {
	GQF_LAYOUT_PLAIN = 1,
	GQF_LAYOUT_LOWBIT = 2,             /* with GQF_PACKED_QSI4C32P: KleidiAI's qsi4c32p with BF16 scales */
	GQF_LAYOUT_CODES = 3,              /* a byte a code, row-major; scales and zero points are companions */
	GQF_LAYOUT_QSI4CXP = 17,           /* KleidiAI's */
	GQF_LAYOUT_QSI4C32P_F16 = 18,
	GQF_LAYOUT_QSI8CXP = 19,
	GQF_LAYOUT_QAI4C32P = 20,
	GQF_LAYOUT_QSU2CXP = 21,
	GQF_LAYOUT_TORCHAO_LINEAR = 33,    /* TorchAO's packed weights of type 1 */
	GQF_LAYOUT_TORCHAO_EMBEDDING = 34, /* type 2; scales and zero points are companions */
	GQF_LAYOUT_TORCHAO_KLEIDIAI = 35   /* type 3 */
};

/* Flags of a packed header. */
enum {
	GQF_PACKED_BIAS = 1,            /* the payload's bias fields hold the layer's bias */
	GQF_PACKED_QSI4C32P = 2,        /* the bytes are KleidiAI's qsi4c32p with BF16 scales */
	GQF_PACKED_POSITIVE_SCALES = 4  /* every scale is greater than 0 */
};

enum { GQF_GRID_INTEGER = 0, GQF_GRID_HALF_STEP = 1 };
enum { GQF_SCALE_NONE = 0, GQF_SCALE_BF16 = 1, GQF_SCALE_F16 = 2, GQF_SCALE_F32 = 3 };
enum { GQF_ZERO_NONE = 0, GQF_ZERO_INT8 = 1, GQF_ZERO_F32 = 2, GQF_ZERO_FRACTION = 3 };

/* Bits of an element of a dtype, 0 for an unknown dtype. */
static inline uint32_t gqf_dtype_bits(uint32_t dtype)
{
	static const uint8_t bits[] = {0, 64, 32, 16, 16, 64, 32, 16, 8, 64, 32, 16, 8, 8, 8, 8, 8, 8, 8, 4, 6, 6, 64};
	return dtype < sizeof bits ? bits[dtype] : 0;
}

/* The names of codes in docs/FORMAT.md; "?" for an unknown code, or "other" if the code is only informative. */
static inline const char *gqf_dtype_name(uint32_t dtype)
{
	static const char *const names[] = {"?", "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16",
		"U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F4", "F6_E2M3", "F6_E3M2", "C64"};
	return dtype < sizeof names / sizeof names[0] ? names[dtype] : "?";
}

static inline const char *gqf_role_name(uint32_t role)
{
	static const char *const names[] = {"other", "embedding", "head", "projection", "expert", "router", "norm", "bias",
		"conv", "position"};
	return role < sizeof names / sizeof names[0] ? names[role] : "other";
}

static inline const char *gqf_mapping_name(uint32_t mapping)
{
	static const char *const names[] = {"none", "full-range", "symmetric", "symmetric-no-clip", "asymmetric", "half-step",
		"k-quant", "nonlinear", "nonlinear-k", "ternary", "mxfp4", "lattice", "lattice-xs", "lattice-xxs"};
	return mapping < sizeof names / sizeof names[0] ? names[mapping] : "other";
}

static inline const char *gqf_algorithm_name(uint32_t algorithm)
{
	static const char *const names[] = {"none", "rtn", "search", "hqq", "mse", "gptq", "gptq-ft", "imatrix", "awq"};
	return algorithm < sizeof names / sizeof names[0] ? names[algorithm] : "other";
}

static inline const char *gqf_kind_name(uint32_t kind)
{
	static const char *const names[] = {"weights", "scales", "zeros", "table"};
	return kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

static inline const char *gqf_asset_kind_name(uint32_t kind)
{
	static const char *const names[] = {"?", "config", "recipe", "provenance", "file", "fold"};
	return kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

static inline const char *gqf_codec_name(uint32_t codec)
{
	static const char *const names[] = {"stored", "zstd"};
	return codec < sizeof names / sizeof names[0] ? names[codec] : "?";
}

static inline const char *gqf_scale_name(uint32_t scale)
{
	static const char *const names[] = {"none", "bf16", "f16", "f32"};
	return scale < sizeof names / sizeof names[0] ? names[scale] : "?";
}

/* ---- results of the functions ----------------------------------------------------------------------------------- */

/* A string in the file: UTF-8, not terminated, without zero bytes. */
typedef struct gqf_string {
	const char *ptr;
	size_t len;
} gqf_string;

/* The fields of a packed header, which describe its data completely. */
typedef struct gqf_packed {
	uint8_t layout;     /* GQF_LAYOUT_ */
	uint8_t flags;      /* GQF_PACKED_ */
	uint8_t bits;       /* bits of a code, 0 if plain */
	uint8_t grid;       /* GQF_GRID_ */
	uint8_t scale;      /* GQF_SCALE_ */
	uint8_t zero;       /* GQF_ZERO_ */
	uint8_t nr, kr, sr; /* tile */
	uint8_t dtype;      /* GQF_DTYPE_ of a plain payload */
	uint64_t rows;      /* outputs */
	uint64_t cols;      /* inputs, K */
	uint64_t group;     /* columns that share a scale, 0: the whole row */
	uint64_t data_size; /* bytes behind the packed header */
} gqf_packed;

typedef struct gqf_tensor {
	uint32_t index;
	gqf_string name;        /* the canonical name */
	uint32_t name_count;    /* names that are not absorbed */
	uint32_t dims_first;    /* see gqf_dim */
	uint8_t dim_count;
	uint8_t dtype;          /* GQF_DTYPE_, in the checkpoint */
	uint8_t role;           /* GQF_ROLE_ */
	uint8_t mapping;        /* GQF_MAPPING_ */
	uint8_t algorithm;      /* GQF_ALGORITHM_ */
	bool transposed;        /* the checkpoint holds inputs x outputs */
	uint32_t payload_first; /* see gqf_payload_at */
	uint32_t payload_count; /* at least 1 */
	uint32_t slices;        /* at least 1; each slice is a matrix with its own payload */
	uint32_t bias;          /* index of the tensor with the layer's bias, or GQF_NO_BIAS */
} gqf_tensor;

typedef struct gqf_payload {
	uint32_t index;
	uint32_t tensor;
	uint32_t slice;
	uint8_t kind;      /* GQF_KIND_ */
	uint8_t variant;   /* the same codes in another layout */
	bool known;        /* false: the variant has a layout that this header does not know; skip it */
	uint32_t cpu;      /* GQF_CPU_: features that the variant needs; 0: any CPU */
	uint64_t offset;   /* of the packed header in the file; the data are 64 bytes behind, at a multiple of 64 */
	uint64_t size;     /* 64 + header.data_size */
	gqf_packed header; /* from the copy in the directory; if not known, only layout and data_size */
} gqf_payload;

typedef struct gqf_name {
	gqf_string name;
	uint32_t tensor;
	uint32_t source_file;  /* index into the provenance's sources, or GQF_NO_SOURCE */
	uint32_t source_crc32c;
	uint64_t source_size;
	bool in_checkpoint;
	bool absorbed;           /* not a name of the tensor: its values are multiplied into it */
} gqf_name;

typedef struct gqf_asset {
	gqf_string name;
	uint8_t kind;         /* GQF_ASSET_ */
	uint8_t codec;        /* GQF_CODEC_ */
	const void *stored;   /* the bytes in the file; with GQF_CODEC_ZSTD one frame that states the size of its content */
	uint64_t stored_size;
	uint64_t raw_size;    /* after decompression: limit what you accept before you allocate it */
	uint32_t raw_crc32c;  /* compare with gqf_crc32c of the decompressed bytes */
} gqf_asset;

/* The sections of the directory, in their order. */
enum {
	GQF_SECTION_TENSORS, GQF_SECTION_PAYLOADS, GQF_SECTION_NAMES, GQF_SECTION_DIMS, GQF_SECTION_STRINGS,
	GQF_SECTION_ASSETS, GQF_SECTION_ASSET_DATA, GQF_SECTION_CHECKSUMS, GQF_SECTION_COUNT
};

/* An open file. gqf_open fills it. All fields may be read; none may be changed. */
typedef struct gqf_file {
	const uint8_t *data;
	uint64_t size;
	uint32_t minor;      /* version of the file */
	uint32_t block_log2; /* a checksum block of the data region is 2^block_log2 bytes */
	uint64_t data_offset;
	uint64_t data_size;
	struct {
		uint64_t offset, size;
		uint32_t count;
	} section[GQF_SECTION_COUNT];
} gqf_file;

/* ---- internal: loads, CRC32C, bounded arithmetic (nothing named gqfi_ is part of the interface) ------------------ */

static inline uint32_t gqfi_u16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t gqfi_u32(const uint8_t *p) { return gqfi_u16(p) | gqfi_u16(p + 2) << 16; }
static inline uint64_t gqfi_u64(const uint8_t *p) { return (uint64_t)gqfi_u32(p) | (uint64_t)gqfi_u32(p + 4) << 32; }

static inline gqf_error gqfi_error(gqf_code code, uint64_t offset)
{
	gqf_error e;
	e.code = code;
	e.offset = offset;
	return e;
}

/*
 * CRC32C, by the CPU's instruction where the compiler may use it (-msse4.2 or -march=native on x86-64, +crc on arm64,
 * which Armv8.1 implies), else by eight tables. A header without state has no place for the tables but the caller's
 * stack. Making them takes 1 us, as long as the checksum of 2 kB. On an AMD EPYC, the tables reach 2.1 GB/s, the
 * instruction 9.8 GB/s.
 */
#if defined(__SSE4_2__) && defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define GQFI_CRC_BYTE(crc, b) __builtin_ia32_crc32qi(crc, b)
#define GQFI_CRC_WORD(crc, w) ((uint32_t)__builtin_ia32_crc32di(crc, w))
#elif defined(__ARM_FEATURE_CRC32) && defined(__aarch64__)
#define GQFI_CRC_BYTE(crc, b) __crc32cb(crc, b)
#define GQFI_CRC_WORD(crc, w) __crc32cd(crc, w)
#endif

typedef struct gqfi_crc {
#ifdef GQFI_CRC_WORD
	char unused;
#else
	uint32_t table[8][256]; /* table[k][b]: the remainder of byte b with k zero bytes behind it */
#endif
} gqfi_crc;

static inline void gqfi_crc_init(gqfi_crc *c)
{
#ifdef GQFI_CRC_WORD
	c->unused = 0;
#else
	uint32_t b, k;
	for (b = 0; b < 256; b++) {
		uint32_t r = b;
		for (k = 0; k < 8; k++)
			r = r >> 1 ^ (0x82F63B78u & (0u - (r & 1u)));
		c->table[0][b] = r;
	}
	for (k = 1; k < 8; k++)
		for (b = 0; b < 256; b++)
			c->table[k][b] = c->table[k - 1][b] >> 8 ^ c->table[0][c->table[k - 1][b] & 255u];
#endif
}

static inline uint32_t gqfi_crc_of(const gqfi_crc *c, const void *data, size_t size)
{
	const uint8_t *p = (const uint8_t *)data;
	uint32_t r = 0xFFFFFFFFu;
#ifdef GQFI_CRC_WORD
	(void)c;
	for (; size >= 8; p += 8, size -= 8)
		r = GQFI_CRC_WORD(r, gqfi_u64(p));
	for (; size > 0; p++, size--)
		r = GQFI_CRC_BYTE(r, *p);
#else
	for (; size >= 8; p += 8, size -= 8) {
		uint32_t a = r ^ gqfi_u32(p), b = gqfi_u32(p + 4);
		r = c->table[7][a & 255u] ^ c->table[6][a >> 8 & 255u] ^ c->table[5][a >> 16 & 255u] ^ c->table[4][a >> 24] ^
		    c->table[3][b & 255u] ^ c->table[2][b >> 8 & 255u] ^ c->table[1][b >> 16 & 255u] ^ c->table[0][b >> 24];
	}
	for (; size > 0; p++, size--)
		r = r >> 8 ^ c->table[0][(r ^ *p) & 255u];
#endif
	return ~r;
}

/* No size in a file exceeds 2^62. */
#define GQFI_LIMIT ((uint64_t)1 << 62)

/* *a becomes *a * b or *a + b; false, with *a unspecified, if that exceeds 64 bits. */
static inline bool gqfi_mul(uint64_t *a, uint64_t b)
{
	bool ok = b == 0 || *a <= UINT64_MAX / b;
	*a *= b;
	return ok;
}

static inline bool gqfi_add(uint64_t *a, uint64_t b)
{
	*a += b;
	return *a >= b;
}

static inline uint64_t gqfi_ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }
static inline uint64_t gqfi_align(uint64_t n, uint64_t a) { return (n + (a - 1)) & ~(a - 1); }

/* The offset of the first byte from..to-1 that is not zero, or to. */
static inline uint64_t gqfi_nonzero(const gqf_file *f, uint64_t from, uint64_t to)
{
	while (to - from >= 8 && gqfi_u64(f->data + from) == 0)
		from += 8;
	while (from < to && f->data[from] == 0)
		from++;
	return from;
}

/* The offset of a record in the file. */
static inline uint64_t gqfi_at(const gqf_file *f, int section, uint64_t index, uint64_t record_size)
{
	return f->section[section].offset + index * record_size;
}

#define GQFI_TENSOR 48u
#define GQFI_PAYLOAD 96u
#define GQFI_NAME 32u
#define GQFI_DIM 8u
#define GQFI_ASSET 48u
#define GQFI_MAX_ASSETS 1024u
#define GQFI_MAX_ASSET_BYTES ((uint64_t)1 << 27)
#define GQFI_PACKED 64u

/* ---- packed headers (chapter 8) --------------------------------------------------------------------------------- */

/*
 * The fields of a packed header that a layout allows, and the bytes of its data:
 *
 *     prefix + ceil(rows / nr) * nr * (codes + row + bias if there is one + groups * (sum + scale + zero if there is one))
 *
 * with nr = 1 for layouts without a tile. A new layout is a line in gqfi_layout_of.
 */
typedef struct gqfi_layout {
	uint8_t layout;
	const char *name;
	uint8_t bits;          /* the only width, 0: 1 to 8 */
	uint8_t codes;         /* bytes of a row's codes: GQFI_BYTES, GQFI_BITS or GQFI_BLOCKS */
	bool half_step;        /* at 1 and 2 bits without zero points */
	uint8_t scales, zeros; /* allowed codes of scale dtype and zero kind, a bit each */
	uint8_t flags;         /* allowed flags */
	uint8_t cols;          /* cols is a multiple of this */
	uint8_t group_step;    /* group is a multiple of this; 0: group is 0 */
	bool group_divides;    /* cols is a multiple of group */
	uint8_t prefix, row, bias, sum, zero; /* bytes; sum: of the int32 sum of a group's codes */
	bool scale;            /* each group has its scale, of the size of its dtype */
	uint8_t tiles[4][3];   /* nr, kr, sr; the rest of the list is zero; all zero without tiles */
} gqfi_layout;

/* The size of a row's codes: a byte a code; its bits; its bits, with cols rounded up to a multiple of 32. */
enum { GQFI_BYTES, GQFI_BITS, GQFI_BLOCKS };

#define GQFI_BIT(code) (1u << (code))

/* The rules of a layout; NULL for plain and for unknown layouts. */
static inline const gqfi_layout *gqfi_layout_of(uint32_t layout)
{
	enum {
		BIAS = GQF_PACKED_BIAS, QSI = GQF_PACKED_QSI4C32P, POS = GQF_PACKED_POSITIVE_SCALES,
		BF16 = GQFI_BIT(GQF_SCALE_BF16), F16 = GQFI_BIT(GQF_SCALE_F16), F32 = GQFI_BIT(GQF_SCALE_F32),
		NONE = GQFI_BIT(GQF_ZERO_NONE), INT8 = GQFI_BIT(GQF_ZERO_INT8), ZF32 = GQFI_BIT(GQF_ZERO_F32),
		FRACTION = GQFI_BIT(GQF_ZERO_FRACTION)
	};
	static const gqfi_layout layouts[] = {
		/* bits, codes, half step, scales, zeros, flags, | cols, group step, divides, | prefix, row, bias, sum, zero, scale, | tiles */
		{GQF_LAYOUT_LOWBIT, "lowbit", 0, GQFI_BLOCKS, true, BF16 | F16 | F32, NONE | INT8 | FRACTION, BIAS | QSI | POS,
			1, 16, false, 0, 8, 0, 0, 1, true, {{4, 8, 2}, {4, 16, 2}, {8, 8, 2}, {8, 16, 2}}},
		{GQF_LAYOUT_CODES, "codes", 0, GQFI_BYTES, true, BF16 | F16 | F32, NONE | INT8 | FRACTION, POS,
			1, 16, false, 0, 0, 0, 0, 0, false, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
		{GQF_LAYOUT_QSI4CXP, "qsi4cxp", 4, GQFI_BLOCKS, false, F32, NONE, BIAS | POS,
			1, 0, false, 0, 12, 0, 0, 0, false, {{4, 8, 2}, {4, 16, 2}, {8, 8, 2}, {8, 16, 2}}},
		{GQF_LAYOUT_QSI4C32P_F16, "qsi4c32p-f16", 4, GQFI_BITS, false, F16, NONE, POS,
			32, 32, true, 0, 0, 0, 0, 0, true, {{4, 8, 2}, {4, 16, 2}, {8, 8, 2}, {8, 16, 2}}},
		{GQF_LAYOUT_QSI8CXP, "qsi8cxp", 8, GQFI_BLOCKS, false, F32, NONE, BIAS | POS,
			1, 0, false, 0, 12, 0, 0, 0, false, {{4, 4, 1}, {4, 8, 1}, {0, 0, 0}, {0, 0, 0}}},
		{GQF_LAYOUT_QAI4C32P, "qai4c32p", 4, GQFI_BITS, false, F32, ZF32, BIAS | POS,
			32, 32, true, 0, 4, 0, 0, 4, true, {{4, 8, 2}, {4, 16, 2}, {0, 0, 0}, {0, 0, 0}}},
		{GQF_LAYOUT_QSU2CXP, "qsu2cxp", 2, GQFI_BITS, false, F32, NONE, BIAS | POS,
			32, 0, false, 0, 12, 0, 0, 0, false, {{4, 4, 1}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
		{GQF_LAYOUT_TORCHAO_LINEAR, "torchao-linear", 0, GQFI_BITS, false, F32, NONE | INT8, BIAS | POS,
			16, 16, true, 64, 0, 4, 4, 4, true, {{8, 16, 2}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
		{GQF_LAYOUT_TORCHAO_EMBEDDING, "torchao-embedding", 0, GQFI_BITS, false, F32, INT8, POS,
			32, 32, true, 64, 0, 0, 0, 0, false, {{0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}},
		{GQF_LAYOUT_TORCHAO_KLEIDIAI, "torchao-kleidiai", 4, GQFI_BITS, false, BF16, NONE, BIAS | POS,
			32, 32, true, 64, 8, 0, 0, 0, true, {{8, 8, 2}, {8, 16, 2}, {0, 0, 0}, {0, 0, 0}}},
	};
	size_t i;
	for (i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
		if (layouts[i].layout == layout)
			return &layouts[i];
	return NULL;
}

/* The name of a layout in docs/FORMAT.md, "?" for an unknown layout. */
static inline const char *gqf_layout_name(uint32_t layout)
{
	const gqfi_layout *l = gqfi_layout_of(layout);
	return layout == GQF_LAYOUT_PLAIN ? "plain" : l == NULL ? "?" : l->name;
}

/* The number of groups in a row, each with a scale; 0 if plain. */
static inline uint64_t gqf_groups(const gqf_packed *h)
{
	return h->layout == GQF_LAYOUT_PLAIN ? 0 : h->group == 0 ? 1 : gqfi_ceil_div(h->cols, h->group);
}

/* 8.2: rows * cols elements in whole bytes. */
static inline gqf_code gqfi_plain_size(const gqf_packed *h, uint64_t *size)
{
	uint64_t n = h->rows, bits = gqf_dtype_bits(h->dtype), rest;
	if ((h->flags | h->bits | h->grid | h->scale | h->zero | h->nr | h->kr | h->sr) != 0 || h->group != 0 || h->dtype == 0)
		return GQF_PACKED_FIELDS;
	if (bits == 0)
		return GQF_UNSUPPORTED_DTYPE;
	if (!gqfi_mul(&n, h->cols))
		return GQF_PACKED_FIELDS;
	/* The bits of all elements may exceed 2^64, so count 8 elements at a time. */
	rest = n % 8 * bits;
	*size = n / 8;
	return rest % 8 == 0 && gqfi_mul(size, bits) && gqfi_add(size, rest / 8) && *size <= GQFI_LIMIT ? GQF_OK : GQF_PACKED_FIELDS;
}

/* 8.1: reports whether each group has a zero point of one byte. */
static inline bool gqfi_int8_zeros(const gqf_packed *h)
{
	return h->zero == GQF_ZERO_INT8 || h->zero == GQF_ZERO_FRACTION;
}

/* 8.3: reports whether the data are KleidiAI's qsi4c32p with BF16 scales. */
static inline bool gqfi_is_qsi4c32p(const gqf_packed *h)
{
	return h->layout == GQF_LAYOUT_LOWBIT && h->bits == 4 && h->grid == GQF_GRID_INTEGER && h->zero == GQF_ZERO_NONE &&
	       h->scale == GQF_SCALE_BF16 && h->cols % 32 == 0 && (h->group == 0 || (h->group % 32 == 0 && h->cols % h->group == 0));
}

/* 8.3 and later: reports whether the layout allows the fields, and computes the size of the data. */
static inline gqf_code gqfi_packed_size(const gqfi_layout *l, const gqf_packed *h, uint64_t *size)
{
	static const uint8_t scale_bytes[] = {0, 2, 2, 4};
	bool tile = false;
	uint64_t nr, row, groups, record, fixed;
	int i;

	if ((h->flags & ~(GQF_PACKED_BIAS | GQF_PACKED_QSI4C32P | GQF_PACKED_POSITIVE_SCALES)) != 0)
		return GQF_UNSUPPORTED_FLAG;
	for (i = 0; i < 4; i++)
		tile = tile || ((i == 0 || l->tiles[i][0] != 0) && h->nr == l->tiles[i][0] && h->kr == l->tiles[i][1] && h->sr == l->tiles[i][2]);
	if (!tile || h->grid > GQF_GRID_HALF_STEP || h->scale > GQF_SCALE_F32 || h->zero > GQF_ZERO_FRACTION)
		return GQF_UNSUPPORTED_FIELD;
	if ((h->flags & ~l->flags) != 0 || ((h->flags & GQF_PACKED_QSI4C32P) != 0) != gqfi_is_qsi4c32p(h) ||
	    h->bits < 1 || h->bits > 8 || (l->bits != 0 && h->bits != l->bits) || (l->scales & GQFI_BIT(h->scale)) == 0 ||
	    (l->zeros & GQFI_BIT(h->zero)) == 0 || h->dtype != 0)
		return GQF_PACKED_FIELDS;
	if (h->zero == GQF_ZERO_FRACTION && h->bits == 8)
		return GQF_PACKED_FIELDS;
	if (h->grid == GQF_GRID_HALF_STEP && (!l->half_step || h->bits > 2 || h->zero != GQF_ZERO_NONE))
		return GQF_PACKED_FIELDS;
	if (h->rows == 0 || h->cols == 0 || h->cols % l->cols != 0)
		return GQF_PACKED_FIELDS;
	if (h->group != 0 && (l->group_step == 0 || h->group % l->group_step != 0 || (l->group_divides && h->cols % h->group != 0)))
		return GQF_PACKED_FIELDS;

	if (l->sum != 0 && (h->group == 0 ? h->cols : h->group) > (uint64_t)INT32_MAX >> (h->bits - 1))
		return GQF_PACKED_FIELDS; /* the sum does not fit */

	record = l->sum; /* bytes of a group without its codes */
	record += l->scale ? scale_bytes[h->scale] : 0u;
	record += h->zero != GQF_ZERO_NONE ? l->zero : 0u;
	fixed = l->row; /* bytes of a row that do not depend on groups */
	fixed += (h->flags & GQF_PACKED_BIAS) != 0 ? l->bias : 0u;
	/* Codes of a row. Layouts whose codes are counted in bits have a multiple of 16 cols. */
	row = l->codes == GQFI_BYTES ? h->cols : l->codes == GQFI_BITS ? h->cols / 8 : 4 * gqfi_ceil_div(h->cols, 32);
	groups = gqf_groups(h);
	nr = h->nr == 0 ? 1 : h->nr;
	*size = gqfi_ceil_div(h->rows, nr);
	if (!gqfi_mul(&row, l->codes == GQFI_BYTES ? 1 : h->bits) || !gqfi_mul(&groups, record) || !gqfi_add(&row, groups) ||
	    !gqfi_add(&row, fixed) || !gqfi_mul(size, nr) || !gqfi_mul(size, row) || !gqfi_add(size, l->prefix) || *size > GQFI_LIMIT)
		return GQF_PACKED_FIELDS;
	return GQF_OK;
}

/* Reads the fields and checks none. */
static inline void gqfi_packed_fields(const uint8_t *p, gqf_packed *h)
{
	h->layout = p[6];
	h->flags = p[7];
	h->bits = p[8];
	h->grid = p[9];
	h->scale = p[10];
	h->zero = p[11];
	h->nr = p[12];
	h->kr = p[13];
	h->sr = p[14];
	h->dtype = p[15];
	h->rows = gqfi_u64(p + 16);
	h->cols = gqfi_u64(p + 24);
	h->group = gqfi_u64(p + 32);
	h->data_size = gqfi_u64(p + 40);
}

/*
 * Reads a packed header at p with a correct checksum, and checks version and fields. The error's offset counts from p.
 * If the header is unsupported, h still has layout and data size, whose places are the same in every version.
 */
static inline gqf_error gqfi_packed_known(const uint8_t *p, gqf_packed *h)
{
	const gqfi_layout *layout;
	uint64_t i, size = 0;
	gqf_code code;
	memset(h, 0, sizeof *h);
	h->layout = p[6];
	h->data_size = gqfi_u64(p + 40);
	if (gqfi_u16(p + 4) != 1)
		return gqfi_error(gqfi_u16(p + 4) == 0 ? GQF_PACKED_VERSION : GQF_UNSUPPORTED_PACKED_VERSION, 4);
	for (i = 48; i < 60; i++)
		if (p[i] != 0)
			return gqfi_error(GQF_RESERVED, i);
	gqfi_packed_fields(p, h);
	layout = gqfi_layout_of(h->layout);
	code = h->layout == GQF_LAYOUT_PLAIN ? gqfi_plain_size(h, &size)
	       : layout != NULL              ? gqfi_packed_size(layout, h, &size)
	       : h->layout == 0              ? GQF_PACKED_FIELDS
	                                     : GQF_UNSUPPORTED_LAYOUT;
	if (code != GQF_OK) {
		size = h->data_size;
		memset(h, 0, sizeof *h);
		h->layout = p[6];
		h->data_size = size;
		return gqfi_error(code, code == GQF_UNSUPPORTED_FLAG ? 7 : code == GQF_UNSUPPORTED_FIELD ? 9 : code == GQF_UNSUPPORTED_DTYPE ? 15 : 6);
	}
	if (size != h->data_size)
		return gqfi_error(GQF_PACKED_SIZE, 40);
	return gqfi_error(GQF_OK, 0);
}

/* Reads and checks a packed header at p; the error's offset counts from p. */
static inline gqf_error gqfi_packed_check(const gqfi_crc *crc, const uint8_t *p, gqf_packed *h)
{
	if (memcmp(p, "GQPK", 4) != 0)
		return gqfi_error(GQF_PACKED_MAGIC, 0);
	if (gqfi_u32(p + 60) != gqfi_crc_of(crc, p, 60))
		return gqfi_error(GQF_PACKED_CHECKSUM, 60);
	return gqfi_packed_known(p, h);
}

/*
 * Reads and checks the 64 bytes of a single packed header, for payloads without a file. gqf_open has already checked
 * the headers of a file. The error's offset counts from p.
 */
static inline gqf_error gqf_packed_read(const void *p, gqf_packed *h)
{
	gqfi_crc crc;
	gqfi_crc_init(&crc);
	return gqfi_packed_check(&crc, (const uint8_t *)p, h);
}

/* ---- opening: header, sections, records (chapters 3 to 6) -------------------------------------------------------- */

/* Chapter 3, all but the sections' checksums; fills f. */
static inline gqf_error gqfi_open_header(gqf_file *f, const gqfi_crc *crc)
{
	static const uint8_t magic[8] = {0x89, 0x47, 0x51, 0x46, 0x0D, 0x0A, 0x1A, 0x0A};
	static const uint8_t record_size[GQF_SECTION_COUNT] = {GQFI_TENSOR, GQFI_PAYLOAD, GQFI_NAME, GQFI_DIM, 0, GQFI_ASSET, 0, 4};
	const uint8_t *p = f->data;
	uint64_t end = 256, at;
	uint32_t i;

	if (f->size < 8 || memcmp(p, magic, 8) != 0)
		return gqfi_error(GQF_MAGIC, 0);
	if (f->size < 256)
		return gqfi_error(GQF_TOO_SHORT, f->size);
	if (gqfi_u32(p + 252) != gqfi_crc_of(crc, p, 252))
		return gqfi_error(GQF_HEADER_CHECKSUM, 252);
	if (gqfi_u32(p + 8) > GQF_VERSION_MAJOR)
		return gqfi_error(GQF_UNSUPPORTED_VERSION, 8);
	if (gqfi_u32(p + 8) < GQF_VERSION_MAJOR)
		return gqfi_error(GQF_VERSION, 8);
	if (gqfi_u32(p + 12) > GQF_VERSION_MINOR)
		return gqfi_error(GQF_UNSUPPORTED_VERSION, 12);
	f->minor = gqfi_u32(p + 12);
	if (gqfi_u64(p + 16) != f->size)
		return gqfi_error(GQF_FILE_SIZE, 16);
	if (gqfi_u32(p + 24) != 256)
		return gqfi_error(GQF_HEADER_SIZE, 24);
	f->block_log2 = gqfi_u32(p + 28);
	if (f->block_log2 < 12 || f->block_log2 > 30)
		return gqfi_error(GQF_BLOCK_SIZE, 28);

	for (i = 0; i < GQF_SECTION_COUNT; i++) {
		uint64_t entry = 32 + 24 * (uint64_t)i;
		uint64_t offset = gqfi_u64(p + entry), size = gqfi_u64(p + entry + 8);
		uint32_t count = gqfi_u32(p + entry + 16);
		if (offset != gqfi_align(end, 64) || offset > f->size)
			return gqfi_error(GQF_SECTION_PLACE, entry);
		if (size > f->size - offset || (record_size[i] != 0 ? size != (uint64_t)count * record_size[i] : count != 0))
			return gqfi_error(GQF_SECTION_SIZE, entry + 8);
		at = gqfi_nonzero(f, end, offset);
		if (at != offset)
			return gqfi_error(GQF_GAP, at);
		f->section[i].offset = offset;
		f->section[i].size = size;
		f->section[i].count = count;
		end = offset + size;
	}

	f->data_offset = gqfi_u64(p + 224);
	f->data_size = gqfi_u64(p + 232);
	if (f->data_offset != gqfi_align(end, 65536) || f->data_offset > f->size)
		return gqfi_error(GQF_DATA_PLACE, 224);
	if (f->data_size != f->size - f->data_offset || f->data_size % 64 != 0)
		return gqfi_error(GQF_DATA_PLACE, 232);
	at = gqfi_nonzero(f, end, f->data_offset);
	if (at != f->data_offset)
		return gqfi_error(GQF_GAP, at);
	for (i = 240; i < 252; i++)
		if (p[i] != 0)
			return gqfi_error(GQF_RESERVED, i);
	if (f->section[GQF_SECTION_CHECKSUMS].count != gqfi_ceil_div(f->data_size, (uint64_t)1 << f->block_log2))
		return gqfi_error(GQF_CHECKSUM_COUNT, 32 + 24 * GQF_SECTION_CHECKSUMS + 16);
	if (f->section[GQF_SECTION_TENSORS].count > GQF_MAX_TENSORS)
		return gqfi_error(GQF_UNSUPPORTED_SIZE, 32 + 24 * GQF_SECTION_TENSORS + 16);
	if (f->section[GQF_SECTION_PAYLOADS].count > GQF_MAX_PAYLOADS)
		return gqfi_error(GQF_UNSUPPORTED_SIZE, 32 + 24 * GQF_SECTION_PAYLOADS + 16);
	if (f->data_offset - f->section[GQF_SECTION_ASSET_DATA].size > GQF_MAX_DIRECTORY)
		return gqfi_error(GQF_UNSUPPORTED_SIZE, 224);
	return gqfi_error(GQF_OK, 0);
}

static inline gqf_error gqfi_open_section_checksums(const gqf_file *f, const gqfi_crc *crc)
{
	uint32_t i;
	for (i = 0; i < GQF_SECTION_COUNT; i++) {
		const uint8_t *entry = f->data + 32 + 24 * (size_t)i;
		if (gqfi_u32(entry + 20) != gqfi_crc_of(crc, f->data + f->section[i].offset, (size_t)f->section[i].size))
			return gqfi_error(GQF_SECTION_CHECKSUM, f->section[i].offset);
	}
	return gqfi_error(GQF_OK, 0);
}

/* Reports whether n bytes are valid UTF-8: shortest form, no surrogates, up to U+10FFFF. */
static inline bool gqfi_utf8(const uint8_t *p, size_t n)
{
	size_t i = 0;
	while (i < n) {
		uint32_t c = p[i++], more, low, k;
		if (c < 0x80)
			continue;
		if (c >= 0xC2 && c <= 0xDF)
			more = 1, low = 0x80, c &= 0x1F;
		else if (c >= 0xE0 && c <= 0xEF)
			more = 2, low = 0x800, c &= 0x0F;
		else if (c >= 0xF0 && c <= 0xF4)
			more = 3, low = 0x10000, c &= 0x07;
		else
			return false;
		if (n - i < more)
			return false;
		for (k = 0; k < more; k++, i++) {
			if ((p[i] & 0xC0) != 0x80)
				return false;
			c = c << 6 | (p[i] & 0x3Fu);
		}
		if (c < low || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
			return false;
	}
	return true;
}

static inline int gqfi_compare(const void *a, size_t an, const void *b, size_t bn)
{
	size_t n = an < bn ? an : bn;
	int c = n == 0 ? 0 : memcmp(a, b, n);
	return c != 0 ? c : (an > bn) - (an < bn);
}

/*
 * Reads the string of a record, whose offset and size are the u32 at p and p + 4, by the rules of names and assets. The
 * string begins where the previous string ended (*end, which moves on), has at most max bytes, is valid UTF-8 and
 * greater than the previous string. at is the record's offset.
 */
static inline gqf_error gqfi_open_string(const gqf_file *f, uint64_t at, uint64_t *end, uint32_t max, bool first, gqf_string *s)
{
	const uint8_t *p = f->data + at;
	uint64_t offset = gqfi_u32(p), size = gqfi_u32(p + 4);
	const char *strings = (const char *)f->data + f->section[GQF_SECTION_STRINGS].offset;
	gqf_string before = *s;
	if (offset != *end)
		return gqfi_error(GQF_STRINGS, at);
	if (size == 0 || size > max || size > f->section[GQF_SECTION_STRINGS].size - offset)
		return gqfi_error(GQF_STRINGS, at + 4);
	*end = offset + size;
	s->ptr = strings + offset;
	s->len = (size_t)size;
	if (!gqfi_utf8((const uint8_t *)s->ptr, s->len))
		return gqfi_error(GQF_STRING_BYTES, at);
	if (!first && gqfi_compare(before.ptr, before.len, s->ptr, s->len) >= 0)
		return gqfi_error(GQF_ORDER, at);
	return gqfi_error(GQF_OK, 0);
}

/* Checks 4.3. *end becomes the end of the names' strings. */
static inline gqf_error gqfi_open_names(const gqf_file *f, uint64_t *end)
{
	gqf_string s = {NULL, 0};
	uint32_t i, count = f->section[GQF_SECTION_NAMES].count;
	for (i = 0; i < count; i++) {
		uint64_t at = gqfi_at(f, GQF_SECTION_NAMES, i, GQFI_NAME);
		const uint8_t *p = f->data + at;
		gqf_error e = gqfi_open_string(f, at, end, 65535, i == 0, &s);
		if (e.code != GQF_OK)
			return e;
		if (memchr(s.ptr, 0, s.len) != NULL)
			return gqfi_error(GQF_STRING_BYTES, at);
		if (gqfi_u32(p + 8) >= f->section[GQF_SECTION_TENSORS].count)
			return gqfi_error(GQF_INDEX, at + 8);
		if ((p[20] & ~3u) != 0 || p[21] != 0 || p[22] != 0 || p[23] != 0)
			return gqfi_error(GQF_RESERVED, at + 20);
		if (gqfi_u64(p + 24) > GQFI_LIMIT)
			return gqfi_error(GQF_NAME_SOURCE, at + 24);
		if ((p[20] & 1) == 0 && ((p[20] & 2) != 0 || gqfi_u32(p + 12) != GQF_NO_SOURCE || gqfi_u32(p + 16) != 0 || gqfi_u64(p + 24) != 0))
			return gqfi_error(GQF_NAME_SOURCE, at + 12);
	}
	return gqfi_error(GQF_OK, 0);
}

static inline uint8_t gqfi_lower(char c) { return (uint8_t)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); }

/* Reports whether the first n characters of s equal the len characters of text, ignoring case. */
static inline bool gqfi_same_name(const gqf_string *s, size_t n, const char *text, size_t len)
{
	size_t i;
	for (i = 0; n == len && i < n; i++)
		if (gqfi_lower(s->ptr[i]) != gqfi_lower(text[i]))
			return false;
	return n == len;
}

/* Reports whether a file can have this name in any directory of any system (5.6). */
static inline bool gqfi_plain_file_name(const gqf_string *s)
{
	static const char *const reserved[] = {"con", "prn", "aux", "nul", "conin$", "conout$"};
	size_t i, stem = s->len;
	for (i = s->len; i-- > 0;) {
		char c = s->ptr[i];
		if (c < 0x20 || c > 0x7E || strchr("\"*/:<>?\\|", c) != NULL)
			return false;
		if (c == '.')
			stem = i;
	}
	if (s->ptr[s->len - 1] == '.' || s->ptr[s->len - 1] == ' ')
		return false;
	while (stem > 0 && s->ptr[stem - 1] == ' ')
		stem--;
	for (i = 0; i < sizeof reserved / sizeof *reserved; i++)
		if (gqfi_same_name(s, stem, reserved[i], strlen(reserved[i])))
			return false;
	return stem != 4 || s->ptr[3] < '0' || s->ptr[3] > '9' ||
	       (!gqfi_same_name(s, 3, "com", 3) && !gqfi_same_name(s, 3, "lpt", 3));
}

static inline bool gqfi_equal(const gqf_string *s, const char *text)
{
	return gqfi_compare(s->ptr, s->len, text, strlen(text)) == 0;
}

/* Checks 4.6, 4.7, 5.6 and 5.7. *end, the end of the names' strings, becomes the end of all strings. */
static inline gqf_error gqfi_open_assets(const gqf_file *f, uint64_t *end)
{
	uint64_t data = f->section[GQF_SECTION_ASSET_DATA].offset, data_end = data + f->section[GQF_SECTION_ASSET_DATA].size;
	uint64_t all_raw = 0, all_stored = 0;
	gqf_string s = {NULL, 0};
	uint32_t i, j, seen = 0, count = f->section[GQF_SECTION_ASSETS].count;
	if (count > GQFI_MAX_ASSETS)
		return gqfi_error(GQF_ASSET_COUNT, 32 + 24 * GQF_SECTION_ASSETS + 16);
	for (i = 0; i < count; i++) {
		uint64_t at = gqfi_at(f, GQF_SECTION_ASSETS, i, GQFI_ASSET), begin, stored, raw, gap, k;
		const uint8_t *p = f->data + at;
		uint32_t kind = p[36], codec = p[37];
		bool known;
		gqf_error e = gqfi_open_string(f, at, end, 200, i == 0, &s);
		if (e.code != GQF_OK)
			return e;
		for (k = 38; k < GQFI_ASSET; k++)
			if (p[k] != 0)
				return gqfi_error(GQF_RESERVED, at + k);
		known = kind <= GQF_ASSET_FOLD; /* only the place of an asset of an unknown kind is known */
		if (kind < GQF_ASSET_CONFIG)
			return gqfi_error(GQF_ENUM, at + 36);
		if (known && codec > GQF_CODEC_ZSTD)
			return gqfi_error(GQF_ENUM, at + 37);
		if (known && kind != GQF_ASSET_FILE &&
		    ((seen & 1u << kind) != 0 || (codec != GQF_CODEC_STORED && kind != GQF_ASSET_FOLD)))
			return gqfi_error(GQF_ASSET_KIND, at + 36);
		seen |= known ? 1u << kind : 0u;
		if (!known ? false : kind == GQF_ASSET_RECIPE ? !gqfi_equal(&s, "gq/recipe.json")
		    : kind == GQF_ASSET_PROVENANCE ? !gqfi_equal(&s, "gq/provenance.json")
		    : kind == GQF_ASSET_FOLD       ? !gqfi_equal(&s, "gq/fold.json") : !gqfi_plain_file_name(&s))
			return gqfi_error(GQF_ASSET_NAME, at);
		for (j = 0; j < i; j++) {
			const uint8_t *q = f->data + gqfi_at(f, GQF_SECTION_ASSETS, j, GQFI_ASSET);
			const char *strings = (const char *)f->data + f->section[GQF_SECTION_STRINGS].offset;
			if (gqfi_same_name(&s, s.len, strings + gqfi_u32(q), gqfi_u32(q + 4)))
				return gqfi_error(GQF_ASSET_NAME, at);
		}

		begin = gqfi_u64(p + 8);
		stored = gqfi_u64(p + 16);
		raw = gqfi_u64(p + 24);
		if (begin != (i == 0 ? data : gqfi_align(data, 64)) || begin > data_end)
			return gqfi_error(GQF_ASSET_PLACE, at + 8);
		if (stored > data_end - begin)
			return gqfi_error(GQF_ASSET_PLACE, at + 16);
		if (codec == GQF_CODEC_STORED && raw != stored)
			return gqfi_error(GQF_ASSET_SIZE, at + 24);
		if (stored > GQFI_MAX_ASSET_BYTES - all_stored)
			return gqfi_error(GQF_ASSET_SIZE, at + 16);
		if (raw > GQFI_MAX_ASSET_BYTES - all_raw)
			return gqfi_error(GQF_ASSET_SIZE, at + 24);
		all_stored += stored;
		all_raw += raw;
		gap = gqfi_nonzero(f, data, begin);
		if (gap != begin)
			return gqfi_error(GQF_GAP, gap);
		data = begin + stored;
	}
	if (data != data_end)
		return gqfi_error(GQF_ASSET_PLACE, data);
	return gqfi_error(GQF_OK, 0);
}

/* 4.2, "follow from the tensor's shape": d are n dimensions as they are in the file. */
static inline bool gqfi_fits(const uint8_t *d, uint32_t n, uint32_t slices, bool transposed, const gqf_packed *h)
{
	uint64_t product = 1, outer, inner;
	uint32_t i;
	if (h->layout == GQF_LAYOUT_PLAIN && slices == 1) {
		for (i = 0; i + 1 < n; i++)
			product *= gqfi_u64(d + 8 * (size_t)i); /* below 2^62 or 0, as the dimensions have been checked */
		return h->rows == product && h->cols == (n == 0 ? 1 : gqfi_u64(d + 8 * (size_t)(n - 1)));
	}
	if (n < 2)
		return false;
	for (i = 0; i + 2 < n; i++)
		product *= gqfi_u64(d + 8 * (size_t)i);
	outer = gqfi_u64(d + 8 * (size_t)(n - 2));
	inner = gqfi_u64(d + 8 * (size_t)(n - 1));
	if (product != slices)
		return false;
	if (transposed && h->layout != GQF_LAYOUT_PLAIN)
		return h->rows == inner && h->cols == outer;
	return h->rows == outer && h->cols == inner;
}

/*
 * Checks a payload record by itself. *end, the end of the preceding payload in the file, moves on. *newer reports that
 * the packed header is unsupported, which is no error.
 */
static inline gqf_error gqfi_open_payload(const gqf_file *f, const gqfi_crc *crc, uint64_t at, uint32_t tensor, uint64_t *end,
                                          gqf_packed *h, bool *newer)
{
	const uint8_t *p = f->data + at;
	uint64_t offset = gqfi_u64(p), size = gqfi_u64(p + 8), i;
	gqf_error e;
	if (gqfi_u32(p + 16) != tensor)
		return gqfi_error(GQF_PAYLOAD_RANGE, at + 16);
	for (i = 26; i < 28; i++)
		if (p[i] != 0)
			return gqfi_error(GQF_RESERVED, at + i);
	if (p[24] != GQF_KIND_WEIGHTS && gqfi_u32(p + 28) != gqfi_u32(p + 28 - GQFI_PAYLOAD))
		return gqfi_error(GQF_PAYLOAD_SLICES, at + 28);
	e = gqfi_packed_check(crc, p + 32, h);
	*newer = gqf_is_unsupported(e.code);
	if (e.code != GQF_OK && !*newer)
		return gqfi_error(e.code, at + 32 + e.offset);
	if (h->data_size > GQFI_LIMIT)
		return gqfi_error(GQF_PACKED_SIZE, at + 32 + 40);
	if (offset % 64 != 0 || offset < *end || offset > f->size)
		return gqfi_error(GQF_PAYLOAD_PLACE, at);
	if (size != GQFI_PACKED + h->data_size)
		return gqfi_error(GQF_PAYLOAD_SIZE, at + 8);
	if (size > f->size - offset)
		return gqfi_error(GQF_PAYLOAD_PLACE, at + 8);
	*end = offset + size;
	return gqfi_error(GQF_OK, 0);
}

/*
 * 8.1: the packed header of the companion of a kind that weights with header w must have: *dtype and *cols, layout
 * plain, and the rows of w. False if weights with header w have no such companion.
 */
static inline bool gqfi_companion(const gqf_packed *w, uint32_t kind, uint8_t *dtype, uint64_t *cols)
{
	static const uint8_t scale_dtype[] = {GQF_DTYPE_NONE, GQF_DTYPE_BF16, GQF_DTYPE_F16, GQF_DTYPE_F32};
	bool scales = kind == GQF_KIND_SCALES, zeros = kind == GQF_KIND_ZEROS && gqfi_int8_zeros(w);
	if ((w->layout != GQF_LAYOUT_CODES && w->layout != GQF_LAYOUT_TORCHAO_EMBEDDING) || (!scales && !zeros))
		return false;
	*dtype = scales ? scale_dtype[w->scale] : (uint8_t)GQF_DTYPE_I8;
	*cols = gqf_groups(w);
	return true;
}

/*
 * Checks 4.2 for all payloads of a tensor with dimensions dims. Slice 0 of a variant must have the companions that its
 * weights demand. The other slices must have payloads of the same kinds with the same packed headers.
 */
static inline gqf_error gqfi_open_payloads(const gqf_file *f, const gqfi_crc *crc, uint32_t tensor, const uint8_t *dims,
                                           uint64_t *end)
{
	const uint8_t *t = f->data + gqfi_at(f, GQF_SECTION_TENSORS, tensor, GQFI_TENSOR);
	uint64_t i = gqfi_u32(t + 16), limit = i + gqfi_u32(t + 20);
	uint32_t slices = gqfi_u32(t + 24), variant, slice, kind = 0;

	for (variant = 0; i < limit; variant++) {
		bool newer, skipped = false; /* the variant has an unknown layout */
		uint64_t model = i, kinds = 0, j, cols; /* slice 0 has payloads model..model+kinds-1 */
		uint8_t dtype;
		gqf_packed h, weights;
		memset(&weights, 0, sizeof weights);
		for (;; kinds++, i++) {
			uint64_t at = gqfi_at(f, GQF_SECTION_PAYLOADS, i, GQFI_PAYLOAD);
			const uint8_t *p = f->data + at;
			gqf_error e;
			if (kinds == 0 && variant == 8)
				return gqfi_error(GQF_PAYLOAD_ORDER, at + 25);
			if (kinds > 0 && (i == limit || p[25] != variant || gqfi_u32(p + 20) != 0))
				break;
			if (p[25] != variant || gqfi_u32(p + 20) != 0 || (kinds == 0 ? p[24] != GQF_KIND_WEIGHTS : p[24] <= kind))
				return gqfi_error(GQF_PAYLOAD_ORDER, at + 20);
			kind = p[24];
			e = gqfi_open_payload(f, crc, at, tensor, end, &h, &newer);
			if (e.code != GQF_OK)
				return e;
			if (kinds == 0)
				skipped = newer;
			if (skipped)
				continue;
			if (kinds == 0) {
				weights = h;
				if (h.layout == GQF_LAYOUT_PLAIN && h.dtype != t[13])
					return gqfi_error(GQF_PAYLOAD_SHAPE, at + 47);
				if (!gqfi_fits(dims, t[12], slices, (t[15] & 1) != 0, &h))
					return gqfi_error(GQF_PAYLOAD_SHAPE, at + 48);
			} else if (newer || !gqfi_companion(&weights, kind, &dtype, &cols) || h.layout != GQF_LAYOUT_PLAIN || h.dtype != dtype ||
			           h.rows != weights.rows || h.cols != cols) {
				return gqfi_error(GQF_COMPANION, at + 32);
			}
		}
		/* Kinds ascend, and the weights demand each kind, so the right number of kinds means all kinds. */
		for (j = 1, kind = GQF_KIND_SCALES; kind <= GQF_KIND_TABLE; kind++)
			j += gqfi_companion(&weights, kind, &dtype, &cols);
		if (!skipped && j != kinds)
			return gqfi_error(GQF_COMPANION, gqfi_at(f, GQF_SECTION_PAYLOADS, model, GQFI_PAYLOAD) + 24);
		for (slice = 1; slice < slices; slice++)
			for (j = 0; j < kinds; j++, i++) {
				uint64_t at = gqfi_at(f, GQF_SECTION_PAYLOADS, i, GQFI_PAYLOAD);
				const uint8_t *p = f->data + at, *q = f->data + gqfi_at(f, GQF_SECTION_PAYLOADS, model + j, GQFI_PAYLOAD);
				gqf_error e;
				if (i == limit)
					return gqfi_error(GQF_PAYLOAD_ORDER, gqfi_at(f, GQF_SECTION_TENSORS, tensor, GQFI_TENSOR) + 20);
				if (p[25] != variant || gqfi_u32(p + 20) != slice || p[24] != q[24])
					return gqfi_error(GQF_PAYLOAD_ORDER, at + 20);
				if (memcmp(p + 28, q + 28, 4 + GQFI_PACKED) != 0)
					return gqfi_error(GQF_PAYLOAD_SLICES, at + 28);
				e = gqfi_open_payload(f, crc, at, tensor, end, &h, &newer);
				if (e.code != GQF_OK)
					return e;
			}
	}
	return gqfi_error(GQF_OK, 0);
}

/* Tensors whose further names are counted in one pass over the names: 16 kB of stack. */
#define GQFI_WINDOW 4096u

/*
 * 4.1, the number of names of each tensor. Each tensor is known to have one canonical name. This counts the *further*
 * names: all others that are not absorbed. There is no memory for a counter per tensor, so the counters cover a window
 * of tensors that starts at a tensor with further names; windows repeat until all such tensors are counted. Models have
 * few (a tied lm_head), so there is usually one pass or none. The total shows that the other tensors have no further
 * names.
 */
static inline gqf_error gqfi_open_name_counts(const gqf_file *f)
{
	const uint8_t *tensors = f->data + f->section[GQF_SECTION_TENSORS].offset;
	const uint8_t *names = f->data + f->section[GQF_SECTION_NAMES].offset;
	uint32_t tensor_count = f->section[GQF_SECTION_TENSORS].count, name_count = f->section[GQF_SECTION_NAMES].count, i, first;
	uint32_t further[GQFI_WINDOW];
	uint64_t stated = 0, found = 0;

	for (i = 0; i < tensor_count; i++)
		stated += gqfi_u32(tensors + (size_t)i * GQFI_TENSOR + 4);
	for (i = 0; i < name_count; i++)
		found += (names[(size_t)i * GQFI_NAME + 20] & 2) == 0;
	if (stated != found)
		return gqfi_error(GQF_TENSOR_NAME_COUNT, f->section[GQF_SECTION_TENSORS].offset);

	for (first = 0; first < tensor_count;) {
		uint32_t size;
		if (gqfi_u32(tensors + (size_t)first * GQFI_TENSOR + 4) == 1) {
			first++;
			continue;
		}
		size = tensor_count - first < GQFI_WINDOW ? tensor_count - first : GQFI_WINDOW;
		memset(further, 0, sizeof further);
		for (i = 0; i < name_count; i++) {
			const uint8_t *n = names + (size_t)i * GQFI_NAME;
			uint32_t tensor = gqfi_u32(n + 8);
			if ((n[20] & 2) == 0 && tensor >= first && tensor - first < size && gqfi_u32(tensors + (size_t)tensor * GQFI_TENSOR) != i)
				further[tensor - first]++;
		}
		for (i = 0; i < size; i++) /* wraps around for a tensor that states no name, not even its canonical name */
			if (gqfi_u32(tensors + (size_t)(first + i) * GQFI_TENSOR + 4) - 1 != further[i])
				return gqfi_error(GQF_TENSOR_NAME_COUNT, gqfi_at(f, GQF_SECTION_TENSORS, first + i, GQFI_TENSOR) + 4);
		first += size;
	}
	return gqfi_error(GQF_OK, 0);
}

/* Checks 4.1 and 4.4, and the payloads of each tensor. */
static inline gqf_error gqfi_open_tensors(const gqf_file *f, const gqfi_crc *crc)
{
	uint64_t dims = 0, payloads = 0, end = f->data_offset;
	uint32_t i, k, bias, count = f->section[GQF_SECTION_TENSORS].count;
	for (i = 0; i < count; i++) {
		uint64_t at = gqfi_at(f, GQF_SECTION_TENSORS, i, GQFI_TENSOR), product = 1;
		const uint8_t *p = f->data + at, *d, *name;
		gqf_error e;

		if (gqfi_u32(p) >= f->section[GQF_SECTION_NAMES].count)
			return gqfi_error(GQF_INDEX, at);
		name = f->data + gqfi_at(f, GQF_SECTION_NAMES, gqfi_u32(p), GQFI_NAME);
		if (gqfi_u32(name + 8) != i || (name[20] & 2) != 0)
			return gqfi_error(GQF_TENSOR_NAME, at);

		if (p[12] > 8)
			return gqfi_error(GQF_DIMS, at + 12);
		if (gqfi_u32(p + 8) != dims || p[12] > f->section[GQF_SECTION_DIMS].count - dims)
			return gqfi_error(GQF_DIMS, at + 8);
		d = f->data + gqfi_at(f, GQF_SECTION_DIMS, dims, GQFI_DIM);
		dims += p[12];
		for (k = 0; k < p[12]; k++)
			if (gqfi_u64(d + 8 * (size_t)k) != 0 && (!gqfi_mul(&product, gqfi_u64(d + 8 * (size_t)k)) || product > GQFI_LIMIT))
				return gqfi_error(GQF_DIMS, (uint64_t)(d - f->data) + 8 * (uint64_t)k);

		if (gqf_dtype_bits(p[13]) == 0)
			return gqfi_error(GQF_ENUM, at + 13);
		if ((p[15] & ~1u) != 0)
			return gqfi_error(GQF_RESERVED, at + 15);
		if (p[15] != 0 && p[12] < 2)
			return gqfi_error(GQF_TRANSPOSED, at + 15);
		for (k = 30; k < GQFI_TENSOR; k++)
			if (p[k] != 0 && (k < 32 || k > 35))
				return gqfi_error(GQF_RESERVED, at + k);
		bias = gqfi_u32(p + 32);
		if (bias > count)
			return gqfi_error(GQF_INDEX, at + 32);
		if (bias != 0 && (bias - 1 == i || gqfi_u32(f->data + gqfi_at(f, GQF_SECTION_TENSORS, bias - 1, GQFI_TENSOR) + 32) != 0))
			return gqfi_error(GQF_BIAS, at + 32);

		if (gqfi_u32(p + 16) != payloads || gqfi_u32(p + 20) == 0 || gqfi_u32(p + 24) == 0 ||
		    gqfi_u32(p + 20) > f->section[GQF_SECTION_PAYLOADS].count - payloads)
			return gqfi_error(GQF_PAYLOAD_RANGE, at + 16);
		payloads += gqfi_u32(p + 20);
		e = gqfi_open_payloads(f, crc, i, d, &end);
		if (e.code != GQF_OK)
			return e;
	}
	if (dims != f->section[GQF_SECTION_DIMS].count)
		return gqfi_error(GQF_DIMS, gqfi_at(f, GQF_SECTION_DIMS, dims, GQFI_DIM));
	if (payloads != f->section[GQF_SECTION_PAYLOADS].count)
		return gqfi_error(GQF_PAYLOAD_RANGE, gqfi_at(f, GQF_SECTION_PAYLOADS, payloads, GQFI_PAYLOAD));
	return gqfi_open_name_counts(f);
}

/*
 * Opens the file of size bytes at data, which must stay there while f and pointers from it are used. data may have any
 * alignment (payloads are at multiples of 64 in the file). gqf_open makes checks 1 to 6 of docs/FORMAT.md, chapter 9:
 * it reads the whole directory with its checksums, but not the data region. Time is proportional to the directory
 * (names: see gqfi_open_name_counts). Do not use f after an error.
 */
static inline gqf_error gqf_open(const void *data, size_t size, gqf_file *f)
{
	gqfi_crc crc;
	uint64_t strings = 0;
	gqf_error e;
	memset(f, 0, sizeof *f);
	f->data = (const uint8_t *)data;
	f->size = size;
	gqfi_crc_init(&crc);
	e = gqfi_open_header(f, &crc);
	if (e.code == GQF_OK)
		e = gqfi_open_section_checksums(f, &crc);
	if (e.code == GQF_OK)
		e = gqfi_open_names(f, &strings);
	if (e.code == GQF_OK)
		e = gqfi_open_assets(f, &strings);
	if (e.code == GQF_OK && strings != f->section[GQF_SECTION_STRINGS].size)
		e = gqfi_error(GQF_STRINGS, f->section[GQF_SECTION_STRINGS].offset + strings);
	if (e.code == GQF_OK)
		e = gqfi_open_tensors(f, &crc);
	return e;
}

/* ---- tensors, names, payloads: functions that return false leave zeros behind --------------------- */

static inline uint32_t gqf_tensor_count(const gqf_file *f) { return f->section[GQF_SECTION_TENSORS].count; }
static inline uint32_t gqf_payload_count(const gqf_file *f) { return f->section[GQF_SECTION_PAYLOADS].count; }
static inline uint32_t gqf_name_count(const gqf_file *f) { return f->section[GQF_SECTION_NAMES].count; }
static inline uint32_t gqf_asset_count(const gqf_file *f) { return f->section[GQF_SECTION_ASSETS].count; }

static inline gqf_string gqfi_string(const gqf_file *f, const uint8_t *record)
{
	gqf_string s;
	s.ptr = (const char *)f->data + f->section[GQF_SECTION_STRINGS].offset + gqfi_u32(record);
	s.len = gqfi_u32(record + 4);
	return s;
}

/* Name i, in ascending order of the strings, including absorbed names; false beyond the last. */
static inline bool gqf_name_at(const gqf_file *f, uint32_t i, gqf_name *n)
{
	const uint8_t *p;
	memset(n, 0, sizeof *n);
	if (i >= gqf_name_count(f))
		return false;
	p = f->data + gqfi_at(f, GQF_SECTION_NAMES, i, GQFI_NAME);
	n->name = gqfi_string(f, p);
	n->tensor = gqfi_u32(p + 8);
	n->source_file = gqfi_u32(p + 12);
	n->source_crc32c = gqfi_u32(p + 16);
	n->source_size = gqfi_u64(p + 24);
	n->in_checkpoint = (p[20] & 1) != 0;
	n->absorbed = (p[20] & 2) != 0;
	return true;
}

/* Tensor i, in the order of the file; false beyond the last. */
static inline bool gqf_tensor_at(const gqf_file *f, uint32_t i, gqf_tensor *t)
{
	const uint8_t *p;
	memset(t, 0, sizeof *t);
	if (i >= gqf_tensor_count(f))
		return false;
	p = f->data + gqfi_at(f, GQF_SECTION_TENSORS, i, GQFI_TENSOR);
	t->index = i;
	t->name = gqfi_string(f, f->data + gqfi_at(f, GQF_SECTION_NAMES, gqfi_u32(p), GQFI_NAME));
	t->name_count = gqfi_u32(p + 4);
	t->dims_first = gqfi_u32(p + 8);
	t->dim_count = p[12];
	t->dtype = p[13];
	t->role = p[14];
	t->transposed = (p[15] & 1) != 0;
	t->payload_first = gqfi_u32(p + 16);
	t->payload_count = gqfi_u32(p + 20);
	t->slices = gqfi_u32(p + 24);
	t->mapping = p[28];
	t->algorithm = p[29];
	t->bias = gqfi_u32(p + 32) - 1; /* 0 becomes GQF_NO_BIAS */
	return true;
}

/* Dimension i of a tensor, outermost first, as in the checkpoint; 0 beyond the last. */
static inline uint64_t gqf_dim(const gqf_file *f, const gqf_tensor *t, uint32_t i)
{
	return i < t->dim_count ? gqfi_u64(f->data + gqfi_at(f, GQF_SECTION_DIMS, (uint64_t)t->dims_first + i, GQFI_DIM)) : 0;
}

/* Finds a tensor by any of its names, of len bytes, by binary search. Absorbed names are not found. */
static inline bool gqf_find(const gqf_file *f, const char *name, size_t len, gqf_tensor *t)
{
	uint32_t low = 0, high = gqf_name_count(f);
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const uint8_t *p = f->data + gqfi_at(f, GQF_SECTION_NAMES, middle, GQFI_NAME);
		gqf_string s = gqfi_string(f, p);
		int c = gqfi_compare(name, len, s.ptr, s.len);
		if (c == 0)
			return gqf_tensor_at(f, (p[20] & 2) == 0 ? gqfi_u32(p + 8) : UINT32_MAX, t);
		if (c < 0)
			high = middle;
		else
			low = middle + 1;
	}
	memset(t, 0, sizeof *t);
	return false;
}

/*
 * Payload i of the file; false beyond the last. A tensor has the payloads payload_first .. payload_first +
 * payload_count - 1. A payload that is not known belongs to a variant in a layout of a newer version.
 */
static inline bool gqf_payload_at(const gqf_file *f, uint32_t i, gqf_payload *p)
{
	const uint8_t *r, *weights;
	memset(p, 0, sizeof *p);
	if (i >= gqf_payload_count(f))
		return false;
	r = f->data + gqfi_at(f, GQF_SECTION_PAYLOADS, i, GQFI_PAYLOAD);
	for (weights = r; weights[24] != GQF_KIND_WEIGHTS; weights -= GQFI_PAYLOAD) { /* companions follow their weights */
	}
	p->index = i;
	p->offset = gqfi_u64(r);
	p->size = gqfi_u64(r + 8);
	p->tensor = gqfi_u32(r + 16);
	p->slice = gqfi_u32(r + 20);
	p->kind = r[24];
	p->variant = r[25];
	p->cpu = gqfi_u32(r + 28);
	p->known = gqfi_packed_known(weights + 32, &p->header).code == GQF_OK;
	if (r != weights)
		gqfi_packed_known(r + 32, &p->header);
	if (!p->known) {
		uint64_t size = p->header.data_size;
		memset(&p->header, 0, sizeof p->header);
		p->header.layout = r[32 + 6];
		p->header.data_size = size;
	}
	return true;
}

/* The payload of a tensor with this variant, slice and kind, by binary search; false if there is none. */
static inline bool gqf_payload_find(const gqf_file *f, const gqf_tensor *t, uint32_t variant, uint32_t slice, uint32_t kind,
                                    gqf_payload *p)
{
	uint64_t low = t->payload_first, high = low + t->payload_count;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		const uint8_t *r = f->data + gqfi_at(f, GQF_SECTION_PAYLOADS, middle, GQFI_PAYLOAD);
		uint32_t s = gqfi_u32(r + 20);
		if (r[25] == variant && s == slice && r[24] == kind)
			return gqf_payload_at(f, (uint32_t)middle, p);
		if (r[25] < variant || (r[25] == variant && (s < slice || (s == slice && r[24] < kind))))
			low = middle + 1;
		else
			high = middle;
	}
	memset(p, 0, sizeof *p);
	return false;
}

/*
 * Chooses the variant of a tensor for a CPU with these features (GQF_CPU_). Among the variants that need no other
 * feature it is the first with most features; if there is none, it is the first variant. Variants in unknown layouts
 * are left out, and if layouts is not NULL, variants in layouts without their bit in *layouts (1 << GQF_LAYOUT_). False
 * if no variant is left.
 */
static inline bool gqf_choose(const gqf_file *f, const gqf_tensor *t, uint32_t cpu, const uint64_t *layouts, uint32_t *variant)
{
	int best = -2;
	uint32_t v;
	gqf_payload p;
	for (v = 0; gqf_payload_find(f, t, v, 0, GQF_KIND_WEIGHTS, &p); v++) {
		int features = 0;
		uint32_t bits;
		if (!p.known || (layouts != NULL && (p.header.layout > 63 || (*layouts >> p.header.layout & 1) == 0)))
			continue;
		for (bits = p.cpu; bits != 0; bits &= bits - 1)
			features++;
		if ((p.cpu & ~cpu) != 0)
			features = -1;
		if (features > best) {
			best = features;
			*variant = v;
		}
	}
	return best > -2;
}

/* Reports whether the packed header in the data region equals its copy in the directory. */
static inline gqf_error gqfi_packed_copy(const gqf_file *f, const gqf_payload *p)
{
	const uint8_t *copy = f->data + gqfi_at(f, GQF_SECTION_PAYLOADS, p->index, GQFI_PAYLOAD) + 32;
	return gqfi_error(memcmp(copy, f->data + p->offset, GQFI_PACKED) == 0 ? GQF_OK : GQF_PACKED_COPY, p->offset);
}

/*
 * Sets *data to the data of a payload, p->header.data_size bytes, after checking that the packed header before the data
 * equals its copy in the directory (chapter 9, 7). The data are aligned to 64 bytes if the file is: map the file, or
 * load it to a multiple of 64.
 */
static inline gqf_error gqf_payload_data(const gqf_file *f, const gqf_payload *p, const void **data)
{
	gqf_error e = gqfi_packed_copy(f, p);
	*data = NULL;
	if (e.code != GQF_OK)
		return e;
	if (!p->known)
		return gqfi_error(GQF_UNSUPPORTED_LAYOUT, p->offset);
	*data = f->data + p->offset + GQFI_PACKED;
	return e;
}

/* ---- assets ----------------------------------------------------------------------------------------------------- */

/* Asset i, in ascending order of names; false beyond the last. */
static inline bool gqf_asset_at(const gqf_file *f, uint32_t i, gqf_asset *a)
{
	const uint8_t *p;
	memset(a, 0, sizeof *a);
	if (i >= gqf_asset_count(f))
		return false;
	p = f->data + gqfi_at(f, GQF_SECTION_ASSETS, i, GQFI_ASSET);
	a->name = gqfi_string(f, p);
	a->stored = f->data + gqfi_u64(p + 8);
	a->stored_size = gqfi_u64(p + 16);
	a->raw_size = gqfi_u64(p + 24);
	a->raw_crc32c = gqfi_u32(p + 32);
	a->kind = p[36];
	a->codec = p[37];
	return true;
}

/* Finds an asset by its name of len bytes. */
static inline bool gqf_asset_find(const gqf_file *f, const char *name, size_t len, gqf_asset *a)
{
	uint32_t low = 0, high = gqf_asset_count(f);
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		gqf_string s = gqfi_string(f, f->data + gqfi_at(f, GQF_SECTION_ASSETS, middle, GQFI_ASSET));
		int c = gqfi_compare(name, len, s.ptr, s.len);
		if (c == 0)
			return gqf_asset_at(f, middle, a);
		if (c < 0)
			high = middle;
		else
			low = middle + 1;
	}
	memset(a, 0, sizeof *a);
	return false;
}

/* CRC32C of size bytes, as the format uses it. It can check a decompressed asset. */
static inline uint32_t gqf_crc32c(const void *data, size_t size)
{
	gqfi_crc crc;
	gqfi_crc_init(&crc);
	return gqfi_crc_of(&crc, data, size);
}

/* ---- verification ----------------------------------------------------------------------------------------------- */

/* Reports whether size bytes are the blocks of one frame, and its checksum if it has one (RFC 8878, 3.1.1.2). */
static inline bool gqfi_frame_ends(const uint8_t *p, uint64_t size, bool checksum)
{
	uint64_t at = 0, content;
	bool last;
	do {
		uint32_t block;
		if (size - at < 3)
			return false;
		block = p[at] | (uint32_t)p[at + 1] << 8 | (uint32_t)p[at + 2] << 16;
		last = (block & 1) != 0;
		if ((block >> 1 & 3) == 3)
			return false;
		content = (block >> 1 & 3) == 1 ? 1 : block >> 3;
		at += 3;
		if (size - at < content)
			return false;
		at += content;
	} while (!last);
	return size - at == (checksum ? 4u : 0u);
}

/*
 * Reports whether the stored bytes of an asset with GQF_CODEC_ZSTD obey 5.7: exactly one frame (RFC 8878, 3.1.1)
 * without dictionary, whose header states raw_size as the size of its content, and a window of at most 32 MiB. Call it
 * before decompressing.
 */
static inline bool gqf_asset_frame_ok(const gqf_asset *a)
{
	static const uint8_t dictionary_size[] = {0, 1, 2, 4}, content_size[] = {0, 2, 4, 8};
	const uint8_t *p = (const uint8_t *)a->stored;
	uint64_t content = 0;
	uint32_t i, at = 5, descriptor, width, dictionary;
	bool single;
	if (a->codec != GQF_CODEC_ZSTD || a->stored_size < 6 || gqfi_u32(p) != 0xFD2FB528u)
		return false;
	descriptor = p[4];
	single = (descriptor & 0x20) != 0;
	dictionary = dictionary_size[descriptor & 3];
	width = content_size[descriptor >> 6];
	if (single && width == 0)
		width = 1;
	if ((descriptor & 0x08) != 0 || width == 0 || a->stored_size < 5u + (single ? 0u : 1u) + dictionary + width)
		return false;
	if (!single) {
		/* Window_Size = 2^(10+e) + m * 2^(7+e), with e the upper five bits and m the lower three. */
		if (p[at] > 15 << 3)
			return false;
		at++;
	}
	for (i = 0; i < dictionary; i++, at++)
		if (p[at] != 0)
			return false;
	for (i = 0; i < width; i++, at++)
		content |= (uint64_t)p[at] << 8 * i;
	if (width == 2)
		content += 256;
	return content == a->raw_size && gqfi_frame_ends(p + at, a->stored_size - at, (descriptor & 0x04) != 0);
}

/*
 * Makes the checks that gqf_open leaves out: the packed headers against their copies, each block of the data region,
 * the zeros between payloads, and the assets. Of a compressed asset it checks the frame's header; the caller compares
 * raw_crc32c after decompressing. It reads the whole file and returns the first finding. gqf_payload_check checks the
 * values of codes and scales.
 */
static inline gqf_error gqf_verify_checksums(const gqf_file *f)
{
	gqfi_crc crc;
	uint64_t block = (uint64_t)1 << f->block_log2, end = f->data_offset, gap;
	uint32_t i;
	gqfi_crc_init(&crc);
	for (i = 0; i < gqf_payload_count(f); i++) {
		gqf_payload p;
		gqf_error e;
		gqf_payload_at(f, i, &p);
		e = gqfi_packed_copy(f, &p);
		if (e.code != GQF_OK)
			return e;
		gap = gqfi_nonzero(f, end, p.offset);
		if (gap != p.offset)
			return gqfi_error(GQF_GAP, gap);
		end = p.offset + p.size;
	}
	gap = gqfi_nonzero(f, end, f->size);
	if (gap != f->size)
		return gqfi_error(GQF_GAP, gap);
	for (i = 0; i < f->section[GQF_SECTION_CHECKSUMS].count; i++) {
		uint64_t at = f->data_offset + i * block, size = f->size - at < block ? f->size - at : block;
		if (gqfi_crc_of(&crc, f->data + at, (size_t)size) != gqfi_u32(f->data + gqfi_at(f, GQF_SECTION_CHECKSUMS, i, 4)))
			return gqfi_error(GQF_BLOCK_CHECKSUM, at);
	}
	for (i = 0; i < gqf_asset_count(f); i++) {
		gqf_asset a;
		gqf_asset_at(f, i, &a);
		if (a.kind > GQF_ASSET_FOLD)
			continue; /* an unknown codec: the section's checksum covers the stored bytes */
		if (a.codec == GQF_CODEC_ZSTD && !gqf_asset_frame_ok(&a))
			return gqfi_error(GQF_ASSET_FRAME, (uint64_t)((const uint8_t *)a.stored - f->data));
		if (a.codec == GQF_CODEC_STORED && gqfi_crc_of(&crc, a.stored, (size_t)a.stored_size) != a.raw_crc32c)
			return gqfi_error(GQF_ASSET_CHECKSUM, (uint64_t)((const uint8_t *)a.stored - f->data));
	}
	return gqfi_error(GQF_OK, 0);
}

/* ---- panels (the checks of chapter 8) ---------------------------------------------------------------------------- */

/* A panel of a payload whose layout has panels, and the offsets of its numbers. */
typedef struct gqfi_panel {
	const gqf_packed *h;
	const uint8_t *data;
	uint64_t bytes;  /* of a panel */
	uint64_t stored; /* columns that are stored */
	uint64_t group;  /* columns of a group */
	uint64_t groups;
	uint64_t block, record;        /* lowbit: bytes of the codes of 32 columns, and of the record of a group */
	uint64_t codes, group_bytes;   /* others: bytes before the codes of a group, and of a whole group */
	uint64_t scale, zero, sum, bias; /* others: offsets for group 0 and row 0 */
	uint64_t interleave;
} gqfi_panel;

static inline bool gqfi_is_lowbit(const gqf_packed *h)
{
	return h->layout == GQF_LAYOUT_LOWBIT || h->layout == GQF_LAYOUT_TORCHAO_KLEIDIAI;
}

static inline void gqfi_panel_init(gqfi_panel *v, const gqf_packed *h)
{
	static const uint8_t scale_bytes[] = {0, 2, 2, 4};
	uint64_t nr = h->nr, codes;
	memset(v, 0, sizeof *v);
	v->h = h;
	v->stored = gqfi_ceil_div(h->cols, 32) * 32;
	v->group = h->group == 0 ? h->cols : h->group;
	v->groups = gqf_groups(h);
	if (gqfi_is_lowbit(h)) {
		v->block = 4u * h->bits * nr;
		v->record = nr * (scale_bytes[h->scale] + (gqfi_int8_zeros(h) ? 1u : 0u));
		v->bytes = v->stored / 32 * v->block + v->groups * v->record + 8 * nr;
		v->sum = v->bytes - 8 * nr;
		v->bias = v->bytes - 4 * nr;
		return;
	}
	if (h->layout == GQF_LAYOUT_TORCHAO_LINEAR)
		v->stored = h->cols;
	else if (h->group == 0)
		v->group = v->stored;
	codes = nr * v->group / 8 * h->bits;
	v->interleave = h->layout == GQF_LAYOUT_QSI8CXP ? h->kr : h->layout == GQF_LAYOUT_QSU2CXP ? 4u : (uint64_t)h->kr / h->sr;
	switch (h->layout) {
	case GQF_LAYOUT_QSI4C32P_F16:
		v->codes = 2 * nr;
		v->group_bytes = v->bytes = codes + 2 * nr;
		v->bytes *= v->groups;
		break;
	case GQF_LAYOUT_QAI4C32P:
		v->zero = codes;
		v->scale = codes + 4 * nr;
		v->group_bytes = codes + 8 * nr;
		v->bias = v->groups * v->group_bytes;
		v->bytes = v->bias + 4 * nr;
		break;
	case GQF_LAYOUT_TORCHAO_LINEAR:
		v->scale = codes;
		v->sum = codes + 4 * nr;
		v->zero = codes + 8 * nr;
		v->group_bytes = codes + (h->zero == GQF_ZERO_INT8 ? 12 : 8) * nr;
		v->bias = v->groups * v->group_bytes;
		v->bytes = v->bias + ((h->flags & GQF_PACKED_BIAS) != 0 ? 4 * nr : 0);
		break;
	default: /* 17, 19 and 21 */
		v->sum = codes;
		v->scale = codes + 4 * nr;
		v->bias = codes + 8 * nr;
		v->group_bytes = v->bytes = codes + 12 * nr;
	}
}

/* The stored code of lane x in a unit's planes (8.3). p is the byte of the first plane for the lane's position. */
static inline int gqfi_plane_code(const uint8_t *p, uint32_t bits, uint32_t x)
{
	uint32_t n, u = 0;
	switch (bits) {
	case 1: return p[0] >> (7 - x) & 1;
	case 2: return p[16 * (x / 4)] >> (6 - 2 * (x % 4)) & 3;
	case 3:
		return x < 6 ? p[16 * (x / 2)] >> (3 - 3 * (x % 2)) & 7 : p[16 * (x - 6)] >> 6 | (p[32] >> (13 - x) & 1) << 2;
	case 4: return p[16 * (x / 2)] >> (x % 2 * 4) & 15;
	case 5: return x % 2 == 0 ? p[16 * (x / 2)] & 31 : p[16 * (x / 2)] >> 5 | (p[64] >> (x - 1) & 3) << 3;
	case 6:
		p += 48 * (x / 4);
		return x % 4 < 3 ? p[16 * (x % 4)] & 63 : p[0] >> 6 | p[16] >> 6 << 2 | p[32] >> 6 << 4;
	case 7:
		if (x < 7)
			return p[16 * x] & 127;
		for (n = 0; n < 7; n++)
			u |= (uint32_t)p[16 * n] >> 7 << n;
		return (int)u;
	default: return p[16 * x];
	}
}

/* The code of row r of the panel at column k, below v->stored. */
static inline int gqfi_panel_code(const gqfi_panel *v, uint64_t r, uint64_t k)
{
	const gqf_packed *h = v->h;
	uint64_t nr = h->nr, g, c, o;
	uint32_t bits = h->bits, shift = 0;
	const uint8_t *p;
	int u;
	if (gqfi_is_lowbit(h)) {
		uint64_t half = h->kr / 2u, lane, b = k / 32;
		lane = (k % 16 / half * (nr * half / 16) + r / (16 / half)) * 2 + k % 32 / 16;
		/* the records of the groups that end before block b precede it */
		p = v->data + b * v->block + 32 * b / v->group * v->record + lane / 8 * 16 * bits + r % (16 / half) * half + k % half;
		u = gqfi_plane_code(p, bits, (uint32_t)(lane % 8));
		return bits == 4 || bits == 8 ? (u >> (bits - 1) != 0 ? u - (1 << bits) : u) : u - (1 << (bits - 1));
	}
	g = k / v->group;
	c = k % v->group;
	if (h->layout == GQF_LAYOUT_TORCHAO_LINEAR) {
		p = v->data + g * v->group_bytes + c / 16 * 16 * bits + 8 * (r % 2) + c % 8;
		u = gqfi_plane_code(p, bits, (uint32_t)(c % 16 / 8 * 4 + r / 2));
		return bits == 8 ? (int8_t)u : u - (1 << (bits - 1));
	}
	switch (h->layout) {
	case GQF_LAYOUT_QSI4C32P_F16:
		o = c % (v->group / 2);
		shift = c < v->group / 2 ? 0 : 4;
		break;
	case GQF_LAYOUT_QSI8CXP: o = c; break;
	case GQF_LAYOUT_QSU2CXP:
		o = c / 16 * 4 + c % 4;
		shift = (uint32_t)(c % 16 / 4 * 2);
		break;
	default:
		o = c / 32 * 16 + c % 16;
		shift = (uint32_t)(c % 32 / 16 * 4);
	}
	p = v->data + g * v->group_bytes + v->codes + nr * v->interleave * (o / v->interleave) + v->interleave * r + o % v->interleave;
	if (bits == 8)
		return (int8_t)*p;
	u = *p >> shift & ((1 << bits) - 1);
	return bits == 2 ? u - 2 : u >= 8 ? u - 16 : u;
}

/* The offset in the panel of the scale, or the zero point, of a row and group. */
static inline uint64_t gqfi_panel_number(const gqfi_panel *v, uint64_t r, uint64_t g, bool zero)
{
	const gqf_packed *h = v->h;
	uint64_t nr = h->nr, end, size = h->scale == GQF_SCALE_F32 ? 4 : 2;
	if (!gqfi_is_lowbit(h))
		return g * v->group_bytes + (zero ? v->zero : v->scale) + (zero ? 4 : size) * r;
	end = v->group > h->cols - g * v->group ? h->cols : (g + 1) * v->group;
	return ((end - 1) / 32 + 1) * v->block + g * v->record + (zero ? nr * size + r : size * r);
}

static inline float gqfi_float(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

/* A scale of a payload as a float32. *ok reports whether it is finite, and 0 or at least the smallest of its dtype (8.3). */
static inline float gqfi_scale(const uint8_t *p, const gqf_packed *h, bool *ok)
{
	uint32_t bits = h->scale == GQF_SCALE_F32 ? gqfi_u32(p) : gqfi_u16(p), low, exponent, shift = 0;
	if (h->scale == GQF_SCALE_F16) {
		exponent = bits >> 10 & 31;
		low = bits & 1023;
		*ok = exponent != 31;
		if ((exponent | low) == 0)
			return gqfi_float(bits << 16);
		if (exponent == 0) { /* subnormal: normal as float32 */
			for (exponent = 1; (low & 1024) == 0; low <<= 1)
				shift++;
			low &= 1023;
		}
		exponent = exponent == 31 ? 255 : exponent + 112 - shift;
		return gqfi_float((bits >> 15) << 31 | exponent << 23 | low << 13);
	}
	if (h->scale == GQF_SCALE_BF16)
		bits <<= 16;
	exponent = bits >> 23 & 255;
	*ok = exponent != 0 && exponent != 255;
	if (h->scale == GQF_SCALE_F32 && bits << 1 == 0) /* layouts 2 and 3 may hold 0 */
		*ok = h->layout == GQF_LAYOUT_LOWBIT || h->layout == GQF_LAYOUT_CODES;
	return gqfi_float(bits);
}

/* The sum of a row of a lowbit panel. Every product and every sum is rounded. */
static inline uint32_t gqfi_lowbit_sum(const gqfi_panel *v, uint64_t r)
{
	const gqf_packed *h = v->h;
	/* Sums of q - z are counted in this part of a step, which makes them whole numbers. */
	int part = h->grid == GQF_GRID_HALF_STEP ? 2 : h->zero == GQF_ZERO_FRACTION ? 1 << (8 - h->bits) : 1;
	uint64_t half = h->kr / 2u, g, b, s, k, i;
	volatile float sum = 0, product; /* volatile: a fused multiply-add would round once */
	uint32_t bits;
	float f;
	bool ok;
	for (g = 0; g < v->groups; g++) {
		uint64_t from = g * v->group, to = v->group > h->cols - from ? h->cols : from + v->group;
		float scale = gqfi_scale(v->data + gqfi_panel_number(v, r, g, false), h, &ok);
		int zero = gqfi_int8_zeros(h) ? (int8_t)v->data[gqfi_panel_number(v, r, g, true)] : 0;
		for (b = from / 32; b <= (to - 1) / 32; b++)
			for (s = 0; s < 16 / half; s++) {
				int parts = 0;
				for (i = 0; i < 2 * half; i++) {
					k = 32 * b + 16 * (i / half) + half * s + i % half;
					if (k >= from && k < to)
						parts += part * gqfi_panel_code(v, r, k) - zero + (h->grid == GQF_GRID_HALF_STEP ? 1 : 0);
				}
				product = (float)parts / (float)part * scale;
				sum = sum + product;
			}
	}
	f = sum;
	memcpy(&bits, &f, 4);
	return bits;
}

static inline bool gqfi_finite(uint32_t bits) { return (bits & 0x7F800000u) != 0x7F800000u; }

/* Checks a row past the last: it must repeat row last or, if padding is not 1, hold this code and zeros. */
static inline uint64_t gqfi_check_padding(const gqfi_panel *v, uint64_t r, uint64_t last, int padding)
{
	const gqf_packed *h = v->h;
	uint64_t k, g, i, size = h->scale == GQF_SCALE_F32 ? 4 : 2;
	bool per_group = h->layout == GQF_LAYOUT_TORCHAO_LINEAR;
	for (k = 0; k < v->stored; k++)
		if (gqfi_panel_code(v, r, k) != (padding == 1 ? gqfi_panel_code(v, last, k) : padding))
			return 0;
	for (g = 0; g < v->groups; g++) {
		uint64_t at = gqfi_panel_number(v, r, g, false), model = gqfi_panel_number(v, last, g, false);
		for (i = 0; i < size; i++)
			if (v->data[at + i] != (padding == 1 ? v->data[model + i] : 0))
				return at;
		if (h->zero != GQF_ZERO_NONE) {
			at = gqfi_panel_number(v, r, g, true);
			model = gqfi_panel_number(v, last, g, true);
			for (i = 0; i < (gqfi_is_lowbit(h) ? 1u : 4u); i++)
				if (v->data[at + i] != (padding == 1 ? v->data[model + i] : 0))
					return at;
		}
		if (per_group && gqfi_u32(v->data + g * v->group_bytes + v->sum + 4 * r) != 0)
			return g * v->group_bytes + v->sum + 4 * r;
	}
	if (!per_group && v->sum != 0 && gqfi_u32(v->data + v->sum + 4 * r) != (padding == 1 ? gqfi_u32(v->data + v->sum + 4 * last) : 0))
		return v->sum + 4 * r;
	if (v->bias != 0 && v->bias < v->bytes &&
	    gqfi_u32(v->data + v->bias + 4 * r) != (padding == 1 ? gqfi_u32(v->data + v->bias + 4 * last) : 0))
		return v->bias + 4 * r;
	return UINT64_MAX;
}

/* The offset in the panel of the first defect of row r; UINT64_MAX if there is none. */
static inline uint64_t gqfi_check_row(const gqfi_panel *v, uint64_t r)
{
	const gqf_packed *h = v->h;
	uint64_t k, g;
	uint32_t sum = 0, bits;
	for (g = 0; g < v->groups; g++) {
		uint64_t at = gqfi_panel_number(v, r, g, false);
		bool ok;
		float scale = gqfi_scale(v->data + at, h, &ok);
		if (h->layout == GQF_LAYOUT_QSI4CXP || h->layout == GQF_LAYOUT_QAI4C32P) /* stored divided by 16 */
			ok = ok && (gqfi_u32(v->data + at) >> 23 & 255) < 251;
		if (!ok || (scale < 0 && (h->flags & GQF_PACKED_POSITIVE_SCALES) != 0))
			return at;
		if (h->zero == GQF_ZERO_F32 && !gqfi_finite(gqfi_u32(v->data + gqfi_panel_number(v, r, g, true))))
			return gqfi_panel_number(v, r, g, true);
		if (h->layout == GQF_LAYOUT_TORCHAO_LINEAR) {
			uint32_t group_sum = 0, zero;
			for (k = g * v->group; k < (g + 1) * v->group; k++)
				group_sum += (uint32_t)gqfi_panel_code(v, r, k);
			if (gqfi_u32(v->data + g * v->group_bytes + v->sum + 4 * r) != group_sum)
				return g * v->group_bytes + v->sum + 4 * r;
			if (h->zero == GQF_ZERO_INT8) {
				at = gqfi_panel_number(v, r, g, true);
				zero = gqfi_u32(v->data + at);
				if (zero + 128 > 255)
					return at;
			}
		}
	}
	for (k = h->cols; k < v->stored; k++)
		if (gqfi_panel_code(v, r, k) != 0)
			return 0;
	if (gqfi_is_lowbit(h)) {
		bits = gqfi_u32(v->data + v->sum + 4 * r);
		if (!gqfi_finite(bits) || bits != gqfi_lowbit_sum(v, r))
			return v->sum + 4 * r;
	} else if (v->sum != 0 && h->layout != GQF_LAYOUT_TORCHAO_LINEAR) {
		for (k = 0; k < h->cols; k++)
			sum += (uint32_t)gqfi_panel_code(v, r, k);
		if (gqfi_u32(v->data + v->sum + 4 * r) != (h->layout == GQF_LAYOUT_QSI4CXP ? 16 * sum : sum))
			return v->sum + 4 * r;
	}
	if (v->bias != 0 && v->bias < v->bytes) {
		bits = gqfi_u32(v->data + v->bias + 4 * r);
		if (!gqfi_finite(bits) || ((h->flags & GQF_PACKED_BIAS) == 0 && bits != 0))
			return v->bias + 4 * r;
	}
	return UINT64_MAX;
}

/* TorchAO's own header, of 16 int32 (8.8). */
static inline bool gqfi_torchao_header(const uint8_t *p, const gqf_packed *h)
{
	uint32_t want[16] = {6712}, i;
	uint32_t zeros = h->zero == GQF_ZERO_INT8, bias = (h->flags & GQF_PACKED_BIAS) != 0;
	if (h->layout == GQF_LAYOUT_TORCHAO_EMBEDDING) {
		want[1] = 2, want[2] = 1, want[3] = h->bits, want[4] = 32, want[5] = 128;
	} else {
		want[1] = h->layout == GQF_LAYOUT_TORCHAO_LINEAR ? 1 : 3;
		want[2] = h->bits, want[3] = zeros, want[4] = bias, want[5] = h->nr, want[6] = h->kr, want[7] = h->sr;
	}
	for (i = 0; i < 16; i++)
		if (gqfi_u32(p + 4 * i) != want[i])
			return false;
	return true;
}

/*
 * The checks of chapter 8 for the data of a payload, weights or companion: scales, sums, biases, codes past the last
 * column, rows past the last row. The error is GQF_PANEL with the offset of the defect, or of its panel. Plain weights,
 * zero points and unknown payloads pass. It takes about 10 ns a weight.
 */
static inline gqf_error gqf_payload_check(const gqf_file *f, const gqf_payload *p)
{
	const gqf_packed *h = &p->header;
	const uint8_t *data = f->data + p->offset + GQFI_PACKED;
	uint64_t i, r, at, base = p->offset + GQFI_PACKED;
	gqfi_panel v;
	if (!p->known || p->kind == GQF_KIND_ZEROS || p->kind == GQF_KIND_TABLE || (h->layout == GQF_LAYOUT_PLAIN && p->kind == GQF_KIND_WEIGHTS))
		return gqfi_error(GQF_OK, 0);
	if (p->kind == GQF_KIND_SCALES) {
		gqf_payload w;
		uint64_t size = gqf_dtype_bits(h->dtype) / 8;
		gqf_payload_at(f, p->index - 1, &w); /* the weights precede their scales */
		for (i = 0; i < h->data_size; i += size) {
			bool ok;
			float scale = gqfi_scale(data + i, &w.header, &ok);
			if (!ok || (scale < 0 && (w.header.flags & GQF_PACKED_POSITIVE_SCALES) != 0))
				return gqfi_error(GQF_PANEL, base + i);
		}
		return gqfi_error(GQF_OK, 0);
	}
	if (h->layout == GQF_LAYOUT_CODES) {
		for (i = 0; i < h->data_size; i++)
			if ((int8_t)data[i] < -(1 << (h->bits - 1)) || (int8_t)data[i] >= 1 << (h->bits - 1))
				return gqfi_error(GQF_PANEL, base + i);
		return gqfi_error(GQF_OK, 0);
	}
	if (gqfi_layout_of(h->layout)->prefix != 0) {
		if (!gqfi_torchao_header(data, h))
			return gqfi_error(GQF_PANEL, base);
		data += 64;
		base += 64;
	}
	if (h->layout == GQF_LAYOUT_TORCHAO_EMBEDDING)
		return gqfi_error(GQF_OK, 0);
	gqfi_panel_init(&v, h);
	for (i = 0; i * h->nr < h->rows; i++) {
		uint64_t left = h->rows - i * h->nr, rows = left < h->nr ? left : h->nr;
		/* Rows past the last: 1: they repeat the last row; else: they hold this code and zeros. */
		int padding = h->layout == GQF_LAYOUT_QSU2CXP || h->layout == GQF_LAYOUT_TORCHAO_LINEAR           ? 0
			      : h->layout == GQF_LAYOUT_TORCHAO_KLEIDIAI && (rows & 1) != 0 && rows < h->nr ? -8
			                                                                                     : 1;
		v.data = data + i * v.bytes;
		for (r = 0; r < h->nr; r++) {
			at = r < rows ? gqfi_check_row(&v, r) : gqfi_check_padding(&v, r, rows - 1, padding);
			if (at != UINT64_MAX)
				return gqfi_error(GQF_PANEL, base + i * v.bytes + at);
		}
	}
	return gqfi_error(GQF_OK, 0);
}

/*
 * Verifies one tensor: the packed headers of all its payloads against their copies, the checksums of all blocks that
 * hold a byte of the tensor and, if panels is set, the checks of gqf_payload_check. Of variants in unknown layouts it
 * checks the checksums only. It returns the first finding.
 */
static inline gqf_error gqf_verify_tensor(const gqf_file *f, const gqf_tensor *t, bool panels)
{
	uint64_t block = (uint64_t)1 << f->block_log2, next = 0, at, size;
	gqfi_crc crc;
	uint32_t i;
	gqfi_crc_init(&crc);
	for (i = 0; i < t->payload_count; i++) {
		gqf_payload p;
		gqf_error e;
		uint64_t b;
		gqf_payload_at(f, t->payload_first + i, &p);
		e = gqfi_packed_copy(f, &p);
		if (e.code != GQF_OK)
			return e;
		b = (p.offset - f->data_offset) / block;
		for (b = b < next ? next : b; f->data_offset + b * block < p.offset + p.size; b++) {
			at = f->data_offset + b * block;
			size = f->size - at < block ? f->size - at : block;
			if (gqfi_crc_of(&crc, f->data + at, (size_t)size) != gqfi_u32(f->data + gqfi_at(f, GQF_SECTION_CHECKSUMS, b, 4)))
				return gqfi_error(GQF_BLOCK_CHECKSUM, at);
			next = b + 1;
		}
		e = panels ? gqf_payload_check(f, &p) : e;
		if (e.code != GQF_OK)
			return e;
	}
	return gqfi_error(GQF_OK, 0);
}

#endif /* GQF_H */
