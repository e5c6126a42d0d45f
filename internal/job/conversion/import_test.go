package conversion

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/fromgguf"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// halves are scales of blocks: a normal number, negative ones, subnormal ones, zeros.
var halves = []uint16{0x2c00, 0xac01, 0x0001, 0x83ff, 0x0000, 0x8000, 0x7bff, 0x1234}

// writeGGUF writes the model of a variant as a GGUF file with random data. types are given to the
// tensors in turn, except to those that llama.cpp wants as F32.
func writeGGUF(t *testing.T, v testmodels.Variant, types []gguf.TensorType) string {
	t.Helper()
	return writeGGUFWith(t, v, types, gguf.F32)
}

// writeGGUFWith gives vectors another type than F32, if they are whole blocks.
func writeGGUFWith(t *testing.T, v testmodels.Variant, types []gguf.TensorType, vectors gguf.TensorType) string {
	t.Helper()
	dir := t.TempDir()
	v.Write(t, dir)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var sources []llamacpp.Source
	for _, tensor := range ck.Tensors() {
		sources = append(sources, llamacpp.Source{Name: tensor.Name, Shape: tensor.Shape})
	}
	m, err := llamacpp.Describe(config, sources)
	if err != nil {
		t.Fatal(err)
	}
	infos := make([]gguf.TensorInfo, len(m.Tensors))
	for i, s := range m.Tensors {
		infos[i] = gguf.TensorInfo{Name: s.Name, Dims: s.Shape, Type: gguf.F32}
		switch {
		case !s.F32:
			infos[i].Type = types[i%len(types)]
		case len(s.Shape) == 1 && s.Shape[0]%int64(vectors.BlockWeights()) == 0:
			infos[i].Type = vectors
		}
	}
	pairs := append([]gguf.Pair{{Key: "general.architecture", Value: m.Architecture}}, m.Metadata...)
	l, err := gguf.NewLayout(pairs, infos, 0)
	if err != nil {
		t.Fatal(err)
	}
	data := append(l.Shards[0].Header, make([]byte, l.Shards[0].Size-int64(len(l.Shards[0].Header)))...)
	r := rand.New(rand.NewPCG(1, 2))
	for i, s := range m.Tensors {
		fillTensor(r, data[l.Places[i].Offset:][:infos[i].Size()], infos[i].Type, s.Values)
	}
	path := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// fillTensor makes data of a type: the given values, random numbers, or random codes with halves.
func fillTensor(r *rand.Rand, b []byte, kind gguf.TensorType, values []float32) {
	switch size := kind.BlockBytes(); kind {
	case gguf.F32:
		for i := range len(b) / 4 {
			v := float32(r.NormFloat64())
			if values != nil {
				v = values[i]
			}
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
		}
	case gguf.F16, gguf.BF16:
		for i := range len(b) / 2 {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(0x3c00+r.IntN(64)))
		}
	default:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for i := 0; i < len(b); i += size {
			h := halves[i/size%len(halves)]
			if kind == gguf.Q1_0 {
				h = h &^ 0x8000 % 0x7800 // twice that is a number too
			}
			at := i
			if kind == gguf.Q3_K || kind == gguf.Q6_K {
				at += size - 2 // the scale comes last
			}
			binary.LittleEndian.PutUint16(b[at:], h)
			if kind == gguf.Q4_K || kind == gguf.Q4_1 {
				binary.LittleEndian.PutUint16(b[i+2:], 0x2c00)
			}
		}
	}
}

