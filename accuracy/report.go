package accuracy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/packing"
)

// ReportSchema names the JSON format of a Report. A new name says that a key changed its meaning or
// was removed; keys may be added without a new name.
const ReportSchema = "gq-accuracy-report/2"

// Report is the result of `gq accuracy`, the same on every machine except for Run and Parity.
type Report struct {
	Schema    string `json:"schema"`
	File      string `json:"file"`
	Source    string `json:"source"` // the checkpoint
	FileBytes int64  `json:"file_bytes"`
	// Fold says how the source was folded before quantization, if at all. Tensors are then compared
	// with the folded weights, and predictions with the source's.
	Fold        string `json:"fold,omitempty"`
	Activations string `json:"activations"` // int8 or float32, as asked for, of the quantized model
	// Executed says what ran, if anything: "float32 activations", "int8 activations in 12 of 40
	// matrices".
	Executed string `json:"executed,omitempty"`
	// Notes say how the tokenizer and the tensors of a .gguf file or a quantized checkpoint differ
	// from the checkpoint's, and which unquantized tensors hold NaN or infinities.
	Notes []string `json:"notes,omitempty"`
	// TokenizerDiffers says how the file's tokenizer gives texts other ids than the checkpoint's. The
	// Notes say so too, and no gate is met then.
	TokenizerDiffers string `json:"tokenizer_differs,omitempty"`
	// Totals are sums over all quantized tensors.
	Totals Totals `json:"totals"`
	// TextReport is of the first text.
	TextReport
	// Texts are the further texts, in the given order.
	Texts []TextReport `json:"texts,omitempty"`
	// Choices has the answers to files of multiple-choice questions.
	Choices []ChoiceReport `json:"choices,omitempty"`
	// NoModel says why there is no Model although there is a text.
	NoModel string        `json:"no_model,omitempty"`
	Tensors []TensorStats `json:"tensors,omitempty"`
	Parity  []Parity      `json:"parity,omitempty"`
	Gate    *GateResult   `json:"gate,omitempty"`
	Run     *Run          `json:"run,omitempty"`

	// Quality is the preset that made the file, for GateResult.Try; "" for none.
	Quality string `json:"-"`
	// Recorded counts tensors with equal checksums in the file and in the reference logits.
	Recorded int `json:"-"`
}

// TextReport has the figures of a text. All fields are nil without a text.
type TextReport struct {
	Text  *TextInfo        `json:"text,omitempty"`
	Model *eval.Comparison `json:"model,omitempty"`
	// Baseline is another .gqf on the same text.
	Baseline *Baseline `json:"baseline,omitempty"`
	// ActivationError is what int8 activations cost, if measured.
	ActivationError *ActivationError `json:"activation_error,omitempty"`
}

// ActivationError divides the divergence of the executed model: weights, and int8 activations.
type ActivationError struct {
	// WeightsKL is the mean KL divergence with float32 activations: the cost of the weights alone.
	WeightsKL       float64     `json:"weights_kl"`
	WeightsKLStdErr eval.StdErr `json:"weights_kl_std_err"`
	// Share is 1 - WeightsKL / mean KL as executed, from 0 to 1, and 0 if the activations cost nothing
	// or, by chance, make the model better.
	Share float64 `json:"share"`
}

// NoContent says why figures of the text say nothing, or is "".
func (t *TextReport) NoContent() string {
	switch info := t.Text; {
	case t.Model == nil || info.Vocabulary == 0: // not measured yet
		return ""
	case info.Content.Fault() != "":
		return fmt.Sprintf("the text repeats itself, or windows are too short: %s; use real text, and windows of the default length", info.Content.Fault())
	case t.Model.Float.Perplexity > float64(info.Vocabulary):
		return fmt.Sprintf("the float model does not understand the text: its perplexity %.0f is above the %d tokens of the vocabulary; "+
			"use text of the kind that the model is made for", t.Model.Float.Perplexity, info.Vocabulary)
	}
	return ""
}

