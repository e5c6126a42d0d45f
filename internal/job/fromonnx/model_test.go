package fromonnx

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/onnx"
)

// TestVectors reads graphs that other programs made of two small Llamas. weights.json has the
// SHA-256 of each matrix, (code - zero point) * scale in float32, computed by NumPy. builder is the
// model builder of onnxruntime-genai 0.18.0: k_quant, 4 bits, blocks of 32, zero points, q, k and v
// in one matrix, and the embedding in a Reshape node. quantizer is MatMulNBitsQuantizer of
// onnxruntime 1.32.0: 8 bits, blocks of 32 with a short one at the end, and biases.
func TestVectors(t *testing.T) {
	for _, c := range []struct {
		name, scheme string
		others       []string
	}{
		{"builder", "4 bits, group 32, F32 scales, zero points", []string{
			"model.layers.0.input_layernorm.weight [64]", "model.layers.0.post_attention_layernorm.weight [64]", "model.norm.weight [64]",
		}},
		{"quantizer", "8 bits, group 32, F32 scales", []string{
			"model.embed_tokens.weight [48 64]", "model.layers.0.input_layernorm.weight [64]", "model.layers.0.post_attention_layernorm.weight [64]",
			"model.layers.0.self_attn.k_proj.bias [32]", "model.layers.0.self_attn.o_proj.bias [64]", "model.layers.0.self_attn.q_proj.bias [64]",
			"model.layers.0.self_attn.v_proj.bias [32]", "model.norm.weight [64]",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join("testdata", c.name)
			want := map[string]string{}
			js, err := os.ReadFile(filepath.Join(dir, "weights.json"))
			if err == nil {
				err = json.Unmarshal(js, &want)
			}
			if err != nil || len(want) != 8 {
				t.Fatalf("%d weights, %v", len(want), err)
			}
			m, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for _, w := range m.Quantized.Weights {
				if got := hash(t, &w); want[w.Name] != "" && got != want[w.Name] || w.Scheme.String() != c.scheme {
					t.Errorf("%s (%s): %s, not %s", w.Name, w.Scheme, got, want[w.Name])
				}
				delete(want, w.Name)
			}
			if len(want) > 0 {
				t.Errorf("not found: %v", want)
			}
			var others []string
			for _, tensor := range m.Tensors() {
				if _, part := m.Quantized.Parts[tensor.Name]; !part {
					others = append(others, fmt.Sprint(tensor.Name, " ", tensor.Shape))
				}
			}
			if !slices.Equal(others, c.others) {
				t.Errorf("unquantized: %q", others)
			}
		})
	}
}

