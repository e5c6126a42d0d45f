// Package lora merges adapters of PEFT into a checkpoint as its rows are read.
//
// Open matches the tensors of an adapter with tensors of the checkpoint. Merged.Checkpoint then
// gives a checkpoint with the headers and the bytes of merged files. The bytes are computed when a
// job reads them, so no merged file exists, and the factors of a tensor bound the memory.
// Merged.Write stores the merged checkpoint, for jobs that map weights.
//
// A changed tensor is F32: W + scale * (B A), or with DoRA rows of that sum scaled to a stored
// length. Products are summed in order of rank and each is rounded, so the bits are the same on
// every CPU.
package lora
