package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/inspect"
)

func printGGUF(w io.Writer, path string, r *gq.Inspection, verbose bool) error {
	f, s := r.GGUF, &r.GGUF.Totals
	printSummary(w, path, fmt.Sprintf("gguf %d", f.Version), gguf.KeyArchitecture, &r.Summary)
	switch {
	case s.Quantized > 0:
		field(w, "bits", "%.3f per quantized weight, %.3f over all", s.QuantBitsWeight, s.BitsPerWeight)
	case s.Tensors > 0:
		field(w, "bits", "%.3f per weight", s.BitsPerWeight)
	}
	field(w, "size", "%s (%d bytes) in %s", cmdline.Bytes(s.FileBytes), s.FileBytes, countFiles(s.Files))
	if s.Tensors == 0 {
		field(w, "tensors", "none: the file has metadata only")
	} else {
		field(w, "tensors", "%d: %s", s.Tensors, types(f))
		fmt.Fprintln(w)
		if err := printGGUFTensors(w, f.Tensors, s.Files > 1); err != nil {
			return err
		}
	}
	if !verbose {
		return nil
	}
	return printPairs(w, f)
}

// types counts the tensors of each type.
func types(r *inspect.GGUF) string {
	var parts []string
	for _, t := range r.Types {
		s := fmt.Sprintf("%d %s", t.Tensors, t.Type)
		if !t.Readable {
			s += " (gq cannot read the weights)"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

// printGGUFTensors prints the table of tensors of a .gguf file.
func printGGUFTensors(w io.Writer, rows []inspect.GGUFTensor, files bool) error {
	return cmdline.Table(w, []string{"TENSOR", "TYPE", "SHAPE", "BYTES>", "BPW>", "FILE"}, func(line func(...any)) {
		for _, t := range rows {
			file := ""
			if files {
				file = cmdline.Text(t.File)
			}
			line(cmdline.Text(t.Name), t.Type, cmdline.Shape(t.Shape), t.Bytes, bpw(t.BitsPerWeight), file)
		}
	})
}

// printPairs prints the metadata of a .gguf file for --verbose.
func printPairs(w io.Writer, r *inspect.GGUF) error {
	fmt.Fprintln(w)
	return cmdline.Table(w, []string{"KEY", "TYPE", "VALUE"}, func(line func(...any)) {
		for _, row := range r.Metadata {
			kind := row.Type
			if row.Count != nil {
				kind = fmt.Sprintf("%d %s", *row.Count, row.Type)
			}
			line(cmdline.Text(row.Key), kind, value(row.Value))
		}
	})
}

// value returns a metadata value in one line.
func value(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // tokens are often <names>
	_ = e.Encode(v)        // an Inspection has only what JSON has
	return short(b.Bytes())
}

// printGGUFTensor prints a tensor of a .gguf file in full.
func printGGUFTensor(w io.Writer, r *gq.GGUFTensor) error {
	t := &r.Tensor
	fmt.Fprintf(w, "%s: %s %s\n\n", cmdline.Text(t.Name), t.Type, cmdline.Shape(t.Shape))
	inner(w, "file", cmdline.Text(t.File))
	inner(w, "data at byte", t.Offset)
	inner(w, "data bytes", t.Bytes)
	if r.BlockWeights > 1 {
		inner(w, "blocks", fmt.Sprintf("%d weights in %d bytes", r.BlockWeights, r.BlockBytes))
	}
	inner(w, "bits/weight", bpw(t.BitsPerWeight))
	printScales(w, "scales", r.Scales)
	printScales(w, "minima", r.Mins)
	histogram(w, "codes", r.Codes)
	return printValues(w, r.Values)
}
