/*
 * gqf-list prints what a .gqf file holds, as `gq inspect` does, and with --verify checks all of its checksums. It shows
 * how to use include/gqf.h: map a file, open it, go through its records. Nothing is allocated.
 *
 *     cc -std=c11 -O2 -I include -o gqf-list docs/examples/gqf-list.c
 *     ./gqf-list [--verify] FILE
 *
 * C11 (or C++11) and POSIX, for open and mmap. Exit status: 0 all is well, 1 the file is not, 2 used wrongly.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gqf.h"

/* ---- tables: every line is gone through twice, first to measure the columns -------------------------------------- */

enum { MAX_COLUMNS = 16, MAX_CELL = 8192 };

typedef struct table {
	const char *const *heads; /* a '>' at the end: aligned to the right */
	int columns;
	int width[MAX_COLUMNS]; /* of the widest cell; a column without any is left out */
	bool print;             /* else measure */
	int column;             /* of the next cell */
	int spaces;             /* to print before the next cell that is not empty */
} table;

/* Prints a string of a file, or only measures it; control characters are shown as \x1b. Returns its width. */
static int put_text(gqf_string s, bool print)
{
	int width = 0;
	size_t i;
	for (i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];
		bool c1 = c == 0xC2 && i + 1 < s.len && (unsigned char)s.ptr[i + 1] < 0xA0;
		if (c < 0x20 || c == 0x7F || c == '\\' || c1) {
			if (print)
				printf("\\x%02x", c1 ? (unsigned char)s.ptr[++i] : c);
			else if (c1)
				i++;
			width += 4;
		} else {
			if (print)
				putchar(c);
			width += (c & 0xC0) != 0x80;
		}
	}
	return width;
}

/* The next cell of a line has a width. Returns whether it is to be printed now: what stands before it has been. */
static bool begin_cell(table *t, int width)
{
	int i = t->column++;
	const char *head = t->heads[i];
	size_t head_width = strlen(head);
	bool right = head_width > 0 && head[head_width - 1] == '>';
	if (right)
		head_width--;
	if (!t->print) {
		if (width > t->width[i])
			t->width[i] = width > (int)head_width ? width : (int)head_width;
		return false;
	}
	if (t->width[i] == 0)
		return false;
	if (right)
		t->spaces += t->width[i] - width;
	if (width > 0) {
		printf("%*s", t->spaces, "");
		t->spaces = 0;
	}
	t->spaces += (right ? 0 : t->width[i] - width) + 2;
	return width > 0;
}

