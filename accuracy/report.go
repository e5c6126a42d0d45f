package accuracy

import (
	"fmt"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
	"github.com/lowbit-go/gq/packing"
)

// ReportSchema names the JSON format of a Report. It changes when a key changes its meaning or is
// removed, not when a key is added.
const ReportSchema = "gq-accuracy-report/2"

// Report is the result of `gq accuracy`. Everything but Run and Parity is the same on every
// machine.
type Report struct {
	Schema    string `json:"schema"`
	File      string `json:"file"`
	Source    string `json:"source"` // the checkpoint
	FileBytes int64  `json:"file_bytes"`
	// Fold says how the source was folded before it was quantized, if it was. Tensors are then
	// compared with the folded weights, and predictions with the source's.
	Fold        string `json:"fold,omitempty"`
	Activations string `json:"activations"` // int8 or float32, of the quantized model
	// Notes say how the tokenizer and the tensors of a .gguf file or a quantized checkpoint differ from
	// the checkpoint's, and which unquantized tensors hold NaN or infinities.
	Notes []string `json:"notes,omitempty"`
	// Totals are sums over all quantized tensors.
	Totals Totals `json:"totals"`
	// TextReport is of the first text.
	TextReport
	// Texts are the further texts, in the order in which they were given.
	Texts []TextReport `json:"texts,omitempty"`
	// Choices has the answers to files of multiple-choice questions.
	Choices []ChoiceReport `json:"choices,omitempty"`
	// NoModel says why there is no Model although there is a text.
	NoModel string        `json:"no_model,omitempty"`
	Tensors []TensorStats `json:"tensors,omitempty"`
	Parity  []Parity      `json:"parity,omitempty"`
	Gate    *GateResult   `json:"gate,omitempty"`
	Run     *Run          `json:"run,omitempty"`

	refined  bool // the codes of the file: see Try
	recorded int  // tensors whose checksums in the file and in the reference logits are equal
}

// TextReport has the figures of a text. All fields are nil without a text.
type TextReport struct {
	Text  *TextInfo        `json:"text,omitempty"`
	Model *eval.Comparison `json:"model,omitempty"`
	// Baseline is another .gqf on the same text.
	Baseline *Baseline `json:"baseline,omitempty"`
	// ActivationError is what int8 activations cost, if it was asked for.
	ActivationError *ActivationError `json:"activation_error,omitempty"`
}

// Scored lists the figures of all texts, the first one included. It is empty without a text.
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
	// Name is the name that the text was given, or else its path.
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
	// Bytes and Words are the size of the scored text, in UTF-8 and in runs of white space plus one
	// a document; of the original pages with convention lm-eval. 0 without a tokenizer.
	Bytes int `json:"bytes,omitempty"`
	Words int `json:"words,omitempty"`
	// Context is the number of tokens that the model is made for (max_position_embeddings); 0 if
	// config.json does not say.
	Context int `json:"context,omitempty"`
	// Reference is the file of the float model's predictions, if the float model did not run.
	Reference string `json:"reference,omitempty"`
	// Warning says that end-of-document markers were read as text.
	Warning string `json:"warning,omitempty"`
}

func (t *TextInfo) setSize(windows []text.Size) {
	for _, z := range windows {
		t.Bytes, t.Words = t.Bytes+z.Bytes, t.Words+z.Words
	}
}

// Label is the name by which a gate calls the text: the last element of Name.
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
	Unquantized int   `json:"kept"`
	Weights     int64 `json:"weights"`
	// Bytes counts the payloads of all layouts, headers included. BPW is Bytes as bits per
	// quantized weight.
	Bytes int64   `json:"bytes"`
	BPW   float64 `json:"bits_per_weight"`
	// SQNR is the signal-to-noise ratio of all weights as one vector.
	SQNR Decibels `json:"sqnr_db"`
	// Bits is the width of most weights of linear layers, embedding and lm_head apart; 0 if there
	// are none.
	Bits int `json:"bits"`
}

// SumUp adds up the Totals of tensors.
func SumUp(tensors []TensorStats) Totals {
	t := Totals{}
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
		t.SQNR = ratioOf(signal, noise)
	}
	for b, n := range widths {
		if n > 0 && n >= widths[t.Bits] {
			t.Bits = b
		}
	}
	return t
}
