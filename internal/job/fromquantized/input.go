package fromquantized

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/fromonnx"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/imports"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
)

// input is the quantized checkpoint that a plan imports.
type input struct {
	imports.Imported
	from    *Checkpoint
	ck      *safetensors.Checkpoint
	weights []*weight // by item; nil: not quantized in the checkpoint
}

func (in *input) Facts() write.Facts {
	f := write.Facts{Root: in.from.path, Bytes: in.from.Bytes()}
	for _, file := range in.ck.Files() {
		f.Files = append(f.Files, file.Name)
	}
	f.Paths.Input(in.from.Noun(), in.from.Paths()...)
	return f
}

func (in *input) Guard(fn func() error) error { return in.ck.Guard(fn) }

// Unchanged fails if a file was changed after it was opened. No checksum would find the change.
func (in *input) Unchanged() error { return in.ck.Unchanged() }

// file is the name of the file with an item.
func (in *input) fileName(e *plan.Entry) string { return in.ck.Files()[e.Src.File].Name }

func (in *input) Advice(*plan.Quantized, *rounding.ScaleError) string {
	return "--dequantize stores such tensors in float32"
}

// FileAssets are config.json, without its entry about quantization, and the files beside it.
func (in *input) FileAssets() ([]gqf.PackedAsset, error) {
	specs, err := assets.ReadAll(in.ck.Dir(), in.Pl.Config)
	if err != nil {
		return nil, err
	}
	return assets.PackAssets(specs)
}

func (in *input) AddNames(b *gqf.Builder, _ *plan.Codes, _ []string) error {
	// Without the file, there is no account.
	record, _ := files.Read(filepath.Join(in.ck.Dir(), provenance.ProvenanceFile), files.MaxModelFile)
	return in.RecordOrigin(b, record, quantizedBy(in.from.quantized))
}

// Bytes returns bytes of an unquantized tensor as they are stored. For a dequantized tensor it
// dequantizes the rows that hold the bytes.
func (in *input) Bytes(e *plan.Entry, first, count int64, buf *[]byte) ([]byte, error) {
	w := in.weights[e.Index]
	if w == nil {
		view, err := in.ck.Bytes(*e.Src)
		if err != nil {
			return nil, err
		}
		if in.from.plusOne && e.Role == gqf.RoleNorm {
			return withoutOne(view[first:][:count], e.Src.Dtype, buf)
		}
		return view[first:][:count], nil
	}
	k := w.Shape[1]
	size := 4 * k
	from, to := first/size, (first+count-1)/size+1
	out := buffer.Grow(buf, int((to-from)*size))
	x := make([]float32, k)
	var row hfquant.Row
	for n := from; n < to; n++ {
		if err := w.Read(&row, n); err != nil {
			return nil, fmt.Errorf("%s: %w", in.fileName(e), err)
		}
		dequantizeRow(x, &row, w.Scheme.Group)
		for c, v := range x {
			if !floats.Finite(v) {
				return nil, fmt.Errorf("%s: tensor %q, row %d: the weight in column %d is %v: want finite weights", in.fileName(e), w.Name, n, c, v)
			}
		}
		imports.PutFloats(out[(n-from)*size:][:size], x, 0)
	}
	return out[first-from*size:][:count], nil
}

// withoutOne subtracts 1 from gains of norms.
func withoutOne(view []byte, d packing.Dtype, buf *[]byte) ([]byte, error) {
	if d != packing.F32 {
		return nil, fmt.Errorf("gains of norms with 1 added, in %s: expected F32", d)
	}
	x := make([]float32, len(view)/4)
	safetensors.Widen(x, view, d)
	out := buffer.Grow(buf, len(view))
	imports.PutFloats(out, x, -1)
	return out, nil
}

// dequantizeRow sets dst to (code - zero) * scale, or to code * scale + offset.
func dequantizeRow(dst []float32, row *hfquant.Row, group int64) {
	group = cmp.Or(group, int64(len(dst)))
	for k, q := range row.Codes {
		g := int64(k) / group
		switch s := row.Scales[g]; {
		case len(row.Zeros) > 0:
			dst[k] = float32(float32(int32(q)-int32(row.Zeros[g])) * s)
		case len(row.Offsets) > 0:
			dst[k] = float32(float32(q)*s) + row.Offsets[g]
		default:
			dst[k] = float32(float32(q) * s)
		}
	}
}

// reader reads codes, scales and zero points.
type reader struct {
	write.NoSums
	*input
}

func (in *input) Reader(*plan.Codes) write.Reader { return reader{input: in} }

// Begin prepares the rows of the block's unit. A scale of several of the item's groups is repeated.
func (in reader) Begin(b *write.Block, _ *write.Result) (fill func(n, i int64) error, end func() error, err error) {
	if err := fromcheckpoint.ReadBias(in.ck, b); err != nil {
		return nil, nil, err
	}
	it, row0 := b.Item, b.Row0()
	weight := in.weights[it.Index]
	source := weight.Scheme.Group
	if source == 0 || source > it.Cols {
		source = it.Cols
	}
	var row hfquant.Row
	return func(n, i int64) error {
		if err := weight.Read(&row, row0+n); err != nil {
			return fmt.Errorf("%s: %w", in.fileName(&it.Entry), err)
		}
		dst := b.Row(i)
		copy(dst.Codes, row.Codes)
		for g := range dst.Scales {
			from := int64(g) * weight.group / source
			dst.Scales[g] = row.Scales[from]
			switch it.Zeros {
			case packing.ZeroF32:
				b.RowFloatZeros(i)[g] = row.Offsets[from]
			case packing.ZeroInt8:
				b.Zeros[int(i)*b.Groups+g] = row.Zeros[from]
			}
		}
		if err := b.Holds(i); err != nil {
			return b.Fail(n, err)
		}
		return nil
	}, nil, nil
}

