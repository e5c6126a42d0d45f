package conversion

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// foreignSums returns the checksums of source tensors that a .gguf file or a checkpoint states.
func foreignSums(t *testing.T, path string) provenance.SourceSums {
	t.Helper()
	record, err := os.ReadFile(filepath.Join(path, provenance.ProvenanceFile))
	if filepath.Ext(path) == ".gguf" {
		f, e := gguf.Open(path)
		if e != nil {
			t.Fatal(e)
		}
		defer f.Close()
		text, _ := f.Text(provenance.GGUFProvenance)
		record, err = []byte(text), nil
	}
	var own struct{ Tensors provenance.SourceSums }
	if err = errors.Join(err, json.Unmarshal(record, &own)); err != nil {
		t.Fatal(err)
	}
	return own.Tensors
}

// writePlan writes a plan's output under a name in a new directory.
func writePlan(t *testing.T, p *write.Job, err error, name string) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if _, err := p.Write(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSourceSums: a .gguf file and a checkpoint record the checksum of every tensor of the source,
// quantized, converted or scaled, whether the weights come from the source or from a .gqf file. A
// .gqf file that is made of them has the checksums again.
func TestSourceSums(t *testing.T) {
	tensors := slices.DeleteFunc(smallModel(), func(tt testTensor) bool { return strings.Contains(tt.name, "v_proj") })
	tensors = append(tensors, testTensor{name: "model.layers.0.self_attn.v_proj.weight", dtype: packing.F16, shape: []int64{32, 64}})
	skip := quantizer.Recipe{Rules: []quantizer.Rule{{Match: "*.v_proj", Skip: true}, {Match: "*.k_proj", Skip: true}}}
	p, ck, err := planSmall(t, tensors, 2, skip)
	want := provenance.SourceSums{}
	for _, src := range ck.Tensors() {
		b, err := ck.Bytes(src)
		if err != nil {
			t.Fatal(err)
		}
		want.Set(src.Name, crc32c.Checksum(b))
	}
	direct := writePlan(t, p, err, "m.gguf")
	r := skip
	r.Targets, _ = quantizer.ParseTargets("gptq")
	p, err = quantizing(ck, []byte(smallLlama), Options{Recipe: r, Checkpoint: &tocheckpoint.Options{Format: hfquant.GPTQ}})
	checkpoint := writePlan(t, p, err, "gptq")
	r.Targets, _ = quantizer.ParseTargets("gguf")
	r.Rules = r.Rules[:1] // a .gqf file has the scales of unquantized FP8 weights beside them
	p, err = quantizing(ck, []byte(smallLlama), Options{Recipe: r})
	f, err := gqf.Open(writePlan(t, p, err, "m.gqf"), gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err = NewExport(f, "m.gqf", ExportOptions{})
	exported := writePlan(t, p, err, "m.gguf")
	for name, path := range map[string]string{"quantized to .gguf": direct, "quantized to gptq": checkpoint, "exported": exported} {
		if got := foreignSums(t, path); !maps.Equal(got, want) {
			t.Errorf("%s: %v\nwant %v", name, got, want)
		}
	}
	again := importFile(t, direct, RepackOptions{Dequantize: true})
	sum := want.Of()
	for n := range again.AllNames() {
		if n.InCheckpoint && (n.SourceCRC == 0 || n.SourceCRC != sum(n.Name)) {
			t.Errorf("imported: %s has %08x, want %08x", n.Name, n.SourceCRC, sum(n.Name))
		}
	}
}

// TestSourceSumsNames finds the checksums of a multimodal checkpoint by the names in a .gguf file.
func TestSourceSumsNames(t *testing.T) {
	sum := provenance.SourceSums{"model.language_model.embed_tokens.weight": "00000001", "model.language_model.norm.weight": "ff000002", "lm_head.weight": "x"}.Of()
	for name, want := range map[string]uint32{"model.embed_tokens.weight": 1, "model.norm.weight": 0xff000002, "model.language_model.norm.weight": 0xff000002, "lm_head.weight": 0, "none": 0} {
		if got := sum(name); got != want {
			t.Errorf("%s: %08x, want %08x", name, got, want)
		}
	}
	for _, s := range []string{"", "{}", "[]", "{\n  \"sources\": []\n}"} {
		got, err := provenance.SourceSums{"a": "1"}.AddTo([]byte(s), nil)
		if err != nil || !strings.HasPrefix(string(got), strings.TrimRight(s, "\n}")) {
			t.Errorf("%q: %q, %v", s, got, err)
		}
	}
}
