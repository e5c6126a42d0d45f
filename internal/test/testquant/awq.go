package testquant

import (
	"encoding/binary"
	"encoding/json"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/packing"
)

// storeAWQ lays a weight out as AutoAWQ's version gemm does; package hfquant only reads this form.
// Nibble i of a word belongs to row order[i] of 8. A weight without zero points has zero points in
// the middle.
func storeAWQ(name string, w *Weight) []Tensor {
	order := [8]int64{0, 2, 4, 6, 1, 3, 5, 7}
	n, k := w.Shape[0], w.Shape[1]
	groups := w.Scheme.Groups(k)
	module := strings.TrimSuffix(name, "weight")
	make := func(last string, d packing.Dtype, rows, cols int64) Tensor {
		return Tensor{safetensors.TensorSpec{Name: module + last, Dtype: d, Shape: []int64{rows, cols}}, make([]byte, rows*cols*int64(d.Bits()/8))}
	}
	codes, zeros, scales := make("qweight", packing.I32, k, n/8), make("qzeros", packing.I32, groups, n/8), make("scales", packing.F16, groups, n)
	pack := func(t Tensor, rows int64, at func(row *hfquant.Row, i int64) int8) {
		for i := range rows {
			for word := range n / 8 {
				v := uint32(0)
				for nibble, r := range order {
					v |= uint32(at(&w.Rows[8*word+r], i)+8) << (4 * nibble)
				}
				binary.LittleEndian.PutUint32(t.Data[4*(i*(n/8)+word):], v)
			}
		}
	}
	pack(codes, k, func(r *hfquant.Row, i int64) int8 { return r.Codes[i] })
	pack(zeros, groups, func(r *hfquant.Row, g int64) int8 {
		if r.Zeros == nil {
			return 0
		}
		return r.Zeros[g]
	})
	for g := range groups {
		for row := range n {
			binary.LittleEndian.PutUint16(scales.Data[2*(g*n+row):], floats.F16FromF32(w.Rows[row].Scales[g]))
		}
	}
	return []Tensor{codes, zeros, scales}
}

// configAWQ adds the entry of AutoAWQ to config.json.
func configAWQ(config []byte, weights []hfquant.ModelWeight) ([]byte, error) {
	var m map[string]any
	if err := json.Unmarshal(config, &m); err != nil {
		return nil, err
	}
	for _, w := range weights {
		if w.Scheme != nil {
			m["quantization_config"] = map[string]any{"quant_method": "awq", "bits": w.Scheme.Bits, "group_size": w.Scheme.Group, "version": "gemm"}
		}
	}
	return json.MarshalIndent(m, "", "  ")
}
