package conversion

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// plainSlices writes a file with unquantized tensors of these shapes, each with a payload for each
// slice, and returns their data.
func plainSlices(t *testing.T, path, config string, shapes map[string][]int64) map[string][]byte {
	t.Helper()
	b, all, places := gqf.NewBuilder(), map[string][]byte{}, map[string]int{}
	payloads := 0
	for name, shape := range shapes {
		n, rows, cols := plan.SliceShape(shape, false)
		if len(shape) == 1 { // a vector is one row in a .gqf file
			rows, cols = 1, rows
		}
		tensor := b.AddTensor(gqf.TensorSpec{Name: name, Shape: shape, Dtype: packing.F16, Role: gqf.RoleExpert, Experts: n})
		b.AddName(gqf.NameSpec{Name: name, Tensor: tensor, InCheckpoint: true, SourceFile: -1})
		places[name] = payloads
		for s := range n {
			b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Header: packing.PlainHeader(packing.F16, uint64(rows), uint64(cols))})
			payloads++
		}
		data := make([]byte, 2*int64(n)*rows*cols)
		for i := range data {
			data[i] = byte(i*7+i>>8) &^ byte(i%2*0x44) // finite F16 numbers
		}
		all[name] = data
	}
	b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetConfig, Name: "config.json", Data: []byte(config)})
	im, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	out := memory(make([]byte, im.Size()))
	for name, shape := range shapes {
		n, rows, cols := plan.SliceShape(shape, false)
		size := 2 * rows * cols
		for s := range int64(n) {
			off, part := im.PayloadOffset(places[name]+int(s))+packing.HeaderSize, all[name][s*size:][:size]
			copy(out[off:], part)
			im.AddData(off, part)
		}
	}
	if err := im.WritePayloadHeaders(out); err != nil {
		t.Fatal(err)
	}
	if err := im.WriteFront(out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out, 0o666); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPlainSlices: an unquantized tensor in slices is dequantized and repacked, a unit of the job
// having bytes of several slices, and a slice bytes of several units.
func TestPlainSlices(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slices.gqf")
	want := plainSlices(t, path, "{}", map[string][]int64{"small": {2, 3, 5, 7}, "large": {3, 700, 600}, "none": {2, 0, 3}})
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if r, err := f.Verify(context.Background(), gqf.VerifyOptions{Deep: true}); err != nil || !r.OK() {
		t.Fatalf("the file: %+v, %v", r, err)
	}
	dir := filepath.Join(t.TempDir(), "out")
	if _, err := Dequantize(context.Background(), f, path, dir, DequantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	layouts, err := quantizer.ParseLayouts("codes")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewRepack(f, path, RepackOptions{Layouts: layouts})
	if err != nil {
		t.Fatal(err)
	}
	repacked := filepath.Join(t.TempDir(), "repacked.gqf")
	if _, err := plan.Write(context.Background(), repacked); err != nil {
		t.Fatal(err)
	}
	g, err := gqf.Open(repacked, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for name, data := range want {
		tensor, ok := ck.Lookup(name)
		got := make([]byte, len(data))
		if err := ck.ReadAt(tensor, got, 0); !ok || err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: dequantized to other bytes, %v", name, err)
		}
		again, _ := g.Lookup(name)
		p, _ := again.Payload(0, 0, gqf.KindWeights)
		if got, err := g.Data(p); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: repacked to other bytes, %v", name, err)
		}
	}
}

// TestExportPlainSlices: unquantized experts in slices are exported as the experts that they are.
func TestExportPlainSlices(t *testing.T) {
	const config = `{"model_type": "mixtral", "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 1, "num_key_value_heads": 1,
		"num_hidden_layers": 1, "vocab_size": 40, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2}`
	const layer = "model.layers.0."
	shapes := map[string][]int64{
		"model.embed_tokens.weight": {40, 32}, "lm_head.weight": {40, 32}, "model.norm.weight": {32},
		layer + "input_layernorm.weight": {32}, layer + "post_attention_layernorm.weight": {32}, layer + "mlp.gate.weight": {4, 32},
		layer + "mlp.experts.gate_up_proj": {4, 96, 32}, layer + "mlp.experts.down_proj": {4, 32, 48},
	}
	for _, name := range []string{"q", "k", "v", "o"} {
		shapes[layer+"self_attn."+name+"_proj.weight"] = []int64{32, 32}
	}
	path := filepath.Join(t.TempDir(), "slices.gqf")
	data := plainSlices(t, path, config, shapes)
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plan, err := NewExport(f, path, ExportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := plan.Write(context.Background(), out); err != nil {
		t.Fatal(err)
	}
	g, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var gate, up []byte // of each expert the first half of the rows, and the second one
	for half := range slices.Chunk(data[layer+"mlp.experts.gate_up_proj"], 2*48*32) {
		if len(gate) == len(up) {
			gate = append(gate, half...)
		} else {
			up = append(up, half...)
		}
	}
	for name, want := range map[string][]byte{"gate": gate, "up": up, "down": data[layer+"mlp.experts.down_proj"]} {
		x := g.Tensor("blk.0.ffn_" + name + "_exps.weight")
		if x == nil || x.Type != gguf.F16 || !bytes.Equal(g.Data(x), want) {
			t.Errorf("%s: %+v, or other bytes", name, x)
		}
	}
}