// importFile runs an import and opens its file.
func importFile(t *testing.T, path string, opts RepackOptions) *gqf.File {
	t.Helper()
	f, err := fromgguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plan, err := importing(f, opts)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := plan.Write(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	g, err := gqf.Open(out, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	report, err := g.Verify(context.Background(), gqf.VerifyOptions{Deep: true})
	if err != nil || !report.OK() {
		t.Fatalf("the imported file: %+v, %v", report, err)
	}
	return g
}

// TestImport: an imported weight has the bits that ggml dequantizes the GGUF file's weight to,
// with scales of every kind, in rows that are permuted, and without the 1 in norms.
func TestImport(t *testing.T) {
	testshared.SlowEmulated(t, "codes are taken over by the same code natively")
	exact := []gguf.TensorType{gguf.Q1_0, gguf.Q4_0, gguf.Q2_0, gguf.Q8_0, gguf.Q5_0, gguf.BF16, gguf.F16, gguf.F32}
	kleidiai, err := quantizer.ParseLayouts("kleidiai")
	if err != nil {
		t.Fatal(err)
	}
	codes, err := quantizer.ParseLayouts("codes")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		variant string
		types   []gguf.TensorType
		opts    RepackOptions
	}{
		{"llama2-linear", exact, RepackOptions{}},
		{"llama-bias-tied", exact, RepackOptions{}},
		{"mixtral", exact[1:3], RepackOptions{}},
		{"mixtral", []gguf.TensorType{gguf.Q6_K, gguf.Q4_0, gguf.Q3_K}, RepackOptions{}},
		{"llama-bias-tied", []gguf.TensorType{gguf.Q3_K, gguf.Q6_K}, RepackOptions{Layouts: codes}},
		{"llama2-linear", []gguf.TensorType{gguf.Q4_0}, RepackOptions{Layouts: kleidiai}},
		// 20 is IQ4_NL.
		{"gemma3", []gguf.TensorType{gguf.Q4_K, gguf.Q6_K, gguf.Q8_0, 20, gguf.Q4_1}, RepackOptions{Dequantize: true}},
	} {
		path := writeGGUF(t, testmodels.Find(t, c.variant), c.types)
		g := importFile(t, path, c.opts)
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		ck, err := llamacpp.ReadCheckpoint(f, false)
		if err != nil {
			t.Fatal(err)
		}
		if len(ck.Tensors) != g.Len() {
			t.Errorf("%s: %d tensors, want %d", c.variant, g.Len(), len(ck.Tensors))
		}
		for i := range ck.Tensors {
			checkImported(t, f, g, &ck.Tensors[i])
		}
		if !c.opts.Dequantize && !slices.Contains(c.types, gguf.Q6_K) {
			checkExported(t, c.variant, f, g)
		}
		f.Close()
	}
}

// TestImportQuantizedVectors imports norms and biases of quantized types. They must be dequantized,
// and the biases of q and k must have the checkpoint's order.
func TestImportQuantizedVectors(t *testing.T) {
	path := writeGGUFWith(t, testmodels.Find(t, "llama-bias-tied"), []gguf.TensorType{gguf.Q8_0}, gguf.Q4_1)
	g := importFile(t, path, RepackOptions{Dequantize: true})
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ck, err := llamacpp.ReadCheckpoint(f, false)
	if err != nil {
		t.Fatal(err)
	}
	checked, permuted := 0, 0
	for i := range ck.Tensors {
		c := &ck.Tensors[i]
		if len(c.Shape) != 1 || c.Stored.Type != gguf.Q4_1 {
			continue
		}
		checked++
		if _, plain := c.Plain(); !plain {
			permuted++
		}
		checkImported(t, f, g, c)
		checkBias(t, f, g, c)
	}
	if checked == permuted || permuted == 0 {
		t.Errorf("%d vectors, %d of them permuted", checked, permuted)
	}
}

// checkBias compares the biases beside a matrix's codes with the vector, if it is one.
func checkBias(t *testing.T, f *gguf.File, g *gqf.File, c *llamacpp.CheckpointTensor) {
	t.Helper()
	module, ok := strings.CutSuffix(c.Name, ".bias")
	if !ok {
		return
	}
	tensor, _ := g.Lookup(module + ".weight")
	rows, err := tensor.Rows(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]float32, c.Stored.Elements())
	if err := c.Stored.Type.Decode(all, f.Data(c.Stored)); err != nil {
		t.Fatal(err)
	}
	for i := range c.Shape[0] {
		_, row := c.At(int(i))
		if got, want := rows.RowBias(int(i)), all[row]; got != want {
			t.Errorf("bias %d of %s is %v, want %v", i, module, got, want)
			return
		}
	}
}

