package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/inspect"
	"github.com/lowbit-go/gq/packing"
)

// field prints a line of the summary.
func field(w io.Writer, name, format string, args ...any) {
	fmt.Fprintf(w, "%-12s  %s\n", name, fmt.Sprintf(format, args...))
}

// printSummary prints the summary that files and checkpoints have in common. kind names the file
// format, and source the place of the architecture's name.
func printSummary(w io.Writer, path, kind, source string, s *gq.Summary) {
	field(w, "file", "%s, %s", cmdline.Text(path), kind)
	field(w, "model", "%s", cmdline.Text(s.Model))
	architecture := "unknown: there is no " + source + " that names it"
	if s.Architecture != "" {
		architecture = cmdline.Text(s.Architecture)
	}
	field(w, "architecture", "%s", architecture)
	field(w, "parameters", "%s (%d)", cmdline.Count(s.Parameters), s.Parameters)
	if s.Warning != "" {
		field(w, "warning", "%s", cmdline.Text(s.Warning))
	}
}

func printFile(w io.Writer, path string, r *gq.Inspection, verbose bool) error {
	f, s := r.File, &r.File.Totals
	printSummary(w, path, "gqf "+f.Version, "config.json", &r.Summary)
	field(w, "bits", "%.3f per quantized weight, %.3f over all", s.QuantBitsWeight, s.BitsPerWeight)
	field(w, "size", "%s (%d bytes), of %s in the checkpoint", cmdline.Bytes(f.FileBytes), f.FileBytes, cmdline.Bytes(s.SourceBytes))
	field(w, "tensors", "%d under %d names: %d quantized, %d unquantized, %d shared", s.Tensors, s.Names, s.Quantized, s.Unquantized, s.Shared)
	if s.Shared > 0 {
		field(w, "sharing", "saves %s (%d bytes), which further names would take on their own", cmdline.Bytes(s.SharedSaved), s.SharedSaved)
	}
	fmt.Fprintln(w)
	if err := printTensors(w, f.Tensors); err != nil || !verbose {
		return err
	}
	return printMetadata(w, f)
}

func printMetadata(w io.Writer, r *gqf.Inspection) error {
	fmt.Fprintf(w, "\ndata: %d bytes at %d, a checksum for every %d\n\n", r.DataBytes, r.DataOffset, r.BlockBytes)
	err := cmdline.Table(w, []string{"SECTION", "OFFSET>", "BYTES>", "RECORDS>", "CRC32C"}, func(line func(...any)) {
		for _, s := range r.Sections {
			line(s.Name, s.Offset, s.Bytes, s.Count, s.CRC32C)
		}
	})
	if err != nil {
		return err
	}
	if len(r.Assets) > 0 {
		fmt.Fprintln(w)
		err = cmdline.Table(w, []string{"ASSET", "KIND", "BYTES>", "STORED>", "CODEC"}, func(line func(...any)) {
			for _, a := range r.Assets {
				line(cmdline.Text(a.Name), a.Kind, a.RawBytes, a.StoredBytes, a.Codec)
			}
		})
	}
	printJSON(w, "config", r.Config)
	printJSON(w, "recipe", r.Recipe)
	printJSON(w, "provenance", r.Provenance)
	return err
}

func printTensors(w io.Writer, rows []gqf.TensorRow) error {
	return cmdline.Table(w, []string{"TENSOR", "ROLE", "SHAPE", "DTYPE", "BITS>", "GROUP>", "MAPPING", "ZEROS", "SCALES", "LAYOUT", "TILE", "FLAGS", "BYTES>", "BPW>", "CPU", "SHARED WITH"}, func(line func(...any)) {
		for i := range rows {
			tensorLines(line, &rows[i])
		}
	})
}

// tensorLines prints a line for the tensor, and one for each further variant.
func tensorLines(line func(...any), r *gqf.TensorRow) {
	shape := cmdline.Shape(r.Shape)
	if r.Transposed {
		shape += " (in x out)"
	}
	names := make([]string, len(r.SharedWith))
	for i, n := range r.SharedWith {
		names[i] = cmdline.Text(n)
	}
	shared := strings.Join(names, ", ")
	if !r.Quantized {
		line(cmdline.Text(r.Name), r.Role, shape, r.Dtype, "", "", "", "", "", r.Layout, "", "", r.Bytes, bpw(r.BitsPerWeight), "", shared)
		return
	}
	first := gqf.VariantRow{Layout: r.Layout, Tile: r.Tile, Flags: r.Flags, Bytes: r.Bytes, BitsPerWeight: r.BitsPerWeight, CPU: r.CPU}
	if len(r.Variants) > 0 {
		first = r.Variants[0]
	}
	zeros := r.ZeroPoints
	if zeros == packing.ZeroNone.String() {
		zeros = ""
	}
	line(cmdline.Text(r.Name), r.Role, shape, r.Dtype, r.Bits, group(uint64(r.Group)), r.Mapping, zeros, r.ScaleDtype,
		first.Layout, first.Tile, first.Flags, first.Bytes, bpw(first.BitsPerWeight), first.CPU.String(), shared)
	for _, v := range r.Variants[min(1, len(r.Variants)):] {
		line("", "", "", "", "", "", "", "", "", v.Layout, v.Tile, v.Flags, v.Bytes, bpw(v.BitsPerWeight), v.CPU.String(), "")
	}
}

