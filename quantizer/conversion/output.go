package conversion

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/llamacpp"
	"github.com/lowbit-go/gq/packing"
)

// output is the kind of output that a plan writes: *gqfOutput, *ggufOutput, or *checkpointOutput for a
// directory.
type output interface {
	// noun names the output in messages: "the .gqf file".
	noun() string
	// paths are the paths of the files if the first, or the directory, is to be path. It refuses a
	// directory in which other files are in the way.
	paths(path string) ([]string, error)
	// home is the directory that must exist for an output at path.
	home(path string) string
	// begin reads the model's facts, before any draft is stored.
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
	copyUnits(list *unitList, it *unquantized)
	// target prepares the writing of the file. hashes are the SHA-256 of the source files, if they are wanted and known.
	target(c *CalibratedCodes, hashes []string) (target, error)
	// check compares the complete file with the input, before it appears at path.
	check(j *job, temps *temporaries, path string) error
}

// modelSource is the input of a .gguf file or of a checkpoint: a checkpoint or a .gqf file.
type modelSource interface {
	input
	// root is the path of the model in messages.
	root() string
	// asset is a file that belongs to the model, or fs.ErrNotExist.
	asset(name string) ([]byte, error)
	// files are the files that belong to the model, config.json among them.
	files() ([]sideFile, error)
	// storedNames lists the names under which the checkpoint has an item.
	storedNames(e *entry) []string
	// absorbed reports whether FP8 scales are multiplied into weights.
	absorbed() bool
	// provenance returns the contents of the files with the recipe and with the sources; nil for an
	// absent one. hashes are as for addOrigin.
	provenance(c *CalibratedCodes, hashes []string) (recipe, origin []byte, err error)
	// reader reads rows of a slice of an item that stays unquantized, or becomes so, as float32.
	// Several goroutines may not share it.
	reader(it *unquantized) (func(dst []float32, slice int, row, n int64), error)
}

// target is the output of a job: a file, shards, or the files of a directory.
type target interface {
	// sizes are the sizes of the files.
	sizes() []int64
	// paths are the paths of the files if the first, or the directory, is to be path.
	paths(path string) []string
	// output is the path in reports, and the number of files with weights.
	output(path string) (name string, shards int)
	// written is called for all data when they are known.
	written(off int64, b []byte)
	// sinks appends the writers that take a worker's rows of an item to the output.
	sinks(list []sink, it *quantized) ([]sink, error)
	// copy writes a unit of an unquantized item.
	copy(w *worker, it *unquantized, u unit, r *unitResult) error
	// finish writes headers and directories, after all of the data.
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