// checkExported exports an imported file: the tensors have the same bytes as before.
func checkExported(t *testing.T, name string, f *gguf.File, g *gqf.File) {
	t.Helper()
	plan, err := NewExport(g, "model.gqf", ExportOptions{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	path := filepath.Join(t.TempDir(), "back.gguf")
	if _, err := plan.Write(context.Background(), path); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	back, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for _, want := range f.Tensors {
		got := back.Tensor(want.Name)
		if got == nil || got.Type != want.Type || !bytes.Equal(back.Data(got), f.Data(want)) {
			t.Errorf("%s: tensor %q (%s) has other bytes after import and export", name, want.Name, want.Type)
		}
	}
	if len(back.Tensors) != len(f.Tensors) {
		t.Errorf("%s: %d tensors after import and export, want %d", name, len(back.Tensors), len(f.Tensors))
	}
}

func checkImported(t *testing.T, f *gguf.File, g *gqf.File, want *llamacpp.CheckpointTensor) {
	t.Helper()
	tensor, ok := g.Lookup(want.Name)
	if !ok || !slices.Equal(tensor.Shape, want.Shape) {
		t.Errorf("tensor %q: %v, want %v", want.Name, tensor.Shape, want.Shape)
		return
	}
	p, _ := tensor.Payload(0, 0, gqf.KindWeights)
	cols := int(want.Stored.Elements()) / int(want.Stored.Rows())
	if len(want.Shape) == 1 {
		cols = 1
	}
	all := make([]float32, want.Stored.Elements())
	if err := want.Stored.Type.Decode(all, f.Data(want.Stored)); err != nil {
		t.Fatal(err)
	}
	_, quantized := fromgguf.Grids[want.Stored.Type]
	if quantized != (p.Header.Layout != packing.LayoutPlain) {
		t.Errorf("tensor %q of type %s has layout %s", want.Name, want.Stored.Type, p.Header.Layout)
		return
	}
	row := make([]float32, cols)
	for i := range int(want.Shape[0]) {
		if quantized {
			rows, err := tensor.Rows(0, 0)
			if err != nil {
				t.Fatal(err)
			}
			rows.Dequantize(row, i)
		} else {
			data, err := g.Data(p)
			if err != nil {
				t.Fatal(err)
			}
			size := cols * int(tensor.Dtype.Bits()/8)
			safetensors.Widen(row, data[i*size:][:size], tensor.Dtype)
		}
		_, stored := want.At(i)
		for c, v := range all[stored*cols:][:cols] {
			if want.Add != 0 {
				v += want.Add
			}
			negated := want.Stored.Type == gguf.Q2_0 && v == 0 && row[c] == 0 // as its scales are
			if math.Float32bits(row[c]) != math.Float32bits(v) && !negated {
				t.Errorf("tensor %q (%s), row %d, column %d: %v, want %v", want.Name, want.Stored.Type, i, c, row[c], v)
				return
			}
		}
	}
}

// TestSubScales: F32 holds the product of every F16 scale and every sub-scale exactly, and a layout
// of gq has a place for each.
func TestSubScales(t *testing.T) {
	h := packing.Header{Layout: packing.LayoutLowbit, ScaleDtype: packing.ScaleF32}
	for bits := range 1 << 16 {
		d := floats.F16ToF32(uint16(bits))
		if !floats.Finite(d) {
			continue
		}
		for sub := -128; sub < 128; sub++ {
			scale := d * float32(sub)
			if float64(scale) != float64(d)*float64(sub) {
				t.Fatalf("%v times %d is rounded to %v", d, sub, scale)
			}
			if size := floats.Abs(scale); size > packing.ScaleF32.Max() || size < packing.ScaleF32.Smallest() && !(scale == 0 && h.HoldsZeroScales()) {
				t.Fatalf("%v times %d is no scale", d, sub)
			}
		}
	}
}

// TestImportErrors: codes that a .gqf file cannot hold are refused.
func TestImportErrors(t *testing.T) {
	path := writeGGUF(t, testmodels.Find(t, "llama2-linear"), []gguf.TensorType{gguf.Q4_K})
	f, err := fromgguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := `has type Q4_K: a .gqf file has no layout for its codes, only for those of Q1_0, Q2_0, Q3_K, Q4_0, Q5_0, Q6_K and Q8_0`
	if _, err := importing(f, RepackOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	forGGUF := RepackOptions{Targets: []quantizer.Target{quantizer.TargetGGUF}, Dequantize: true}
	if _, err := importing(f, forGGUF); err == nil || !strings.Contains(err.Error(), "target gguf chooses schemes, which a repack takes over") {
		t.Errorf("target gguf: %v", err)
	}
}

// TestImportNotFinite: a scale that is no number is refused, whether the codes are kept or not.
func TestImportNotFinite(t *testing.T) {
	for _, c := range []struct {
		kind gguf.TensorType
		want string
	}{
		{gguf.Q8_0, `row 1: block 0 has the scale NaN`},
		{gguf.Q4_K, `tensor "blk.1.ffn_up.weight", row 1: the Q4_K weight in column 0 is NaN: want finite weights`},
	} {
		path := writeGGUF(t, testmodels.Find(t, "llama2-linear"), []gguf.TensorType{c.kind})
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		tensor := f.Tensor("blk.1.ffn_up.weight")
		f.Close()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint16(data[tensor.Offset+tensor.RowBytes():], 0x7e00)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		foreign, err := fromgguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer foreign.Close()
		plan, err := importing(foreign, RepackOptions{Dequantize: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Write(context.Background(), filepath.Join(t.TempDir(), "model.gqf")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", c.kind, err, c.want)
		}
	}
}
