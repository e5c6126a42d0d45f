package calib_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestImatrix collects an importance matrix, writes, reads and merges it, and quantizes with it.
func TestImatrix(t *testing.T) {
	testshared.SlowEmulated(t, "TestChoiceThreads runs there")
	p := testplan.New(t, fixture(t), quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmImatrix})
	text := testplan.Text(1024, 100, 60)
	im := calib.NewImatrix()
	if err := im.Collect(context.Background(), p, text, calib.Options{}); err != nil {
		t.Fatal(err)
	}
	const name = "model.layers.2.mlp.down_proj.weight"
	if m := im.Linears[name]; m == nil || m.Rows != 160 || len(m.Sum) != 384 {
		t.Fatalf("%s: %+v", name, m)
	}
	var b bytes.Buffer
	if err := im.Write(&b); err != nil {
		t.Fatal(err)
	}
	again, err := calib.ReadImatrix(b.Bytes(), p)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range im.Linears {
		got := again.Linears[name]
		for i, v := range m.Sum {
			if math.Abs(got.Sum[i]-v) > 1e-6*v {
				t.Fatalf("%s, column %d: %v, not %v", name, i, got.Sum[i], v)
			}
		}
	}
	if err := again.Merge(im); err != nil || again.Linears[name].Rows != 320 {
		t.Errorf("merged: %v, %d rows", err, again.Linears[name].Rows)
	}
	codes, err := im.Codes(p, provenance.Calibration{Source: "tokens"})
	if err != nil || len(codes.Warnings) > 0 {
		t.Fatal(err, codes)
	}
	path := filepath.Join(t.TempDir(), "model.gqf")
	if _, err := p.WriteWith(context.Background(), path, write.Options{Codes: codes}); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tensor, _ := f.Lookup(name)
	if tensor.Algorithm != gqf.AlgorithmImatrix {
		t.Errorf("the file says %s", tensor.Algorithm)
	}
	plain := filepath.Join(t.TempDir(), "plain.gqf")
	if _, err := testplan.New(t, fixture(t), quantizer.Recipe{Bits: 3}).Write(context.Background(), plain); err != nil {
		t.Fatal(err)
	}
	x, _ := os.ReadFile(path)
	y, _ := os.ReadFile(plain)
	if len(y) == 0 || slices.Equal(x[len(x)/2:], y[len(y)-(len(x)-len(x)/2):]) {
		t.Error("moments make no difference")
	}
}

// TestLlamaImatrix reads names of llama.cpp, dense and with all experts in one entry.
func TestLlamaImatrix(t *testing.T) {
	type entry struct {
		name string
		n    int
	}
	file := func(entries ...entry) []byte {
		var b bytes.Buffer
		put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
		put(int32(len(entries)))
		for _, e := range entries {
			put(int32(len(e.name)))
			b.WriteString(e.name)
			put(int32(7))
			put(int32(e.n))
			for i := range e.n {
				put(float32(i))
			}
		}
		put(int32(9)) // the number of the last chunk and the text's name
		put(int32(4))
		b.WriteString("wiki")
		return b.Bytes()
	}
	p := testplan.New(t, fixture(t), quantizer.Recipe{Bits: 3})
	im, err := calib.ReadImatrix(file(entry{"blk.3.attn_q.weight", 128}, entry{"blk.0.ffn_down.weight", 384}), p)
	if err != nil {
		t.Fatal(err)
	}
	if m := im.Linears["model.layers.3.self_attn.q_proj.weight"]; m == nil || m.Rows != 7 || m.Sum[100] != 100 {
		t.Errorf("q: %+v", m)
	}
	if m := im.Linears["model.layers.0.mlp.down_proj.weight"]; m == nil || len(m.Sum) != 384 {
		t.Errorf("down: %+v", m)
	}
	for _, bad := range [][]byte{nil, []byte("GGUFxxxxxxxxxxxx"), []byte("hello, world, hello"), file(entry{"blk.3.attn_q.weight", 128})[:200]} {
		if _, err := calib.ReadImatrix(bad, p); err == nil {
			t.Errorf("%.10q is no imatrix", bad)
		}
	}
}
