// Package plan lists the tensors of a job's output, and decides how each is stored: as codes in
// layouts, in a type of GGUF files or in a format of checkpoints, or as it is in the source.
//
// A [Draft] is a tensor that nothing is decided on. A [Planner] makes an [Item] of it, and asks the
// job's [Output] how the item is stored. [Codes] are chosen before the output is written.
package plan

import (
	"fmt"
	"iter"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Plan lists every tensor's treatment and its place in the output. It is made before weights are
// read, and does not change afterwards.
type Plan struct {
	Tensors  []*Tensor `json:"tensors"`
	Warnings []string  `json:"warnings"`
	// OutputBytes is the exact size of the output without an account of calibration.
	OutputBytes int64 `json:"output_bytes"`
	// SourceBytes is the size of the tensors of the source.
	SourceBytes int64 `json:"source_bytes"`
	// Fold says how the checkpoint was folded, if it was.
	Fold *provenance.Fold `json:"fold,omitempty"`

	Items   []Item
	Config  []byte // config.json; nil: none
	Recipe  quantizer.Recipe
	Threads int // of the job; 0: GOMAXPROCS
}

// Quantized are the quantized items.
func (p *Plan) Quantized() iter.Seq[*Quantized] {
	return func(yield func(*Quantized) bool) {
		for _, it := range p.Items {
			if q, ok := it.(*Quantized); ok && !yield(q) {
				return
			}
		}
	}
}

// Output decides how the tensors of a plan are stored.
type Output interface {
	// Begin reads the model's facts, before any draft is stored. sources are the model's tensors.
	Begin(pl *Planner, sources func() ([]llamacpp.Source, error)) error
	// Store decides how a draft of a checkpoint's tensor is stored. It may leave a tensor unquantized.
	Store(pl *Planner, d *Draft) error
	// Take decides how the codes of a .gqf file's tensor are stored.
	Take(pl *Planner, d *Draft, from FileTensor) error
	// LayOut is called when all items are settled.
	LayOut(pl *Planner) error
	// DataBytes is the size of an item's data in the output, packed headers included.
	DataBytes(it Item) (int64, error)
}

// FileTensor is a quantized tensor of a .gqf file with its packed header.
type FileTensor struct {
	gqf.Tensor
	Header packing.Header
	File   *gqf.File
	Path   string
}

// Planner makes a plan.
type Planner struct {
	*Plan
	Out        Output
	Ck         *safetensors.Checkpoint // with the weights; nil: codes are taken over
	ScaleBlock [2]int                  // of FP8 weights; see safetensors.WeightsOptions
	Cfg        *arch.Config
	Drafts     []*Draft            // of the tensors, until settle makes them items
	Absorbed   map[string]bool     // names of block scales multiplied into their weight
	LeftOut    map[string]bool     // tensors that the plan leaves out
	layouts    map[string][]string // see layoutNames
	forms      map[Form]*Form      // of items
	schemes    map[Scheme]*Scheme
	Unfit      []*Tensor // tensors that the format of the target cannot hold
	twice      []twice
}

// twice is a tensor that is stored although another has its content, and a warning with its name
// and its cost in bytes.
type twice struct {
	line    *Tensor
	warning string
}

// NewPlanner begins a plan of an output.
func NewPlanner(out Output, recipe quantizer.Recipe, threads int) *Planner {
	return &Planner{Plan: &Plan{Warnings: []string{}, Recipe: recipe, Threads: threads}, Out: out, Absorbed: map[string]bool{}}
}

func (pl *Planner) Warn(format string, args ...any) {
	pl.Warnings = append(pl.Warnings, fmt.Sprintf(format, args...))
}

// WarnTwice warns that a tensor is stored although another has its content. The warning has the
// name and the cost in bytes.
func (pl *Planner) WarnTwice(line *Tensor, warning string) {
	pl.twice = append(pl.twice, twice{line, warning})
}

// Settle turns the drafts into the plan's items.
func (pl *Planner) Settle() {
	pl.Items = make([]Item, len(pl.Drafts))
	for i, d := range pl.Drafts {
		pl.Items[i], pl.Drafts[i] = pl.Item(d), nil
	}
	pl.Drafts = nil
}

// LayOut completes the plan's lines.
func (pl *Planner) LayOut() error {
	for i, it := range pl.Items {
		it.Common().Index = i
	}
	if err := pl.Out.LayOut(pl); err != nil {
		return err
	}
	for _, it := range pl.Items {
		line := it.Common().Line
		var err error
		if line.Bytes, err = pl.Out.DataBytes(it); err != nil {
			return fmt.Errorf("tensor %q: %w", line.Name, err)
		}
		line.BitsPerWeight = packing.BitsPerWeight(line.Bytes, it.Weights())
		pl.Tensors = append(pl.Tensors, line)
		for _, t := range pl.twice {
			if t.line == line {
				pl.Warn(t.warning, line.Name, line.Bytes)
			}
		}
	}
	pl.warnFallbacks()
	slices.SortStableFunc(pl.Tensors, func(a, b *Tensor) int { return CompareNatural(a.Name, b.Name) })
	return nil
}

// warnFallbacks says which tensors are not in the layout asked for, a line for each reason.
func (pl *Planner) warnFallbacks() {
	var reasons []string
	names := map[string][]string{}
	lines := pl.Unfit
	for it := range pl.Quantized() {
		lines = append(lines, it.Line)
	}
	for _, l := range lines {
		if r := l.Reason; r != "" {
			if names[r] == nil {
				reasons = append(reasons, r)
			}
			names[r] = append(names[r], l.Name)
		}
	}
	for _, r := range reasons {
		list := names[r]
		pl.Warn("%q%s: %s", list[0], AndMore(len(list)-1), r)
	}
}

// AndMore counts further tensors in a message.
func AndMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more tensors", n)
}

