package generate

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// Reason is why a text ended.
type Reason string

const (
	EndOfText    Reason = "end-of-text" // the model chose an end token
	StopString   Reason = "stop"        // a string of Options.Stop
	MaxTokens    Reason = "max-tokens"
	ContextFull  Reason = "context"
	Interrupted  Reason = "interrupted" // by the context.Context
	OutputFailed Reason = "output"      // a callback returned an error
)

// Result is a text with its time and memory. Fields that were not measured are 0.
type Result struct {
	File         string   `json:"file"`
	Architecture string   `json:"architecture"`
	Activations  string   `json:"activations"` // inputs of linear layers: int8 if any, else float32
	Executed     string   `json:"executed"`    // "int8 activations in 12 of 40 matrices"
	Threads      int      `json:"threads"`
	Sampling     Sampling `json:"sampling"`
	Context      int      `json:"context"`           // size in tokens
	Warning      string   `json:"warning,omitempty"` // about the context

	Text       string  `json:"text"` // without the prompt
	Stopped    Reason  `json:"stopped"`
	StopString string  `json:"stop_string,omitempty"`
	PromptIDs  []int32 `json:"prompt_ids"`
	IDs        []int32 `json:"ids"` // all chosen tokens, including an end token
	// CachedTokens counts the tokens of the prompt that an Engine had computed before.
	CachedTokens int `json:"cached_tokens,omitempty"`

	OpenSeconds       float64 `json:"open_seconds"`        // Open
	FirstTokenSeconds float64 `json:"first_token_seconds"` // from the call of Run
	PrefillSeconds    float64 `json:"prefill_seconds"`     // computing the prompt
	DecodeSeconds     float64 `json:"decode_seconds"`      // the tokens after the first
	TotalSeconds      float64 `json:"total_seconds"`       // Open and Run, including output
	// PrefillTokensPerSecond counts the prompt's computed tokens. DecodeTokensPerSecond counts the
	// chosen tokens except the first, a result of the prefill.
	PrefillTokensPerSecond float64 `json:"prefill_tokens_per_second"`
	DecodeTokensPerSecond  float64 `json:"decode_tokens_per_second"`

	Memory  Memory      `json:"memory"`
	Kernels []KernelUse `json:"kernels"`
	Cost    *Cost       `json:"cost,omitempty"`
}

// KernelUse is the use of a kernel.
type KernelUse struct {
	Kernel  string `json:"kernel"`
	Weights string `json:"weights"`
	Rows    int    `json:"rows"` // the fewest rows of activations in a linear layer's first use
	Linears int    `json:"linears"`
}

// Cost is the price of the time at Options.PricePerHour, in the same currency.
type Cost struct {
	PricePerHour float64 `json:"price_per_hour"`
	Prompt       float64 `json:"prompt"` // the prefill
	Output       float64 `json:"output"` // decoding the tokens after the first
	// The price of a million tokens at the speed of prefill, and at the speed of decoding.
	MillionInput  float64 `json:"million_input_tokens"`
	MillionOutput float64 `json:"million_output_tokens"`
}

func (g *Generator) measure(r *Result, took time.Duration, perHour float64) {
	r.TotalSeconds = (g.opening + took).Seconds()
	if r.PrefillSeconds > 0 {
		r.PrefillTokensPerSecond = float64(len(r.PromptIDs)-r.CachedTokens) / r.PrefillSeconds
	}
	if r.DecodeSeconds > 0 && len(r.IDs) > 1 {
		r.DecodeTokensPerSecond = float64(len(r.IDs)-1) / r.DecodeSeconds
	}
	r.Memory = readMemory()
	r.Kernels = g.kernels.list()
	if perHour > 0 {
		r.Cost = cost(r, perHour)
	}
}

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

func describe(h packing.Header) string {
	if h.Layout == packing.LayoutPlain {
		return "float32"
	}
	if h.Layout == packing.LayoutBlocks {
		return gguf.TensorType(h.Dtype).String()
	}
	group := "channel"
	if h.Group != 0 {
		group = fmt.Sprintf("group %d", h.Group)
	}
	return fmt.Sprintf("%s %s, %d bits, %s", h.Layout, h.Tile, h.Bits, group)
}

// A kernelLog counts the linear layers that run each kernel.
type kernelLog struct {
	mu   sync.Mutex
	uses []KernelUse
}

func (k *kernelLog) list() []KernelUse {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]KernelUse{}, k.uses...)
}

// add is called by the computing goroutine, once for each kernel of a linear layer.
func (k *kernelLog) add(c kernels.Choice) {
	if slices.Contains(strings.Split(os.Getenv("GQ_LOG"), ","), "kernels") {
		fmt.Fprintln(os.Stderr, "kernels:", c) // the default of kernels.Options.Log
	}
	u := KernelUse{Kernel: c.Kernel, Weights: describe(c.Header), Rows: c.M, Linears: 1}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.uses {
		if have := &k.uses[i]; have.Kernel == u.Kernel && have.Weights == u.Weights {
			have.Linears++
			have.Rows = min(have.Rows, u.Rows)
			return
		}
	}
	k.uses = append(k.uses, u)
}
