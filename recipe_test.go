package gq

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

const (
	books = "testdata/books1.3M-bf16"
	story = "testdata/text/lighthouse.txt"
)

// rule parses a rule of the command line.
func rule(t *testing.T, s string) quantizer.Rule {
	t.Helper()
	r, err := quantizer.ParseRule(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSavedRecipe checks for every kind of job that its saved recipe gives the same bytes, and
// saves itself.
func TestSavedRecipe(t *testing.T) {
	testshared.SlowEmulated(t, "runs natively")
	t.Parallel()
	model := testmodels.Books(t, 1)
	dir := t.TempDir()
	fixed := rule(t, "re:.*(o_proj|mlp).*=4,64,search") // beside calibration and the choice of bits
	most := rule(t, "re:.*[kv]_proj.*=4,64,search")     // files are made and run for a KL divergence
	moments := filepath.Join(dir, "moments.dat")
	story := shortStory(t, dir)
	short := func(r quantizer.Recipe) quantizer.Recipe {
		r.CalibrateTokens = 64
		return r
	}
	jobs := map[string]QuantizeOptions{
		"defaults":          {},
		"adapter":           {Recipe: quantizer.Recipe{Lora: []string{testmodels.Adapter(t, model) + "=0.5"}, Fold: quantizer.Fold{Rotate: true}}},
		"3 bits":            {Recipe: quantizer.Recipe{Bits: 3, Group: new(64), EmbeddingBits: 6}},
		"1 bit":             {Recipe: quantizer.Recipe{Bits: 1}, Rules: []quantizer.Rule{rule(t, "re:.*q_proj=2,half-step")}},
		"1-bit rule":        {Rules: []quantizer.Rule{rule(t, "re:.*q_proj=1")}},
		"rule's mapping":    {Rules: []quantizer.Rule{rule(t, "re:.*q_proj=4,symmetric")}},
		"symmetric":         {Recipe: quantizer.Recipe{Mapping: gqf.MappingSymmetric}},
		"asymmetric rtn":    {Recipe: quantizer.Recipe{Mapping: gqf.MappingAsymmetric, Algorithm: gqf.AlgorithmRTN}},
		"layouts":           {Recipe: quantizer.Recipe{Layouts: []quantizer.LayoutRequest{{Tile: packing.Tile{NR: 4, KR: 8, SR: 2}}, {Family: quantizer.FamilyKleidiAI}}}},
		"hashes":            {Recipe: quantizer.Recipe{HashFiles: true}},
		"rotate":            {Recipe: quantizer.Recipe{Fold: quantizer.Fold{Rotate: true}, Seed: 7}},
		"fold auto":         {Recipe: quantizer.Recipe{Calibrate: story, Fold: quantizer.Fold{Auto: true}, Bits: 3, Group: new(128)}},
		"gptq, fold auto":   {Recipe: short(quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: story, Fold: quantizer.Fold{Auto: true}})},
		"equalize":          {Recipe: quantizer.Recipe{Fold: quantizer.Fold{Equalize: true}}},
		"imatrix":           {Recipe: short(quantizer.Recipe{Algorithm: gqf.AlgorithmImatrix, Calibrate: story}), ImatrixOut: moments},
		"awq":               {Recipe: short(quantizer.Recipe{Algorithm: gqf.AlgorithmAWQ, Calibrate: quantizer.Self})},
		"gptq, refined":     {Recipe: short(quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self, Seed: 3, Refine: new(true)})},
		"rotated gptq":      {Recipe: short(quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: story, Fold: quantizer.Fold{Rotate: true}})},
		"fast":              {Recipe: quantizer.Recipe{Quality: quantizer.QualityFast}},
		"good":              {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityGood})},
		"best":              {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityBest})},
		"best, completed":   {Recipe: quantizer.Recipe{Quality: quantizer.QualityBest, Calibrate: story, CalibrateTokens: 300, Seed: 2}},
		"best, not refined": {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityBest, Refine: new(false)})},
		"fast for bits":     {Recipe: quantizer.Recipe{Quality: quantizer.QualityFast, Calibrate: story}, Budget: &Budget{BitsPerWeight: 4.5}},
		"good for bits":     {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityGood}), Budget: &Budget{BitsPerWeight: 4.5}},
		"best for a size":   {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityBest}), Budget: &Budget{FileBytes: 260_000}},
		"fast for a KL":     {Recipe: quantizer.Recipe{Quality: quantizer.QualityFast, Calibrate: story}, Budget: &Budget{MaxKL: .05, Groups: []int{64}}, Rules: []quantizer.Rule{most}},
		"tuned":             {Recipe: quantizer.Recipe{Bits: 2, Tune: quantizer.TuneNorms, TuneTokens: 300, Seed: 5}},
		"tuned for a size":  {Recipe: quantizer.Recipe{Tune: quantizer.TuneFloats, TuneTokens: 300, Calibrate: story}, Budget: &Budget{FileBytes: 260_000, Groups: []int{64}}},
		"max":               {Recipe: quantizer.Recipe{Quality: quantizer.QualityMax, CalibrateTokens: 64, TuneTokens: 300}},
		"max, not tuned":    {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityMax, Tune: quantizer.TuneOff})},
		"good for a KL":     {Recipe: short(quantizer.Recipe{Quality: quantizer.QualityGood}), Budget: &Budget{MaxKL: .2, Groups: []int{64}}, Rules: []quantizer.Rule{most}},
		"rotated for bits":  {Recipe: quantizer.Recipe{Calibrate: story, Fold: quantizer.Fold{Rotate: true}, Seed: 2}, Budget: &Budget{BitsPerWeight: 4.5, Groups: []int{64}}},
	}
	for _, target := range quantizer.Targets {
		jobs["for "+target.Name] = QuantizeOptions{Recipe: quantizer.Recipe{Targets: []quantizer.Target{target}}}
		jobs["bits for "+target.Name] = QuantizeOptions{Recipe: quantizer.Recipe{Targets: []quantizer.Target{target}, Calibrate: story}, Budget: &Budget{BitsPerWeight: 5.5}}
	}
	t.Run("jobs", func(t *testing.T) {
		for name, o := range jobs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if o.Budget != nil || o.Recipe.CalibrateTokens > 0 {
					if o.Rules = append(o.Rules, fixed); o.Recipe.ForGGUF() {
						o.Rules[len(o.Rules)-1].Group = nil
					}
				}
				repeat(t, model, o)
			})
		}
	})
	// Second moments that a file holds.
	t.Run("moments of a file", func(t *testing.T) {
		repeat(t, model, QuantizeOptions{Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmImatrix, Imatrix: []string{moments}}})
	})
}

