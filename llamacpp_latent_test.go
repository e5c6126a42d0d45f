package gq_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/packing"
)

// splitLatents rewrites an F32 file with attn_kv_b into the form of llama.cpp's converter: the
// keys' part of each head transposed, the values' part, and sizes of latents in the metadata.
func splitLatents(t *testing.T, from, to string) {
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
	const at = "deepseek2.attention."
	rank, rope, heads := integer(at+"kv_lora_rank"), integer("deepseek2.rope.dimension_count"), integer(at+"head_count")
	key, value := integer(at+"key_length"), integer(at+"value_length")
	nope := key - rope
	pairs := []gguf.Pair{
		{Key: at + "key_length_mla", Value: uint32(key)}, {Key: at + "value_length_mla", Value: uint32(value)},
		{Key: at + "key_length", Value: uint32(rank + rope)}, {Key: at + "value_length", Value: uint32(rank)}, {Key: at + "head_count_kv", Value: uint32(1)},
	}
	set := map[string]bool{}
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
		layer, split := strings.CutSuffix(x.Name, "attn_kv_b.weight")
		if !split {
			infos, data = append(infos, gguf.TensorInfo{Name: x.Name, Dims: x.Dims, Type: x.Type}), append(data, raw)
			continue
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
		infos = append(infos, gguf.TensorInfo{Name: layer + "attn_k_b.weight", Dims: []int64{int64(nope), int64(rank), int64(heads)}, Type: gguf.F32},
			gguf.TensorInfo{Name: layer + "attn_v_b.weight", Dims: []int64{int64(rank), int64(value), int64(heads)}, Type: gguf.F32})
		data = append(data, keys, values)
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

// TestSplitLatents reads files with attn_k_b and attn_v_b: the checkpoint has the same kv_b_proj as
// of a file with attn_kv_b.
func TestSplitLatents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, name := range []string{"deepseek-v3", "glm4-moe-lite"} {
		v := testmodels.Find(t, name)
		dir := filepath.Join(t.TempDir(), "m")
		v.Write(t, dir)
		toGGUF(t, dir, dir+".gguf", v.Tokenizer.Pre(), unquantized)
		splitLatents(t, dir+".gguf", dir+"-split.gguf")
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
			t.Errorf("%s: probabilities are off by %g", name, worst)
		}
	}
}

// TestLlamaCppSplitLatents runs the files in llama.cpp: they are what it expects.
func TestLlamaCppSplitLatents(t *testing.T) {
	llama := startLlamaCpp(t)
	v := testmodels.Find(t, "deepseek-v3")
	dir := filepath.Join(t.TempDir(), "m")
	v.Write(t, dir)
	toGGUF(t, dir, dir+".gguf", v.Tokenizer.Pre(), unquantized)
	splitLatents(t, dir+".gguf", dir+"-split.gguf")
	ids := randomTokens(1, 30, testmodels.Vocab)
	a := llama.ask(t, llamaRequest{Model: dir + "-split.gguf", Sequences: [][]int32{ids}})
	m, err := forward.OpenCheckpoint(dir, forward.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if worst := worstProbability(t, a.Probabilities[0], ourProbabilities(t, m, ids)); !(worst <= 1e-4) {
		t.Errorf("probabilities are off by %g", worst)
	} else {
		t.Logf("probabilities are off by at most %.2g", worst)
	}
}
