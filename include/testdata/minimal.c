/*
 * The minimal reader of docs/FORMAT.md, which the test writes to minimal.inc as the document has it:
 *
 *     minimal FILE NAME SLICE ROWS COLUMNS    prints the float32 bits of the weights of a tensor in layout lowbit
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint32_t u32;
typedef uint64_t u64;

static u32 u32_at(const u8 *p) { return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24; }
static u64 u64_at(const u8 *p) { return (u64)u32_at(p) | (u64)u32_at(p + 4) << 32; }

static float f32(const u8 *p)
{
	u32 bits = u32_at(p);
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

static float bf16(const u8 *p)
{
	u8 wide[4] = {0, 0, p[0], p[1]};
	return f32(wide);
}

static float f16(const u8 *p)
{
	u32 bits = (u32)p[0] | (u32)p[1] << 8, exponent = bits >> 10 & 31, mantissa = bits & 1023;
	float f = exponent == 0 ? ldexpf((float)mantissa, -24) : ldexpf((float)(mantissa | 1024), (int)exponent - 25);
	return bits >> 15 ? -f : f;
}

static int compare(const char *a, u32 an, const u8 *b, u32 bn)
{
	int c = memcmp(a, b, an < bn ? an : bn);
	return c != 0 ? c : (an > bn) - (an < bn);
}

static int sign_extend(int u, u64 b) { return u >= 1 << (b - 1) ? u - (1 << b) : u; }

static int stored_code(const u8 *unit, u64 b, u64 x);

/* In the document u64 is both a type and a function, as u32 is. */
#define u32(p) u32_at(p)
#define u64(p) u64_at(p)
#include "minimal.inc"

int main(int argc, char **argv)
{
	FILE *in;
	long size;
	u8 *file;
	const u8 *tensor, *payload;
	u64 rows, cols, r, k;
	float *weights;
	if (argc != 6 || (in = fopen(argv[1], "rb")) == NULL || fseek(in, 0, SEEK_END) != 0 || (size = ftell(in)) < 0)
		return 2;
	rewind(in);
	file = (u8 *)malloc((size_t)size);
	if (file == NULL || fread(file, 1, (size_t)size, in) != (size_t)size)
		return 2;
	fclose(in);
	tensor = find(file, argv[2], (u32)strlen(argv[2]));
	if (tensor == NULL || find(file, "no such tensor", 14) != NULL)
		return 3;
	payload = lowbit(file, tensor, (u32)atoi(argv[3]));
	if (payload == NULL || lowbit(file, tensor, 1u << 30) != NULL)
		return 4;
	rows = (u64)atoll(argv[4]);
	cols = (u64)atoll(argv[5]);
	weights = (float *)malloc(cols * sizeof *weights);
	for (r = 0; r < rows; r++) {
		row_of_lowbit(payload, r, weights);
		for (k = 0; k < cols; k++) {
			u32 bits;
			memcpy(&bits, &weights[k], 4);
			printf("%08x\n", bits);
		}
	}
	free(weights);
	free(file);
	return 0;
}
