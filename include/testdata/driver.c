/*
 * The other end of include/gqf_test.go: opens files with gqf.h and tells what it finds, for comparison with package
 * formats/gqf.
 *
 *     driver dump FILE         prints every field of everything that gqf.h hands out
 *     driver mutants FILE      reads changes of FILE from standard input and prints a line for each: what gqf_open and
 *                              gqf_verify_checksums said, and the CRC32C of the dump
 *     driver panels FILE       reads changes of FILE likewise and prints which tensors verify, panels included
 *     driver headers           reads packed headers of 64 bytes and prints a line for each
 *
 * A change is, in little-endian u32: the new size, the number of edits, and for each edit offset, size and bytes. Each
 * changed file is in an allocation of its own of just its size, so that the address sanitizer sees what is read beyond.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "gqf.h"

typedef struct buffer {
	char *ptr;
	size_t len, cap;
} buffer;

static void *must(void *p)
{
	if (p == NULL) {
		fprintf(stderr, "out of memory\n");
		exit(3);
	}
	return p;
}

static void put(buffer *b, const void *data, size_t n)
{
	if (b->cap - b->len < n) {
		b->cap = 2 * (b->len + n);
		b->ptr = (char *)must(realloc(b->ptr, b->cap));
	}
	if (n > 0)
		memcpy(b->ptr + b->len, data, n);
	b->len += n;
}

static void putf(buffer *b, const char *format, ...)
{
	char text[512];
	va_list args;
	int n;
	va_start(args, format);
	n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= sizeof text) {
		fprintf(stderr, "line too long\n");
		exit(3);
	}
	put(b, text, (size_t)n);
}

/* 0 fine, 1 malformed, 2 unsupported: the classes of the Go reader's errors. */
static int class_of(gqf_error e) { return e.code == GQF_OK ? 0 : gqf_is_unsupported(e.code) ? 2 : 1; }

static void dump_header(buffer *b, const gqf_packed *h)
{
	putf(b, " %s flags %u bits %u grid %u scale %s zero %u tile %u %u %u dtype %s %" PRIu64 " x %" PRIu64 " group %" PRIu64 " data %" PRIu64
	     " groups %" PRIu64, gqf_layout_name(h->layout), h->flags, h->bits, h->grid, gqf_scale_name(h->scale), h->zero, h->nr, h->kr, h->sr,
	     gqf_dtype_name(h->dtype), h->rows, h->cols, h->group, h->data_size, gqf_groups(h));
}