// weight is a quantized weight that a plan imports.
type weight struct {
	*hfquant.Weight
	index int   // in the checkpoint's list
	bytes int64 // of its parts
	file  int   // with its codes
	// group is the number of weights that share a scale in the item, which divides the checkpoint's:
	// scales are repeated.
	group int64
}

// Checkpoint is an open checkpoint with weights that another library quantized.
type Checkpoint struct {
	path      string
	ck        *safetensors.Checkpoint
	quantized *hfquant.Quantized
	plusOne   bool // the graph's gains of norms have 1 added
}

// Open opens a checkpoint with weights that another library quantized, or a graph for ONNX Runtime.
// It returns nil if no weight is quantized, and if path is no checkpoint that can be read: its
// reader reports the error.
func Open(path string) (imports.Foreign, error) {
	if m, err := fromonnx.Open(path); m != nil || err != nil {
		if err != nil {
			return nil, err
		}
		return &Checkpoint{path: path, ck: m.Checkpoint, quantized: m.Quantized, plusOne: m.PlusOne}, nil
	}
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		return nil, nil
	}
	f := &Checkpoint{path: path, ck: ck}
	if f.quantized, err = findQuantized(ck); f.quantized == nil {
		ck.Close()
		return nil, err
	}
	return f, nil
}

// findQuantized finds the quantized weights of a checkpoint; nil if there are none.
func findQuantized(ck *safetensors.Checkpoint) (*hfquant.Quantized, error) {
	config, err := assets.ReadConfig(ck)
	if err != nil {
		return nil, err
	}
	return hfquant.Find(ck, config)
}

// IsQuantized reports whether another library quantized weights of a checkpoint.
func IsQuantized(ck *safetensors.Checkpoint) (bool, error) {
	q, err := findQuantized(ck)
	return q != nil, err
}

func (f *Checkpoint) Close() error { return f.ck.Close() }
func (f *Checkpoint) IsGGUF() bool { return false }
func (f *Checkpoint) Noun() string { return "the quantized checkpoint" }

func (f *Checkpoint) Paths() (list []string) {
	for _, file := range f.ck.Files() {
		list = append(list, filepath.Join(f.ck.Dir(), file.Name))
	}
	return list
}

func (f *Checkpoint) Bytes() (n int64) {
	for _, file := range f.ck.Files() {
		n += file.Size
	}
	return n
}

func (f *Checkpoint) Quantized() string                     { return inspectQuantized(f.ck, f.quantized).String() }
func (f *Checkpoint) Sources() ([]provenance.Source, error) { return provenance.SourceFiles(f.ck), nil }

// Inspection describes the quantized weights of a checkpoint, for people and, as JSON, for
// programs: keys never change.
type Inspection struct {
	provenance.QuantizedBy
	Schemes []SchemeRow `json:"schemes"` // the most frequent first
	Totals  SchemeRow   `json:"totals"`
}

// SchemeRow sums up the weights of one scheme.
type SchemeRow struct {
	Scheme  string `json:"scheme,omitempty"` // "4 bits, group 128, F16 scales"; "" for totals
	Tensors int    `json:"tensors"`          // weights, which several tensors hold each
	Weights int64  `json:"weights"`
	Bytes   int64  `json:"bytes"` // codes, scales, zero points

	elements int64 // of the tensors that hold them
}

// Inspect describes the quantized weights of ck; nil if there are none. config is its
// config.json, nil if it has none.
func Inspect(ck *safetensors.Checkpoint, config []byte) (*Inspection, error) {
	q, err := hfquant.Find(ck, config)
	if q == nil {
		return nil, err
	}
	return inspectQuantized(ck, q), nil
}

func inspectQuantized(ck *safetensors.Checkpoint, q *hfquant.Quantized) *Inspection {
	r := &Inspection{QuantizedBy: *quantizedBy(q)}
	bytes := make([]int64, len(q.Weights))
	for name, i := range q.Parts {
		t, _ := ck.Lookup(name)
		bytes[i] += t.Size
		r.Totals.elements += t.Numel()
	}
	index := map[string]int{}
	for i := range q.Weights {
		w := &q.Weights[i]
		name := w.Scheme.String()
		at, ok := index[name]
		if !ok {
			at = len(r.Schemes)
			index[name] = at
			r.Schemes = append(r.Schemes, SchemeRow{Scheme: name})
		}
		for _, row := range []*SchemeRow{&r.Schemes[at], &r.Totals} {
			row.Tensors++
			row.Weights += w.Shape[0] * w.Shape[1]
			row.Bytes += bytes[i]
		}
	}
	slices.SortFunc(r.Schemes, func(a, b SchemeRow) int {
		return cmp.Or(cmp.Compare(b.Tensors, a.Tensors), strings.Compare(a.Scheme, b.Scheme))
	})
	return r
}

// String is the inspection in a message: "gptq; tensors: 20 of 4 bits, group 32, F16 scales".
func (r *Inspection) String() string {
	var parts []string
	for _, s := range r.Schemes {
		parts = append(parts, fmt.Sprintf("%d of %s", s.Tensors, s.Scheme))
	}
	name := r.Library
	if r.Format != name { // a library with several formats
		name += " " + r.Format
	}
	return fmt.Sprintf("%s; tensors: %s", name, strings.Join(parts, "; "))
}

// Parameters is the number of weights of a checkpoint whose tensors have so many elements.
func (r *Inspection) Parameters(elements int64) int64 {
	return elements - r.Totals.elements + r.Totals.Weights
}

func quantizedBy(q *hfquant.Quantized) *provenance.QuantizedBy {
	return &provenance.QuantizedBy{Library: q.Format.Library(), Format: string(q.Format)}
}
