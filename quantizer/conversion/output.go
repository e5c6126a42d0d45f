package conversion

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
)

// output is the kind of file that a plan makes: *gqfOutput or *ggufOutput.
type output interface {
	// noun is the file in messages: "the .gqf file".
	noun() string
	// paths are the paths of the files if the first is to be path.
	paths(path string) ([]string, error)
	// begin learns what the model is made of, before any draft is stored.
	begin(pl *planner, sources []llamacpp.Source) error
	// store decides how a draft of a checkpoint's tensor is stored. It may leave a tensor unquantized.
	store(pl *planner, d *draft) error
	// take decides how a tensor of a .gqf file with packed header h is stored, whose codes are taken over.
	take(pl *planner, in *fileInput, d *draft, t gqf.Tensor, h packing.Header) error
	// dataBytes is the size of an item's data in the output, packed headers included.
	dataBytes(it item) (int64, error)
	// layOut is called when all items are settled.
	layOut(pl *planner) error
	// copyUnits appends the pieces of work on an unquantized item.
	copyUnits(list []unit, it *unquantized) []unit
	// target prepares the writing of the file. hashes are the SHA-256 of the source files, if they are wanted and known.
	target(c *CalibratedCodes, hashes []string) (target, error)
	// check compares the complete file with the input, before it appears at path.
	check(j *job, temps temporaries, path string) error
}

// target is a file that a job writes, or a set of shards.
type target interface {
	// sizes are the sizes of the files.
	sizes() []int64
	// paths are the paths of the files if the first is to be path.
	paths(path string) []string
	// written is called for all data when they are known.
	written(off int64, b []byte)
	// sinks appends what takes a worker's rows of an item to the output.
	sinks(list []sink, it *quantized) ([]sink, error)
	// copy writes a unit of an unquantized item.
	copy(w *worker, it *unquantized, u unit, r *unitResult) error
	// finish writes what describes the data, after all of the data.
	finish(j *job) error
}

// sink takes the rows of a worker's unit to their places in the output.
type sink interface {
	// begin makes room for a unit of so many rows.
	begin(rows int64)
	// pack takes the worker's block of n rows, which begins at row first of the unit. It fails for the
	// row of the block that it names.
	pack(w *worker, first, n int) (row int, err error)
	// write puts the unit's rows at their places.
	write(w *worker, u unit) error
}
