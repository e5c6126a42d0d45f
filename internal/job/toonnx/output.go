// Package toonnx stores the items of a plan in a directory for ONNX Runtime: a graph of operators
// that multiply with codes, and files with the weights. ONNX Runtime GenAI, transformers.js and
// programs with sessions of their own load the same files. The files are compared with their source
// before they appear.
package toonnx

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
	"github.com/lowbit-go/gq/internal/onnx"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// Options are the options of a directory for ONNX Runtime.
type Options struct {
	// Tile is the tile of packed weights that the files hold in addition to the codes. Default (zero):
	// no packed weights.
	Tile packing.Tile
	// Split is the greatest size of a file with weights, unless a single tensor is larger. Default
	// (0): one file.
	Split int64
}

// Output makes a directory for ONNX Runtime.
type Output struct {
	*plan.Plan
	from     write.Model
	root     string // of the input
	opts     Options
	c        *arch.ForwardConfig
	names    arch.Prefix
	model    onnx.Model
	contents []content
	byItem   [][]int // indices of contents, by the items' index
	dtype    dtype
	data     []int64 // sizes of the files with weights
	beside   []write.SideFile
}

// New returns the output of an input.
func New(from write.Model, opts Options) *Output {
	return &Output{from: from, root: from.Facts().Root, opts: opts}
}

func (o *Output) Noun() string { return "the directory for ONNX Runtime" }

// Begin refuses models that the operators do not compute.
func (o *Output) Begin(pl *plan.Planner, sources func() ([]llamacpp.Source, error)) error {
	o.Plan = pl.Plan
	if o.Config == nil {
		return fmt.Errorf("%s: there is no config.json, which says what the model is: a graph cannot be made without it", o.root)
	}
	var err error
	if o.c, err = arch.ParseForward(o.Config); err != nil {
		return fmt.Errorf("%s: config.json: %w", o.root, err)
	}
	if what := unsupported(o.c); what != "" {
		return quantizer.Requestf("%s: the model has %s, which no graph of gq holds: take another target", o.root, what)
	}
	list, err := sources()
	if err != nil {
		return err
	}
	o.names, err = arch.PrefixOf(func(name string) bool {
		return slices.ContainsFunc(list, func(s llamacpp.Source) bool { return s.Name == name })
	})
	if err != nil {
		return fmt.Errorf("%s: %w", o.root, err)
	}
	if n := context(o.c); n < o.c.MaxPositions {
		pl.Warn("the graph holds sequences of up to %d tokens, not %d: longer sequences have other rotations (longrope)", n, o.c.MaxPositions)
	}
	return nil
}

// leaveOut leaves a tensor out that no operator reads: of image towers, or of unread layers.
func (o *Output) leaveOut(d *plan.Draft) bool {
	if !arch.Ignorable(d.Src.Name) && !o.c.Unread(o.names.Body, d.Src.Name) {
		return false
	}
	d.Leave("not a part of the language model's graph")
	d.Line.Action = plan.ActionOmit
	return true
}

// Store chooses the blocks of a draft.
func (o *Output) Store(pl *plan.Planner, d *plan.Draft) error {
	if o.leaveOut(d) || !d.Quantize {
		return pl.FindBlockScale(d)
	}
	if d.Scheme.Mapping == gqf.MappingAsymmetric {
		d.Zeros, d.Line.ZeroPoints = packing.ZeroInt8, rounding.IntegerZeros
	}
	if err := o.hold(d); err != nil {
		return quantizer.Requestf("tensor %q: %w", d.Src.Name, err)
	}
	return nil
}

// Take keeps the codes of a file's tensor.
func (o *Output) Take(_ *plan.Planner, d *plan.Draft, from plan.FileTensor) error {
	if o.leaveOut(d) {
		return nil
	}
	err := d.TakeIntegerZeros(from, "onnx")
	if err == nil {
		err = d.Scheme.ValidateONNX()
	}
	if err == nil {
		err = o.hold(d)
	}
	if err != nil {
		return quantizer.Requestf("%s: tensor %q (%s): %w: quantize the checkpoint again with --target onnx", from.Path, from.Name, d.Scheme, err)
	}
	return nil
}

