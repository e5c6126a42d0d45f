package conversion

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/hfquant"
	"github.com/lowbit-go/gq/formats/safetensors"
)

// QuantizedInspection describes the quantized weights of a checkpoint, for people and, as JSON, for
// programs: keys never change.
type QuantizedInspection struct {
	QuantizedBy
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

// InspectQuantized describes the quantized weights of ck; nil if there are none. config is its
// config.json, nil if it has none.
func InspectQuantized(ck *safetensors.Checkpoint, config []byte) (*QuantizedInspection, error) {
	q, err := hfquant.Find(ck, config)
	if q == nil {
		return nil, err
	}
	return inspectQuantized(ck, q), nil
}

func inspectQuantized(ck *safetensors.Checkpoint, q *hfquant.Quantized) *QuantizedInspection {
	r := &QuantizedInspection{QuantizedBy: *quantizedBy(q)}
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
func (r *QuantizedInspection) String() string {
	var parts []string
	for _, s := range r.Schemes {
		parts = append(parts, fmt.Sprintf("%d of %s", s.Tensors, s.Scheme))
	}
	return fmt.Sprintf("%s; tensors: %s", r.Name(), strings.Join(parts, "; "))
}

// Name is the library, and its format if it has several.
func (q *QuantizedBy) Name() string {
	if q.Library == q.Format {
		return q.Library
	}
	return q.Library + " " + q.Format
}

// Parameters is the number of weights of a checkpoint whose tensors have so many elements.
func (r *QuantizedInspection) Parameters(elements int64) int64 {
	return elements - r.Totals.elements + r.Totals.Weights
}

func quantizedBy(q *hfquant.Quantized) *QuantizedBy {
	return &QuantizedBy{Library: q.Format.Library(), Format: string(q.Format)}
}
