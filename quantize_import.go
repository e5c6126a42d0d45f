package gq

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer/conversion"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// importDir is the working directory with the checkpoint that is made of the source.
func (j *quantizeJob) importDir() string {
	calib, _ := j.workPaths()
	return strings.TrimSuffix(calib, ".calib") + ".import"
}

// importSource makes a checkpoint of unquantized weights of the source, in a working directory that
// lasts as long as the others of the job, and returns its path.
func (j *quantizeJob) importSource() (dir string, err error) {
	if err := j.mayQuantize(); err != nil {
		return "", err
	}
	plan, err := newImport(j.foreign, conversion.ImportOptions{RepackOptions: conversion.RepackOptions{Threads: j.o.Threads}, Dequantize: true})
	if err != nil {
		return "", err
	}
	if !j.dry {
		if err := plan.CheckOutput(j.dst); err != nil {
			return "", err
		}
	}
	if j.source, err = j.foreign.Sources(); err != nil {
		return "", err
	}
	parts := []any{"import", 1}
	for _, path := range j.foreign.Paths() {
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
		end := plan.begin(j.stages)
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

// mayQuantize refuses a source whose weights are quantized, unless the options ask for quantizing them
// once more.
func (j *quantizeJob) mayQuantize() error {
	tensors := j.foreign.Quantized()
	if tensors == "" {
		return nil
	}
	if j.o.Requantize {
		j.logf("%s is quantized already (%s): its weights are quantized once more, which loses more than quantizing the original", j.name, tensors)
		return nil
	}
	takes := "takes its codes over"
	if j.foreign.IsGGUF() {
		takes = "takes codes of Q1_0, Q2_0, Q4_0, Q5_0 and Q8_0 over"
	}
	return optionf("", "%s is quantized already (%s): gq repack %s -o x.gqf %s; --requantize quantizes the weights once more, which loses more than quantizing the original",
		j.name, tensors, j.name, takes)
}