func hash(t *testing.T, w *hfquant.Weight) string {
	var row hfquant.Row
	h := sha256.New()
	for n := range w.Shape[0] {
		if err := w.Read(&row, n); err != nil {
			t.Fatal(err)
		}
		for k, q := range row.Codes {
			g, zero := k/int(w.Scheme.Group), 0
			if len(row.Zeros) > 0 {
				zero = int(row.Zeros[g])
			}
			b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(int(q)-zero)*row.Scales[g]))
			h.Write(b)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// small returns a model of a layer with 3 rows of 32 codes.
func small() *onnx.Model {
	tensor := func(name string, typ onnx.DataType, size int, dims ...int64) onnx.Tensor {
		return onnx.Tensor{Name: name, Type: typ, Dims: dims, Raw: make([]byte, size)}
	}
	m := &onnx.Model{IR: 10}
	m.Graph.Inputs = []onnx.Value{{Name: "x"}, {Name: "v"}, {Name: "g"}, {Name: "h"}}
	m.Graph.Nodes = []onnx.Node{{
		Name: "/a/up_proj/MatMul_Q4", Op: "MatMulNBits", Inputs: []string{"x", "w", "s", "z"}, Outputs: []string{"y"},
		Attributes: []onnx.Attribute{onnx.Integer("K", 32), onnx.Integer("N", 3), onnx.Integer("bits", 4), onnx.Integer("block_size", 32)},
	}}
	m.Graph.Initializers = []onnx.Tensor{
		tensor("w", onnx.Uint8, 48, 3, 1, 16), tensor("s", onnx.Float, 12, 3), tensor("z", onnx.Float, 12, 3, 1),
	}
	for i := range 3 {
		binary.LittleEndian.PutUint32(m.Graph.Initializers[1].Raw[4*i:], math.Float32bits(0.5))
	}
	return m
}

func put(x *onnx.Tensor, i int, v float32) {
	binary.LittleEndian.PutUint32(x.Raw[4*i:], math.Float32bits(v))
}

// TestZeroPoints reads floating-point zero points: those among the codes are integers.
func TestZeroPoints(t *testing.T) {
	for zero, want := range map[float32]string{
		8: "4 bits, per channel, BF16 scales", 3: "4 bits, per channel, BF16 scales, zero points", 2.5: "4 bits, per channel, BF16 scales, offsets",
		16: "4 bits, per channel, BF16 scales, offsets",
	} {
		m := small()
		for i := range 3 {
			put(&m.Graph.Initializers[2], i, zero)
		}
		got, err := openBytes(t, m)
		if err != nil {
			t.Fatal(err)
		}
		w := &got.Quantized.Weights[0]
		if s := w.Scheme.String(); s != want {
			t.Errorf("zero point %g: %s", zero, s)
		}
		var row hfquant.Row
		if err := w.Read(&row, 1); err != nil {
			t.Fatal(err)
		}
		weight := float32(row.Codes[0]) * row.Scales[0] // of the code 0
		if len(row.Zeros) > 0 {
			weight -= float32(row.Zeros[0]) * row.Scales[0]
		}
		if len(row.Offsets) > 0 {
			weight += row.Offsets[0]
		}
		if weight != -zero/2 {
			t.Errorf("zero point %g: weight %g", zero, weight)
		}
		got.Close()
	}
}

// TestOffsets reads fractional zero points. Their products with the scales are rounded to float32,
// and refused if they are too large.
func TestOffsets(t *testing.T) {
	for scale, want := range map[float32]string{0.1: "", math.MaxFloat32: "beyond the float32 numbers"} {
		m := small()
		for i := range 3 {
			put(&m.Graph.Initializers[1], i, scale)
			put(&m.Graph.Initializers[2], i, 4.3)
		}
		got, err := openBytes(t, m)
		if err != nil {
			t.Fatal(err)
		}
		var row hfquant.Row
		err = got.Quantized.Weights[0].Read(&row, 1)
		if want == "" && (err != nil || row.Offsets[0] != -float32(float32(4.3)-8)*scale) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("scale %g: offsets %v, %v", scale, row.Offsets, err)
		}
		got.Close()
	}
}

func openBytes(t *testing.T, m *onnx.Model) (*Model, error) {
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(file, m.Encode(), 0o666); err != nil {
		t.Fatal(err)
	}
	return Open(file)
}

