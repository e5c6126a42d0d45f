// Package accuracy says what quantization cost: of each tensor, of each layer as it is executed, and of the model on a
// text.
//
// # Tensors
//
// [Tensors] goes through a .gqf and the checkpoint that it was made of, in one pass and in bounded memory. It compares
// stored weights with those of the checkpoint, and the outputs of the packed kernels with those of float32:
//
//	ck, err := safetensors.Open(dir, safetensors.Options{})
//	f, err := gqf.Open("model.gqf", gqf.Options{})
//	stats, err := accuracy.Tensors(ctx, ck, f, accuracy.TensorOptions{})
//
// # Kernels
//
// [CheckParity] holds every kernel that this machine has for the layouts of a file to the portable reference, bit for
// bit. [RemoteParity] does so for the kernels of another build of gq, run directly or under qemu.
//
// # Models
//
// model/text cuts a text into windows, and model/eval runs the float model and the quantized model on them: perplexities,
// the divergence of their predictions, and where they differ most. [Job] puts it all into one [Report].
//
// # The same figures everywhere
//
// Every figure has the same bits on any CPU and for any number of threads, so a report that was made on an x86 machine
// is the one that the Arm device would make. Sums are float64 in a fixed order, products are rounded before they are
// added, logarithms and exponentials are those of internal/detmath, and kernels agree to the bit.
package accuracy
