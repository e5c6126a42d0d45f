// Whole products of one row by TorchAO's kernel for torchao-linear: activations are packed and multiplied, as often as the
// argument says. The program tools/speed counts the instructions. -DBITS is the number of bits.
#include <cstdlib>

#include <torchao/csrc/cpu/torch_free_kernels/aarch64/linear/channelwise_8bit_activation_groupwise_lowbit_weight/channelwise_8bit_activation_groupwise_lowbit_weight.h>

namespace linear = torchao::kernels::cpu::aarch64::linear::channelwise_8bit_activation_groupwise_lowbit_weight;

// A function of its own, as in TorchAO: inlined beside the packing of activations, it is compiled to slower code.
__attribute__((noinline)) static void multiply(float *y, int n, int k, int group, const void *weights, const void *activations) {
	linear::kernel_1x8x16_f32_neondot<BITS, false, false>(y, n, 1, n, k, group, weights, activations, 0, 0, false, false, false);
}

int main(int argc, char **argv) {
	// The compiler must not know the shape, as it does not in TorchAO.
	volatile int outputs = 2048, inputs = 2048, columns = 32;
	const int n = outputs, k = inputs, group = columns;
	float *x = static_cast<float *>(malloc(sizeof(float) * k)), *y = static_cast<float *>(malloc(sizeof(float) * n));
	void *activations = calloc(k, 8), *weights = calloc(n, 2 * k);
	for (int i = 0; i < k; i++)
		x[i] = static_cast<float>(i * 7 % 17) - 8;
	for (int i = atoi(argv[argc - 1]); i > 0; i--) {
		linear::pack_activations<1, 16, 2>(activations, 1, k, group, x, false, 1, 16, 2);
		multiply(y, n, k, group, weights, activations);
	}
	return y[0] == 1;
}