// TestSavedPre: the saved recipe has the name of the pre-tokenizer, without which this model has no
// .gguf file.
func TestSavedPre(t *testing.T) {
	v := testmodels.Find(t, "llama3")
	dir := t.TempDir()
	v.Write(t, dir)
	recipe := filepath.Join(dir, "recipe.yaml")
	first := mustQuantize(t, dir, "first.gguf", QuantizeOptions{Recipe: quantizer.Recipe{Pre: "llama-bpe"}, SaveRecipe: recipe})
	text, err := os.ReadFile(recipe)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := quantizer.ParseRecipe(recipe, text)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mustQuantize(t, dir, "second.gguf", QuantizeOptions{Recipe: saved}), first) {
		t.Errorf("the recipe gives another file:\n%s", text)
	}
	saved.Pre = "qwen2"
	if bytes.Equal(mustQuantize(t, dir, "third.gguf", QuantizeOptions{Recipe: saved}), first) {
		t.Error("another name in the recipe gives the same file")
	}
}

// mustQuantize returns the bytes of a file in the model's directory.
func mustQuantize(t *testing.T, dir, name string, o QuantizeOptions) []byte {
	t.Helper()
	if _, err := Quantize(t.Context(), dir, filepath.Join(dir, name), o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustYAML(t *testing.T, r quantizer.Recipe) string {
	t.Helper()
	text, err := r.YAML("", nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// shortStory writes the beginning of the story in dir, for jobs that calibrate and measure, and
// returns its path.
func shortStory(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(story)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "story.txt")
	if err := os.WriteFile(path, b[:450], 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// repeat runs a job and the job of its saved recipe. Files and saved recipes must be equal.
func repeat(t *testing.T, model string, o QuantizeOptions) {
	t.Helper()
	first, saved := quantizeSaving(t, model, o)
	second, again := quantizeSaving(t, model, QuantizeOptions{Recipe: saved})
	if a, b := mustYAML(t, saved), mustYAML(t, again); a != b {
		t.Errorf("the recipe of the second job is another:\n%s\n%s", a, b)
	}
	if !bytes.Equal(first, second) {
		t.Errorf("the recipe gives another file:\n%s", mustYAML(t, saved))
	}
}

// quantizeSaving returns the file of a job and its saved recipe.
func quantizeSaving(t *testing.T, model string, o QuantizeOptions) ([]byte, quantizer.Recipe) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "model.gqf")
	o.SaveRecipe = filepath.Join(dir, "recipe.yaml")
	if _, err := Quantize(t.Context(), model, file, o); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.SaveRecipe)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := quantizer.ParseRecipe("recipe.yaml", text)
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b, saved
}

// TestSaveRecipeTooLarge: a recipe that gq would not read is an error before the job.
func TestSaveRecipeTooLarge(t *testing.T) {
	dir := t.TempDir()
	o := QuantizeOptions{SaveRecipe: filepath.Join(dir, "r.yaml")}
	for i := range 40_000 {
		o.Rules = append(o.Rules, quantizer.Rule{Match: fmt.Sprintf("%0100d", i), Bits: 4})
	}
	_, err := Quantize(t.Context(), "testdata/books1.3M-bf16", filepath.Join(dir, "a.gqf"), o)
	if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "save-recipe" {
		t.Errorf("error %v, want one of save-recipe", err)
	}
}
