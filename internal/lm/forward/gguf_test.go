package forward_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/internal/test/testmodels"
)

// stored is a checkpoint in memory, in float32. asGGUF writes files of its tensors.
type stored struct {
	config  []byte
	sources []llamacpp.Source
	values  map[string][]float32
	shapes  map[string][]int64
}

func readStored(t *testing.T, dir string) *stored {
	t.Helper()
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	c, err := arch.ParseForward(config)
	if err != nil {
		t.Fatal(err)
	}
	k := &stored{config: config, values: map[string][]float32{}, shapes: map[string][]int64{}}
	for _, s := range ck.Tensors() {
		transposed := len(s.Shape) == 3 && c.ExpertsTransposed()
		rows, _ := s.Matrix()
		shape := slices.Clone(s.Shape)
		if transposed {
			shape[1], shape[2], rows = shape[2], shape[1], shape[0]*shape[2]
		}
		k.sources = append(k.sources, llamacpp.Source{Name: s.Name, Shape: shape})
		w, err := ck.Weights(s, safetensors.WeightsOptions{Transposed: transposed})
		if err != nil {
			t.Fatal(err)
		}
		all := make([]float32, s.Numel())
		each := int(rows)
		if transposed {
			each /= int(shape[0])
		}
		for row := 0; row < int(rows); row += each { // a slice, if transposed
			n := len(all) / int(rows)
			if err := w.Read(all[row*n:][:each*n], row, each); err != nil {
				t.Fatal(err)
			}
		}
		k.values[s.Name], k.shapes[s.Name] = all, shape
	}
	return k
}

// asGGUF returns a checkpoint as llama.cpp stores it, in float32. edit may spoil the description.
// If edit returns false, no file is made.
func (k *stored) asGGUF(t *testing.T, edit func(m *llamacpp.Model) bool) (*gguf.File, error) {
	t.Helper()
	m, err := llamacpp.Describe(k.config, k.sources)
	if err != nil {
		return nil, err
	}
	if !edit(m) {
		return nil, nil
	}
	infos := make([]gguf.TensorInfo, len(m.Tensors))
	for i, s := range m.Tensors {
		infos[i] = gguf.TensorInfo{Name: s.Name, Dims: s.Shape, Type: gguf.F32}
	}
	layout, err := gguf.NewLayout(append([]gguf.Pair{{Key: "general.architecture", Value: m.Architecture}}, m.Metadata...), infos, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, layout.Shards[0].Size)
	copy(data, layout.Shards[0].Header)
	for i, s := range m.Tensors {
		at := layout.Places[i].Offset
		put := func(values []float32) {
			for _, v := range values {
				binary.LittleEndian.PutUint32(data[at:], math.Float32bits(v))
				at += 4
			}
		}
		put(s.Values)
		for _, p := range s.Parts {
			k.partRows(&p, put)
		}
	}
	return gguf.Parse(data)
}

// partRows passes the rows of a part in llama.cpp's order.
func (k *stored) partRows(p *llamacpp.Part, put func(row []float32)) {
	cols, height, source := 1, p.Rows, k.values[p.Source]
	if shape := k.shapes[p.Source]; len(shape) > 1 && !p.Elements {
		cols, height = int(shape[len(shape)-1]), int(shape[len(shape)-2])
	}
	if p.Turned > 0 {
		column := make([]float32, p.Rows)
		for c := range p.Turned {
			for i := range column {
				column[i] = source[(p.From+i)*cols+c]
			}
			put(column)
		}
		return
	}
	row := make([]float32, cols)
	for i := range p.Rows {
		stored := source[(p.Slice*height+p.Row(i))*cols:][:cols]
		for c := range row {
			row[c] = stored[p.Columns.At(c)]
		}
		p.Store(row)
		put(row)
	}
}

