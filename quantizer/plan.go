package quantizer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/packing"
)

// Action is what a job does with one tensor of the checkpoint.
type Action string

const (
	ActionQuantize Action = "quantize" // packed as low-bit codes
	ActionKeep     Action = "keep"     // stored as it is in the checkpoint
	ActionShare    Action = "share"    // another name of a tensor that is stored already
	ActionFold     Action = "fold"     // block scales that are multiplied into the weight they belong to
)

// PlanTensor is one line of a plan.
type PlanTensor struct {
	Name   string   `json:"name"`
	Role   gqf.Role `json:"role"`
	Action Action   `json:"action"`
	Shape  []int64  `json:"shape"`
	Dtype  string   `json:"dtype"`
	// Scheme is set for quantized tensors only.
	Bits       int                `json:"bits,omitempty"`
	Group      int                `json:"group,omitempty"` // 0: per channel
	Mapping    gqf.Mapping        `json:"mapping,omitempty"`
	ScaleDtype packing.ScaleDtype `json:"scale_dtype,omitempty"`
	// Slices counts the experts of a fused tensor; each is a payload of its own.
	Slices        int     `json:"slices,omitempty"`
	Bytes         int64   `json:"bytes"` // payloads with their packed headers
	BitsPerWeight float64 `json:"bits_per_weight"`
	SharedWith    string  `json:"shared_with,omitempty"`
	Rule          string  `json:"rule,omitempty"`   // the rule that decided, if one did
	Reason        string  `json:"reason,omitempty"` // why it is kept, shared or folded
}

func (l *PlanTensor) clearScheme() {
	l.Bits, l.Group, l.Mapping, l.ScaleDtype, l.Slices = 0, 0, gqf.MappingNone, packing.ScaleNone, 0
}

// Plan is a job laid out: every tensor's treatment and every byte's place in
// the output, before any weight is read (but for a head compared with its table).
type Plan struct {
	Tensors  []*PlanTensor `json:"tensors"`
	Warnings []string      `json:"warnings"`
	// OutputBytes is the exact size of the file.
	OutputBytes int64 `json:"output_bytes"`
	// SourceBytes is the size of the checkpoint's tensors.
	SourceBytes int64 `json:"source_bytes"`

	ck     *safetensors.Checkpoint
	config []byte
	opts   Options
	items  []*item
	image  *gqf.Image
	// provenance is the index of that asset, which gets the files' hashes when they are known.
	provenance int
}

// item is a tensor of the output: one or more payloads, one or more names.
type item struct {
	src        *safetensors.Tensor
	role       gqf.Role
	line       *PlanTensor
	quantize   bool
	scheme     Scheme
	header     packing.Header // of every slice
	slices     int
	rows, cols int64 // of one slice; rows are outputs
	transposed bool  // the checkpoint stores a slice as cols x rows
	bias       *safetensors.Tensor
	blockScale *safetensors.BlockScale
	name       int       // index of its canonical name in the image
	aliases    []nameRef // its other names
	payload    int       // index in the image of slice 0's; the others follow

	crc           uint32  // CRC32C of the source, once it is read
	noise, signal float64 // of the quantized weights, once they are
}

// nameRef is a further name that the file knows an item by.
type nameRef struct {
	index  int // in the image
	src    safetensors.Tensor
	absent bool // not in the checkpoint: a head tied by absence
	folded bool // block scales that went into the item
}

// NewPlan lays out the job of quantizing ck. config is the raw config.json, nil
// where the checkpoint has none. Weights are read only to compare an lm_head
// with the embedding table.
//
// It fails with a *RequestError for a rule that matches nothing or a tensor that
// it cannot apply to and for contradicting rules for a shared table; also for a
// tensor of unknown dtype.
func NewPlan(ck *safetensors.Checkpoint, config []byte, opts Options) (*Plan, error) {
	p := &Plan{ck: ck, config: config, opts: opts, Warnings: []string{}}
	var cfg *model.Config
	if config != nil {
		var err error
		if cfg, err = model.ParseConfig(config); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(ck.Dir(), "config.json"), err)
		}
	}
	rules, err := NewRuleSet(opts.Recipe, opts.Rules)
	if err != nil {
		return nil, err
	}
	pl := &planner{Plan: p, cfg: cfg, rules: rules, folded: map[string]bool{}}
	if err := pl.items(); err != nil {
		return nil, err
	}
	if err := pl.tie(); err != nil {
		return nil, err
	}
	if unused := rules.Unused(); len(unused) > 0 {
		return nil, unusedError(unused)
	}
	if err := pl.layOut(); err != nil {
		return nil, err
	}
	return p, nil
}

type planner struct {
	*Plan
	cfg    *model.Config
	rules  *RuleSet
	folded map[string]bool // names of block scales folded into their weight
}

