package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Table spread has many files: fewer tokens than the other tables.
const (
	spreadCopies    = 8
	spreadEvaluated = 4000
)

// spread shows how much the KL divergence changes by chance. A copy of a model with its channels in
// another order computes the same function. The groups of the copy hold other weights, so their
// codes have other errors of the same size.
func (b *bench) spread() (string, error) {
	copies := map[string][]subject{}
	for _, m := range b.models {
		for seed := range spreadCopies {
			c := m
			c.dir = filepath.Join(b.tmp, fmt.Sprintf("%s-order%d", m.name, seed))
			if err := reorder(m.dir, c.dir, uint64(seed)); err != nil {
				return "", err
			}
			copies[m.name] = append(copies[m.name], c)
		}
	}
	methods := []struct{ name, settings string }{
		{"search", "algorithm: search"},
		{"search, asymmetric", "algorithm: search, mapping: asymmetric"},
	}
	var rows []string
	for _, how := range methods {
		rows = append(rows, how.name+": standard deviation", how.name+": the model itself")
	}
	type key struct{ name, settings string }
	found := map[key][2]float64{}
	return b.grid(rows, func(m subject, row int, bits string) (float64, error) {
		k := key{m.name, "bits: " + bits + ", " + methods[row/2].settings}
		if _, ok := found[k]; !ok {
			var list []float64
			for _, c := range append([]subject{m}, copies[m.name]...) {
				if _, _, err := b.quantize(c, b.file(), gq.Budget{}, k.settings); err != nil {
					return 0, err
				}
				r, err := b.compare(c, weights, spreadEvaluated)
				if err != nil {
					return 0, err
				}
				list = append(list, r.Model.KL.Mean)
			}
			mean, deviation := meanDeviation(list[1:])
			found[k] = [2]float64{deviation / mean, list[0] / mean}
		}
		return found[k][row%2], nil
	})
}

// meanDeviation is the mean and the standard deviation of a sample.
func meanDeviation(list []float64) (mean, deviation float64) {
	for _, v := range list {
		mean += v / float64(len(list))
	}
	for _, v := range list {
		deviation += (v - mean) * (v - mean) / float64(len(list)-1)
	}
	return mean, math.Sqrt(deviation)
}

// reorder copies the Llama checkpoint of directory src to dst. The seed draws a new order of the
// channels of the hidden states, of the values of each head and of the inputs of each down_proj.
func reorder(src, dst string, seed uint64) (err error) {
	raw, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		return err
	}
	c, err := arch.ParseForward(raw)
	if err != nil {
		return err
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	var specs []safetensors.TensorSpec
	for _, t := range ck.Tensors() {
		specs = append(specs, safetensors.TensorSpec{Name: t.Name, Dtype: t.Dtype, Shape: t.Shape})
	}
	w, err := safetensors.Create(dst, specs, safetensors.WriteOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	o := newOrder(c, seed)
	for i, t := range ck.Tensors() {
		raw, err := ck.Bytes(t)
		if err != nil {
			return err
		}
		rows, columns, err := o.of(t.Name)
		if err != nil {
			return err
		}
		if err := w.WriteAt(i, permuted(raw, t, rows, columns), 0); err != nil {
			return err
		}
	}
	if err := w.Commit(); err != nil {
		return err
	}
	assets, err := filepath.Glob(filepath.Join(src, "*.json"))
	if err != nil {
		return err
	}
	for _, name := range assets {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dst, filepath.Base(name)), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// permuted are the bytes of t with its rows and columns in another order; nil leaves them.
func permuted(raw []byte, t safetensors.Tensor, rows, columns []int) []byte {
	n, k := t.Matrix()
	size := int(t.Size / (n * k))
	at := func(order []int, i int) int {
		if order == nil {
			return i
		}
		return order[i]
	}
	out := make([]byte, 0, len(raw))
	for r := range int(n) {
		for c := range int(k) {
			from := (at(rows, r)*int(k) + at(columns, c)) * size
			out = append(out, raw[from:from+size]...)
		}
	}
	return out
}

// order has the new order of a model's channels; values and inner are of each layer.
type order struct {
	hidden          []int
	values, outputs [][]int // rows of v_proj, and columns of o_proj
	inner           [][]int
}

func newOrder(c *arch.ForwardConfig, seed uint64) *order {
	source := detmath.Source(seed)
	o := &order{hidden: shuffled(&source, c.HiddenSize)}
	for range c.Layers {
		var values, outputs []int
		for h := range c.KVHeads {
			head := shuffled(&source, c.HeadDim)
			for _, i := range head {
				values = append(values, h*c.HeadDim+i)
			}
			shared := c.Heads / c.KVHeads
			for q := h * shared; q < (h+1)*shared; q++ {
				for _, i := range head {
					outputs = append(outputs, q*c.HeadDim+i)
				}
			}
		}
		o.values, o.outputs = append(o.values, values), append(o.outputs, outputs)
		o.inner = append(o.inner, shuffled(&source, c.Intermediate))
	}
	return o
}

// shuffled returns the numbers below n in a random order.
func shuffled(source *detmath.Source, n int) []int {
	list := make([]int, n)
	for i := range list {
		j := int(source.Next() % uint64(i+1))
		list[i], list[j] = list[j], i
	}
	return list
}

// of returns the order of the rows and columns of a tensor.
func (o *order) of(name string) (rows, columns []int, err error) {
	layer := 0
	if _, rest, ok := strings.Cut(name, "model.layers."); ok {
		number, _, _ := strings.Cut(rest, ".")
		if layer, err = strconv.Atoi(number); err != nil || layer >= len(o.inner) {
			return nil, nil, errors.New(name + ": its layer is not known")
		}
	}
	part := strings.Split(strings.TrimSuffix(name, ".weight"), ".")
	switch last := part[len(part)-1]; {
	case strings.HasSuffix(last, "norm"), slices.Contains([]string{"embed_tokens", "lm_head", "q_proj", "k_proj"}, last):
		return nil, o.hidden, nil
	case last == "v_proj":
		return o.values[layer], o.hidden, nil
	case last == "o_proj":
		return o.hidden, o.outputs[layer], nil
	case last == "gate_proj", last == "up_proj":
		return o.inner[layer], o.hidden, nil
	case last == "down_proj":
		return o.hidden, o.inner[layer], nil
	}
	return nil, nil, fmt.Errorf("%s: only tensors of Llama models are reordered", name)
}
