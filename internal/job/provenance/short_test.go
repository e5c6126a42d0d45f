package provenance

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// TestShort checks that a short provenance has the checksums of all tensors, and that layers share
// entries.
func TestShort(t *testing.T) {
	sums := SourceSums{}
	for i, name := range []string{"lm_head.weight", "model.layers.3.odd.weight", "model.layers.x.weight", "model.#.weight", "a.00.b", "a.-1.b"} {
		sums.Set(name, uint32(i))
	}
	for layer := range 12 {
		sums.Set(fmt.Sprintf("model.layers.%d.mlp.up_proj.weight", layer), uint32(100+layer))
		if layer > 2 {
			sums.Set(fmt.Sprintf("model.layers.%d.mlp.experts.7.up_proj.weight", layer), uint32(200+layer))
		}
	}
	long, err := json.MarshalIndent(Provenance{Sources: []Source{{Name: "m"}}, Calibration: &Calibration{
		Algorithm: "gptq", Parameters: map[string]any{"damping": 1}, SHA256: "5", SequencesSHA256: "6", Version: 3,
	}}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if long, err = sums.AddTo(long, []byte(`{ "x": 1 }`)); err != nil {
		t.Fatal(err)
	}
	short, err := Short(long)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tensors SourceSums  `json:"tensors"`
		Cal     Calibration `json:"calibration"`
	}
	if err := json.Unmarshal(short, &got); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got.Tensors, sums) {
		t.Errorf("checksums %v, want %v", got.Tensors, sums)
	}
	if c := got.Cal; c.Parameters != nil || c.SequencesSHA256 != "" || c.SHA256 != "5" || c.Version != 3 {
		t.Errorf("calibration %+v", c)
	}
	for _, want := range []string{`"model.layers.#0.mlp.up_proj.weight":"0000006400000065`, `"model.layers.#3.mlp.experts.7.up_proj.weight":"000000cb`, `"model.layers.3.odd.weight":"00000001"`, `"fold_record":{"x":1}`} {
		if !strings.Contains(string(short), want) {
			t.Errorf("no %s in\n%s", want, short)
		}
	}
	if len(short) >= len(long)/2 {
		t.Errorf("%d bytes of %d", len(short), len(long))
	}
	for _, bad := range []string{`{"tensors":{"a.#0.b":"123"}}`, `{"tensors":{"a.#-1.b":"12345678"}}`, `{"tensors":[]}`} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