// difference is the largest difference of logits between two models, as a part of the largest
// logit, on 8 tokens: the smallest sliding window.
func difference(t *testing.T, a, b *forward.Model) float64 {
	t.Helper()
	tokens := []int32{1, 300, 7, 45, 300, 12, 66, 9}
	var logits [2][]float32
	for i, m := range []*forward.Model{a, b} {
		logits[i] = make([]float32, len(tokens)*m.VocabSize())
		if err := m.NewSession(len(tokens)).Forward(tokens, logits[i], true); err != nil {
			t.Fatal(err)
		}
	}
	worst, largest := 0.0, 0.0
	for i, v := range logits[0] {
		worst = max(worst, math.Abs(float64(v-logits[1][i])))
		largest = max(largest, math.Abs(float64(v)))
	}
	return worst / largest
}

// TestOpenGGUF holds the model of each architecture, as llama.cpp stores it and computes, to the
// checkpoint. A model stored otherwise must differ.
func TestOpenGGUF(t *testing.T) {
	variants := testmodels.ForLlamaCpp(t)
	if testing.Short() {
		variants = variants[:2] // under emulation
	}
	spoil := map[string]func(m *llamacpp.Model, s *llamacpp.Tensor){
		"":            func(*llamacpp.Model, *llamacpp.Tensor) {},
		"permutation": func(m *llamacpp.Model, s *llamacpp.Tensor) { s.Parts[0].Order = llamacpp.Order{} },
		"norm":        func(m *llamacpp.Model, s *llamacpp.Tensor) { s.Parts[0].Add = 0 },
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			dir := t.TempDir()
			v.Narrow().Write(t, dir)
			want, err := forward.OpenCheckpoint(dir, forward.Options{Threads: 1, LlamaCpp: true})
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			noRope := !slices.ContainsFunc(want.Config().Layers, func(l arch.LayerConfig) bool { return l.Rope >= 0 })
			checkpoint := readStored(t, dir)
			for name, fn := range spoil {
				if name == "permutation" && noRope { // any order that queries and keys share
					continue
				}
				changed := false
				f, err := checkpoint.asGGUF(t, func(m *llamacpp.Model) bool {
					for i := range m.Tensors {
						s := &m.Tensors[i]
						if len(s.Parts) == 0 {
							continue
						}
						before := s.Parts[0]
						fn(m, s)
						changed = changed || before != s.Parts[0]
					}
					return name == "" || changed // else the file of ""
				})
				if err != nil {
					t.Fatal(err)
				}
				if f == nil {
					continue
				}
				got, err := forward.OpenGGUF(f, forward.Options{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				d := difference(t, want, got)
				got.Close()
				switch {
				case !changed && !(d <= 2e-5):
					t.Errorf("%q: logits differ by %.2g of the largest", name, d)
				case changed && !(d >= 1e-2):
					t.Errorf("%q: logits differ by %.2g only", name, d)
				}
				t.Logf("%q (changed %v): %.2g", name, changed, d)
			}
		})
	}
}

// TestLayers opens the first layer of a model: the same from a checkpoint and from a .gguf file,
// and not the same as all layers.
func TestLayers(t *testing.T) {
	dir := t.TempDir()
	testmodels.Find(t, "llama3").Write(t, dir)
	f, err := readStored(t, dir).asGGUF(t, func(*llamacpp.Model) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	open := func(m *forward.Model, err error) *forward.Model {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	one := open(forward.OpenCheckpoint(dir, forward.Options{Layers: 1}))
	if n := len(one.Config().Layers); n != 1 {
		t.Errorf("%d layers", n)
	}
	if d := difference(t, one, open(forward.OpenGGUF(f, forward.Options{Layers: 1}))); !(d <= 2e-5) {
		t.Errorf("the first layers differ by %.2g", d)
	}
	if d := difference(t, one, open(forward.OpenCheckpoint(dir, forward.Options{}))); !(d >= 1e-2) {
		t.Errorf("one layer and all differ by %.2g only", d)
	}
}
