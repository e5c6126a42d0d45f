// Command products computes what other libraries' kernels are compared with. The programs of
// docs/examples/torchao and docs/examples/xnnpack read its output.
//
//	products checkpoint DIR       writes a checkpoint of linear layers of many shapes
//	products multiply FILE OUT    multiplies activations with each payload of a .gqf file
//
// OUT has one record for each payload that package kernels can read, unless its zero points are
// fractions, which other libraries do not have; products.h reads it. All is little-endian and
// row-major:
//
//	u32 variant, slice, rows, cols, groups of a row, m, bytes of the name; the tensor's name
//	rows*cols int8 codes, rows*groups float32 scales, rows*groups int8 zero points
//	rows float32 biases
//	m*cols float32 activations, m*rows float32 products
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "products:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "checkpoint":
		return writeCheckpoint(args[1])
	case len(args) == 3 && args[0] == "multiply":
		return multiplyFile(args[1], args[2])
	}
	return errors.New("want: products checkpoint DIR, or products multiply FILE OUT")
}

// shapes are rows and columns of the checkpoint's layers. Rows leave every remainder of 4 and of 8.
// Columns are multiples of 32 first, then of 16, then of neither.
var shapes = [][2]int64{
	{1, 32}, {3, 64}, {8, 64}, {37, 96}, {20, 128}, {22, 256}, {64, 384}, {103, 512}, {129, 1024}, {512, 256},
	{7, 16}, {13, 48}, {26, 176}, {5, 20}, {16, 33}, {9, 100}, {34, 190},
}

// writeCheckpoint writes layers of shapes with random weights. Every other layer has a bias.
func writeCheckpoint(dir string) error {
	var specs []safetensors.TensorSpec
	for i, s := range shapes {
		name := fmt.Sprintf("layers.%d.proj", i)
		specs = append(specs, safetensors.TensorSpec{Name: name + ".weight", Dtype: packing.BF16, Shape: s[:]})
		if i%2 == 1 {
			specs = append(specs, safetensors.TensorSpec{Name: name + ".bias", Dtype: packing.BF16, Shape: s[:1]})
		}
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		return err
	}
	for i, spec := range specs {
		n := int64(1)
		for _, d := range spec.Shape {
			n *= d
		}
		random, data := detmath.Source(i), make([]byte, 0, 2*n)
		for range n {
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(number(&random))>>16))
		}
		if err := w.WriteAt(i, data, 0); err != nil {
			w.Abort()
			return err
		}
	}
	return w.Commit()
}

// number is random, between -4 and 4, and mostly small.
func number(r *detmath.Source) float32 {
	x := 2*r.Float() - 1
	return float32(4 * x * x * x)
}

// multiplyFile writes a record for each payload of a file.
func multiplyFile(path, out string) error {
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := os.Create(out)
	if err != nil {
		return err
	}
	defer w.Close()
	b := bufio.NewWriter(w)
	workspace := kernels.NewWorkspace(kernels.NewPool(0))
	for i := range f.NumPayloads() {
		if err := f.Guard(func() error { return writeRecord(b, f, f.Payload(i), workspace) }); err != nil {
			return err
		}
	}
	if err := b.Flush(); err != nil {
		return err
	}
	return w.Close()
}

// writeRecord writes the record of a payload, or nothing if the payload has none.
func writeRecord(out io.Writer, f *gqf.File, p gqf.Payload, workspace *kernels.Workspace) error {
	if p.Kind != gqf.KindWeights || p.Variant < 0 || p.Header.ZeroKind == packing.ZeroFraction {
		return nil
	}
	data, err := f.Data(p)
	if err != nil {
		return err
	}
	op, err := kernels.NewLinear(p.Header, data, kernels.Options{})
	if unsupported := (*kernels.UnsupportedError)(nil); errors.As(err, &unsupported) {
		return nil
	} else if err != nil {
		return err
	}
	t := f.Tensor(p.Tensor)
	w, err := unpack(t, p)
	if err != nil {
		return err
	}
	x, m := activations(op.Cols())
	y := make([]float32, m*op.Rows())
	if err := op.Forward(workspace, y, x, m); err != nil {
		return err
	}
	groups := len(w.scales) / op.Rows()
	head := []uint32{uint32(p.Stored), uint32(p.Slice), uint32(op.Rows()), uint32(op.Cols()), uint32(groups), uint32(m), uint32(len(t.Name))}
	for _, part := range []any{head, []byte(t.Name), w.codes, w.scales, w.zeros, w.bias, x, y} {
		if err := binary.Write(out, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	return nil
}

// weights are what a payload packs.
type weights struct {
	codes        []int8
	scales, bias []float32
	zeros        []int8
}

func unpack(t gqf.Tensor, p gqf.Payload) (*weights, error) {
	rows, err := t.Rows(p.Variant, p.Slice)
	if err != nil {
		return nil, err
	}
	n, k, groups := int(p.Header.Rows), int(p.Header.Cols), int(p.Header.Groups())
	w := &weights{make([]int8, n*k), make([]float32, n*groups), make([]float32, n), make([]int8, n*groups)}
	for i := range n {
		rows.Codes(w.codes[i*k:][:k], w.scales[i*groups:][:groups], w.zeros[i*groups:][:groups], i)
		w.bias[i] = rows.RowBias(i)
	}
	return w, nil
}

// activations are m rows: ordinary ones, then a row of zeros, a constant one, rows of one sign, a
// row with a single large value, and a row whose codes all lie halfway between integers.
func activations(cols int) (x []float32, m int) {
	random := detmath.Source(cols)
	row := func(f func(x float32) float32) {
		for range cols {
			x = append(x, f(number(&random)))
		}
		m++
	}
	for range 12 {
		row(func(x float32) float32 { return x })
	}
	row(func(float32) float32 { return 0 })
	row(func(float32) float32 { return 0.75 })
	row(func(x float32) float32 { return x*x + 0.01 })
	row(func(x float32) float32 { return x + 10 })
	row(func(x float32) float32 { return -x*x - 3 })
	row(func(x float32) float32 { return x / 1024 })
	x[len(x)-1] = 64
	row(func(x float32) float32 { return float32(math.Floor(float64(x)*30)) + 0.5 })
	x[len(x)-2], x[len(x)-1] = -127.5, 127.5 // the range is 255, so the scale is 1
	return x, m
}
