package gq_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/packing"
)

// A rewrite changes an F32 file into another form of llama.cpp's converter.
type rewrite struct {
	pairs []gguf.Pair // in place of those of the file
	// tensors returns the tensors in place of a tensor, or nil.
	tensors func(x *gguf.Tensor, raw []byte) ([]gguf.TensorInfo, [][]byte)
}

// write writes the rewritten file.
func (r *rewrite) write(t *testing.T, f *gguf.File, to string) {
	t.Helper()
	pairs, set := r.pairs, map[string]bool{}
	for _, p := range pairs {
		set[p.Key] = true
	}
	for k, v := range f.Metadata {
		if a, ok := v.(gguf.Array); ok {
			if list, ok := a.Strings(); ok {
				v = list
			} else if list, ok := a.Floats(); ok {
				v = list
			} else {
				list, _ := a.Ints()
				short := make([]int32, len(list))
				for i, n := range list {
					short[i] = int32(n)
				}
				v = short
			}
		}
		if !set[k] {
			pairs = append(pairs, gguf.Pair{Key: k, Value: v})
		}
	}
	var infos []gguf.TensorInfo
	var data [][]byte
	for _, x := range f.Tensors {
		raw := f.Data(x)
		more, values := r.tensors(x, raw)
		if more == nil {
			more, values = []gguf.TensorInfo{{Name: x.Name, Dims: x.Dims, Type: x.Type}}, [][]byte{raw}
		}
		infos, data = append(infos, more...), append(data, values...)
	}
	layout, err := gguf.NewLayout(pairs, infos, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := append(layout.Shards[0].Header, make([]byte, layout.Shards[0].Size-int64(len(layout.Shards[0].Header)))...)
	for i, b := range data {
		copy(out[layout.Places[i].Offset:], b)
	}
	if err := os.WriteFile(to, out, 0o666); err != nil {
		t.Fatal(err)
	}
}

// otherForm rewrites a file. attn_kv_b of deepseek2 becomes two tensors, the keys' part of each
// head transposed, with sizes of latents in the metadata. ssm_in of qwen3next becomes two tensors
// with the queries, keys, values and gates of all heads behind each other.
func otherForm(t *testing.T, from, to string) {
	t.Helper()
	f, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	integer := func(key string) int {
		n, ok := f.Int(key)
		if !ok {
			t.Fatalf("no %s", key)
		}
		return int(n)
	}
	if name, _ := f.Text(gguf.KeyArchitecture); name == "qwen3next" {
		heads, dim, values := integer("qwen3next.ssm.group_count"), integer("qwen3next.ssm.state_size"), integer("qwen3next.ssm.inner_size")
		own := values / heads
		r := rewrite{tensors: func(x *gguf.Tensor, raw []byte) ([]gguf.TensorInfo, [][]byte) {
			layer, split := strings.CutSuffix(x.Name, "ssm_in.weight")
			if !split {
				return nil, nil
			}
			size := int(x.RowBytes())
			part := func(first, n int) (rows []byte) {
				for h := range heads {
					rows = append(rows, raw[(h*2*(dim+own)+first)*size:][:n*size]...)
				}
				return rows
			}
			hidden := x.Dims[0]
			infos := []gguf.TensorInfo{
				{Name: layer + "attn_qkv.weight", Dims: []int64{hidden, int64(2*heads*dim + values)}, Type: gguf.F32},
				{Name: layer + "attn_gate.weight", Dims: []int64{hidden, int64(values)}, Type: gguf.F32},
			}
			return infos, [][]byte{slices.Concat(part(0, dim), part(dim, dim), part(2*dim, own)), part(2*dim+own, own)}
		}}
		r.write(t, f, to)
		return
	}
	const at = "deepseek2.attention."
	rank, rope, heads := integer(at+"kv_lora_rank"), integer("deepseek2.rope.dimension_count"), integer(at+"head_count")
	key, value := integer(at+"key_length"), integer(at+"value_length")
	nope := key - rope
	r := rewrite{pairs: []gguf.Pair{
		{Key: at + "key_length_mla", Value: uint32(key)}, {Key: at + "value_length_mla", Value: uint32(value)},
		{Key: at + "key_length", Value: uint32(rank + rope)}, {Key: at + "value_length", Value: uint32(rank)}, {Key: at + "head_count_kv", Value: uint32(1)},
	}, tensors: func(x *gguf.Tensor, raw []byte) ([]gguf.TensorInfo, [][]byte) {
		layer, split := strings.CutSuffix(x.Name, "attn_kv_b.weight")
		if !split {
			return nil, nil
		}
		element := func(row, col int) []byte { return raw[4*(row*rank+col):][:4] }
		var keys, values []byte
		for h := range heads {
			for c := range rank {
				for i := range nope {
					keys = append(keys, element(h*(nope+value)+i, c)...)
				}
			}
			for i := range value {
				values = append(values, raw[4*(h*(nope+value)+nope+i)*rank:][:4*rank]...)
			}
		}
		return []gguf.TensorInfo{
			{Name: layer + "attn_k_b.weight", Dims: []int64{int64(nope), int64(rank), int64(heads)}, Type: gguf.F32},
			{Name: layer + "attn_v_b.weight", Dims: []int64{int64(rank), int64(value), int64(heads)}, Type: gguf.F32},
		}, [][]byte{keys, values}
	}}
	r.write(t, f, to)
}

// otherForms are models with another form in the converter's files.
func otherForms(t *testing.T) []testmodels.Variant {
	return []testmodels.Variant{
		testmodels.Find(t, "deepseek-v3"), testmodels.Find(t, "glm4-moe-lite"), testmodels.Find(t, "qwen3-next").With("all", "mlp_only_layers", []int{}),
	}
}

// TestOtherForms reads files in the converter's form: the checkpoint is the same.
func TestOtherForms(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, v := range otherForms(t) {
		dir := filepath.Join(t.TempDir(), "m")
		v.Write(t, dir)
		toGGUF(t, dir, dir+".gguf", v.Tokenizer.Pre(), unquantized)
		otherForm(t, dir+".gguf", dir+"-split.gguf")
		var floats [2]*forward.Model
		for i, file := range []string{dir + ".gguf", dir + "-split.gguf"} {
			if _, err := gq.Dequantize(ctx, file, file+".d", gq.DequantizeOptions{Dtype: packing.F32}); err != nil {
				t.Fatal(err)
			}
			m, err := forward.OpenCheckpoint(file+".d", forward.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			floats[i] = m
		}
		ids := randomTokens(1, 12, testmodels.Vocab)
		if worst := worstProbability(t, ourProbabilities(t, floats[1], ids), ourProbabilities(t, floats[0], ids)); worst != 0 {
			t.Errorf("%s: probabilities are off by %g", v.Name, worst)
		}
	}
}

// TestLlamaCppOtherForms runs the files in llama.cpp: they are what it expects.
func TestLlamaCppOtherForms(t *testing.T) {
	llama := startLlamaCpp(t)
	for _, v := range otherForms(t) {
		dir := filepath.Join(t.TempDir(), "m")
		v.Write(t, dir)
		toGGUF(t, dir, dir+".gguf", v.Tokenizer.Pre(), unquantized)
		otherForm(t, dir+".gguf", dir+"-split.gguf")
		ids := randomTokens(1, 30, testmodels.Vocab)
		a := llama.ask(t, llamaRequest{Model: dir + "-split.gguf", Sequences: [][]int32{ids}})
		m, err := forward.OpenCheckpoint(dir, forward.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		worst := worstProbability(t, a.Probabilities[0], ourProbabilities(t, m, ids))
		if t.Logf("%s: probabilities are off by at most %.2g", v.Name, worst); !(worst <= 1e-4) {
			t.Errorf("%s: probabilities are off by %g", v.Name, worst)
		}
	}
}

// TestImportedHalves reads .gguf files of BF16 weights, and of 4 bits and F16, with other orders
// of rows and columns: the model is the same as of the file's own weights.
func TestImportedHalves(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, v := range testmodels.ForLlamaCpp(t) {
		if name, _, _ := strings.Cut(v.Name, "-"); !slices.Contains([]string{"gpt", "llama4", "kimi"}, name) && !strings.HasPrefix(v.Name, "qwen3-5") {
			continue
		}
		dir := filepath.Join(t.TempDir(), "m")
		v.Write(t, dir)
		toGGUF(t, dir, dir+".gguf", v.Tokenizer.Pre(), unquantized)
		for dtype, settings := range map[packing.Dtype]string{packing.BF16: unquantized, packing.F32: "bits: 4, algorithm: rtn"} {
			from := dir + dtype.String()
			if _, err := gq.Dequantize(ctx, dir+".gguf", from, gq.DequantizeOptions{Dtype: dtype}); err != nil {
				t.Fatal(err)
			}
			toGGUF(t, from, from+".gguf", v.Tokenizer.Pre(), settings)
			if _, err := gq.Dequantize(ctx, from+".gguf", from+".d", gq.DequantizeOptions{Dtype: packing.F32}); err != nil {
				t.Fatal(err)
			}
			m, err := forward.OpenCheckpoint(from+".d", forward.Options{LlamaCpp: true})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			ids := randomTokens(1, 8, testmodels.Vocab)
			if worst := worstProbability(t, ourProbabilities(t, m, ids), ourProbabilities(t, openGGUF(t, from+".gguf"), ids)); worst > 1e-5 {
				t.Errorf("%s, %s: probabilities are off by %g", v.Name, dtype, worst)
			}
		}
	}
}

// TestPredictingLayers reads a file with a layer that predicts further tokens: the layer is left
// out, and its elements of arrays. Without its key, it is an unknown tensor.
func TestPredictingLayers(t *testing.T) {
	t.Parallel()
	v := testmodels.Find(t, "qwen3-5")
	dir := filepath.Join(t.TempDir(), "m")
	v.Write(t, dir)
	toGGUF(t, dir, dir+".gguf", v.Tokenizer.Pre(), unquantized)
	f, err := gguf.Open(dir + ".gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	layers, _ := f.Int("qwen35.block_count")
	r := rewrite{tensors: func(x *gguf.Tensor, raw []byte) ([]gguf.TensorInfo, [][]byte) {
		if x.Name != "output_norm.weight" {
			return nil, nil
		}
		norm := gguf.TensorInfo{Name: x.Name, Dims: x.Dims, Type: x.Type}
		return []gguf.TensorInfo{norm, {Name: fmt.Sprintf("blk.%d.nextn.enorm.weight", layers), Dims: x.Dims, Type: x.Type}}, [][]byte{raw, raw}
	}}
	r.write(t, f, dir+"-unknown.gguf")
	r.pairs = []gguf.Pair{{Key: "qwen35.block_count", Value: uint32(layers + 1)}, {Key: "qwen35.nextn_predict_layers", Value: uint32(1)}}
	heads := func(more int) gguf.Pair {
		return gguf.Pair{Key: "qwen35.attention.head_count_kv", Value: slices.Repeat([]int32{2}, int(layers)+more)}
	}
	known := r.pairs
	r.pairs = append(known, heads(2))
	r.write(t, f, dir+"-longer.gguf")
	r.pairs = append(known, heads(1)) // an element for each layer
	r.write(t, f, dir+"-known.gguf")
	dequantize := func(name string) error {
		_, err := gq.Dequantize(context.Background(), name+".gguf", name+".d", gq.DequantizeOptions{Dtype: packing.F32})
		return err
	}
	if err := dequantize(dir + "-unknown"); err == nil || !strings.Contains(err.Error(), "nextn.enorm.weight\" has no place") {
		t.Error(err)
	}
	if err := dequantize(dir + "-longer"); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("head_count_kv has %d elements: at most %d were expected", layers+2, layers+1)) {
		t.Error(err)
	}
	if err := dequantize(dir + "-known"); err != nil {
		t.Fatal(err)
	}
	m, err := forward.OpenCheckpoint(dir+"-known.d", forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n := len(m.Config().Layers); n != int(layers) {
		t.Errorf("%d layers, want %d", n, layers)
	}
}
