package gq

import (
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/quantizer"
)

// format is the format of what a job writes: a file, a directory for ONNX Runtime, or a directory
// with a checkpoint in a format of package hfquant.
type format string

const (
	formatGQF  format = "gqf"
	formatGGUF format = "gguf"
	formatONNX format = "onnx"
)

// formatOf is the format that targets decide. A name that ends in .gqf makes a .gqf file with the
// target's schemes, which gq export can write in the target's format.
func formatOf(targets []quantizer.Target, dst string) format {
	switch r := (quantizer.Recipe{Targets: targets}); {
	case strings.EqualFold(filepath.Ext(dst), ".gqf"):
		return formatGQF
	case r.ForGGUF():
		return formatGGUF
	case r.ForONNX():
		return formatONNX
	case r.CheckpointFormat() != "":
		return format(r.CheckpointFormat())
	}
	return formatGQF
}

// checkpoint is the format as package hfquant calls it, "" for other formats.
func (f format) checkpoint() hfquant.Format {
	if f == formatGQF || f == formatGGUF || f == formatONNX {
		return ""
	}
	return hfquant.Format(f)
}

// isDirectory reports whether jobs of the format write a directory.
func (f format) isDirectory() bool { return f == formatONNX || f.checkpoint() != "" }

// noun is what a job writes, in messages.
func (f format) noun() string {
	switch {
	case f == formatONNX:
		return "a directory for ONNX Runtime"
	case f.isDirectory():
		return "a checkpoint of format " + string(f)
	}
	return "a ." + string(f) + " file"
}
