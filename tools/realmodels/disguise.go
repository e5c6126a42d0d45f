package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/packing"
)

// checkpoint makes the source's float checkpoint in the cache, and beside the checkpoint the
// histograms that show that no grid is left. A checkpoint that exists is not made again.
func (s *source) checkpoint(ctx context.Context, cache string) error {
	file, err := s.fetch(ctx, cache)
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, s.name)
	if _, err := os.Stat(dir); err == nil {
		fmt.Printf("%s: exists\n", dir)
		return nil
	}
	work, err := os.MkdirTemp(cache, s.name)
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	plain, hidden := filepath.Join(work, "plain"), filepath.Join(work, "hidden")
	if _, err := gq.Dequantize(ctx, file, plain, gq.DequantizeOptions{Dtype: packing.F32}); err != nil {
		return err
	}
	if err := disguise(plain, hidden); err != nil {
		return err
	}
	if err := compare(plain, hidden); err != nil {
		return err
	}
	if err := histograms(dir+".histograms.tsv", plain, hidden); err != nil {
		return err
	}
	return os.Rename(hidden, dir)
}

// shape is what the disguise needs of config.json.
type shape struct {
	Hidden       int `json:"hidden_size"`
	Intermediate int `json:"intermediate_size"`
	Layers       int `json:"num_hidden_layers"`
	Heads        int `json:"num_attention_heads"`
	KVHeads      int `json:"num_key_value_heads"`
	HeadDim      int `json:"head_dim"`
}

// changes are random permutations of channels, and a random orthogonal matrix for the values of
// each head of keys and values. The function of the model stays.
type changes struct {
	shape
	hidden       []int
	intermediate [][]int         // of each layer
	values       [][][][]float64 // of each layer and head, [HeadDim][HeadDim]
}

func newChanges(s shape) *changes {
	random := rand.New(rand.NewPCG(29, 32))
	c := &changes{shape: s, hidden: random.Perm(s.Hidden)}
	for range s.Layers {
		c.intermediate = append(c.intermediate, random.Perm(s.Intermediate))
		var heads [][][]float64
		for range s.KVHeads {
			heads = append(heads, orthogonal(random, s.HeadDim))
		}
		c.values = append(c.values, heads)
	}
	return c
}

