// Package accuracy measures what quantization costs: for each tensor, for each layer as it is
// executed, and for the model on a text.
//
// # Tensors
//
// [Tensors] reads a .gqf and the checkpoint it was made from, in one pass and in bounded memory. It
// compares stored weights with the checkpoint's, and the outputs of the packed kernels with float32
// outputs:
//
//	ck, err := safetensors.Open(dir, safetensors.Options{})
//	f, err := gqf.Open("model.gqf", gqf.Options{})
//	stats, err := accuracy.Tensors(ctx, ck, f, accuracy.TensorOptions{})
//
// # Kernels
//
// [CheckParity] compares every kernel that this machine has for a file's layouts with the portable
// reference, bit for bit. [RemoteParity] does the same with another build of gq, run directly or
// under qemu.
//
// # Models
//
// model/text cuts a text into windows. model/eval runs the float model and the quantized model on
// them and computes perplexities, the divergence of the predictions, and the positions where they
// differ most. [Job] combines everything in one [Report].
//
// # The same figures everywhere
//
// Every figure has the same bits on any CPU and for any number of threads, so an x86 machine and
// the Arm device write the same report. Sums are float64 in a fixed order, products are rounded
// before they are added, logarithms and exponentials come from internal/detmath, and kernels agree
// to the bit.
package accuracy
