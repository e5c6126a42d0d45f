package inspect

import (
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
)

func printFile(w io.Writer, r *gqf.Inspection) error {
	fmt.Fprintf(w, "%s: gqf %s, %s (%d bytes)\n", cmdline.Text(r.File), r.Version, cmdline.Bytes(r.FileBytes), r.FileBytes)
	fmt.Fprintf(w, "data: %d bytes at %d, a checksum for every %d\n\n", r.DataBytes, r.DataOffset, r.BlockBytes)

	cmdline.Table(w, []string{"SECTION", "OFFSET>", "BYTES>", "RECORDS>", "CRC32C"}, func(line func(...any)) {
		for _, s := range r.Sections {
			line(s.Name, s.Offset, s.Bytes, s.Count, s.CRC32C)
		}
	})
	if len(r.Assets) > 0 {
		fmt.Fprintln(w)
		cmdline.Table(w, []string{"ASSET", "KIND", "BYTES>", "STORED>", "CODEC"}, func(line func(...any)) {
			for _, a := range r.Assets {
				line(cmdline.Text(a.Name), a.Kind, a.RawBytes, a.StoredBytes, a.Codec)
			}
		})
	}
	printJSON(w, "config", r.Config)
	printJSON(w, "recipe", r.Recipe)
	printJSON(w, "provenance", r.Provenance)

	fmt.Fprintln(w)
	cmdline.Table(w, []string{"TENSOR", "ROLE", "SHAPE", "DTYPE", "BITS>", "GROUP>", "MAPPING", "SCALES", "LAYOUT", "TILE", "FLAGS", "BYTES>", "BPW>", "CPU", "SHARED WITH"}, func(line func(...any)) {
		for i := range r.Tensors {
			tensorLines(line, &r.Tensors[i])
		}
	})

	s := &r.Totals
	fmt.Fprintf(w, "\n%d tensors under %d names: %d quantized, %d kept, %d shared\n", s.Tensors, s.Names, s.Quantized, s.Kept, s.Shared)
	if s.Shared > 0 {
		fmt.Fprintf(w, "sharing saved %s (%d bytes), which further names would take on their own\n", cmdline.Bytes(s.SharedSaved), s.SharedSaved)
	}
	_, err := fmt.Fprintf(w, "%d weights, %s of %s in the checkpoint; %.3f bits per quantized weight, %.3f over all\n",
		s.Elements, cmdline.Bytes(s.PayloadBytes), cmdline.Bytes(s.SourceBytes), s.QuantBitsWeight, s.BitsPerWeight)
	return err
}

// tensorLines gives a line for the tensor, and one for each of further variants.
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
		line(cmdline.Text(r.Name), r.Role, shape, r.Dtype, "", "", "", "", r.Layout, "", "", r.Bytes, bpw(r.BitsPerWeight), "", shared)
		return
	}
	first := gqf.VariantRow{Layout: r.Layout, Tile: r.Tile, Flags: r.Flags, Bytes: r.Bytes, BitsPerWeight: r.BitsPerWeight, CPU: r.CPU}
	if len(r.Variants) > 0 {
		first = r.Variants[0]
	}
	line(cmdline.Text(r.Name), r.Role, shape, r.Dtype, r.Bits, group(uint64(r.Group)), r.Mapping, r.ScaleDtype,
		first.Layout, first.Tile, first.Flags, first.Bytes, bpw(first.BitsPerWeight), first.CPU.String(), shared)
	for _, v := range r.Variants[min(1, len(r.Variants)):] {
		line("", "", "", "", "", "", "", "", v.Layout, v.Tile, v.Flags, v.Bytes, bpw(v.BitsPerWeight), v.CPU.String(), "")
	}
}

func bpw(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func group(g uint64) string {
	if g == 0 {
		return "channel"
	}
	return strconv.FormatUint(g, 10)
}

func printCheckpoint(w io.Writer, r *safetensors.Inspection) error {
	s := &r.Totals
	fmt.Fprintf(w, "%s: safetensors, %s\n\n", cmdline.Text(r.Dir), cmdline.Bytes(s.FileBytes))
	cmdline.Table(w, []string{"FILE", "BYTES>", "TENSORS>", "SHA-256 OF THE HEADER"}, func(line func(...any)) {
		for _, f := range r.Files {
			line(cmdline.Text(f.Name), f.Bytes, f.Tensors, f.HeaderSHA256)
		}
	})
	for i, f := range r.Files {
		// Shards tend to repeat what the first says.
		if len(f.Metadata) > 0 && (i == 0 || !maps.Equal(f.Metadata, r.Files[i-1].Metadata)) {
			printStrings(w, "metadata of "+cmdline.Text(f.Name), f.Metadata)
		}
	}

	fmt.Fprintln(w)
	cmdline.Table(w, []string{"TENSOR", "DTYPE", "SHAPE", "BYTES>", "FILE"}, func(line func(...any)) {
		for _, t := range r.Tensors {
			file := ""
			if len(r.Files) > 1 {
				file = cmdline.Text(t.File)
			}
			line(cmdline.Text(t.Name), cmdline.Text(t.Dtype), cmdline.Shape(t.Shape), t.Bytes, file)
		}
	})

	fmt.Fprintln(w)
	return cmdline.Table(w, []string{"DTYPE", "TENSORS>", "ELEMENTS>", "BYTES>", "NOTE"}, func(line func(...any)) {
		for _, d := range r.Dtypes {
			note := ""
			if !d.Known {
				note = "unknown: gq cannot read these"
			}
			line(cmdline.Text(d.Dtype), d.Tensors, d.Elements, d.Bytes, note)
		}
		line("all", s.Tensors, s.Elements, s.Bytes)
	})
}