static void dump(buffer *b, const gqf_file *f)
{
	gqf_tensor t;
	gqf_payload p, same;
	gqf_name n;
	gqf_asset a;
	uint32_t i, k;
	b->len = 0;
	for (i = 0; gqf_tensor_at(f, i, &t); i++) {
		putf(b, "tensor %u %s %s %s %s transposed %d slices %u names %u payloads %u bias %d shape", t.index, gqf_dtype_name(t.dtype),
		     gqf_role_name(t.role), gqf_mapping_name(t.mapping), gqf_algorithm_name(t.algorithm), t.transposed, t.slices, t.name_count,
		     t.payload_count, t.bias == GQF_NO_BIAS ? -1 : (int)t.bias);
		for (k = 0; k < t.dim_count; k++)
			putf(b, " %" PRIu64, gqf_dim(f, &t, k));
		putf(b, " ");
		put(b, t.name.ptr, t.name.len);
		putf(b, "\n");
		for (k = 0; k < t.payload_count; k++) {
			const void *data;
			if (!gqf_payload_at(f, t.payload_first + k, &p) ||
			    !gqf_payload_find(f, &t, p.variant, p.slice, p.kind, &same) || same.index != p.index)
				putf(b, "PAYLOAD NOT FOUND\n");
			putf(b, "payload %u tensor %u slice %u kind %u variant %u cpu %u at %" PRIu64 " size %" PRIu64, p.index, p.tensor, p.slice,
			     p.kind, p.variant, p.cpu, p.offset, p.size);
			if (!p.known) {
				putf(b, " skipped layout %u data %" PRIu64 "\n", p.header.layout, p.header.data_size);
				continue;
			}
			dump_header(b, &p.header);
			if (gqf_payload_data(f, &p, &data).code == GQF_OK)
				putf(b, " crc %08x\n", gqf_crc32c(data, (size_t)p.header.data_size));
			else
				putf(b, " damaged\n");
		}
		for (k = 0; k < 4; k++) {
			uint32_t cpu[] = {0, GQF_CPU_DOTPROD, GQF_CPU_DOTPROD | GQF_CPU_I8MM, GQF_CPU_AVX2}, variant;
			putf(b, "cpu %u: %d\n", cpu[k], gqf_choose(f, &t, cpu[k], NULL, &variant) ? (int)variant : -1);
		}
		if (gqf_payload_find(f, &t, 0, t.slices, GQF_KIND_WEIGHTS, &p) || gqf_payload_find(f, &t, 255, 0, GQF_KIND_TABLE, &p))
			putf(b, "PAYLOAD FOUND THAT CANNOT BE\n");
	}
	for (i = 0; gqf_name_at(f, i, &n); i++) {
		bool found = gqf_find(f, n.name.ptr, n.name.len, &t);
		putf(b, "name tensor %u file %" PRId64 " crc %08x size %" PRIu64 " in checkpoint %d absorbed %d found %d ", n.tensor,
		     n.source_file == GQF_NO_SOURCE ? -1 : (int64_t)n.source_file, n.source_crc32c, n.source_size, n.in_checkpoint, n.absorbed,
		     found ? (int)t.index : -1);
		put(b, n.name.ptr, n.name.len);
		putf(b, "\n");
	}
	if (gqf_find(f, "", 0, &t) || gqf_find(f, "\xff", 1, &t))
		putf(b, "NAME FOUND THAT CANNOT BE\n");
	for (i = 0; gqf_asset_at(f, i, &a); i++) {
		gqf_asset again;
		bool right = a.codec == GQF_CODEC_ZSTD ? gqf_asset_frame_ok(&a) : gqf_crc32c(a.stored, (size_t)a.stored_size) == a.raw_crc32c;
		putf(b, "asset %u %u stored %" PRIu64 " raw %" PRIu64 " found %d ", a.kind, a.codec,
		     a.stored_size, a.raw_size, gqf_asset_find(f, a.name.ptr, a.name.len, &again) && again.stored == a.stored);
		if (right)
			putf(b, "crc %08x ", a.raw_crc32c);
		else
			putf(b, "damaged ");
		put(b, a.name.ptr, a.name.len);
		putf(b, "\n");
	}
}

static uint8_t *read_file(const char *path, size_t *size)
{
	FILE *in = fopen(path, "rb");
	long n;
	uint8_t *data;
	if (in == NULL || fseek(in, 0, SEEK_END) != 0 || (n = ftell(in)) < 0 || fseek(in, 0, SEEK_SET) != 0) {
		perror(path);
		exit(3);
	}
	data = (uint8_t *)must(malloc(n == 0 ? 1 : (size_t)n));
	if (fread(data, 1, (size_t)n, in) != (size_t)n) {
		perror(path);
		exit(3);
	}
	fclose(in);
	*size = (size_t)n;
	return data;
}

/* Reads n bytes of standard input; false at its end. */
static bool get(void *data, size_t n)
{
	size_t got = fread(data, 1, n, stdin);
	if (got == n)
		return true;
	if (got != 0) {
		fprintf(stderr, "input ends in the middle\n");
		exit(3);
	}
	return false;
}

static uint32_t get_u32(void)
{
	uint8_t b[4];
	if (!get(b, 4)) {
		fprintf(stderr, "input ends in the middle\n");
		exit(3);
	}
	return gqfi_u32(b);
}

