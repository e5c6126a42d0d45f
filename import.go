package gq

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/mirror"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// stageImport is the stage in which the model of another program is taken over.
const stageImport = "importing"

// openForeign opens a GGUF file, or a checkpoint whose weights are quantized. It returns nil for every
// other path, and for a path that cannot be read: its reader reports the error.
func openForeign(path string) (*conversion.Foreign, error) {
	if path == "" {
		return nil, nil
	}
	switch kind, err := kindOf(path); {
	case err != nil:
		return nil, nil
	case kind == files.GGUF:
		return conversion.OpenGGUF(path)
	case kind == files.Safetensors:
		return conversion.OpenQuantized(path)
	}
	return nil, nil
}

// floatReference refuses a checkpoint whose weights are quantized, in a job that needs unquantized ones.
func floatReference(src string) error {
	f, err := openForeign(src)
	if err != nil {
		return err
	}
	if f == nil {
		return nil
	}
	defer f.Close()
	if f.IsGGUF() {
		return nil // its reader says so
	}
	return optionf("", "%s is quantized already (%s), and this job needs unquantized weights: name the checkpoint that it was made from, or a directory that gq dequantize %s -o DIR has written",
		src, f.Quantized(), src)
}

// importJob is a plan of conversion.NewImport.
type importJob struct {
	*conversion.Plan
	add func(n int64)
}

// newImport lays out the import of f. o.Progress is replaced: begin starts a stage.
func newImport(f *conversion.Foreign, o conversion.ImportOptions) (*importJob, error) {
	j := &importJob{add: func(int64) {}}
	o.Progress = func(n int64) { j.add(n) }
	var err error
	j.Plan, err = conversion.NewImport(f, o)
	return j, err
}

// begin starts the stage of importing, which the plan's progress then goes to.
func (j *importJob) begin(s stages) (end func()) {
	j.add, end = s.begin(stageImport, "bytes", j.SourceBytes)
	return end
}

// imported describes the tensors that the plan takes over.
func (j *importJob) imported(bytes int64) *accuracy.Imported {
	im := &accuracy.Imported{Bytes: bytes, Tensors: map[string]accuracy.ImportedTensor{}}
	for _, t := range j.Imported() {
		im.Tensors[t.Name] = accuracy.ImportedTensor{Type: t.Type, Quantized: t.Quantized, Bits: t.Bits, Group: t.Group, Bytes: t.Bytes}
	}
	return im
}

// withGQF calls use with path and nil, or, if path is a GGUF file or a quantized checkpoint, with a
// temporary .gqf file that has the same model and with a description of its tensors. The .gqf file has
// codes that it holds exactly, and all other weights in float32. It is beside path, or in the directory
// for temporary files if there is no room beside path.
func withGQF(ctx context.Context, path string, threads int, s stages, use func(file string, im *accuracy.Imported) error) error {
	f, err := openForeign(path)
	if err != nil {
		return err
	}
	if f == nil {
		return use(path, nil)
	}
	defer f.Close()
	j, err := newImport(f, conversion.ImportOptions{RepackOptions: conversion.RepackOptions{Threads: threads}, Dequantize: true})
	if err != nil {
		return err
	}
	end := j.begin(s)
	return j.WriteTemporary(ctx, temporaryPath(path, j.OutputBytes), nil, func(temp string) error {
		end()
		if err := f.Close(); err != nil {
			return err
		}
		return use(temp, j.imported(f.Bytes()))
	})
}

// temporaryPath is a name for a temporary .gqf file of size bytes: beside path, or at the top of
// the cache that path lies in, or else in the directory for temporary files. If neither has room, writing it beside path gives the error. A path
// that is itself a temporary gives the name of its target: the next job for the target then finds,
// and removes, what a killed job left.
func temporaryPath(path string, size int64) string {
	path = filepath.Clean(path)
	base, dirs := filepath.Base(path), []string{filepath.Dir(path), os.TempDir()}
	if cache, ok := cacheOf(path); ok { // only finished files of the model belong there
		base, dirs = modelName(path), []string{cache, os.TempDir()}
	}
	if abs, err := filepath.Abs(path); err == nil && strings.Trim(base, ".") == "" { // the directory has another name
		path, base = abs, filepath.Base(abs)
	}
	if target, ok := atomicfile.TempOf(base); ok {
		base = target
	}
	base += ".gqf"
	for _, dir := range dirs {
		name := filepath.Join(dir, base)
		if free, err := atomicfile.FreeSpace(dir); err != nil || free < size {
			continue
		}
		if f, err := atomicfile.Create(name); err == nil {
			f.Abort()
			return name
		}
	}
	return filepath.Join(dirs[0], base)
}

// cacheOf is the directory of the cache that the path lies in: of the Hugging Face cache, or gq's own.
func cacheOf(path string) (dir string, ok bool) {
	if _, _, ok := hubpath.Of(path); ok {
		if set, err := hub.FromEnvironment(); err == nil {
			return set.Cache, true
		}
		return os.TempDir(), true
	}
	root, err := mirror.Root()
	if err != nil {
		return "", false
	}
	rel, err := filepath.Rel(root, path)
	return root, err == nil && filepath.IsLocal(rel)
}