// hold chooses the blocks of a quantized draft. A block is a group, or a part of one, with the
// group's scale.
func (o *Output) hold(d *plan.Draft) error {
	if len(d.Src.Shape) != 2 || d.Transposed {
		return fmt.Errorf("a matrix of outputs x inputs was expected, not shape %v", d.Src.Shape)
	}
	block := onnx.BlockOf(int64(d.Scheme.Group), d.Cols, d.Role == gqf.RoleEmbedding)
	if block == 0 {
		return fmt.Errorf("rows of %d weights are no whole number of blocks of 16, and an embedding's rows must be: leave it unquantized with --rule '%s=skip'", d.Cols, d.Src.Name)
	}
	d.Stored = hfquant.Scheme{Bits: d.Scheme.Bits, Group: block, Scales: packing.F32}
	if d.Zeros != packing.ZeroNone {
		d.Stored.Zeros = hfquant.IntZeros
	}
	d.Layout = hfquant.LayoutONNX(d.Src.Name, d.Rows, d.Cols, d.Stored)
	d.Line.Layouts = []string{fmt.Sprintf("onnx:%d", block)}
	if o.packs(d.Stored, d.Cols) && (d.Role != gqf.RoleEmbedding || d.Shared) {
		d.Line.Layouts = append(d.Line.Layouts, "qsi4c32p "+o.opts.Tile.String())
	}
	return nil
}

// packs reports whether ONNX Runtime packs codes of a scheme as the layout qsi4c32p.
func (o *Output) packs(s hfquant.Scheme, cols int64) bool {
	return o.opts.Tile != packing.Tile{} && s.Bits == 4 && s.Zeros == hfquant.NoZeros && s.Group >= 32 && cols%s.Group == 0
}

// DataBytes counts all tensors of an item.
func (o *Output) DataBytes(it plan.Item) (n int64, err error) {
	for _, i := range o.byItem[it.Common().Index] {
		n += o.contents[i].size
	}
	return n, nil
}

// Home is the directory that holds the new directory, or a directory above it.
func (o *Output) Home(dir string) string { return tocheckpoint.Home(dir) }

// dtype is transformers.js' name of a model, and the end of the file's name.
type dtype struct{ name, suffix string }

// dtypes are the dtypes by the bits of most weights.
var dtypes = map[int]dtype{0: {"fp32", ""}, 2: {"q2", "_q2"}, 4: {"q4", "_q4"}, 8: {"q8", "_quantized"}}

// folder is transformers.js' directory of graphs and weights. A graph has mostFiles at most.
const (
	folder    = "onnx"
	mostFiles = 100
)

func (o *Output) modelName() string { return "model" + o.dtype.suffix + ".onnx" }

// dataName is the name of a file with weights, as transformers.js expects it.
func (o *Output) dataName(i int) string {
	if i == 0 {
		return o.modelName() + "_data"
	}
	return fmt.Sprintf("%s_data_%d", o.modelName(), i)
}

// unsupported names what a model has that the graph's operators do not compute, or that nobody has
// shown them to compute; "" if there is nothing.
func unsupported(c *arch.ForwardConfig) string {
	any := func(has func(l *arch.LayerConfig) bool) bool {
		return slices.ContainsFunc(c.Layers, func(l arch.LayerConfig) bool { return has(&l) })
	}
	for _, v := range []struct {
		has  bool
		what string
	}{
		{c.Latent != nil, "attention with latents"},
		{c.PerLayer != nil || c.AltUp != nil || c.Laurel > 0, "inputs of single layers"},
		{c.AttentionGate, "gates of attention"},
		{c.UnitValues || c.QKNorm == arch.UnitNorms, "norms without gains"},
		{c.Facts.Has(arch.Sinks), "attention sinks"},
		{c.Temperature != 0, "queries with a temperature"},
		{c.RopeStart != 0, "heads whose first dimensions do not rotate"},
		{any(func(l *arch.LayerConfig) bool { return l.Mixer != arch.AttentionMixer || l.Beside || l.NoFeedForward }), "layers with a state"},
		{any(func(l *arch.LayerConfig) bool { return l.Experts }), "mixtures of experts"},
		{any(func(l *arch.LayerConfig) bool { return l.Chunk > 0 }), "attention in chunks"},
		{any(func(l *arch.LayerConfig) bool { return l.Borrow > 0 || l.KeyValues }), "keys or values of other layers"},
		{any(func(l *arch.LayerConfig) bool { return l.Sparse }), "sparse gates"},
		{any(func(l *arch.LayerConfig) bool { return l.HeadDim%8 != 0 }), "heads whose size is no multiple of 8"},
		{c.Activation != "silu" && c.Activation != "gelu_pytorch_tanh" || c.GateSlope != 1, "another activation than silu and gelu_pytorch_tanh"},
		{c.MaxPositions == 0, "no max_position_embeddings, the number of rows in tables of rotations"},
	} {
		if v.has {
			return v.what
		}
	}
	return ""
}

// context is the most tokens of a sequence in the graph: tables of rotations have a row for each.
// The second frequencies of longrope, of longer sequences, would need tables of their own.
func context(c *arch.ForwardConfig) int {
	n := c.MaxPositions
	for _, r := range c.Ropes {
		if r.Type == "longrope" {
			n = min(n, r.OriginalPositions)
		}
	}
	return n
}
