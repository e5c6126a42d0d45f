package testmodels

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// Generated is a small model that Transformers computed logits of, in a directory of
// internal/lm/forward/testdata/transformers. Weights follow from the tensors' names:
// tools/architectures/vectors.py generates the same ones.
type Generated struct {
	Name      string
	Config    []byte             // config.json
	Norms     float64            // the mean of the weights of norms
	Tensors   map[string][]int64 // shapes
	Sequences []GeneratedSequence
	Logits    []float32 // of the positions of all sequences
}

// GeneratedSequence is the tokens of a sequence, and the positions with known logits.
type GeneratedSequence struct {
	Tokens    []int32
	Positions []int
}

// AllGenerated returns all generated models, sorted by name.
func AllGenerated(t testing.TB) (list []*Generated) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testshared.Root(t), "internal", "lm", "forward", "testdata", "transformers", "*", "vectors.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no generated models: %v", err)
	}
	slices.Sort(files)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		g := &Generated{Name: filepath.Base(dir), Config: read(filepath.Join(dir, "config.json"))}
		if err := json.Unmarshal(read(file), g); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		logits := read(filepath.Join(dir, "logits.f32"))
		g.Logits = make([]float32, len(logits)/4)
		for i := range g.Logits {
			g.Logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(logits[4*i:]))
		}
		list = append(list, g)
	}
	return list
}

// Write writes config.json and the weights.
func (g *Generated) Write(t testing.TB, dir string) {
	t.Helper()
	var specs []safetensors.TensorSpec
	for name, shape := range g.Tensors {
		specs = append(specs, safetensors.TensorSpec{Name: name, Dtype: packing.F32, Shape: shape})
	}
	slices.SortFunc(specs, func(a, b safetensors.TensorSpec) int { return strings.Compare(a.Name, b.Name) })
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), g.Config, 0o666); err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(dir, specs, safetensors.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i, s := range specs {
		values := weights(s.Name, s.Shape, g.Norms)
		b := make([]byte, 0, 4*len(values))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		if err := w.WriteAt(i, b, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// numbers returns n numbers from -1 to 1, multiples of 2^-23: SplitMix64, with the FNV-1a of the
// name as the seed.
func numbers(name string, n int64) []float64 {
	state := uint64(0xcbf29ce484222325)
	for _, b := range []byte(name) {
		state = (state ^ uint64(b)) * 0x100000001b3
	}
	list := make([]float64, n)
	for i := range list {
		state += 0x9e3779b97f4a7c15
		z := (state ^ state>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		list[i] = float64(z>>40)/(1<<23) - 1
	}
	return list
}

// weights returns the weights of a tensor: norms and factors about their mean, small biases, and
// matrices that keep the size of their inputs.
func weights(name string, shape []int64, mean float64) []float32 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	ends := func(suffixes ...string) bool {
		return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
	}
	list := make([]float32, n)
	for i, x := range numbers(name, n) {
		switch {
		case ends("A_log"): // decays over one token to over fifty
			x = float64(2*x) - 2
		case len(shape) > 1:
			cols := float64(shape[len(shape)-1])
			if x *= 1.5 * math.Sqrt(3/cols); ends("router.proj.weight") {
				x *= math.Sqrt(cols) // Gemma 4 divides its router's inputs by that
			}
		case ends("norm.weight", "norm_1.weight", "norm_2.weight"):
			x = mean + float64(0.5*x)
		case ends("layer_scalar", "router.scale", "per_expert_scale"):
			x = 1 + float64(0.25*x)
		default:
			x *= 0.25
		}
		list[i] = float32(x)
	}
	return list
}