// orthogonal makes random vectors orthonormal, by Gram and Schmidt's method, each vector twice for
// precision.
func orthogonal(random *rand.Rand, n int) (rows [][]float64) {
	for range n {
		v := make([]float64, n)
		for i := range v {
			v[i] = random.NormFloat64()
		}
		for range 2 {
			for _, r := range rows {
				d := dot(v, r)
				for i := range v {
					v[i] -= d * r[i]
				}
			}
		}
		length := math.Sqrt(dot(v, v))
		for i := range v {
			v[i] /= length
		}
		rows = append(rows, v)
	}
	return rows
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// apply changes a tensor, rows of cols weights. The hidden states are the columns of the embedding
// and of everything that reads them, and the rows of o_proj and down_proj.
func (c *changes) apply(name string, w [][]float32) error {
	layer := -1
	if rest, ok := strings.CutPrefix(name, "model.layers."); ok {
		number, _, _ := strings.Cut(rest, ".")
		var err error
		if layer, err = strconv.Atoi(number); err != nil {
			return err
		}
	}
	parts := strings.Split(name, ".")
	switch module := parts[len(parts)-2]; module {
	case "q_norm", "k_norm":
	case "v_proj":
		columns(w, c.hidden)
		c.turnRows(w, c.values[layer])
	case "o_proj":
		c.turnColumns(w, c.values[layer])
		permute(w, c.hidden)
	case "gate_proj", "up_proj":
		columns(w, c.hidden)
		permute(w, c.intermediate[layer])
	case "down_proj":
		columns(w, c.intermediate[layer])
		permute(w, c.hidden)
	case "q_proj", "k_proj", "embed_tokens", "norm":
		columns(w, c.hidden)
	default:
		if !strings.HasSuffix(module, "_layernorm") {
			return fmt.Errorf("%s: unknown tensor", name)
		}
		columns(w, c.hidden)
	}
	return nil
}

// permute puts element order[i] in place i.
func permute[T any](list []T, order []int) {
	old := slices.Clone(list)
	for i, from := range order {
		list[i] = old[from]
	}
}

func columns(w [][]float32, order []int) {
	for _, row := range w {
		permute(row, order)
	}
}

// turnRows multiplies the rows of each head with the head's matrix.
func (c *changes) turnRows(w [][]float32, heads [][][]float64) {
	in, out := make([]float64, c.HeadDim), make([]float64, c.HeadDim)
	for h, r := range heads {
		rows := w[h*c.HeadDim:][:c.HeadDim]
		for k := range rows[0] {
			for i := range rows {
				in[i] = float64(rows[i][k])
			}
			multiply(out, r, in)
			for i := range rows {
				rows[i][k] = float32(out[i])
			}
		}
	}
}

// turnColumns multiplies the columns of each query head with the matrix of the head's values.
func (c *changes) turnColumns(w [][]float32, heads [][][]float64) {
	in, out := make([]float64, c.HeadDim), make([]float64, c.HeadDim)
	for _, row := range w {
		for h := range c.Heads {
			x := row[h*c.HeadDim:][:c.HeadDim]
			for i, v := range x {
				in[i] = float64(v)
			}
			multiply(out, heads[h*c.KVHeads/c.Heads], in)
			for i, v := range out {
				x[i] = float32(v)
			}
		}
	}
}

func multiply(out []float64, m [][]float64, in []float64) {
	for i, row := range m {
		out[i] = dot(row, in)
	}
}

// disguise writes the changed checkpoint to dst, with the other files of src.
func disguise(src, dst string) error {
	var s shape
	raw, err := os.ReadFile(filepath.Join(src, "config.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	ck, err := safetensors.Open(src, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	var specs []safetensors.TensorSpec
	for _, t := range ck.Tensors() {
		specs = append(specs, safetensors.TensorSpec{Name: t.Name, Dtype: packing.F32, Shape: t.Shape})
	}
	w, err := safetensors.Create(dst, specs, safetensors.WriteOptions{})
	if err != nil {
		return err
	}
	defer w.Abort()
	c := newChanges(s)
	for i, t := range ck.Tensors() {
		rows, err := read(ck, t)
		if err != nil {
			return err
		}
		if err := c.apply(t.Name, rows); err != nil {
			return err
		}
		if err := write(w, i, rows); err != nil {
			return err
		}
	}
	if err := w.Commit(); err != nil {
		return err
	}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		raw, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dst, name), raw, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// read returns the rows of a tensor.
func read(ck *safetensors.Checkpoint, t safetensors.Tensor) ([][]float32, error) {
	n, k := t.Matrix()
	flat := make([]float32, n*k)
	if err := ck.ReadRows(flat, t, 0, int(n)); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(flat, int(k))), nil
}

// write writes the rows of tensor i.
func write(w *safetensors.Writer, i int, rows [][]float32) error {
	b := make([]byte, 0, 4*len(rows[0]))
	for r, row := range rows {
		b = b[:0]
		for _, v := range row {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		if err := w.WriteAt(i, b, int64(r)*int64(len(b))); err != nil {
			return err
		}
	}
	return nil
}

// maxDifference is the largest difference of a logit, relative to the largest logit, that the
// change of the order of sums may cause.
const maxDifference = 1e-5

// compare runs both checkpoints on random tokens.
func compare(plain, hidden string) error {
	var logits [2][]float32
	for i, dir := range []string{plain, hidden} {
		m, err := model.OpenCheckpoint(dir, model.Options{})
		if err != nil {
			return err
		}
		tokens, random := make([]int32, 64), rand.New(rand.NewPCG(1, 2))
		for k := range tokens {
			tokens[k] = random.Int32N(int32(m.VocabSize()))
		}
		logits[i], err = allLogits(m, tokens)
		m.Close()
		if err != nil {
			return err
		}
	}
	var worst, largest float64
	for i, v := range logits[0] {
		worst = max(worst, math.Abs(float64(v)-float64(logits[1][i])))
		largest = max(largest, math.Abs(float64(v)))
	}
	fmt.Printf("%s: largest difference of logits %.3g of the largest logit\n", hidden, worst/largest)
	if !(worst <= maxDifference*largest) {
		return fmt.Errorf("logits differ by more than %g of the largest", maxDifference)
	}
	return nil
}
