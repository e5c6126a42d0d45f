// Package logits reads and writes files of reference logits: the predictions of a float model on a
// text, with which `gq accuracy --reference` measures quantized models without the checkpoint.
//
// # The file
//
//	magic "gqlogits", version uint32, then the length and the CRC32C of the header, both uint32
//	header        JSON, see Header
//	block 0       the windows: of each its length, First, bytes and words, uint32, and then all
//	              token ids, uint32
//	blocks 1 ...  predictions: the windows in order, each cut into blocks of Header.RowsPerBlock rows
//
// All numbers are little-endian. A block is the length and the CRC32C of the stored bytes, both
// uint32, and a zstd frame. The content of a block of n predictions over a vocabulary of V tokens:
//
//	range   n float32: the largest logit minus the smallest, R
//	codes   n V uint16, first all high bytes, then all low bytes
//
// A code c is the logit -R (c/65535)^2 relative to the largest logit. So the error is smallest
// where probabilities are large: for a logit d below the largest, half a step is sqrt(d R)/65535,
// 9e-5 at d = 1 and R = 36.
//
// Files come from other machines. Lengths are checked before memory is allocated, and checksums
// find damage. A malformed file gives a *FormatError with an offset.
package logits