// Scored lists the figures of all texts, the first included; none without a text.
func (r *Report) Scored() (list []*TextReport) {
	if r.Text == nil {
		return nil
	}
	list = append(list, &r.TextReport)
	for i := range r.Texts {
		list = append(list, &r.Texts[i])
	}
	return list
}

// TextInfo describes a text that was scored.
type TextInfo struct {
	// Name is the name given to the text, or else its path.
	Name string `json:"name"`
	// Source is "text", "tokens", or "self" for a text that the float model wrote, with Seed.
	Source     string          `json:"source"`
	Seed       *uint64         `json:"seed,omitempty"`
	SHA256     string          `json:"sha256"`
	Convention text.Convention `json:"convention"`
	Window     int             `json:"window"`
	Stride     int             `json:"stride,omitempty"`
	Windows    int             `json:"windows"`
	Tokens     int             `json:"tokens"` // scored
	// Bytes and Words are the size of the scored text, in UTF-8 and in runs of white space plus 1 per
	// document; of the original pages with convention lm-eval. 0 without a tokenizer.
	Bytes int `json:"bytes,omitempty"`
	Words int `json:"words,omitempty"`
	// Context is max_position_embeddings, the model's longest text in tokens; 0 if not in config.json.
	Context int `json:"context,omitempty"`
	// Reference is the file of the float model's predictions, if the float model did not run.
	Reference string `json:"reference,omitempty"`
	text.Content
	// Vocabulary is the model's number of tokens.
	Vocabulary int `json:"vocabulary,omitempty"`
	// Warning says that end-of-document markers were read as text, or that figures say little.
	Warning string `json:"warning,omitempty"`
}

// Label is the text's name in gates: the last element of Name.
func (t *TextInfo) Label() string { return labelOf(t.Name) }

// Cut says how the text was cut: "windows of 512 tokens, 4,095 tokens scored".
func (t *TextInfo) Cut() string {
	s := fmt.Sprintf("%s of %d tokens", t.Convention, t.Window)
	if t.Convention == text.LlamaCpp {
		s = fmt.Sprintf("llama.cpp's windows of %d tokens", t.Window)
	}
	if t.Convention == text.LMEval {
		s = fmt.Sprintf("pages as in lm-eval's wikitext, windows of %d tokens", t.Window)
	}
	if t.Stride != 0 && t.Stride != t.Window-1 {
		s += fmt.Sprintf(", one every %d", t.Stride)
	}
	return s + fmt.Sprintf("; %d tokens scored", t.Tokens)
}

// Baseline compares another file with the float model.
type Baseline struct {
	File      string `json:"file"`
	FileBytes int64  `json:"file_bytes"`
	eval.Comparison
}

// Run holds what differs between runs and between machines.
type Run struct {
	Version string             `json:"version"`
	CPU     []string           `json:"cpu"`
	Threads int                `json:"threads"`
	Seconds map[string]float64 `json:"seconds"` // of each part
	// TokensPerSecond is the speed of both models together.
	TokensPerSecond float64  `json:"tokens_per_second,omitempty"`
	Kernels         []string `json:"kernels,omitempty"`
}

// Totals are sums over the quantized tensors.
type Totals struct {
	Tensors     int   `json:"tensors"` // experts count one by one
	Unquantized int   `json:"unquantized"`
	Weights     int64 `json:"weights"`
	// Bytes counts payloads of all layouts with headers. BPW is Bytes as bits per quantized weight.
	Bytes int64   `json:"bytes"`
	BPW   float64 `json:"bits_per_weight"`
	// SQNR is the signal-to-noise ratio of all weights as a single vector.
	SQNR Decibels `json:"sqnr_db"`
	// Bits is the width of most weights of linear layers, without embedding and lm_head; 0 for none.
	Bits int `json:"bits"`
}

