package testquant

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/packing"
)

// Weight is a quantized weight of a checkpoint.
type Weight struct {
	Shape  []int64
	Scheme hfquant.Scheme
	Rows   []hfquant.Row
}

// Write makes a quantized copy in dir of the checkpoint in the directory src: choose gives the
// scheme of a weight, or nil for a tensor to be copied. Codes, scales and zero points are random;
// the same arguments give the same files.
func Write(t testing.TB, src, dir string, f hfquant.Format, choose func(name string, shape []int64) *hfquant.Scheme) map[string]*Weight {
	t.Helper()
	weights, err := write(src, dir, f, choose)
	if err != nil {
		t.Fatal(err)
	}
	return weights
}

// WriteAll is Write with the same scheme for all matrices with names that end in "_proj.weight".
func WriteAll(src, dir string, f hfquant.Format, s hfquant.Scheme) (map[string]*Weight, error) {
	return write(src, dir, f, func(name string, shape []int64) *hfquant.Scheme {
		if ok, _ := filepath.Match("*_proj.weight", name); !ok || len(shape) != 2 {
			return nil
		}
		return &s
	})
}

// Tensor is a tensor to write.
type Tensor struct {
	Spec safetensors.TensorSpec
	Data []byte
}

func write(src, dir string, f hfquant.Format, choose func(name string, shape []int64) *hfquant.Scheme) (map[string]*Weight, error) {
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	weights := map[string]*Weight{}
	var list []Tensor
	var model []hfquant.ModelWeight
	for _, t := range ck.Tensors() {
		s := choose(t.Name, t.Shape)
		model = append(model, hfquant.ModelWeight{Name: t.Name, Shape: t.Shape, Scheme: s, Linear: len(t.Shape) == 2})
		if s == nil {
			data, err := ck.Bytes(t)
			if err != nil {
				return nil, err
			}
			list = append(list, Tensor{safetensors.TensorSpec{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape}, bytes.Clone(data)})
			continue
		}
		w := random(f, t.Name, t.Shape, *s)
		parts, err := store(f, t.Name, w)
		if err != nil {
			return nil, err
		}
		weights[t.Name], list = w, append(list, parts...)
	}
	config, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		return nil, err
	}
	var metadata map[string]string
	if f == hfquant.AWQ {
		config, err = configAWQ(config, model)
	} else {
		config, metadata, err = f.Config(config, model)
	}
	if err != nil {
		return nil, err
	}
	if err := copyFiles(src, dir); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
		return nil, err
	}
	return weights, Create(dir, list, metadata)
}

// copyFiles copies a checkpoint's small files.
func copyFiles(src, dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(src)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".json" && ext != ".model" && ext != ".jinja" || e.Name() == "model.safetensors.index.json" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(src, e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// Create writes tensors into the checkpoint in dir.
func Create(dir string, list []Tensor, metadata map[string]string) error {
	specs := make([]safetensors.TensorSpec, len(list))
	for i, t := range list {
		specs[i] = t.Spec
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{Metadata: metadata})
	if err != nil {
		return err
	}
	defer w.Abort()
	for i, t := range list {
		if err := w.WriteAt(i, t.Data, 0); err != nil {
			return err
		}
	}
	return w.Commit()
}

// store lays a weight out in a format.
func store(f hfquant.Format, name string, w *Weight) ([]Tensor, error) {
	if f == hfquant.AWQ {
		return storeAWQ(name, w), nil
	}
	l, err := f.NewLayout(name, w.Shape, w.Scheme)
	if err != nil {
		return nil, err
	}
	parts := make([]Tensor, len(l.Parts))
	for i, p := range l.Parts {
		size := int64(p.Dtype.Bits() / 8)
		for _, d := range p.Shape {
			size *= d
		}
		parts[i] = Tensor{safetensors.TensorSpec{Name: p.Name, Dtype: p.Dtype, Shape: p.Shape}, make([]byte, size)}
		if c := l.Constant(i); c != nil {
			parts[i].Data = c
		}
	}
	return parts, l.Put(w.Rows, 0, func(part int, off int64, b []byte) error {
		copy(parts[part].Data[off:], b)
		return nil
	})
}

// random makes rows of a weight that the format holds.
func random(f hfquant.Format, name string, shape []int64, s hfquant.Scheme) *Weight {
	h := fnv.New64a()
	fmt.Fprint(h, name, f, s)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	w := &Weight{Shape: shape, Scheme: s, Rows: make([]hfquant.Row, shape[0])}
	low := -1 << (s.Bits - 1)
	for n := range w.Rows {
		row := &w.Rows[n]
		row.Codes = make([]int8, shape[1])
		for k := range row.Codes {
			row.Codes[k] = int8(low + r.IntN(1<<s.Bits))
		}
		for range s.Groups(shape[1]) {
			scale := round(float32((0.5+r.Float64())/float64(int(8)<<s.Bits)), s.Scales)
			if f == hfquant.MLX && r.IntN(2) == 0 {
				scale = -scale
			}
			// Not the greatest: GPTQ stores zero points less 1.
			zero := low + 1 + r.IntN(1<<s.Bits-2)
			switch s.Zeros {
			case hfquant.IntZeros:
				if f == hfquant.MLX { // MLX's biases have the dtype of scales
					zero = low + 1<<r.IntN(s.Bits)
				}
				row.Zeros = append(row.Zeros, int8(zero))
			case hfquant.Offsets:
				// A bias for unsigned codes that the format stores, as the mean of the weights is not 0.
				bias := round(float32((r.Float64()-2)*float64(scale)*float64(int(1)<<(s.Bits-2))), s.Scales)
				row.Offsets = append(row.Offsets, float32(float64(bias)-float64(float64(low)*float64(scale))))
			}
			row.Scales = append(row.Scales, scale)
		}
	}
	return w
}

func round(v float32, d packing.Dtype) float32 {
	switch d {
	case packing.BF16:
		return floats.BF16ToF32(floats.BF16FromF32(v))
	case packing.F16:
		return floats.F16ToF32(floats.F16FromF32(v))
	}
	return v
}

// Values are the weights of row n: (code - zero) * scale, or code * scale + offset, in float32.
func (w *Weight) Values(n int) []float32 {
	row, k := &w.Rows[n], int(w.Shape[1])
	out := make([]float32, k)
	for i, q := range row.Codes {
		g := 0
		if w.Scheme.Group > 0 {
			g = i / int(w.Scheme.Group)
		}
		switch w.Scheme.Zeros {
		case hfquant.NoZeros:
			out[i] = float32(float32(q) * row.Scales[g])
		case hfquant.IntZeros:
			out[i] = float32(float32(int(q)-int(row.Zeros[g])) * row.Scales[g])
		case hfquant.Offsets:
			out[i] = float32(math.FMA(float64(q), float64(row.Scales[g]), float64(row.Offsets[g])))
		}
	}
	return out
}
