package conversion

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/pattern"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/rounding"
)

// Action is a job's treatment of one tensor of the checkpoint.
type Action string

const (
	ActionQuantize    Action = "quantize" // packed as low-bit codes
	ActionUnquantized Action = "keep"     // stored as it is in the checkpoint
	ActionShare       Action = "share"    // another name of a tensor that is stored already
	ActionOmit        Action = "omit"     // not in a .gguf file: llama.cpp has no place for it
	ActionAbsorb      Action = "absorb"   // block scales that are multiplied into the weight they belong to
)

// PlanTensor is one line of a plan.
type PlanTensor struct {
	Name   string   `json:"name"`
	Role   gqf.Role `json:"role"`
	Action Action   `json:"action"`
	Shape  []int64  `json:"shape"`
	Dtype  string   `json:"dtype"`
	// Scheme is set for quantized tensors only.
	Bits       int                 `json:"bits,omitempty"`
	Group      int                 `json:"group,omitempty"` // 0: per channel
	Mapping    gqf.Mapping         `json:"mapping,omitempty"`
	ScaleDtype packing.ScaleDtype  `json:"scale_dtype,omitempty"`
	Algorithm  gqf.Algorithm       `json:"algorithm,omitempty"`
	ZeroPoints rounding.ZeroPoints `json:"zero_points,omitempty"` // with the mapping asymmetric
	// Slices counts the experts of a fused tensor; each is a payload of its own.
	Slices int `json:"slices,omitempty"`
	// Type is the type of GGUF files that holds the tensor: of a .gguf file, or for target gguf. "" for others.
	Type string `json:"type,omitempty"`
	// Layouts names the layout and tile of every variant.
	Layouts       []string `json:"layouts,omitempty"`
	Bytes         int64    `json:"bytes"` // payloads with their packed headers
	BitsPerWeight float64  `json:"bits_per_weight"`
	SharedWith    string   `json:"shared_with,omitempty"`
	Rule          string   `json:"rule,omitempty"`   // the rule that decided, if one did
	Reason        string   `json:"reason,omitempty"` // why it is unquantized, shared, absorbed, or not in the layout asked for
}

func (l *PlanTensor) clearScheme() {
	l.Bits, l.Group, l.Mapping, l.ScaleDtype, l.Algorithm, l.ZeroPoints, l.Slices, l.Type, l.Layouts = 0, 0, gqf.MappingNone, packing.ScaleNone, gqf.AlgorithmNone, "", 0, "", nil
}

// Plan is a job laid out: every tensor's treatment and every byte's place in
// the output, before weights are read (except an lm_head that is compared with the embedding, and
// a few rows).
// It does not change, and may be written several times.
type Plan struct {
	Tensors  []*PlanTensor `json:"tensors"`
	Warnings []string      `json:"warnings"`
	// OutputBytes is the exact size of the file without an account of calibration; see SizeWith.
	OutputBytes int64 `json:"output_bytes"`
	// SourceBytes is the size of the checkpoint's tensors.
	SourceBytes int64 `json:"source_bytes"`
	// Fold says how the checkpoint was folded, if it was.
	Fold *Fold `json:"fold,omitempty"`

	imported []ImportedTensor // of NewImport, by item

	folded int64                   // size of the folded checkpoint's tensors
	ck     *safetensors.Checkpoint // nil for a repack
	config []byte
	in     input
	out    output
	opts   Options
	// scaleBlock is the size of a block of FP8 weights; see safetensors.WeightsOptions.
	scaleBlock [2]int
	items      []item
}

