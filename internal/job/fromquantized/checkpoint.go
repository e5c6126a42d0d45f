package fromquantized

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/provenance"
)

// Checkpoint is an open checkpoint with weights that another library quantized.
type Checkpoint struct {
	path      string
	ck        *safetensors.Checkpoint
	quantized *hfquant.Quantized
}

// Open opens a checkpoint with weights that another library quantized. It returns nil if no weight
// is quantized, and if path is no checkpoint that can be read: its reader reports the error.
func Open(path string) (*Checkpoint, error) {
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
	return fmt.Sprintf("%s; tensors: %s", r.Name(), strings.Join(parts, "; "))
}

// Parameters is the number of weights of a checkpoint whose tensors have so many elements.
func (r *Inspection) Parameters(elements int64) int64 {
	return elements - r.Totals.elements + r.Totals.Weights
}

func quantizedBy(q *hfquant.Quantized) *provenance.QuantizedBy {
	return &provenance.QuantizedBy{Library: q.Format.Library(), Format: string(q.Format)}
}
