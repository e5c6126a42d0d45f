// Package measure measures what quantization costs, and writes the figures into reports of package
// accuracy.
//
// [Tensors] reads a .gqf and the checkpoint that the file was made from, in a single pass and in
// bounded memory, and compares stored weights with the checkpoint's, and the outputs of the packed
// kernels with float32 outputs. [CheckParity] compares every kernel that this machine has for a
// file's layouts with the portable reference, bit for bit. [Between] compares two files.
//
// internal/lm/text cuts a text into windows. internal/lm/eval runs the float model and the
// quantized model on the windows and computes perplexities, the divergence of the predictions, and
// the positions of the largest differences. [Job] combines everything in a report.
//
// Sums are float64 in a fixed order, products are rounded before addition, logarithms and
// exponentials come from internal/detmath, and kernels agree to the bit.
package measure