func bpw(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func group(g uint64) string {
	if g == 0 {
		return "channel"
	}
	return strconv.FormatUint(g, 10)
}

func printCheckpoint(w io.Writer, path string, r *gq.Inspection, verbose bool) error {
	ck, s := r.Checkpoint, &r.Checkpoint.Totals
	printSummary(w, path, "safetensors", "config.json", &r.Summary)
	if q := r.Quantized; q != nil {
		field(w, "quantized", "%s", q)
		field(w, "bits", "%.3f per quantized weight, %.3f over all", r.Summary.QuantizedBits, r.Summary.Bits)
	} else {
		field(w, "bits", "%.3f per weight", r.Summary.Bits)
	}
	for _, a := range r.Adapters {
		field(w, "adapter", "%s, SHA-256 %s", cmdline.Text(a.String()), a.SHA256)
	}
	if r.Unreadable != "" {
		field(w, "quantized", "gq cannot read the weights: %s", cmdline.Text(r.Unreadable))
	}
	field(w, "size", "%s (%d bytes) in %s", cmdline.Bytes(s.FileBytes), s.FileBytes, countFiles(s.Files))
	field(w, "tensors", "%d: %s", s.Tensors, dtypes(ck))
	fmt.Fprintln(w)
	if err := printSources(w, ck.Tensors, s.Files > 1); err != nil || !verbose {
		return err
	}
	return printFiles(w, ck)
}

func countFiles(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

func dtypes(r *inspect.Checkpoint) string {
	var parts []string
	for _, d := range r.Dtypes {
		s := fmt.Sprintf("%d %s", d.Tensors, cmdline.Text(d.Dtype))
		if !d.Known {
			s += " (unknown: gq cannot read it)"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

func printSources(w io.Writer, rows []inspect.CheckpointTensor, files bool) error {
	return cmdline.Table(w, []string{"TENSOR", "DTYPE", "SHAPE", "BYTES>", "FILE"}, func(line func(...any)) {
		for _, t := range rows {
			file := ""
			if files {
				file = cmdline.Text(t.File)
			}
			line(cmdline.Text(t.Name), cmdline.Text(t.Dtype), cmdline.Shape(t.Shape), t.Bytes, file)
		}
	})
}

// printFiles prints the files of a checkpoint for --verbose.
func printFiles(w io.Writer, r *inspect.Checkpoint) error {
	fmt.Fprintln(w)
	err := cmdline.Table(w, []string{"FILE", "BYTES>", "TENSORS>", "SHA-256 OF THE HEADER"}, func(line func(...any)) {
		for _, f := range r.Files {
			line(cmdline.Text(f.Name), f.Bytes, f.Tensors, f.HeaderSHA256)
		}
	})
	for i, f := range r.Files {
		// Shards often repeat the metadata of the first one.
		if len(f.Metadata) > 0 && (i == 0 || !maps.Equal(f.Metadata, r.Files[i-1].Metadata)) {
			raw, _ := json.Marshal(f.Metadata) // strings always have JSON
			printJSON(w, "metadata of "+cmdline.Text(f.Name), raw)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	return cmdline.Table(w, []string{"DTYPE", "TENSORS>", "ELEMENTS>", "BYTES>"}, func(line func(...any)) {
		for _, d := range r.Dtypes {
			line(cmdline.Text(d.Dtype), d.Tensors, d.Elements, d.Bytes)
		}
		line("all", r.Totals.Tensors, r.Totals.Elements, r.Totals.Bytes)
	})
}

// Limits for printed metadata; --json has all of it.
const (
	maxValue = 100 // characters of a value
	maxKeys  = 40  // of an object within another: id2label may have thousands
	maxItems = 40  // of a list of objects
	maxDepth = 4   // of objects in objects
)

// printJSON prints a shortened JSON document of the file: a line for each value, nested values
// below their key, long values cut.
func printJSON(w io.Writer, title string, raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		fmt.Fprintf(w, "  %s\n", short(raw))
		return
	}
	printObject(w, 1, object)
}

// printObject prints the keys of an object in order, indented by depth.
func printObject(w io.Writer, depth int, object map[string]json.RawMessage) {
	indent, width := strings.Repeat("  ", depth), 0
	for k := range object {
		width = max(width, min(len(cmdline.Text(k)), maxKeys))
	}
	for _, k := range slices.Sorted(maps.Keys(object)) {
		name, raw := cmdline.Text(k), object[k]
		var inner map[string]json.RawMessage
		var list []map[string]json.RawMessage
		switch {
		case depth == maxDepth:
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, short(raw))
		case json.Unmarshal(raw, &inner) == nil && 0 < len(inner) && len(inner) <= maxKeys:
			fmt.Fprintf(w, "%s%s\n", indent, name)
			printObject(w, depth+1, inner)
		case json.Unmarshal(raw, &list) == nil && 0 < len(list) && len(list) <= maxItems:
			for i, item := range list {
				fmt.Fprintf(w, "%s%s %d\n", indent, name, i+1)
				printObject(w, depth+1, item)
			}
		default:
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, short(raw))
		}
	}
}

// short returns a JSON value in one line, without the quotes of a string.
func short(raw json.RawMessage) string {
	var s string
	if bytes.HasPrefix(raw, []byte{'"'}) && json.Unmarshal(raw, &s) == nil {
		return cut(cmdline.Text(s))
	}
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // raw is valid JSON: a parser returned it
	return cut(cmdline.Text(b.String()))
}

// cut shortens a long line.
func cut(s string) string {
	if r := []rune(s); len(r) > maxValue {
		return strings.TrimRight(string(r[:maxValue-4]), " ") + " ..."
	}
	return s
}