// items decides for every tensor on its own. The order is by name, numbers
// compared as numbers, so that it does not depend on how the checkpoint is
// sharded and layers lie in order.
func (pl *planner) items() error {
	all := pl.ck.Tensors()
	pl.Plan.items = make([]*item, 0, len(all))
	pl.Tensors = make([]*PlanTensor, 0, len(all)+1) // and a head by absence
	tensors := make([]*safetensors.Tensor, len(all))
	for i := range all {
		tensors[i] = &all[i]
	}
	slices.SortFunc(tensors, func(a, b *safetensors.Tensor) int { return compareNatural(a.Name, b.Name) })
	for _, t := range tensors {
		it, err := pl.decide(t)
		if err != nil {
			return err
		}
		pl.SourceBytes += t.Size
		pl.Plan.items = append(pl.Plan.items, it)
	}
	pl.Plan.items = slices.DeleteFunc(pl.Plan.items, func(it *item) bool {
		if !pl.folded[it.src.Name] {
			return false
		}
		it.line.Action, it.line.Reason = ActionFold, "block scales, multiplied into the weight"
		pl.Tensors = append(pl.Tensors, it.line)
		return true
	})
	return nil
}

func (pl *planner) decide(t *safetensors.Tensor) (*item, error) {
	if t.Dtype == packing.DtypeNone {
		return nil, fmt.Errorf("%s: tensor %q has the unknown dtype %q: gq cannot store it; take the tensor out of the checkpoint",
			pl.ck.Files()[t.File].Name, t.Name, t.DtypeName)
	}
	class := model.Classify(pl.cfg, t.Name, t.Shape)
	it := &item{src: t, role: class.Role, slices: 1}
	it.line = &PlanTensor{Name: t.Name, Role: class.Role, Shape: t.Shape, Dtype: t.DtypeName}
	reason := class.Reason
	quantize := class.Quantize
	rule, matched := pl.rules.Match(t.Name)
	if cannot := cannotQuantize(t, class); cannot != "" {
		if matched && !rule.Skip && rule.Exact() {
			return nil, requestf("%s: tensor %q cannot be quantized: %s", rule, t.Name, cannot)
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
		it.line.Rule = rule.String()
		quantize, reason = !rule.Skip, "a rule says skip"
	}
	if !quantize {
		it.keep(reason)
		return it, nil
	}
	it.quantize, it.slices, it.transposed = true, class.Slices(), class.Transposed
	it.scheme = pl.opts.Recipe.Scheme(class.Role, rule)
	return it, pl.shapeItem(it)
}

// cannotQuantize says why a tensor can't be held as low-bit codes whatever the rules say; "" if it can.
func cannotQuantize(t *safetensors.Tensor, class model.Class) string {
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

// keep turns the item into a plain payload: the bytes of the checkpoint.
func (it *item) keep(reason string) {
	it.quantize, it.transposed, it.slices, it.bias = false, false, 1, nil
	l := it.line
	l.Action, l.Reason = ActionKeep, reason
	l.clearScheme()
	it.rows, it.cols = it.src.Matrix()
	it.header = packing.PlainHeader(it.src.Dtype, uint64(it.rows), uint64(it.cols))
}

// shapeItem fills in what follows from the scheme: payload shape, bias, block scales.
func (pl *planner) shapeItem(it *item) error {
	t := it.src
	n := len(t.Shape)
	it.rows, it.cols = t.Shape[n-2], t.Shape[n-1]
	if it.transposed {
		it.rows, it.cols = it.cols, it.rows
	}
	if err := it.scheme.ValidateCommand(); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	it.header = it.scheme.Header(it.rows, it.cols, pl.opts.Recipe.withDefaults().Tile)
	if err := it.header.Validate(); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	pl.findBias(it)
	if err := pl.findBlockScale(it); err != nil {
		return err
	}
	l := it.line
	l.Action = ActionQuantize
	l.Bits, l.Group = it.scheme.Bits, it.scheme.Group
	l.Mapping, l.ScaleDtype = it.scheme.Mapping, it.scheme.ScaleDtype
	if it.slices > 1 {
		l.Slices = it.slices
	}
	return nil
}

// findBias looks for the layer's bias, which the packed panels hold too: X.bias
// of X.weight, X_bias of a fused expert tensor X.
func (pl *planner) findBias(it *item) {
	var name string
	if module, ok := strings.CutSuffix(it.src.Name, ".weight"); ok {
		name = module + ".bias"
	} else {
		name = it.src.Name + "_bias"
	}
	b, ok := pl.ck.Lookup(name)
	if !ok || !b.Dtype.IsFloat() || b.Numel() != int64(it.slices)*it.rows {
		return
	}
	it.bias = &b
	it.header.Flags |= packing.FlagBias
}

func (pl *planner) findBlockScale(it *item) error {
	if it.src.Dtype != packing.F8E4M3 && it.src.Dtype != packing.F8E5M2 {
		return nil
	}
	var block [2]int
	if pl.cfg != nil {
		block = pl.cfg.WeightBlockSize
	}
	bs, err := pl.ck.BlockScales(it.src.Name, block)
	if err != nil || bs == nil {
		return err
	}
	if it.transposed {
		return fmt.Errorf("tensor %q: FP8 block scales of a tensor stored in x out are not supported; keep it with --rule '%s=skip'", it.src.Name, it.src.Name)
	}
	it.blockScale = bs
	scales, _ := pl.ck.Lookup(bs.Name)
	pl.folded[bs.Name] = true
	it.aliases = append(it.aliases, nameRef{src: scales, folded: true})
	return nil
}

// layOut fixes the place of every byte and completes the plan's lines.
func (pl *planner) layOut() error {
	for _, it := range pl.Plan.items {
		size, err := it.header.DataSize()
		if err != nil {
			return fmt.Errorf("tensor %q: %w", it.src.Name, err)
		}
		it.line.Bytes = int64(it.slices) * (size + packing.HeaderSize)
		it.line.BitsPerWeight = it.header.BitsPerWeight()
		pl.Tensors = append(pl.Tensors, it.line)
	}
	slices.SortStableFunc(pl.Tensors, func(a, b *PlanTensor) int { return compareNatural(a.Name, b.Name) })
	if err := pl.build(); err != nil {
		return err
	}
	pl.OutputBytes = pl.image.Size()
	return nil
}

// build makes the image: the directory of the file with everything's offset.
func (p *Plan) build() error {
	b := gqf.NewBuilder()
	payloads, names := 0, 0
	for _, it := range p.items {
		payloads += it.slices
		names += 1 + len(it.aliases)
	}
	b.Grow(len(p.items), payloads, names)
	for _, it := range p.items {
		spec := gqf.TensorSpec{Name: it.src.Name, Shape: it.src.Shape, Dtype: it.src.Dtype, Role: it.role, Transposed: it.transposed, Experts: it.slices}
		if it.quantize {
			spec.Mapping, spec.Algorithm = it.scheme.Mapping, gqf.AlgorithmRTN
		}
		ti := b.AddTensor(spec)
		for s := range it.slices {
			pi := b.AddPayload(gqf.PayloadSpec{Tensor: ti, Slice: s, Header: it.header})
			if s == 0 {
				it.payload = pi
			}
		}
		it.name = b.AddName(nameSpec(ti, *it.src))
		for i := range it.aliases {
			n := &it.aliases[i]
			spec := gqf.NameSpec{Name: n.src.Name, Tensor: ti, SourceFile: -1}
			if !n.absent {
				spec = nameSpec(ti, n.src)
				spec.Folded = n.folded
			}
			n.index = b.AddName(spec)
		}
	}
	if err := p.addAssets(b); err != nil {
		return err
	}
	var err error
	p.image, err = b.Build()
	return err
}

// nameSpec is the record of a name that the checkpoint has.
func nameSpec(tensor int, src safetensors.Tensor) gqf.NameSpec {
	return gqf.NameSpec{Name: src.Name, Tensor: tensor, InCheckpoint: true, SourceFile: src.File, SourceBytes: src.Size}
}

func unusedError(unused []Rule) error {
	var s []string
	for _, r := range unused {
		s = append(s, r.String())
	}
	return requestf("%s matches no tensor that can be quantized; gq inspect SRC lists the names", strings.Join(s, ", "))
}

// compareNatural orders names with runs of digits compared as numbers, so that
// layers.9 comes before layers.10.
func compareNatural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if isDigit(a[i]) && isDigit(b[j]) {
			i0, j0 := i, j
			for i < len(a) && isDigit(a[i]) {
				i++
			}
			for j < len(b) && isDigit(b[j]) {
				j++
			}
			na, nb := strings.TrimLeft(a[i0:i], "0"), strings.TrimLeft(b[j0:j], "0")
			if c := len(na) - len(nb); c != 0 {
				return c
			}
			if c := strings.Compare(na, nb); c != 0 {
				return c
			}
			continue
		}
		if a[i] != b[j] {
			return int(a[i]) - int(b[j])
		}
		i++
		j++
	}
	if c := (len(a) - i) - (len(b) - j); c != 0 {
		return c
	}
	return strings.Compare(a, b) // equal but for leading zeros
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// ReadConfig gives the raw config.json of a checkpoint, nil if it has none.
func ReadConfig(ck *safetensors.Checkpoint) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(ck.Dir(), "config.json"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	return b, err
}
