package hfquant_test

import (
	"fmt"
	"log"
	"os"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/packing"
)

// A weight is stored as compressed-tensors packs it, and read again.
func Example() {
	dir, err := os.MkdirTemp("", "hfquant-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const name = "model.layers.0.mlp.up_proj.weight"
	scheme := hfquant.Scheme{Bits: 4, Group: 4, Scales: packing.BF16}
	config, err := write(dir, name, scheme, []hfquant.Row{
		{Codes: []int8{-8, -1, 0, 7, 1, 2, 3, 4}, Scales: []float32{0.5, 0.25}},
		{Codes: []int8{4, 3, 2, 1, 0, 0, 0, 0}, Scales: []float32{2, 1}},
	})
	if err != nil {
		log.Fatal(err)
	}

	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer ck.Close()
	q, err := hfquant.Find(ck, config)
	if err != nil {
		log.Fatal(err)
	}
	for i := range q.Weights {
		w := &q.Weights[i]
		fmt.Println(q.Format, w.Name, w.Shape, w.Scheme)
		var row hfquant.Row
		if err := ck.Guard(func() error { return w.Read(&row, 0) }); err != nil {
			log.Fatal(err)
		}
		fmt.Println(row.Codes, row.Scales)
	}
	// Output:
	// pack-quantized model.layers.0.mlp.up_proj.weight [2 8] 4 bits, group 4, BF16 scales
	// [-8 -1 0 7 1 2 3 4] [0.5 0.25]
}

// write makes a checkpoint of one weight and returns its config.json.
func write(dir, name string, scheme hfquant.Scheme, rows []hfquant.Row) ([]byte, error) {
	shape := []int64{int64(len(rows)), int64(len(rows[0].Codes))}
	layout, err := hfquant.PackQuantized.NewLayout(name, shape, scheme)
	if err != nil {
		return nil, err
	}
	config, metadata, err := hfquant.PackQuantized.Config([]byte(`{"model_type": "llama"}`),
		[]hfquant.ModelWeight{{Name: name, Shape: shape, Scheme: &scheme, Linear: true}})
	if err != nil {
		return nil, err
	}
	var specs []safetensors.TensorSpec
	for _, p := range layout.Parts {
		specs = append(specs, safetensors.TensorSpec{Name: p.Name, Dtype: p.Dtype, Shape: p.Shape})
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{Metadata: metadata})
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	err = layout.Put(rows, 0, func(part int, off int64, b []byte) error { return w.WriteAt(part, b, off) })
	if err != nil {
		return nil, err
	}
	for part := range layout.Parts {
		if b := layout.Constant(part); b != nil {
			if err := w.WriteAt(part, b, 0); err != nil {
				return nil, err
			}
		}
	}
	return config, w.Commit()
}
