package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// imatrixGGUF IN OUT: converts gq's importance matrix to GGUF with llama.cpp's names, as
// llama-imatrix writes it.
func imatrixGGUF(ts *testscript.TestScript, _ bool, args []string) {
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	in, le := bytes.NewReader(data), binary.LittleEndian
	number := func() int32 {
		var n int32
		ts.Check(binary.Read(in, le, &n))
		return n
	}
	text := func(b []byte, s string) []byte { return append(le.AppendUint64(b, uint64(len(s))), s...) }
	pad := func(b []byte) []byte { return append(b, make([]byte, (32-len(b)%32)%32)...) }
	names := strings.NewReplacer("model.layers.", "blk.", "self_attn.", "", "mlp.", "", "q_proj", "attn_q", "k_proj", "attn_k", "v_proj", "attn_v",
		"o_proj", "attn_output", "gate_proj", "ffn_gate", "up_proj", "ffn_up", "down_proj", "ffn_down", "lm_head", "output")

	var infos, numbers []byte
	n := int(number())
	for range n {
		name := make([]byte, number())
		ts.Check(binary.Read(in, le, name))
		rows, values := number(), make([]float32, number())
		ts.Check(binary.Read(in, le, values))
		for _, t := range []struct {
			suffix string
			values []float32
		}{{".in_sum2", values}, {".counts", []float32{float32(rows)}}} {
			infos = le.AppendUint32(text(infos, names.Replace(string(name))+t.suffix), 2)
			infos = le.AppendUint64(le.AppendUint64(infos, uint64(len(t.values))), 1)
			infos = le.AppendUint64(le.AppendUint32(infos, 0), uint64(len(numbers)))
			out, err := binary.Append(numbers, le, t.values)
			ts.Check(err)
			numbers = pad(out)
		}
	}
	b := le.AppendUint32([]byte("GGUF"), 3)
	b = le.AppendUint64(le.AppendUint64(b, uint64(2*n)), 4)
	b = text(le.AppendUint32(text(b, "general.type"), 8), "imatrix")
	b = le.AppendUint64(le.AppendUint32(le.AppendUint32(text(b, "imatrix.datasets"), 9), 8), 1)
	b = text(b, "text.txt")
	b = le.AppendUint32(le.AppendUint32(text(b, "imatrix.chunk_count"), 4), 1)
	b = le.AppendUint32(le.AppendUint32(text(b, "imatrix.chunk_size"), 4), 512)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), append(pad(append(b, infos...)), numbers...), 0o666))
}
