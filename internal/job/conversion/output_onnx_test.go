package conversion

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/toonnx"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestONNXWeights: unquantized weights of any dtype become float32 with FP8 scales multiplied in,
// and what no operator reads is left out.
func TestONNXWeights(t *testing.T) {
	tensors := append(smallModel(), testTensor{name: "model.layers.0.self_attn.rotary_emb.inv_freq", dtype: packing.F32, shape: []int64{16}})
	targets, err := quantizer.ParseTargets("onnx")
	if err != nil {
		t.Fatal(err)
	}
	r := quantizer.Recipe{Targets: targets, Rules: []quantizer.Rule{{Match: "*.v_proj", Skip: true}, {Match: "*.k_proj", Skip: true}, {Match: "*.up_proj", Skip: true}, {Match: "*.o_proj", Skip: true}}}
	p, err := quantizing(openCheckpoint(t, writeCheckpoint(t, smallLlama, tensors...)), []byte(smallLlama), Options{Recipe: r, Threads: 2, ONNX: &toonnx.Options{}})
	if err != nil {
		t.Fatal(err)
	}
	if l := lineOf(t, p, "model.layers.0.self_attn.rotary_emb.inv_freq"); l.Action != plan.ActionOmit {
		t.Errorf("%+v", l)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := p.Write(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "onnx", "model_q4.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := onnx.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	source, found := p.In.(*fromcheckpoint.Input).Ck, 0
	for _, x := range m.Graph.Initializers {
		src, ok := source.Lookup(x.Name)
		if !ok {
			continue
		}
		found++
		location, off, err := x.Place()
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, "onnx", location))
		if err != nil {
			t.Fatal(err)
		}
		w, err := source.Weights(src, safetensors.WeightsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, w.Rows*w.Cols)
		if err := w.Read(want, 0, w.Rows); err != nil {
			t.Fatal(err)
		}
		for i, v := range want {
			if got := math.Float32frombits(binary.LittleEndian.Uint32(data[off+4*int64(i):])); got != v {
				t.Errorf("%s: element %d is %g, not %g", x.Name, i, got, v)
				break
			}
		}
	}
	if found != 7 {
		t.Errorf("%d unquantized tensors, not 7", found)
	}
}