static void text_cell(table *t, gqf_string s)
{
	if (begin_cell(t, put_text(s, false)))
		put_text(s, true);
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void cell(table *t, const char *format, ...)
{
	char text[MAX_CELL];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (begin_cell(t, (int)strlen(text)))
		fputs(text, stdout);
}

static void end_line(table *t)
{
	if (t->print)
		putchar('\n');
	t->column = t->spaces = 0;
}

/* Begins the first pass, which measures, or the second, which prints. */
static void begin_pass(table *t, int pass, const char *const *heads, int columns)
{
	int i;
	if (pass == 0) {
		memset(t, 0, sizeof *t);
		t->heads = heads;
		t->columns = columns;
		return;
	}
	t->print = true;
	for (i = 0; i < columns; i++)
		cell(t, "%.*s", (int)strcspn(heads[i], ">"), heads[i]);
	end_line(t);
}

/* ---- what is printed -------------------------------------------------------------------------------------------- */

typedef unsigned long long ull; /* what printf can be told portably of a uint64_t */

static void print_sections(const gqf_file *f)
{
	static const char *const heads[] = {"SECTION", "OFFSET>", "BYTES>", "RECORDS>"};
	static const char *const names[] = {"tensors", "payloads", "names", "dims", "strings", "assets", "asset data", "checksums"};
	table t;
	int pass, i;
	for (pass = 0; pass < 2; pass++) {
		begin_pass(&t, pass, heads, 4);
		for (i = 0; i < GQF_SECTION_COUNT; i++) {
			cell(&t, "%s", names[i]);
			cell(&t, "%llu", (ull)f->section[i].offset);
			cell(&t, "%llu", (ull)f->section[i].size);
			cell(&t, "%u", (unsigned)f->section[i].count);
			end_line(&t);
		}
	}
}

static void print_assets(const gqf_file *f)
{
	static const char *const heads[] = {"ASSET", "KIND", "BYTES>", "STORED>", "CODEC"};
	gqf_asset a;
	table t;
	uint32_t i;
	int pass;
	for (pass = 0; pass < 2; pass++) {
		begin_pass(&t, pass, heads, 5);
		for (i = 0; gqf_asset_at(f, i, &a); i++) {
			text_cell(&t, a.name);
			cell(&t, "%s", gqf_asset_kind_name(a.kind));
			cell(&t, "%llu", (ull)a.raw_size);
			cell(&t, "%llu", (ull)a.stored_size);
			cell(&t, "%s", gqf_codec_name(a.codec));
			end_line(&t);
		}
	}
}

static uint64_t elements(const gqf_file *f, const gqf_tensor *t)
{
	uint64_t n = 1;
	uint32_t i;
	for (i = 0; i < t->dim_count; i++)
		n *= gqf_dim(f, t, i);
	return n;
}

static double bits_per_weight(uint64_t bytes, uint64_t n) { return n == 0 ? 0 : (double)bytes * 8 / (double)n; }

static void shape_cell(table *out, const gqf_file *f, const gqf_tensor *t)
{
	char text[MAX_CELL]; /* 255 dimensions of 20 characters fit */
	size_t n = 0;
	uint32_t i;
	for (i = 0; i < t->dim_count; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%llu", i > 0 ? "x" : "", (ull)gqf_dim(f, t, i));
	cell(out, "%.*s%s", (int)n, text, t->dim_count == 0 ? "scalar" : t->transposed ? " (in x out)" : "");
}

/* The columns from LAYOUT to BPW, for the payloads of a variant. */
static void variant_cells(table *out, const gqf_file *f, const gqf_tensor *t, uint32_t variant)
{
	uint64_t bytes = 0;
	gqf_payload p, first;
	uint32_t i;
	memset(&first, 0, sizeof first);
	gqf_payload_find(f, t, variant, 0, GQF_KIND_WEIGHTS, &first); /* every variant has it */
	for (i = first.index; i < t->payload_first + t->payload_count && gqf_payload_at(f, i, &p) && p.variant == variant; i++)
		bytes += p.size;
	cell(out, "%s", gqf_layout_name(first.header.layout));
	if (first.header.nr != 0)
		cell(out, "%ux%ux%u", first.header.nr, first.header.kr, first.header.sr);
	else
		cell(out, "%s", "");
	{
		unsigned flags = first.header.flags;
		cell(out, "%s%s%s%s%s", flags & GQF_PACKED_BIAS ? "bias" : "",
		     (flags & GQF_PACKED_BIAS) && (flags & ~(unsigned)GQF_PACKED_BIAS) ? "," : "", flags & GQF_PACKED_QSI4C32P ? "qsi4c32p" : "",
		     (flags & GQF_PACKED_QSI4C32P) && (flags & GQF_PACKED_POSITIVE_SCALES) ? "," : "",
		     flags & GQF_PACKED_POSITIVE_SCALES ? "positive-scales" : "");
	}
	cell(out, "%llu", (ull)bytes);
	cell(out, "%.3f", bits_per_weight(bytes, elements(f, t)));
}

/* The names of a tensor but its canonical one: a name record says of which tensor it is, not the other way round. */
static void shared_cell(table *out, const gqf_file *f, const gqf_tensor *t)
{
	gqf_name n;
	uint32_t i, left = t->name_count - 1;
	int width = 0;
	bool print = false, first = true;
	if (left == 0) {
		cell(out, "%s", "");
		return;
	}
	for (;;) {
		for (i = 0; gqf_name_at(f, i, &n); i++) {
			if (n.tensor != t->index || n.absorbed || (n.name.ptr == t->name.ptr))
				continue;
			if (!first && print)
				fputs(", ", stdout);
			width += put_text(n.name, print) + (first ? 0 : 2);
			first = false;
		}
		if (print || !begin_cell(out, width))
			return;
		print = first = true;
	}
}

static void tensor_lines(table *out, const gqf_file *f, const gqf_tensor *t)
{
	gqf_payload p;
	uint32_t variant;
	int i;
	gqf_payload_at(f, t->payload_first, &p);
	text_cell(out, t->name);
	cell(out, "%s", gqf_role_name(t->role));
	shape_cell(out, f, t);
	cell(out, "%s", gqf_dtype_name(t->dtype));
	if (p.header.layout == GQF_LAYOUT_PLAIN) {
		for (i = 0; i < 4; i++)
			cell(out, "%s", "");
	} else {
		cell(out, "%u", p.header.bits);
		if (p.header.group == 0)
			cell(out, "%s", "channel");
		else
			cell(out, "%llu", (ull)p.header.group);
		cell(out, "%s", gqf_mapping_name(t->mapping));
		cell(out, "%s", gqf_scale_name(p.header.scale));
	}
	variant_cells(out, f, t, 0);
	shared_cell(out, f, t);
	end_line(out);
	for (variant = 1; gqf_payload_find(f, t, variant, 0, GQF_KIND_WEIGHTS, &p); variant++) {
		for (i = 0; i < 8; i++)
			cell(out, "%s", "");
		variant_cells(out, f, t, variant);
		end_line(out);
	}
}

static void print_tensors(const gqf_file *f)
{
	static const char *const heads[] = {"TENSOR", "ROLE", "SHAPE", "DTYPE", "BITS>", "GROUP>", "MAPPING", "SCALES", "LAYOUT", "TILE",
		"FLAGS", "BYTES>", "BPW>", "SHARED WITH"};
	gqf_tensor tensor;
	table t;
	uint32_t i;
	int pass;
	for (pass = 0; pass < 2; pass++) {
		begin_pass(&t, pass, heads, 14);
		for (i = 0; gqf_tensor_at(f, i, &tensor); i++)
			tensor_lines(&t, f, &tensor);
	}
}

static void print_totals(const gqf_file *f)
{
	uint32_t i, k, names = 0, quantized = 0, shared = 0;
	uint64_t n = 0, bytes = 0, source = 0, quantized_n = 0, quantized_bytes = 0;
	gqf_tensor t;
	gqf_payload p;
	gqf_name name;
	for (i = 0; gqf_tensor_at(f, i, &t); i++) {
		uint64_t size = 0, count = elements(f, &t);
		for (k = 0; k < t.payload_count && gqf_payload_at(f, t.payload_first + k, &p); k++)
			size += p.size;
		gqf_payload_at(f, t.payload_first, &p);
		n += count;
		bytes += size;
		names += t.name_count;
		shared += t.name_count > 1;
		if (p.header.layout != GQF_LAYOUT_PLAIN) {
			quantized++;
			quantized_n += count;
			quantized_bytes += size;
		}
	}
	for (i = 0; gqf_name_at(f, i, &name); i++)
		source += name.source_size;
	printf("%u tensors under %u names: %u quantized, %u kept, %u shared\n", (unsigned)gqf_tensor_count(f), (unsigned)names,
	       (unsigned)quantized, (unsigned)(gqf_tensor_count(f) - quantized), (unsigned)shared);
	printf("%llu weights, %llu bytes of %llu in the checkpoint; %.3f bits per quantized weight, %.3f over all\n", (ull)n, (ull)bytes,
	       (ull)source, bits_per_weight(quantized_bytes, quantized_n), bits_per_weight(bytes, n));
}

/* ---- the file --------------------------------------------------------------------------------------------------- */

static int list(const char *path, const void *data, size_t size, bool verify)
{
	gqf_file f;
	gqf_error e = gqf_open(data, size, &f);
	if (e.code == GQF_OK && verify)
		e = gqf_verify_checksums(&f);
	if (e.code != GQF_OK) {
		fprintf(stderr, "%s: byte %llu: %s\n", path, (ull)e.offset, gqf_strerror(e.code));
		return 1;
	}
	printf("%s: gqf %u.%u, %llu bytes\n", path, GQF_VERSION_MAJOR, (unsigned)f.minor, (ull)f.size);
	printf("data: %llu bytes at %llu, a checksum for every %llu\n\n", (ull)f.data_size, (ull)f.data_offset, 1ull << f.block_log2);
	print_sections(&f);
	if (gqf_asset_count(&f) > 0) {
		putchar('\n');
		print_assets(&f);
	}
	putchar('\n');
	print_tensors(&f);
	putchar('\n');
	print_totals(&f);
	if (verify)
		printf("all checksums are right\n");
	return fflush(stdout) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	bool verify = argc == 3 && strcmp(argv[1], "--verify") == 0;
	const char *path = argc > 1 ? argv[argc - 1] : "";
	struct stat st;
	void *data;
	int fd, status;
	if (argc < 2 || argc > 3 || (argc == 3 && !verify)) {
		fprintf(stderr, "usage: gqf-list [--verify] FILE\n");
		return 2;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	if (st.st_size == 0) /* cannot be mapped */
		return list(path, "", 0, verify);
	data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (data == MAP_FAILED) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return 1;
	}
	status = list(path, data, (size_t)st.st_size, verify);
	munmap(data, (size_t)st.st_size);
	return status;
}
