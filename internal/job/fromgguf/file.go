package fromgguf

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/job/provenance"
)

// File is an open GGUF file, or the shards of one model.
type File struct {
	path  string
	gguf  *gguf.File
	stats []fs.FileInfo // of the file, or of its shards
}

// Open opens a GGUF file, or the shards of one model.
func Open(path string) (*File, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, gguf: g}
	for _, p := range g.Paths() {
		st, err := os.Stat(p)
		if err != nil {
			g.Close()
			return nil, err
		}
		f.stats = append(f.stats, st)
	}
	return f, nil
}

func (f *File) Close() error    { return f.gguf.Close() }
func (f *File) IsGGUF() bool    { return true }
func (f *File) Noun() string    { return "the .gguf file" }
func (f *File) Paths() []string { return f.gguf.Paths() }
func (f *File) Bytes() int64    { return f.gguf.Size() }

// Quantized describes the quantized tensors, if there are any: "tensors: 42 of Q4_0, 1 of Q8_0".
func (f *File) Quantized() string {
	count := map[string]int{}
	for _, t := range f.gguf.Tensors {
		if t.Type.BlockWeights() > 1 {
			count[t.Type.String()]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d of %s", count[name], name))
	}
	return "tensors: " + strings.Join(parts, ", ")
}

func (f *File) Sources() (list []provenance.Source, err error) {
	for i, path := range f.gguf.Paths() {
		start := f.stats[i].Size()
		for _, t := range f.gguf.Tensors {
			if t.Shard == i {
				start = min(start, t.Offset)
			}
		}
		sum, err := provenance.HashStart(path, start)
		if err != nil {
			return nil, err
		}
		list = append(list, provenance.Source{Name: filepath.Base(path), Size: f.stats[i].Size(), HeaderSHA256: sum, Path: path})
	}
	return list, nil
}

// unchanged fails if a shard was changed after it was opened.
func (f *File) unchanged() error {
	for i, path := range f.gguf.Paths() {
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		if was := f.stats[i]; st.Size() != was.Size() || !st.ModTime().Equal(was.ModTime()) || !os.SameFile(st, was) {
			return fmt.Errorf("%s was changed while it was read: run the job again", path)
		}
	}
	return nil
}
