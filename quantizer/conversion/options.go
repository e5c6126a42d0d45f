package conversion

import "github.com/lowbit-go/gq/quantizer"

// Options of a job. The zero value is 4-bit, group 32, full-range, BF16 scales,
// embeddings at 8 bits, the default tile, every CPU.
type Options struct {
	// Recipe decides the scheme of each tensor; see Recipe for its defaults.
	Recipe quantizer.Recipe
	// Rules come before the recipe's own (the command line's --rule).
	Rules []quantizer.Rule
	// Threads is how many workers run. Default: GOMAXPROCS. The output does not depend on it.
	Threads int
	// Origin is set if the checkpoint was folded from another one. The file then names Origin as its source.
	// Default: none.
	Origin *Origin
	// GGUF makes the output a .gguf file. The recipe's target must be gguf. Default (nil): a .gqf file.
	GGUF *GGUFOptions
	// Checkpoint makes the output a directory: a checkpoint in a format of another library. The
	// recipe's target must be the format's. Default (nil): a .gqf file.
	Checkpoint *CheckpointOptions
	// Sources are the files that the checkpoint was made of, and that a file says it was made of, if
	// the checkpoint is temporary. Default: the checkpoint's own files.
	Sources []Source
	// Assets lets the plans of a job share the packed files beside a checkpoint; copies of Options
	// share it. Default (nil): each plan reads and compresses these files.
	Assets *AssetCache
	// Progress is called, from any worker, with bytes of the checkpoint that were done since the last call. Default: none.
	Progress func(n int64)
}
