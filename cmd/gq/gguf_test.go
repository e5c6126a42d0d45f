package main

import (
	"bytes"
	"math"
	"os"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lowbit-go/gq/formats/gguf"
)

// ggufFile OUT [SPLIT]: writes a small file in GGUF, or shards of at most SPLIT bytes; without
// tensors if SPLIT is 0.
func ggufFile(ts *testscript.TestScript, _ bool, args []string) {
	split := 0
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		split = n
	}
	tensors := []gguf.TensorInfo{ // 23 is IQ4_XS, 25 is I16
		{Name: "token_embd.weight", Dims: []int64{256, 8}, Type: gguf.Q4_K}, {Name: "blk.0.attn_q.weight", Dims: []int64{256, 4}, Type: gguf.Q4_0},
		{Name: "blk.0.ffn_down_exps.weight", Dims: []int64{256, 2, 3}, Type: 23}, {Name: "blk.0.ffn_up.weight", Dims: []int64{256, 2}, Type: 25},
		{Name: "output_norm.weight", Dims: []int64{256}, Type: gguf.F32},
	}
	if len(args) > 1 && split == 0 {
		tensors = nil
	}
	l, err := gguf.NewLayout([]gguf.Pair{
		{Key: "general.architecture", Value: "llama"}, {Key: "general.name", Value: "a \x1bmodel"}, {Key: "llama.block_count", Value: uint32(1)},
		{Key: "llama.rope.scale", Value: float32(math.Inf(1))}, {Key: "tokenizer.ggml.tokens", Value: testWords(20)}, {Key: "tokenizer.ggml.scores", Value: []float32{0.5, -1}},
	}, tensors, int64(split))
	ts.Check(err)
	files := make([][]byte, len(l.Shards))
	for i, s := range l.Shards {
		files[i] = append(s.Header, bytes.Repeat([]byte{0x35}, int(s.Size)-len(s.Header))...)
	}
	for i, path := range l.Paths(ts.MkAbs(args[0])) {
		ts.Check(os.WriteFile(path, files[i], 0o666))
	}
}

// testWords returns n words.
func testWords(n int) (words []string) {
	for i := range n {
		words = append(words, "<w"+strconv.Itoa(i)+">")
	}
	return words
}