// MostListed bounds the tensors, rules or reasons that an error lists.
const MostListed = 10

// Action is a job's treatment of one tensor of the checkpoint.
type Action string

const (
	ActionQuantize    Action = "quantize"    // packed as low-bit codes
	ActionUnquantized Action = "unquantized" // stored as it is in the checkpoint
	ActionShare       Action = "share"       // another name of a tensor that is stored already
	ActionOmit        Action = "omit"        // not in a .gguf file: llama.cpp has no place for it
	// block scales that are multiplied into the weight they belong to
	ActionAbsorb Action = "absorb"
)

// Tensor is one line of a plan.
type Tensor struct {
	Name   string   `json:"name"`
	Role   gqf.Role `json:"role"`
	Action Action   `json:"action"`
	Shape  []int64  `json:"shape"`
	Dtype  string   `json:"dtype"`
	*Scheme
	// Layouts names the layout and tile of every variant.
	Layouts       []string `json:"layouts,omitempty"`
	Bytes         int64    `json:"bytes"` // payloads with their packed headers
	BitsPerWeight float64  `json:"bits_per_weight"`
	SharedWith    string   `json:"shared_with,omitempty"`
	Rule          string   `json:"rule,omitempty"` // the rule that decided, if one did
	// why it is unquantized, shared, absorbed, or not in the layout asked for
	Reason string `json:"reason,omitempty"`
}

// Scheme is how a tensor of a plan is quantized. Tensors share it: of many tensors few are
// different.
type Scheme struct {
	// All but Type are set for quantized tensors only.
	Bits       int                 `json:"bits,omitempty"`
	Group      int                 `json:"group,omitempty"` // 0: per channel
	Mapping    gqf.Mapping         `json:"mapping,omitempty"`
	ScaleDtype packing.ScaleDtype  `json:"scale_dtype,omitempty"`
	Algorithm  gqf.Algorithm       `json:"algorithm,omitempty"`
	ZeroPoints rounding.ZeroPoints `json:"zero_points,omitempty"` // with the mapping asymmetric
	// Slices counts the experts of a fused tensor; each is a payload of its own.
	Slices int `json:"slices,omitempty"`
	// Type is the type of GGUF files that holds the tensor: of a .gguf file, or for target gguf. ""
	// for others.
	Type string `json:"type,omitempty"`
}

func (l *Tensor) ClearScheme() { l.Scheme, l.Layouts = new(Scheme), nil }

// NewLine is the line of a tensor that nothing is decided on.
func NewLine(name string, role gqf.Role, shape []int64, dtype string) *Tensor {
	return &Tensor{Name: name, Role: role, Shape: shape, Dtype: dtype, Scheme: new(Scheme)}
}
