package write

import (
	"io"
	"iter"

	"github.com/lowbit-go/gq/internal/job/plan"
)

// Output is the kind of output that a job writes: a .gqf file, a .gguf file, or a directory with a
// checkpoint.
type Output interface {
	plan.Output
	// Noun names the output in messages: "the .gqf file".
	Noun() string
	// Paths are the paths of the files if the first, or the directory, is to be path. It refuses a
	// directory in which other files are in the way.
	Paths(path string) ([]string, error)
	// Home is the directory that must exist for an output at path.
	Home(path string) string
	// CopyUnits appends the pieces of work on an unquantized item.
	CopyUnits(list *Units, it *plan.Unquantized)
	// Target prepares the writing of the output. hashes and found are as for Model.Provenance.
	Target(c *plan.Codes, hashes []string, found []ItemResult) (Target, error)
	// Check compares the complete output with the input before it appears.
	Check(t Target, w *Written) error
}

// Target is the output of a job: a file, shards, or the files of a directory.
type Target interface {
	// Files are the files if the first, or the directory, is to be path.
	Files(path string) []File
	// Shards is the number of files with weights. dir tells that the output is a directory.
	Shards() (n int, dir bool)
	// Sinks appends the writers that take a worker's rows of an item to the output.
	Sinks(list []RowSink, it *plan.Quantized) ([]RowSink, error)
	// Copier returns a function for one worker that writes units of unquantized items.
	Copier() func(w *Worker, it *plan.Unquantized, u Unit, r *Result) error
	// Finish writes headers and directories to the files after all data.
	Finish(files []io.WriterAt, c *plan.Codes, found []ItemResult) error
}

// File is a file of a target.
type File struct {
	Path string
	Size int64
}

// Paths are the paths of files.
func Paths(files []File) (list []string) {
	for _, f := range files {
		list = append(list, f.Path)
	}
	return list
}

// RowSink takes the rows of a worker's unit to their places in the output.
type RowSink interface {
	// Begin makes room for a unit of so many rows.
	Begin(rows int64)
	// Pack takes a block of n rows, which begins at row first of the unit. It fails for the row of the
	// block that it names.
	Pack(b *Block, first, n int) (row int, err error)
	// Write puts the unit's rows at their places.
	Write(w *Worker, u Unit) error
}

// Written is a complete output before it appears at its path.
type Written struct {
	Path  string
	Codes *plan.Codes
	Temp  func(i int) string // the path of file i of the target until the output appears
	// What the check found.
	ReadBack *ReadBack
	Notes    []string // warnings
}

// Streamed is an output that can be written to a Sink.
type Streamed interface {
	Target
	// Gaps are the ranges of the output that are not written and read as zeros.
	Gaps() iter.Seq2[int64, int64]
	// Stream makes the target write to w in the order of the file but for the workers' differences.
	Stream(w io.WriterAt) io.WriterAt
}

// A Sink takes a file that is not in the file system. Each byte is written once, from several
// goroutines. Unlike a file it cannot be read before Commit.
type Sink interface {
	io.WriterAt
	// Commit makes the file appear.
	Commit() error
	// Abort leaves the former output in place. It does nothing after Commit.
	Abort()
}
