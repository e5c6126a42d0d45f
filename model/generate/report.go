package generate

import (
	"fmt"
	"time"

	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/packing"
)

// Reason says why a text ended.
type Reason string

// The reasons.
const (
	EndOfText    Reason = "end-of-text" // the model chose a token that ends it
	StopString   Reason = "stop"        // of Options.Stop
	MaxTokens    Reason = "max-tokens"
	ContextFull  Reason = "context"
	Interrupted  Reason = "interrupted" // by the context.Context
	OutputFailed Reason = "output"      // a callback returned an error
)

// Result is a text and what it took. Fields that were not measured are 0.
type Result struct {
	File         string   `json:"file"`
	Architecture string   `json:"architecture"`
	Activations  string   `json:"activations"` // inputs of linears: int8 or float32
	Threads      int      `json:"threads"`
	Sampling     Sampling `json:"sampling"`
	Context      int      `json:"context"` // tokens that there was room for

	Text       string  `json:"text"` // without the prompt
	Stopped    Reason  `json:"stopped"`
	StopString string  `json:"stop_string,omitempty"`
	PromptIDs  []int32 `json:"prompt_ids"`
	IDs        []int32 `json:"ids"` // all that were chosen: the one that ended the text is among them

	OpenSeconds       float64 `json:"open_seconds"`        // of Open
	FirstTokenSeconds float64 `json:"first_token_seconds"` // from the call of Run to the first token: encoding, prefill, choice
	PrefillSeconds    float64 `json:"prefill_seconds"`     // computing the prompt
	DecodeSeconds     float64 `json:"decode_seconds"`      // computing and choosing the tokens after the first
	TotalSeconds      float64 `json:"total_seconds"`       // of Open and Run, output included
	// PrefillTokensPerSecond counts the prompt's tokens, DecodeTokensPerSecond the chosen ones but the first, which comes
	// out of the prefill.
	PrefillTokensPerSecond float64 `json:"prefill_tokens_per_second"`
	DecodeTokensPerSecond  float64 `json:"decode_tokens_per_second"`

	Memory  Memory      `json:"memory"`
	Kernels []KernelUse `json:"kernels"`
	Cost    *Cost       `json:"cost,omitempty"`
}

// KernelUse is a kernel that ran.
type KernelUse struct {
	Kernel  string `json:"kernel"`
	Weights string `json:"weights"`
	Rows    int    `json:"rows"` // of activations: the fewest of the first time that each linear ran it
	Linears int    `json:"linears"`
}

// Cost is what the time costs at Options.PricePerHour, in the same currency.
type Cost struct {
	PricePerHour float64 `json:"price_per_hour"`
	Prompt       float64 `json:"prompt"` // its prefill
	Output       float64 `json:"output"` // decoding the tokens after the first
	// A million tokens at the speed of prefill, and at that of decoding.
	MillionInput  float64 `json:"million_input_tokens"`
	MillionOutput float64 `json:"million_output_tokens"`
}

func (g *Generator) newResult(o Options, ids []int32) *Result {
	activations := model.Float32
	if g.quantized {
		activations = g.options.Activations
	}
	return &Result{
		File: g.path, Architecture: g.model.Config().Architecture, Activations: activations.String(), Threads: g.options.Threads,
		Sampling: o.Sampling, Context: o.Context, PromptIDs: ids, IDs: []int32{}, OpenSeconds: g.opening.Seconds(),
	}
}

// measure fills in what is known at the end.
func (g *Generator) measure(r *Result, took time.Duration, perHour float64) {
	r.TotalSeconds = (g.opening + took).Seconds()
	if r.PrefillSeconds > 0 {
		r.PrefillTokensPerSecond = float64(len(r.PromptIDs)) / r.PrefillSeconds
	}
	if r.DecodeSeconds > 0 {
		r.DecodeTokensPerSecond = float64(len(r.IDs)-1) / r.DecodeSeconds
	}
	r.Memory = readMemory()
	r.Kernels = append([]KernelUse{}, g.kernels.uses...)
	if perHour > 0 {
		r.Cost = cost(r, perHour)
	}
}

// cost computes what r took.
func cost(r *Result, perHour float64) *Cost {
	second := perHour / 3600
	c := &Cost{PricePerHour: perHour, Prompt: second * r.PrefillSeconds, Output: second * r.DecodeSeconds}
	if r.PrefillTokensPerSecond > 0 {
		c.MillionInput = second * 1e6 / r.PrefillTokensPerSecond
	}
	if r.DecodeTokensPerSecond > 0 {
		c.MillionOutput = second * 1e6 / r.DecodeTokensPerSecond
	}
	return c
}

// describe says in a few words what weights a packed header describes.
func describe(h packing.Header) string {
	if h.Layout == packing.LayoutPlain {
		return "float32"
	}
	group := "channel"
	if h.Group != 0 {
		group = fmt.Sprintf("group %d", h.Group)
	}
	return fmt.Sprintf("%s %s, %d bits, %s", h.Layout, h.Tile, h.Bits, group)
}
