package accuracy

// SweepSchema names the JSON format of a SweepReport. A new name says that a key changed its
// meaning or was removed; keys may be added without a new name.
const SweepSchema = "gq-sweep-report/1"

// SweepReport compares quantized files of a checkpoint: made by several recipes, or given.
type SweepReport struct {
	Schema string `json:"schema"`
	Source string `json:"source"` // the checkpoint
	// SourceBytes is the size of the checkpoint's tensors.
	SourceBytes int64 `json:"source_bytes"`
	// Activations of the quantized models: int8 or float32.
	Activations string       `json:"activations"`
	Files       []*SweepFile `json:"files"` // in the order of the recipes, then of the given files
	Run         *Run         `json:"run,omitempty"`
}

// SweepFile is a file of a sweep. Texts, Choices and Gate are as in a Report.
type SweepFile struct {
	Name string `json:"name"` // of the recipe, or of a given file
	// Recipe is the whole recipe as YAML, with its defaults; "" for a given file.
	Recipe string `json:"recipe"`
	// File is the path of the file; "" if the file was dropped after the measurement.
	File      string `json:"file,omitempty"`
	FileBytes int64  `json:"file_bytes"`
	SHA256    string `json:"sha256,omitempty"` // not of a given file
	// BitsPerWeight is the size of payloads per quantized weight, AllBitsPerWeight per weight stored.
	BitsPerWeight    float64 `json:"bits_per_weight"`
	AllBitsPerWeight float64 `json:"all_bits_per_weight"`
	// QuantizeSeconds is the time to make the file, MeasureSeconds the time to measure. Work that
	// several recipes share counts for the first recipe.
	QuantizeSeconds float64 `json:"quantize_seconds"`
	MeasureSeconds  float64 `json:"measure_seconds"`
	// DecodeTokensPerSecond is the speed of generation, token by token; 0 if the model was not run.
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_second,omitempty"`
	// Found reports whether both the file and its figures are of an earlier sweep.
	Found bool `json:"found"`
	// Pareto reports whether no other file is smaller and no worse, or better and no larger, by
	// FileBytes and the mean KL divergence on the first text.
	Pareto   bool           `json:"pareto"`
	Warnings []string       `json:"warnings,omitempty"`
	Texts    []TextReport   `json:"texts"`
	Choices  []ChoiceReport `json:"choices,omitempty"`
	Gate     *GateResult    `json:"gate,omitempty"`
}

// KL returns the mean KL divergence on the first text. ok is false if the model was not run.
func (f *SweepFile) KL() (kl float64, ok bool) {
	if len(f.Texts) == 0 || f.Texts[0].Model == nil {
		return 0, false
	}
	return f.Texts[0].Model.KL.Mean, true
}

func (r *SweepReport) MarkPareto() {
	for _, f := range r.Files {
		kl, ok := f.KL()
		f.Pareto = ok
		for _, g := range r.Files {
			other, measured := g.KL()
			if ok && measured && g.FileBytes <= f.FileBytes && other <= kl && (g.FileBytes < f.FileBytes || other < kl) {
				f.Pareto = false
			}
		}
	}
}