// NewPlan lays out the job of quantizing ck. config is the raw config.json, nil
// where the checkpoint has none. Weights are read only to compare an lm_head
// with the embedding, and a few rows to look for lattices.
//
// opts.GGUF makes the plan's output a .gguf file, opts.Checkpoint a directory. The recipe's target must
// then be the format's.
//
// It fails with a *RequestError for a rule that matches nothing or a tensor that
// it cannot apply to and for a layout that cannot hold the scheme; also for a
// tensor of unknown dtype.
func NewPlan(ck *safetensors.Checkpoint, config []byte, opts Options) (*Plan, error) {
	p := &Plan{ck: ck, config: config, opts: opts, Warnings: []string{}}
	in := checkpointInput{p}
	p.in, p.out = in, &gqfOutput{Plan: p}
	if opts.GGUF != nil {
		p.out = &ggufOutput{Plan: p, from: in, opts: *opts.GGUF, config: config}
	}
	if opts.Checkpoint != nil {
		p.out = newCheckpointOutput(p, in, *opts.Checkpoint)
	}
	var cfg *arch.Config
	if config != nil {
		var err error
		if cfg, err = arch.ParseConfig(config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(ck.Dir(), "config.json"), err)
		}
		p.scaleBlock = cfg.WeightBlockSize
	}
	rules, err := quantizer.NewRuleSet(opts.Recipe, opts.Rules)
	if err != nil {
		return nil, err
	}
	pl := &planner{Plan: p, cfg: cfg, rules: rules, absorbed: map[string]bool{}}
	if err := pl.decideAll(); err != nil {
		return nil, err
	}
	if err := pl.tie(); err != nil {
		return nil, err
	}
	if err := pl.out.begin(pl, sourcesOf(pl.drafts)); err != nil {
		return nil, err
	}
	if err := pl.shape(); err != nil {
		return nil, err
	}
	if unused := rules.Unused(); len(unused) > 0 {
		return nil, pl.unusedError(unused)
	}
	pl.settle()
	if err := pl.layOut(); err != nil {
		return nil, err
	}
	pl.warnOfOneBit()
	if err := pl.warnOfLattices(); err != nil {
		return nil, err
	}
	if o := opts.Origin; o != nil {
		p.Fold, p.folded, p.SourceBytes = &o.Fold, p.SourceBytes, 0
		for _, t := range o.Checkpoint.Tensors() {
			p.SourceBytes += t.Size
		}
	}
	return p, nil
}

// WorkBytes is the size of the tensors that Write reads.
func (p *Plan) WorkBytes() int64 { return cmp.Or(p.folded, p.SourceBytes) }

// warnOfOneBit says that calibration is all that makes 1 bit usable (docs/QUALITY.md).
func (pl *planner) warnOfOneBit() {
	var names []string
	for it := range pl.quantized() {
		if a := it.scheme.Algorithm; it.scheme.Bits == 1 && a != gqf.AlgorithmGPTQ && a != gqf.AlgorithmGPTQFT {
			names = append(names, it.src.Name)
		}
	}
	switch n := len(names); n {
	case 0:
	case 1:
		pl.warn("%q has 1 bit, not chosen with calibration: a model of such weights is not usable; see --algorithm gptq-ft", names[0])
	default:
		pl.warn("%q and %d more tensors have 1 bit, not chosen with calibration: a model of such weights is not usable; see --algorithm gptq-ft", names[0], n-1)
	}
}

type planner struct {
	*Plan
	drafts   []*draft // of the tensors, until settle makes them items
	cfg      *arch.Config
	rules    *quantizer.RuleSet
	absorbed map[string]bool     // names of block scales multiplied into their weight
	leftOut  map[string]bool     // see leaveOutBiases
	layouts  map[string][]string // see layoutNames
	untied   *PlanTensor         // an lm_head that was the embedding before the checkpoint was folded
	unfit    []*PlanTensor       // tensors that the format of the target cannot hold
	broken   *PlanTensor         // an lm_head equal to the embedding, stored on its own because rules say so
}

// decideAll decides for every tensor on its own. The order is by name, numbers
// compared as numbers, so that it does not depend on how the checkpoint is
// sharded and layers lie in order.
func (pl *planner) decideAll() error {
	all := pl.ck.Tensors()
	pl.drafts = make([]*draft, 0, len(all))
	pl.Tensors = make([]*PlanTensor, 0, len(all)+1) // and an lm_head by absence
	tensors := make([]*safetensors.Tensor, len(all))
	for i := range all {
		tensors[i] = &all[i]
	}
	slices.SortFunc(tensors, func(a, b *safetensors.Tensor) int { return compareNatural(a.Name, b.Name) })
	for _, t := range tensors {
		d, err := pl.decide(t)
		if err != nil {
			return err
		}
		pl.SourceBytes += t.Size
		pl.drafts = append(pl.drafts, d)
	}
	return nil
}

