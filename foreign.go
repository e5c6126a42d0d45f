package gq

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/fromgguf"
	"github.com/lowbit-go/gq/internal/job/fromquantized"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/measure"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/mirror"
)

// stageImport is the stage in which the model of another program is taken over.
const stageImport = "importing"

// IsGGUF reports whether a path leads to a GGUF file, by its name or else by its first bytes, or
// whether a remote name does, by the name alone. A path that cannot be read is none: its reader
// reports the error.
func IsGGUF(name string) bool {
	if remote.IsRemote(name) {
		return strings.EqualFold(path.Ext(remote.Redact(name)), ".gguf")
	}
	kind, err := kindOf(name)
	return err == nil && kind == files.GGUF
}

// openForeign opens a GGUF file, or a checkpoint with quantized weights. It returns nil for
// every other path, and for a path that cannot be read: its reader reports the error.
func openForeign(path string) (imports.Foreign, error) {
	if path == "" {
		return nil, nil
	}
	switch kind, err := kindOf(path); {
	case err != nil:
		return nil, nil
	case kind == files.GGUF:
		return fromgguf.Open(path)
	case kind == files.Safetensors:
		return fromquantized.Open(path)
	}
	return nil, nil
}

// floatReference refuses a checkpoint with quantized weights, in a job that needs unquantized
// weights.
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

// readable is a model that a job can read.
type readable struct {
	path string // of a .gqf file, a checkpoint, or the GGUF file that view shows
	view *gqf.File
	// imported describes the tensors of a GGUF file or a quantized checkpoint; else nil
	imported *measure.Imported
}

// open opens the .gqf file, or returns the view. Close of a view does nothing.
func (m *readable) open() (*gqf.File, error) {
	if m.view != nil {
		return m.view, nil
	}
	return gqf.Open(m.path, gqf.Options{})
}

// quantized refuses an unquantized checkpoint.
func (m *readable) quantized(name string) error {
	if isDirectory(m.path) {
		return fmt.Errorf("%s is not quantized: name a .gqf file, a .gguf file or a quantized checkpoint", name)
	}
	return nil
}

// withModel calls use with the model at path: with a view of a GGUF file; of a quantized
// checkpoint, with a temporary .gqf file that has exact codes where its layouts hold them, and all
// other weights in float32. See temporaryPath for its place.
func withModel(ctx context.Context, path string, threads int, s stages, use func(m readable) error) error {
	return withAssets(ctx, path, threads, s, true, use)
}

// withAssets is withModel. With table, the vocabulary of a GGUF file is an asset for gq alone.
func withAssets(ctx context.Context, path string, threads int, s stages, table bool, use func(m readable) error) error {
	f, err := openForeign(path)
	if err != nil {
		return err
	}
	if f == nil {
		if _, err := safetensors.Files(path); isDirectory(path) && err != nil {
			return err // it holds no model
		}
		return use(readable{path: path})
	}
	defer f.Close()
	if g, ok := f.(*fromgguf.File); ok {
		view, tensors, err := g.View(ctx, table)
		if err != nil {
			return err
		}
		return use(readable{path, view, &measure.Imported{Bytes: f.Bytes(), Tensors: tensors}})
	}
	p, err := conversion.NewImport(f, conversion.RepackOptions{Threads: threads, Dequantize: true})
	if err != nil {
		return err
	}
	add, end := s.begin(stageImport, "bytes", p.SourceBytes)
	return p.WriteTemporary(ctx, temporaryPath(path, p.OutputBytes), write.Options{Progress: add}, func(temp string) error {
		end()
		if err := f.Close(); err != nil {
			return err
		}
		return use(readable{path: temp, imported: &measure.Imported{Bytes: f.Bytes(), Tensors: p.Imported()}})
	})
}

// temporaryPath is a name for a temporary .gqf file of size bytes: next to path, or at the top of
// the cache that path lies in, or else in the directory for temporary files. If neither has room,
// writing next to path gives the error. A path that is itself a temporary gives the name of its
// target: the next job for the target then finds, and removes, what a killed job left.
func temporaryPath(path string, size int64) string {
	path = filepath.Clean(path)
	base, dirs := filepath.Base(path), []string{filepath.Dir(path), os.TempDir()}
	if cache, ok := cacheOf(path); ok { // only finished files of the model belong there
		base, dirs = modelName(path), []string{cache, os.TempDir()}
	}
	// the directory has another name
	if abs, err := filepath.Abs(path); err == nil && strings.Trim(base, ".") == "" {
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

// cacheOf is the directory of the cache that the path lies in: of the Hugging Face cache, or gq's
// own.
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
