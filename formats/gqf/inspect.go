package gqf

import (
	"encoding/json"
	"fmt"

	"github.com/lowbit-go/gq/packing"
)

// An Inspection is a file's directory, for people and, as JSON, for programs: keys never change.
type Inspection struct {
	File       string          `json:"file"`
	Version    string          `json:"format_version"` // as "1.0"
	FileBytes  int64           `json:"file_bytes"`
	DataOffset int64           `json:"data_offset"`
	DataBytes  int64           `json:"data_bytes"`
	BlockBytes int64           `json:"checksum_block_bytes"`
	Sections   []SectionInfo   `json:"sections"`
	Assets     []AssetInfo     `json:"assets"`
	Config     json.RawMessage `json:"config"`     // null if absent; a string if not JSON
	Recipe     json.RawMessage `json:"recipe"`     // likewise
	Provenance json.RawMessage `json:"provenance"` // likewise
	Tensors    []TensorRow     `json:"tensors"`    // in the file's order
	Totals     struct {
		Tensors         int     `json:"tensors"`
		Names           int     `json:"names"` // not counting absorbed names
		Payloads        int     `json:"payloads"`
		Quantized       int     `json:"quantized"`
		Unquantized     int     `json:"unquantized"`
		Shared          int     `json:"shared"`        // tensors with several names
		SharedSaved     int64   `json:"shared_saved"`  // bytes that a copy per name would add
		Elements        int64   `json:"elements"`      // of all tensors
		PayloadBytes    int64   `json:"payload_bytes"` // with headers
		SourceBytes     int64   `json:"source_bytes"`  // in the checkpoint
		BitsPerWeight   float64 `json:"bits_per_weight"`
		QuantElements   int64   `json:"quantized_elements"`
		QuantBytes      int64   `json:"quantized_bytes"`
		QuantBitsWeight float64 `json:"quantized_bits_per_weight"`
	} `json:"totals"`
}

type SectionInfo struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Count  int    `json:"count"` // records
	CRC32C string `json:"crc32c"`
}

// A TensorRow is a row of the table of tensors. If a tensor has several variants, the fields from
// Bits to Flags describe the first known variant.
type TensorRow struct {
	Name          string       `json:"name"`
	Role          Role         `json:"role"`
	Shape         []int64      `json:"shape"`
	Dtype         string       `json:"dtype"`  // in the checkpoint
	Slices        int          `json:"slices"` // number of slices: experts, or 1
	Transposed    bool         `json:"transposed"`
	Quantized     bool         `json:"quantized"`
	Mapping       Mapping      `json:"mapping"`
	Algorithm     Algorithm    `json:"algorithm"`
	Bits          int          `json:"bits"`  // of a code, or of an unquantized element
	Group         int64        `json:"group"` // 0: per channel, or unquantized
	ScaleDtype    string       `json:"scale_dtype"`
	ZeroPoints    string       `json:"zero_points"`
	Grid          string       `json:"grid"`
	Layout        string       `json:"layout"`
	Tile          string       `json:"tile"`
	Flags         string       `json:"flags"`
	Bytes         int64        `json:"bytes"`           // of all payloads with their headers
	BitsPerWeight float64      `json:"bits_per_weight"` // of all payloads, see packing.BitsPerWeight
	SourceBytes   int64        `json:"source_bytes"`    // in the checkpoint, under all names
	SharedWith    []string     `json:"shared_with"`     // other names
	Bias          string       `json:"bias,omitempty"`  // name of the layer's bias tensor
	CPU           CPUFeatures  `json:"cpu,omitempty"`   // required by the first variant
	Variants      []VariantRow `json:"variants,omitempty"`
}

// A VariantRow describes a variant of a tensor with several.
type VariantRow struct {
	Variant       int         `json:"variant"`
	Layout        string      `json:"layout"`
	Tile          string      `json:"tile"`
	Flags         string      `json:"flags"`
	Bytes         int64       `json:"bytes"`
	BitsPerWeight float64     `json:"bits_per_weight"`
	CPU           CPUFeatures `json:"cpu,omitempty"`     // required by the variant
	Skipped       bool        `json:"skipped,omitempty"` // the layout is unknown to this version
}

