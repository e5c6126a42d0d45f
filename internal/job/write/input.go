package write

import (
	"bytes"
	"io"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

// Input gives the rows of a plan's items.
type Input interface {
	// Facts describes the input.
	Facts() Facts
	// Guard runs fn, which reads views of the input.
	Guard(fn func() error) error
	// Unchanged fails if the input has changed since the plan was made.
	Unchanged() error
	// Bytes is a range of the bytes of an unquantized item, in the input's memory or in buf, which it
	// may replace.
	Bytes(e *plan.Entry, first, count int64, buf *[]byte) ([]byte, error)
	// Reader returns a reader of codes for one goroutine. c holds codes that were chosen before.
	Reader(c *plan.Codes) Reader
	// Advice says what to do about a scale, or a sum (nil), that an item's layouts cannot hold.
	Advice(it *plan.Quantized, e *rounding.ScaleError) string
}

// Facts are the facts about an input.
type Facts struct {
	Root  string   // the path of the model in messages
	Files []string // names of the files with tensors in messages, by safetensors.Tensor.File
	Bytes int64    // that the report says were read
	// Weights tells that the input has weights, which become codes. Otherwise it has codes.
	Weights bool
	Remote  bool // the bytes are read from elsewhere
	// Paths has the files that an output must not overwrite.
	Paths files.Set
}

// Reader reads the rows of quantized items.
type Reader interface {
	// Begin prepares the rows of the block's unit. fill puts row n of the unit into row i of the
	// block. end, if it is not nil, completes the unit's findings after the last row.
	Begin(b *Block, r *Result) (fill func(n, i int64) error, end func() error, err error)
	// Sum puts the checksum of n bytes of an item, from byte off on, into the unit's findings. Inputs
	// of codes have none.
	Sum(e *plan.Entry, off, n int64, u Unit, r *Result) error
}

// NoSums is the part of a Reader of codes.
type NoSums struct{}

func (NoSums) Sum(*plan.Entry, int64, int64, Unit, *Result) error { return nil }

// Model is the input of a .gguf file or of a checkpoint: a checkpoint or a .gqf file.
type Model interface {
	Input
	// Asset is a file that belongs to the model, or fs.ErrNotExist.
	Asset(name string) ([]byte, error)
	// Assets are the files that belong to the model, config.json among them.
	Assets() ([]SideFile, error)
	// StoredNames lists the names under which the checkpoint has an item.
	StoredNames(e *plan.Entry) []string
	// Absorbed reports whether FP8 scales are multiplied into weights.
	Absorbed() bool
	// Provenance returns the contents of the files with the recipe and with the sources; nil for an
	// absent one. hashes are the SHA-256 of the source files, if they are wanted and known. found are
	// the findings for each item, nil before they are known, which does not change the sizes.
	Provenance(c *plan.Codes, hashes []string, found []ItemResult) (recipe, origin []byte, err error)
	// Rows returns a function that reads n rows of a slice of an item as float32. It is called within
	// Guard. Several goroutines may not share it.
	Rows(it plan.Item) (func(dst []float32, slice int, row, n int64), error)
}

// SideFile is a file without weights in a checkpoint's directory.
type SideFile struct {
	Name string
	Size int64
	// Write writes the content.
	Write func(w io.Writer) error
}

// FileOf returns a file with the content data.
func FileOf(name string, data []byte) SideFile {
	return SideFile{Name: name, Size: int64(len(data)), Write: func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}}
}

// Content returns the bytes that write would write.
func (f *SideFile) Content() ([]byte, error) {
	var b bytes.Buffer
	err := f.Write(&b)
	return b.Bytes(), err
}

// Record is an input as a .gqf file records it.
type Record interface {
	// FileAssets are the assets that are known when the file is planned.
	FileAssets() ([]gqf.PackedAsset, error)
	// AddNames adds the names of all tensors, and the record of their origin. hashes are the SHA-256
	// of the source files, if they are wanted and known.
	AddNames(b *gqf.Builder, c *plan.Codes, hashes []string) error
}
