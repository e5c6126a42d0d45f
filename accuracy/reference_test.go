package accuracy

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/quantizer"
)

// TestReference compares a Reference, with its predictions kept and not, with Compare.
func TestReference(t *testing.T) {
	const dir = "../testdata/books1.3M-bf16"
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	config, err := quantizer.ReadConfig(ck)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := quantizer.NewPlan(ck, config, quantizer.Options{Recipe: quantizer.Recipe{Bits: 3}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a.gqf")
	if _, err := plan.Write(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	quantized, err := model.OpenGQF(f, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer quantized.Close()
	float, err := model.OpenCheckpoint(dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer float.Close()
	windows := []Window{{Tokens: []int32{1, 300, 301, 17, 900, 5}, First: 1}, {Tokens: []int32{1, 44, 45, 46, 47, 48, 49}, First: 3}}
	want, err := Compare(t.Context(), float, []*model.Model{quantized}, windows, CompareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReference(t.Context(), float, windows)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []bool{true, false} {
		if !kept {
			r = &Reference{float: float, windows: windows}
		}
		if r.Kept() != kept {
			t.Fatalf("kept: %v", r.Kept())
		}
		for range 2 {
			got, err := r.KL(t.Context(), quantized)
			if err != nil || math.Abs(got-want[0].KL.Mean) > 1e-12*got {
				t.Errorf("kept %v: KL %g, %v; Compare has %g", kept, got, err, want[0].KL.Mean)
			}
		}
		if got, err := r.KL(t.Context(), float); err != nil || got != 0 {
			t.Errorf("kept %v: the float model differs from itself by %g, %v", kept, got, err)
		}
	}
}
