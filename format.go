package gq

import (
	"slices"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/quantizer"
)

// Format is the format of what a job writes: a file, or a directory with a checkpoint.
type Format string

// The formats. The last five are checkpoints in formats of other libraries; docs/CHECKPOINTS.md says
// which programs load them.
const (
	FormatByName        Format = ""
	FormatGQF           Format = "gqf"
	FormatGGUF          Format = "gguf"
	FormatIntQuantized  Format = Format(hfquant.IntQuantized)  // compressed-tensors, codes as int8
	FormatPackQuantized Format = Format(hfquant.PackQuantized) // compressed-tensors, packed codes
	FormatGPTQ          Format = Format(hfquant.GPTQ)
	FormatTorchAO       Format = Format(hfquant.TorchAO)
	FormatMLX           Format = Format(hfquant.MLX)
)

var formats = []Format{FormatGQF, FormatGGUF, FormatIntQuantized, FormatPackQuantized, FormatGPTQ, FormatTorchAO, FormatMLX}

// ParseFormat reads the name of a format: gqf, gguf, int-quantized, pack-quantized, gptq, torchao or
// mlx.
func ParseFormat(s string) (Format, error) {
	if f := Format(s); slices.Contains(formats, f) {
		return f, nil
	}
	if err := hfquant.NotWritten(s); err != nil {
		return "", err
	}
	var names []string
	for _, f := range formats {
		names = append(names, string(f))
	}
	return "", suggest.Unknown("format", s, names)
}

// checkpoint is the format as package hfquant calls it. ok is false for a file.
func (f Format) checkpoint() (format hfquant.Format, ok bool) {
	_, ok = quantizer.CheckpointTarget(hfquant.Format(f))
	return hfquant.Format(f), ok
}

// IsDirectory reports whether jobs of the format write a directory.
func (f Format) IsDirectory() bool {
	_, ok := f.checkpoint()
	return ok
}

// noun is what a job writes, in messages.
func (f Format) noun() string {
	if f.IsDirectory() {
		return "a checkpoint of format " + string(f)
	}
	return "a ." + string(f) + " file"
}
