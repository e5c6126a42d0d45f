package gq

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/internal/suggest"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
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

// resolveFormat settles the format of the file, and the target of a .gguf file.
func (o *QuantizeOptions) resolveFormat(dst string) error {
	if o.Format == FormatByName {
		o.Format = FormatGQF
		if strings.EqualFold(filepath.Ext(dst), ".gguf") {
			o.Format = FormatGGUF
		}
	}
	if _, err := ParseFormat(string(o.Format)); err != nil {
		return &OptionError{"format", err}
	}
	if err := checkEnding(dst, o.Format, ""); err != nil {
		return err
	}
	target, err := o.formatTarget(dst)
	if err != nil || target == nil {
		return err
	}
	r := &o.Recipe
	switch {
	case len(r.Layouts) > 0 || r.Tile != packing.Tile{}:
		return optionf("", "%s has layouts of its own: state neither layout nor tile", o.Format.noun())
	case len(r.Targets) == 0:
		r.Targets = []quantizer.Target{*target}
	case r.Targets[0].Name != target.Name:
		return optionf("target", "%s has no place in %s: leave it out, or write a .gqf file", quantizer.TargetNames(r.Targets), o.Format.noun())
	}
	r.Pre = cmp.Or(o.Pre, r.Pre) // for the saved recipe
	return nil
}

// formatTarget is the target of the format; nil for a .gqf file. It refuses options of other formats.
func (o *QuantizeOptions) formatTarget(dst string) (*quantizer.Target, error) {
	format, checkpoint := o.Format.checkpoint()
	switch pre := o.Recipe.Pre != "" || o.Pre != ""; {
	case o.Split < 0:
		return nil, optionf("split", "%d: at least 1", o.Split)
	case o.Format == FormatGQF && o.Split != 0:
		return nil, optionf("split", "is for .gguf files and checkpoints, and %s is a .gqf file", dst)
	case o.Format == FormatGQF && pre:
		return nil, optionf("pre", "is for .gguf files, and %s is a .gqf file", dst)
	case o.Format == FormatGQF:
		return nil, nil
	case o.Format == FormatGGUF:
		return &quantizer.TargetGGUF, nil
	case checkpoint && pre:
		return nil, optionf("pre", "is for .gguf files, and %s is %s", dst, o.Format.noun())
	}
	target, _ := quantizer.CheckpointTarget(format)
	return &target, nil
}

// setFormat sets the options of a plan that follow from the format.
func (o *QuantizeOptions) setFormat(to *conversion.Options) {
	if f, ok := o.Format.checkpoint(); ok {
		to.Checkpoint = &conversion.CheckpointOptions{Format: f, Split: o.Split}
	}
	if o.Format == FormatGGUF {
		to.GGUF = &conversion.GGUFOptions{Pre: o.Recipe.Pre, Split: o.Split}
	}
}
