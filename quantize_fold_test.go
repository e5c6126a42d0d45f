package gq

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/quantizer"
)

// TestFoldKey: an interrupted job takes no folded checkpoint of another seed, text, kind of fold or
// tokenizer.
func TestFoldKey(t *testing.T) {
	dir := copyBooks(t, "tokenizer.json", slices.Clone)
	texts := []*text.Text{nil, {Source: "text", SHA256: "a", Sequences: [][]int32{{1}}}, {Source: "text", SHA256: "b", Sequences: [][]int32{{1}}}, {Source: "text", SHA256: "a", Sequences: [][]int32{{1, 2}}}}
	keys := map[string]fold.Job{}
	for range 2 {
		_, err := inJob(t.Context(), dir, t.TempDir()+"/m.gqf", task{dry: true}, func(_ *run, j *job) (any, error) {
			specs := []fold.Job{{Equalize: true}, {Rotate: true, Seed: 1}, {Rotate: true, Seed: 2}, {Rotate: true, Seed: 1, Equalize: true}}
			for _, words := range texts[1:] {
				specs = append(specs, fold.Job{Equalize: true, Text: words})
			}
			for _, spec := range specs {
				key, err := foldKey(j.source.plan, spec)
				if err != nil {
					return nil, err
				}
				if was, ok := keys[key]; ok {
					t.Errorf("%+v has the key of %+v", spec, was)
				}
				keys[key] = spec
			}
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefusedOptions: options that exclude each other are refused before any work.
func TestRefusedOptions(t *testing.T) {
	for want, o := range map[string]QuantizeOptions{
		"one target at a time: 2 are set": {Budget: &Budget{BitsPerWeight: 4, MaxKL: .1}},
		"one target at a time: 0 are set": {Budget: &Budget{}},
		"a target of -1":                  {Budget: &Budget{BitsPerWeight: -1}},
		"beside --tune":                   {Recipe: quantizer.Recipe{Tune: quantizer.TuneNorms}},
		"beside --fold":                   {Recipe: quantizer.Recipe{Fold: quantizer.Fold{Rotate: true}}},
		"beside a target of bytes":        {Budget: &Budget{BitsPerWeight: 4}},
		"beside --gate":                   {Measure: &MeasureOptions{Gate: "default"}},
	} {
		var err error
		if strings.HasPrefix(want, "beside") {
			_, err = QuantizePart(t.Context(), books, t.TempDir()+"/m.gqf", PartOptions{Part: write.Part{Of: 2}}, o)
		} else {
			_, err = Quantize(t.Context(), books, t.TempDir()+"/m.gqf", o)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
