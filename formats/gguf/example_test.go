package gguf_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/gguf"
)

// A file is planned first. Its data may then be written in any order, by several goroutines.
func ExampleNewLayout() {
	dir, err := os.MkdirTemp("", "gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.gguf")

	tensors := []gguf.TensorInfo{
		{Name: "output.weight", Dims: []int64{32, 2}, Type: gguf.Q4_0},
		{Name: "output_norm.weight", Dims: []int64{32}, Type: gguf.F32},
	}
	l, err := gguf.NewLayout([]gguf.Pair{{Key: "general.architecture", Value: "llama"}}, tensors, 0)
	if err != nil {
		log.Fatal(err)
	}
	shard := l.Shards[0] // one file: no size of shards was given
	f, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	if err := f.Truncate(shard.Size); err != nil {
		log.Fatal(err)
	}
	if _, err := f.WriteAt(shard.Header, 0); err != nil {
		log.Fatal(err)
	}
	row := gguf.Fields{Codes: make([]int8, 32), Scales: []float32{0.5}}
	row.Codes[1] = -3
	block := make([]byte, gguf.Q4_0.BlockBytes())
	if err := gguf.Q4_0.Encode(block, row); err != nil {
		log.Fatal(err)
	}
	if _, err := f.WriteAt(block, l.Places[0].Offset); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
	read(path)
	// Output:
	// llama
	// output.weight Q4_0 [32 2] [0 -1.5]
	// output_norm.weight F32 [32] [0 0]
}

// read prints a file's tensors with their first two weights.
func read(path string) {
	f, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	name, _ := f.Text("general.architecture")
	fmt.Println(name)
	err = f.Guard(func() error { // the file may become shorter while it is mapped
		for _, t := range f.Tensors {
			weights := make([]float32, t.Elements())
			if err := t.Type.Decode(weights, f.Data(t)); err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
			fmt.Println(t.Name, t.Type, t.Dims, weights[:2])
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