// TestTiedHead reads a graph with an embedding, and an lm_head that is stored inputs before
// outputs: the same weights, or others.
func TestTiedHead(t *testing.T) {
	const vocab, hidden = 5, 32
	for name, c := range map[string]struct {
		tied  bool
		other float32
		want  string
	}{"tied": {true, 0, ""}, "other weights": {true, 1, "inputs before outputs"}, "untied": {false, 0, "inputs before outputs"}} {
		m := small()
		embedding := onnx.Tensor{Name: "model.embed_tokens.weight", Type: onnx.Float, Dims: []int64{vocab, hidden}, Raw: make([]byte, 4*vocab*hidden)}
		head := onnx.Tensor{Name: "lm_head.MatMul.weight", Type: onnx.Float, Dims: []int64{hidden, vocab}, Raw: make([]byte, 4*vocab*hidden)}
		for i := range vocab {
			for j := range hidden {
				put(&embedding, i*hidden+j, float32(100*i+j))
				put(&head, j*vocab+i, float32(100*i+j))
			}
		}
		if c.other != 0 {
			put(&head, hidden*vocab-1, c.other)
		}
		m.Graph.Initializers = append(m.Graph.Initializers, embedding, head)
		m.Graph.Nodes = append(m.Graph.Nodes,
			onnx.Node{Name: "/model/embed_tokens/Gather", Op: "Gather", Inputs: []string{embedding.Name, "v"}, Outputs: []string{"e"}},
			onnx.Node{Name: "/lm_head/MatMul", Op: "MatMul", Inputs: []string{"y", head.Name}, Outputs: []string{"o"}})
		dir := t.TempDir()
		config := fmt.Sprintf(`{"model_type": "llama", "hidden_size": %d, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": %d, "tie_word_embeddings": %v}`, hidden, vocab, c.tied)
		for file, b := range map[string][]byte{"config.json": []byte(config), "model.onnx": m.Encode()} {
			if err := os.WriteFile(filepath.Join(dir, file), b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Open(dir)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := got.Lookup("lm_head.weight"); ok {
			t.Errorf("%s: there is an lm_head", name)
		}
		if _, ok := got.Lookup("model.embed_tokens.weight"); !ok {
			t.Errorf("%s: there is no embedding", name)
		}
		got.Close()
	}
}

func TestErrors(t *testing.T) {
	node := func(m *onnx.Model) *onnx.Node { return &m.Graph.Nodes[0] }
	set := func(name string, v int64) func(m *onnx.Model) {
		return func(m *onnx.Model) {
			list := node(m).Attributes
			list[slices.IndexFunc(list, func(a onnx.Attribute) bool { return a.Name == name })].Int[0] = v
		}
	}
	for want, change := range map[string]func(m *onnx.Model){
		"codes of 3 bits, expected 2, 4 or 8":                 set("bits", 3),
		"blocks of 24 of 32 columns, expected a power":        set("block_size", 24),
		"blocks of 32 of -1 columns":                          set("K", -1),
		`shape [3 16], but "a.up_proj.weight" needs`:          set("K", 64),
		`tensor "w" has the dimensions [3 1 16]: expec`:       set("N", 7),
		"columns in activation order":                         func(m *onnx.Model) { node(m).Inputs = append(node(m).Inputs, "g") },
		`expected rows of codes in an initializer, found "v"`: func(m *onnx.Model) { node(m).Inputs[1] = "v" },
		`expected an initializer, found "v"`:                  func(m *onnx.Model) { node(m).Inputs[2] = "v" },
		"has the data type 6: expected":                       func(m *onnx.Model) { m.Graph.Initializers[1].Type = onnx.Int32 },
		"has no raw_data and no external data":                func(m *onnx.Model) { m.Graph.Initializers[0].Raw = nil },
		"positive numbers of a possible size":                 func(m *onnx.Model) { m.Graph.Initializers[0].Dims = []int64{3, 1 << 62, 1 << 62} },
		`lies in "../w": expected a file beside`:              func(m *onnx.Model) { m.Graph.Initializers[0].SetPlace("../w", 0) },
		"the value of group 0 is NaN":                         func(m *onnx.Model) { put(&m.Graph.Initializers[1], 2, float32(math.NaN())) },
		"inputs before outputs": func(m *onnx.Model) {
			m.Graph.Nodes = append(m.Graph.Nodes, onnx.Node{Op: "MatMul", Inputs: []string{"y", "z"}, Outputs: []string{"o"}})
		},
		`multiplied by the factors "f"`: func(m *onnx.Model) {
			m.Graph.Nodes = slices.Insert(m.Graph.Nodes, 0, onnx.Node{Op: "Mul", Inputs: []string{"h", "f"}, Outputs: []string{"x"}})
			m.Graph.Initializers = append(m.Graph.Initializers, onnx.Tensor{Name: "f", Type: onnx.Float, Dims: []int64{32}, Raw: make([]byte, 128)})
		},
		`reads "u" before a node makes it`: func(m *onnx.Model) { node(m).Inputs[0] = "u" },
		`no node makes the output "o"`:     func(m *onnx.Model) { m.Graph.Outputs = []onnx.Value{{Name: "o"}} },
		"appears twice":                    func(m *onnx.Model) { m.Graph.Nodes = append(m.Graph.Nodes, *node(m)) },
	} {
		m := small()
		change(m)
		if got, err := openBytes(t, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v: not %q", got, err, want)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"a.onnx", "b.onnx"} {
		if err := os.WriteFile(filepath.Join(dir, name), small().Encode(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "has 2 graphs: name one of them") {
		t.Error(err)
	}
	for _, path := range []string{t.TempDir(), "testdata/builder/config.json", "testdata/missing"} {
		if m, err := Open(path); m != nil || err != nil {
			t.Errorf("%s: %v, %v", path, m, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(small().Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "model.onnx")
		if err := os.WriteFile(file, data, 0o666); err != nil {
			t.Fatal(err)
		}
		m, err := Open(file)
		if err != nil || m == nil {
			return
		}
		defer m.Close()
		var row hfquant.Row
		for _, w := range m.Quantized.Weights {
			_ = m.Guard(func() error { return w.Read(&row, w.Shape[0]-1) })
		}
	})
}