// SumUp sets the sums of tensors.
func (t *Totals) SumUp(tensors []TensorStats) {
	*t = Totals{}
	var signal, noise float64
	var widths [9]int64
	for i := range tensors {
		s := &tensors[i]
		if s.Unquantized {
			t.Unquantized++
			continue
		}
		t.Bytes += s.Bytes
		if s.Variant > 0 {
			continue // the same weights in another layout
		}
		n := s.Rows * s.Cols
		t.Tensors++
		t.Weights += n
		signal += s.Signal
		noise += s.Noise
		if s.Role != gqf.RoleEmbedding.String() && s.Role != gqf.RoleHead.String() && s.Bits < len(widths) {
			widths[s.Bits] += n
		}
	}
	if t.Weights > 0 {
		t.BPW = packing.BitsPerWeight(t.Bytes, t.Weights)
		t.SQNR = Ratio(signal, noise)
	}
	for b, n := range widths {
		if n > 0 && n >= widths[t.Bits] {
			t.Bits = b
		}
	}
}

// ReadReport reads a report from JSON. A missing figure, 0 for encoding/json, is an error.
func ReadReport(path string) (*Report, error) {
	b, err := files.Read(path, files.MaxReport)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: not a report of gq accuracy --json: %w", path, err)
	}
	if r.Schema != ReportSchema {
		return nil, fmt.Errorf("%s: schema %q, want %q: make the report anew", path, strings.TrimSpace(r.Schema), ReportSchema)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if key := missingKey(raw, reflect.TypeFor[Report]()); key != "" {
		return nil, fmt.Errorf("%s: %s is missing: make the report anew", path, strings.TrimPrefix(key, "."))
	}
	return r, nil
}

// missingKey is the path of the first key that a value of type t must have in JSON and that v
// lacks, or has as null; "" if there is none.
func missingKey(v any, t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		if v == nil {
			return ""
		}
		return missingKey(v, t.Elem())
	case reflect.Slice:
		list, _ := v.([]any)
		for i, x := range list {
			if key := missingKey(x, t.Elem()); key != "" {
				return fmt.Sprintf("[%d]%s", i, key)
			}
		}
	case reflect.Struct:
		return missingField(v, t)
	}
	return ""
}

func missingField(v any, t reflect.Type) string {
	fields, _ := v.(map[string]any)
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		if f.Anonymous {
			if key := missingKey(v, f.Type); key != "" {
				return key
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		x, ok := fields[name]
		switch {
		case !ok && options == "omitempty":
		case !ok || x == nil && !nullable(f.Type):
			return "." + name
		default:
			if key := missingKey(x, f.Type); key != "" {
				return "." + name + key
			}
		}
	}
	return ""
}

// nullable reports whether values of the type may be null in JSON: +Inf, or no value.
func nullable(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[Decibels](), reflect.TypeFor[Figure](), reflect.TypeFor[eval.StdErr]():
		return true
	}
	return t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer || t.Kind() == reflect.Map
}

// Settings say how a file is measured.
type Settings struct {
	// TensorsOnly checks the default gate without running the models. Default: false.
	TensorsOnly bool
	// MinTokens is the least number of scored tokens for a gate that limits figures of the model.
	// Default (0): the gate's own, or else 1,000.
	MinTokens int
	// Activations is the type of the quantized models' activations. Default (forward.Int8): as on the
	// device, or as the gate says.
	Activations forward.Activations
	// ActivationShare runs the quantized model with float32 activations, too, and reports in
	// TextReport.ActivationError what share of the divergence int8 activations cause. It takes a text,
	// a model that gq can run, and Activations Int8. Default: false.
	ActivationShare bool
	// NoOutputs skips the outputs of layers. Default: false.
	NoOutputs bool
	// RandomInputs executes layers on random activations even if there is a text. Otherwise layers
	// are executed on activations of the first text, if the checkpoint has a model to run.
	RandomInputs bool
	// Parity compares the kernels of this machine with the portable reference. Default: false.
	Parity bool
	// Threads is the number of goroutines. Default (0): GOMAXPROCS. No figure depends on it.
	Threads int
	// Version is the program's version, for the report. Default (""): none.
	Version string
}