// settle turns the drafts into the plan's items.
func (pl *planner) settle() {
	pl.items = make([]item, len(pl.drafts))
	for i, d := range pl.drafts {
		pl.items[i], pl.drafts[i] = d.item(), nil
	}
	pl.drafts = nil
}

func (pl *planner) decide(t *safetensors.Tensor) (*draft, error) {
	if t.Dtype == packing.DtypeNone {
		return nil, pl.unknownDtype(t)
	}
	class := arch.Classify(pl.cfg, t.Name, t.Shape)
	line := &PlanTensor{Name: t.Name, Role: class.Role, Shape: t.Shape, Dtype: t.DtypeName}
	d := &draft{entry: entry{src: t, role: class.Role, line: line}, slices: class.Slices(), transposed: class.Transposed}
	reason := class.Reason
	quantize := class.Quantize
	rule, matched := pl.rules.Match(t.Name)
	if cannot := cannotQuantize(t, class); cannot != "" {
		if matched && !rule.Skip && rule.Exact() {
			return nil, quantizer.Requestf("%s: tensor %q cannot be quantized: %s", rule, t.Name, cannot)
		}
		quantize = false
		if reason == "" {
			reason = cannot
		}
		if matched && rule.Skip {
			pl.rules.Use(rule)
		}
	} else if matched {
		pl.rules.Use(rule)
		line.Rule = rule.String()
		quantize, reason = !rule.Skip, "a rule says skip"
	}
	if !quantize {
		d.leave(reason)
		return d, nil
	}
	d.quantize = true
	d.scheme = pl.opts.Recipe.Scheme(class.Role, rule)
	d.rule = rule
	return d, nil
}

func (pl *planner) unknownDtype(t *safetensors.Tensor) error {
	return fmt.Errorf("%s: tensor %q has the unknown dtype %q: gq cannot store it; take the tensor out of the checkpoint",
		pl.ck.Files()[t.File].Name, t.Name, t.DtypeName)
}

// cannotQuantize says why a tensor can't be held as low-bit codes whatever the rules say; "" if it can.
func cannotQuantize(t *safetensors.Tensor, class arch.Class) string {
	switch {
	case !t.Dtype.IsFloat():
		return "dtype " + t.DtypeName + " is not a floating-point one"
	case len(t.Shape) == 2, len(t.Shape) == 3 && class.Experts > 0:
	case len(t.Shape) == 3 && class.Reason != "":
		return class.Reason
	default:
		return fmt.Sprintf("a %d-D tensor is not a matrix", len(t.Shape))
	}
	if slices.Contains(t.Shape, 0) {
		return "it has no elements"
	}
	return ""
}

// unusedError is the error for rules that match nothing, with the names nearest to the first.
func (pl *planner) unusedError(unused []quantizer.Rule) error {
	var s []string
	for _, r := range unused {
		s = append(s, r.String())
	}
	var names []string
	for _, d := range pl.drafts {
		names = append(names, d.name())
		for _, n := range d.aliases {
			names = append(names, n.src.Name)
		}
	}
	hint := ""
	if p, err := pattern.Parse(unused[0].Match); err == nil {
		hint = p.NoMatch(names)
	}
	return quantizer.Requestf("%s matches no tensor that can be quantized%s; gq inspect SRC lists the names", strings.Join(s, ", "), hint)
}

// ReadConfig gives the raw config.json of a checkpoint, nil if it has none.
func ReadConfig(ck *safetensors.Checkpoint) ([]byte, error) {
	b, err := files.Read(filepath.Join(ck.Dir(), "config.json"), files.MaxModelFile)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return b, err
}
