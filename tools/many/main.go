// Command many writes the checkpoint that CI holds the memory of commands with: one file of so many
// tensors of BF16 [32, 16], with names of 120 bytes.
//
//	go run -C tools ./many /tmp/many
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

const (
	rows, cols = 32, 16
	nameBytes  = 120
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("many: ")
	tensors := flag.Int("tensors", 200_000, "`number` of tensors")
	flag.Parse()
	if flag.NArg() != 1 || *tensors < 1 {
		log.Fatal("want one argument, the directory of the checkpoint, and at least one tensor")
	}
	if err := write(flag.Arg(0), *tensors); err != nil {
		log.Fatal(err)
	}
}

// name is the name of tensor i, of nameBytes bytes.
func name(i int) string {
	head, tail := fmt.Sprintf("model.layers.%d.", i/1000), fmt.Sprintf(".%d.weight", i%1000)
	return head + strings.Repeat("x", nameBytes-len(head)-len(tail)) + tail
}

// write makes the checkpoint in dir. Equal arguments give equal bytes.
func write(dir string, tensors int) error {
	specs := make([]safetensors.TensorSpec, tensors)
	for i := range specs {
		specs[i] = safetensors.TensorSpec{Name: name(i), Dtype: packing.BF16, Shape: []int64{rows, cols}}
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	r, b := rand.New(rand.NewPCG(1, 2)), make([]byte, 2*rows*cols)
	for i := range specs {
		for k := 0; k < len(b); k += 2 {
			binary.LittleEndian.PutUint16(b[k:], uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
		}
		if err := w.WriteAt(i, b, 0); err != nil {
			return err
		}
	}
	return w.Commit()
}