static void mutants(const uint8_t *base, size_t base_size)
{
	buffer b = {NULL, 0, 0};
	uint8_t word[4];
	while (get(word, 4)) {
		size_t size = gqfi_u32(word), common = size < base_size ? size : base_size;
		uint32_t edits = get_u32(), i;
		uint8_t *data = (uint8_t *)must(malloc(size == 0 ? 1 : size));
		gqf_file f;
		gqf_error open, verify = {GQF_OK, 0};
		memcpy(data, base, common);
		memset(data + common, 0, size - common);
		for (i = 0; i < edits; i++) {
			size_t offset = get_u32(), n = get_u32();
			if (n > size || offset > size - n || !get(data + offset, n)) {
				fprintf(stderr, "bad edit\n");
				exit(3);
			}
		}
		open = gqf_open(data, size, &f);
		b.len = 0;
		if (open.code == GQF_OK) {
			verify = gqf_verify_checksums(&f);
			dump(&b, &f);
		}
		printf("%d %d %08x open: %s at %" PRIu64 ", verify: %s at %" PRIu64 "\n", class_of(open), class_of(verify),
		       gqf_crc32c(b.ptr, b.len), gqf_strerror(open.code), open.offset, gqf_strerror(verify.code), verify.offset);
		if (open.offset > size || verify.offset > size)
			printf("OFFSET BEYOND THE FILE\n");
		free(data);
	}
	free(b.ptr);
}

/* For each change of standard input a line: of each tensor whether it verifies with its panels. */
static void panels(const uint8_t *base, size_t size)
{
	uint8_t *data = (uint8_t *)must(malloc(size)), word[4];
	while (get(word, 4)) {
		uint32_t edits = get_u32(), i;
		gqf_file f;
		gqf_tensor t;
		memcpy(data, base, size);
		for (i = 0; i < edits; i++) {
			size_t offset = get_u32(), n = get_u32();
			if (n > size || offset > size - n || !get(data + offset, n)) {
				fprintf(stderr, "bad edit\n");
				exit(3);
			}
		}
		if (gqf_open(data, size, &f).code != GQF_OK)
			printf("not open");
		else
			for (i = 0; gqf_tensor_at(&f, i, &t); i++) {
				gqf_error sums = gqf_verify_tensor(&f, &t, false), e = gqf_verify_tensor(&f, &t, true);
				printf("%c", sums.code != GQF_OK ? 's' : e.code == GQF_OK ? '.' : e.code == GQF_PANEL ? 'p' : '?');
			}
		printf("\n");
	}
	free(data);
}

static void headers(void)
{
	buffer b = {NULL, 0, 0};
	uint8_t bytes[64];
	while (get(bytes, 64)) {
		gqf_packed h;
		gqf_error e = gqf_packed_read(bytes, &h);
		b.len = 0;
		if (e.code == GQF_OK)
			dump_header(&b, &h);
		printf("%d%.*s\n", class_of(e), (int)b.len, b.len > 0 ? b.ptr : "");
	}
	free(b.ptr);
}

int main(int argc, char **argv)
{
	uint8_t *data;
	size_t size;
	if (argc == 2 && strcmp(argv[1], "headers") == 0) {
		headers();
		return 0;
	}
	if (argc != 3)
		return 2;
	data = read_file(argv[2], &size);
	if (strcmp(argv[1], "panels") == 0) {
		panels(data, size);
	} else if (strcmp(argv[1], "mutants") == 0) {
		mutants(data, size);
	} else {
		buffer b = {NULL, 0, 0};
		gqf_file f;
		gqf_error e = gqf_open(data, size, &f);
		if (e.code == GQF_OK)
			e = gqf_verify_checksums(&f);
		if (e.code != GQF_OK) {
			fprintf(stderr, "%s at %" PRIu64 "\n", gqf_strerror(e.code), e.offset);
			return 1;
		}
		dump(&b, &f);
		if (b.len > 0)
			fwrite(b.ptr, 1, b.len, stdout);
		free(b.ptr);
	}
	free(data);
	return 0;
}
