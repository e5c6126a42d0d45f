// Whole products by KleidiAI: activations are packed and multiplied, as often as the argument says. The program tools/speed
// counts the instructions. -DKERNEL and -DPACK name the functions, -DBL the group, -DPACK_BL says that PACK wants it.
#include <float.h>
#include <stdlib.h>

#include KERNEL_H
#include PACK_H

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define N 2048
#define K 2048

#ifdef BL
#define GROUP BL,
#else
#define GROUP
#endif
#ifdef PACK_BL
#define PACK_GROUP BL,
#else
#define PACK_GROUP
#endif

int main(int argc, char **argv) {
	float *x = malloc(sizeof(float) * M * K), *y = malloc(sizeof(float) * M * N);
	void *lhs = calloc(M + 16, 4 * K), *rhs = calloc(N, 2 * K);
	for (size_t i = 0; i < M * K; i++)
		x[i] = (float)(i * 7 % 17) - 8;
	for (int i = atoi(argv[argc - 1]); i > 0; i--) {
		JOIN(kai_run_, PACK)(M, K, PACK_GROUP JOIN(kai_get_mr_, KERNEL)(), JOIN(kai_get_kr_, KERNEL)(), JOIN(kai_get_sr_, KERNEL)(), 0, x, sizeof(float) * K, lhs);
		JOIN(kai_run_, KERNEL)(M, N, K, GROUP lhs, rhs, y, sizeof(float) * N, sizeof(float), -FLT_MAX, FLT_MAX);
	}
	return y[0] == 1;
}