// Inspect returns the directory, config, recipe and provenance, and reads no weights.
func Inspect(f *File) (*Inspection, error) {
	r := &Inspection{
		File: f.name, Version: fmt.Sprintf("%d.%d", f.h.major, f.h.minor),
		FileBytes: f.Size(), DataOffset: int64(f.h.dataOff), DataBytes: int64(f.h.dataLen), BlockBytes: 1 << f.h.blockLog2,
		Assets: f.Assets(),
	}
	for i, s := range f.h.sections {
		r.Sections = append(r.Sections, SectionInfo{sectionNames[i], int64(s.off), int64(s.length), int(s.count), fmt.Sprintf("%08x", s.crc)})
	}
	for _, a := range r.Assets {
		into := map[AssetKind]*json.RawMessage{AssetConfig: &r.Config, AssetRecipe: &r.Recipe, AssetProvenance: &r.Provenance}[a.Kind]
		if into == nil {
			continue
		}
		raw, err := f.Asset(a.Name)
		if err != nil {
			return nil, err
		}
		if !json.Valid(raw) {
			raw, _ = json.Marshal(string(raw)) // cannot fail for a string
		}
		*into = raw
	}
	source := make([]int64, f.Len())
	for i := range f.count(secNames) {
		n := f.nameRec(i)
		source[n.tensor] += int64(n.sourceBytes)
	}
	r.Tensors = make([]TensorRow, f.Len())
	r.Totals.Tensors, r.Totals.Payloads = f.Len(), f.NumPayloads()
	for i := range r.Tensors {
		t := f.Tensor(i)
		r.Tensors[i] = newRow(t, source[i])
		r.add(&r.Tensors[i], t.Elements())
	}
	r.Totals.BitsPerWeight = packing.BitsPerWeight(r.Totals.PayloadBytes, r.Totals.Elements)
	r.Totals.QuantBitsWeight = packing.BitsPerWeight(r.Totals.QuantBytes, r.Totals.QuantElements)
	return r, nil
}

// Row describes the tensor as Inspect does, without SourceBytes.
func (t Tensor) Row() TensorRow { return newRow(t, 0) }

func newRow(t Tensor, sourceBytes int64) TensorRow {
	row := TensorRow{
		Name: t.Name, Role: t.Role, Shape: t.Shape, Dtype: t.Dtype.String(), Slices: t.Experts, Transposed: t.Transposed,
		Mapping: t.Mapping, Algorithm: t.Algorithm, SourceBytes: sourceBytes, SharedWith: t.Names()[1:],
	}
	if t.Bias >= 0 {
		row.Bias = t.f.tensorName(t.Bias)
	}
	for i := range t.payloads {
		p := t.f.Payload(t.first + i)
		h := &p.Header
		if p.Stored == len(row.Variants) {
			row.Variants = append(row.Variants, VariantRow{
				Variant: p.Stored, Layout: h.Layout.String(), Tile: h.Tile.String(), Flags: h.Flags.String(), CPU: p.CPU, Skipped: p.Variant < 0,
			})
		}
		if weights := p.Slice == 0 && p.Kind == KindWeights; weights && (i == 0 || p.Variant == 0) {
			row.CPU = p.CPU
			row.Quantized = h.Layout != packing.LayoutPlain
			row.Bits, row.Group, row.Layout, row.Tile, row.Flags = int(h.Bits), int64(h.Group), h.Layout.String(), h.Tile.String(), h.Flags.String()
			row.ScaleDtype, row.ZeroPoints, row.Grid = h.ScaleDtype.String(), h.ZeroKind.String(), h.Grid.String()
			if !row.Quantized {
				row.Bits, row.Grid = h.Dtype.Bits(), "none"
			}
		}
		row.Bytes += p.Length
		v := &row.Variants[p.Stored]
		v.Bytes += p.Length
		v.BitsPerWeight = packing.BitsPerWeight(v.Bytes, t.Elements())
	}
	row.BitsPerWeight = packing.BitsPerWeight(row.Bytes, t.Elements())
	if len(row.Variants) == 1 {
		row.Variants = nil
	}
	return row
}

func (r *Inspection) add(row *TensorRow, elements int64) {
	s := &r.Totals
	s.Names += 1 + len(row.SharedWith)
	s.Elements += elements
	s.PayloadBytes += row.Bytes
	s.SourceBytes += row.SourceBytes
	if row.Quantized {
		s.Quantized++
		s.QuantElements += elements
		s.QuantBytes += row.Bytes
	} else {
		s.Unquantized++
	}
	if n := int64(len(row.SharedWith)); n > 0 {
		s.Shared++
		s.SharedSaved += n * row.Bytes
	}
}
