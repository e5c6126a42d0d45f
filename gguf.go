package gq

import (
	"context"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// IsGGUF reports whether path is a GGUF file, by its name or else by its first bytes. A path that
// cannot be read is none: its reader reports the error.
func IsGGUF(path string) bool {
	kind, err := kindOf(path)
	return err == nil && kind == files.GGUF
}

// withGQF calls use with path and nil, or, if path is a GGUF file, with a temporary .gqf file that has the
// same model and with what the GGUF file holds. The .gqf file has codes that it holds exactly, and all
// other weights in float32. It is beside path, or in the directory for temporary files if there is no room
// beside path.
func withGQF(ctx context.Context, path string, threads int, s stages, use func(file string, im *accuracy.Imported) error) error {
	if path == "" || !IsGGUF(path) {
		return use(path, nil)
	}
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var progress func(int64)
	plan, err := conversion.NewImport(f, path, conversion.ImportOptions{
		RepackOptions: conversion.RepackOptions{Threads: threads, Progress: func(n int64) { progress(n) }}, Dequantize: true,
	})
	if err != nil {
		return err
	}
	im := &accuracy.Imported{Bytes: f.Size(), Tensors: map[string]accuracy.ImportedTensor{}}
	for _, t := range plan.Imported() {
		im.Tensors[t.Name] = accuracy.ImportedTensor{Type: t.Stored.Type, Bytes: t.Bytes()}
	}
	add, end := s.begin(stageImport, "bytes", plan.SourceBytes)
	progress = add
	return plan.WriteTemporary(ctx, temporaryPath(path, plan.OutputBytes), nil, func(temp string) error {
		end()
		if err := f.Close(); err != nil {
			return err
		}
		return use(temp, im)
	})
}

// temporaryPath is a name for a temporary .gqf file of size bytes: beside path, or else in the
// directory for temporary files. If neither has room, writing it beside path gives the error. A path
// that is itself a temporary gives the name of its target: the next job for the target then finds,
// and removes, what a killed job left.
func temporaryPath(path string, size int64) string {
	base := filepath.Base(path)
	if target, ok := atomicfile.TempOf(base); ok {
		base = target
	}
	base += ".gqf"
	for _, dir := range []string{filepath.Dir(path), os.TempDir()} {
		name := filepath.Join(dir, base)
		if free, err := atomicfile.FreeSpace(dir); err != nil || free < size {
			continue
		}
		if f, err := atomicfile.Create(name); err == nil {
			f.Abort()
			return name
		}
	}
	return filepath.Join(filepath.Dir(path), base)
}
