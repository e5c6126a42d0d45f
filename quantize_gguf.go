package gq

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// stageImport is the stage in which a GGUF file becomes a checkpoint.
const stageImport = "importing"

// importDir is the working directory with the checkpoint of a GGUF file.
func (j *quantizeJob) importDir() string {
	calib, _ := j.workPaths()
	return strings.TrimSuffix(calib, ".calib") + ".import"
}

// importGGUF makes a checkpoint of the GGUF file src, in a working directory that lasts as long as the
// others of the job, and returns its path.
func (j *quantizeJob) importGGUF(src string) (dir string, err error) {
	f, err := gguf.Open(src)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := j.mayQuantize(src, f); err != nil {
		return "", err
	}
	var progress func(int64)
	plan, err := conversion.NewImport(f, src, conversion.ImportOptions{
		RepackOptions: conversion.RepackOptions{Threads: j.o.Threads, Progress: func(n int64) { progress(n) }}, Dequantize: true,
	})
	if err != nil {
		return "", err
	}
	if !j.dry {
		if err := plan.CheckOutput(j.dst); err != nil {
			return "", err
		}
	}
	if j.source, err = plan.Sources(); err != nil {
		return "", err
	}
	parts := []any{"import", 1}
	for _, path := range f.Paths() {
		st, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		parts = append(parts, filepath.Base(path), st.Size(), st.ModTime().UnixNano())
	}
	for _, s := range j.source {
		parts = append(parts, s.HeaderSHA256)
	}
	key, err := workdir.Key(parts...)
	if err != nil {
		return "", err
	}
	if j.imported, err = workdir.Open(j.importDir()); err != nil {
		return "", err
	}
	dir, _, err = j.imported.Tree(j.ctx, "checkpoint", key, func(dir string) error {
		add, end := j.begin(stageImport, "bytes", plan.SourceBytes)
		progress = add
		return plan.WriteTemporary(j.ctx, filepath.Join(dir, "import.gqf"), nil, func(temp string) error {
			end()
			g, err := gqf.Open(temp, gqf.Options{})
			if err != nil {
				return err
			}
			defer g.Close()
			_, err = conversion.Dequantize(j.ctx, g, temp, dir, conversion.DequantizeOptions{Dtype: packing.F32, Threads: j.o.Threads})
			return err
		})
	})
	return dir, err
}

// mayQuantize refuses a file whose weights are quantized, unless the options ask for quantizing them
// once more.
func (j *quantizeJob) mayQuantize(src string, f *gguf.File) error {
	types := map[string]int{}
	for _, t := range f.Tensors {
		if t.Type.BlockWeights() > 1 {
			types[t.Type.String()]++
		}
	}
	if len(types) == 0 {
		return nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(types)) {
		names = append(names, fmt.Sprintf("%d of %s", types[name], name))
	}
	if !j.o.Requantize {
		return optionf("", "%s is quantized already (tensors: %s): gq repack takes codes of Q1_0, Q2_0, Q4_0, Q5_0 and Q8_0 over; --requantize quantizes the weights once more, which loses more than quantizing the original",
			src, strings.Join(names, ", "))
	}
	j.logf("%s is quantized already (tensors: %s): its weights are quantized once more, which loses more than quantizing the original", src, strings.Join(names, ", "))
	return nil
}
