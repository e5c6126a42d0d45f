package safetensors_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

func ExampleOpen() {
	c, err := safetensors.Open("../../testdata/books1.3M-bf16", safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	t, ok := c.Lookup("model.norm.weight")
	if !ok {
		log.Fatal("no such tensor")
	}
	fmt.Println(t.Name, t.DtypeName, t.Shape)
	w, err := c.Weights(t, safetensors.WeightsOptions{})
	if err != nil {
		log.Fatal(err)
	}
	row := make([]float32, w.Cols)
	if err := w.Read(row, 0, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(row[:3])
	// Output:
	// model.norm.weight BF16 [128]
	// [1.4609375 1.671875 1.390625]
}

func ExampleCreate() {
	dir, err := os.MkdirTemp("", "safetensors-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	w, err := safetensors.Create(dir, []safetensors.TensorSpec{{Name: "w", Dtype: packing.F32, Shape: []int64{1, 2}}}, safetensors.WriteOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort()
	var data []byte
	for _, v := range []float32{1.5, -2} {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	if err := w.WriteAt(0, data, 0); err != nil {
		log.Fatal(err)
	}
	if err := w.Commit(); err != nil { // the file appears here
		log.Fatal(err)
	}
	c, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Println(c.Tensors()[0].Name, c.Tensors()[0].Shape)
	// Output: w [1 2]
}
