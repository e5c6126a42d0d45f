package plan

import (
	"slices"
	"strings"
	"unique"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// Item is a tensor of the output, *unquantized or *quantized. It does not change after the plan is
// made.
type Item interface {
	Common() *Entry
	// Headers are the packed headers of one slice's payloads in a .gqf file, of all variants.
	Headers() []packing.Header
	// Weights is the number of weights in all slices.
	Weights() int64
	// AddTo adds the tensor and its payloads to the image of a .gqf file.
	AddTo(b *gqf.Builder, spec gqf.TensorSpec)
}

// Entry holds the fields of every item.
type Entry struct {
	Src       *safetensors.Tensor
	Line      *Tensor // with the item's canonical name
	Role      gqf.Role
	Aliases   []NameRef
	Index     int // in the plan's items
	NameIndex int // of its canonical name in the image; its aliases follow
	// Unfit: the blocks of no GGUF type divide the rows, which are F16 in a .gguf file, or BF16.
	Unfit bool
	// BiasLink is 1 + the index of the item with the bias, if a .gqf file states it; 0: the names say
	// it.
	BiasLink int32
}

// NameRef is another name of an item.
type NameRef struct {
	Src      safetensors.Tensor
	Absent   bool // not in the checkpoint: a tied lm_head that the checkpoint leaves out
	Absorbed bool // block scales that are multiplied into the item
}

func (e *Entry) Common() *Entry { return e }

// Name is the canonical name in the file.
func (e *Entry) Name() string { return e.Line.Name }

// Names are the canonical name and then all other names of the item.
func (e *Entry) Names() []string {
	names := []string{e.Name()}
	for _, alias := range e.Aliases {
		if !alias.Absorbed {
			names = append(names, alias.Src.Name)
		}
	}
	return names
}

// Unquantized is an item with the bytes that its source has.
type Unquantized struct {
	Entry
	Head    unique.Handle[packing.Header] // of a .gqf file
	Payload int                           // index in the image
	// rows x cols are the shape of each slice as the output of a .gguf file has it. The rows of a
	// vector are its elements.
	Slices     int
	Rows, Cols int64
	Transposed bool // the checkpoint stores a slice as cols x rows
	// As is the dtype in a checkpoint that is written, if the rows are converted. DtypeNone: they have
	// the source's bytes.
	As packing.Dtype
}

func (it *Unquantized) Headers() []packing.Header { return []packing.Header{it.Head.Value()} }

func (it *Unquantized) AddTo(b *gqf.Builder, spec gqf.TensorSpec) {
	spec.Experts = 1
	b.AddPayload(gqf.PayloadSpec{Tensor: b.AddTensor(spec), Header: it.Head.Value()})
}

func (it *Unquantized) Weights() int64 {
	h := it.Head.Value()
	return int64(h.Rows) * int64(h.Cols)
}

// Quantized is an item of codes: a matrix, or the matrices of a fused expert tensor.
type Quantized struct {
	Entry
	*Form              // shared by items: of many tensors few are different
	Variants []Variant // of a .gqf file: the same codes in one layout or more
	Bias     *safetensors.Tensor
	Layout   *hfquant.Layout // of a format of checkpoints; nil for other outputs and targets
}

// Form holds the fields of a quantized item that many items have in common.
type Form struct {
	Scheme     rounding.Scheme
	Kind       gguf.TensorType // of a .gguf file
	Slices     int
	Rows, Cols int64 // of one slice; rows are outputs
	// Zeros is the kind of the zero points on their way into the layouts. ZeroF32 only if every layout
	// holds float32.
	Zeros      packing.ZeroKind
	Smallest   float32        // magnitude of a scale that the output can hold
	Transposed bool           // the checkpoint stores a slice as cols x rows
	Shared     bool           // an embedding that is the lm_head too
	Stored     hfquant.Scheme // of layout
}

func (it *Quantized) Headers() (list []packing.Header) {
	for _, v := range it.Variants {
		list = append(list, v.Headers()...)
	}
	return list
}

// AddTo adds the payloads of each variant slice by slice, each with its companions.
func (it *Quantized) AddTo(b *gqf.Builder, spec gqf.TensorSpec) {
	spec.Mapping, spec.Transposed, spec.Experts = it.Scheme.Mapping, it.Transposed, it.Slices
	tensor := b.AddTensor(spec)
	for i, v := range it.Variants {
		for s := range it.Slices {
			b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Variant: i, CPU: v.cpu, Header: v.Header()})
			for _, c := range Companions(v.Header()) {
				b.AddPayload(gqf.PayloadSpec{Tensor: tensor, Slice: s, Variant: i, Kind: c.Kind, CPU: v.cpu, Header: c.Header})
			}
		}
	}
}

// RowBytes is the size of one row of a slice in the checkpoint.
func (it *Quantized) RowBytes() int64 { return it.Src.Size / (int64(it.Slices) * it.Rows) }
func (it *Quantized) Weights() int64  { return int64(it.Slices) * it.Rows * it.Cols }

// Variant is a quantized item in one layout. Its payloads are, for each slice, the weights and then
// their companions.
type Variant struct {
	// of the weights of every slice: of many tensors few are different
	head    unique.Handle[packing.Header]
	cpu     gqf.CPUFeatures // of the CPUs that the targets name which want it
	Payload int             // index in the image of the first
}

// Header is the packed header of the weights of every slice.
func (v *Variant) Header() packing.Header { return v.head.Value() }

// Headers are the packed headers of one slice's payloads.
func (v *Variant) Headers() []packing.Header {
	list := []packing.Header{v.Header()}
	for _, c := range Companions(v.Header()) {
		list = append(list, c.Header)
	}
	return list
}

// Companion is a plain payload that belongs to the weights.
type Companion struct {
	Kind   gqf.Kind
	Header packing.Header
}

// Companions are the scales and zero points that a layout stores apart from the codes.
func Companions(h packing.Header) []Companion {
	var list []Companion
	for _, kind := range []gqf.Kind{gqf.KindScales, gqf.KindZeros} {
		if c, ok := gqf.CompanionOf(&h, kind); ok {
			list = append(list, Companion{kind, c})
		}
	}
	return list
}

// Absorbs reports whether FP8 scales are multiplied into the item.
func (e *Entry) Absorbs() bool {
	return slices.ContainsFunc(e.Aliases, func(n NameRef) bool { return n.Absorbed })
}

// ScaleDtype is an unquantized dtype as a dtype of scales.
func ScaleDtype(d packing.Dtype) packing.ScaleDtype {
	switch d {
	case packing.F16:
		return packing.ScaleF16
	case packing.BF16:
		return packing.ScaleBF16
	}
	return packing.ScaleF32
}

// CompareNatural orders names with runs of digits compared as numbers, so that
// layers.9 comes before layers.10.
func CompareNatural(a, b string) int {
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

// SetScheme says that codes of a scheme represent the tensor.
func (l *Tensor) SetScheme(s rounding.Scheme, a gqf.Algorithm) {
	l.Action, l.Bits, l.Group, l.Mapping, l.ScaleDtype, l.Algorithm = ActionQuantize, s.Bits, s.Group, s.Mapping, s.ScaleDtype, a
}

// NewLine is the line of a tensor that nothing is decided on.
func NewLine(name string, role gqf.Role, shape []int64, dtype string) *Tensor {
	return &Tensor{Name: name, Role: role, Shape: shape, Dtype: dtype, Scheme: new(Scheme)}
}
