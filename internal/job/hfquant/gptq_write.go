package hfquant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lowbit-go/gq/packing"
)

// Symmetric weights are written in checkpoint_format "gptq" for every library. Weights with zero
// points are written in "gptq_v2": "gptq" cannot hold the smallest zero point, and GPTQModel
// refuses asymmetric weights there. Scales are F16, as in the libraries.

// gptqGroups are the group sizes that libraries read.
var gptqGroups = []int64{16, 32, 64, 128, 256, 512, 1024}

// holdsGPTQ fails if GPTQ does not hold a weight of shape [n, k] in the scheme.
func holdsGPTQ(s Scheme, n, k int64) error {
	switch {
	case !slices.Contains(gptqBits, s.Bits):
		return fmt.Errorf("codes have %s bits", list(gptqBits))
	case s.Group > 0 && !slices.Contains(gptqGroups, s.Group):
		return fmt.Errorf("groups have %s columns, or a row is one group", list(gptqGroups))
	case s.Group > 0 && k%s.Group != 0:
		return fmt.Errorf("groups of %d columns do not divide rows of %d", s.Group, k)
	case s.Zeros == Offsets:
		return errors.New("zero points are integers")
	case k%32 != 0 || n*int64(s.Bits)%32 != 0:
		step := 32 / int64(s.Bits)
		if s.Bits == 3 {
			step = 32
		}
		return fmt.Errorf("its shape is [%d, %d]: words of codes need a multiple of %d rows and of 32 columns", n, k, step)
	}
	return nil
}

func layoutGPTQ(name string, n, k int64, s Scheme) *Layout {
	module := strings.TrimSuffix(name, "weight")
	groups, bits := s.Groups(k), int64(s.Bits)
	e := &gptqEncoder{scheme: s, n: n, words: int(k * bits / 32), groups: groups}
	return &Layout{
		Parts: []Part{
			{Name: module + "qweight", Dtype: packing.I32, Shape: []int64{k * bits / 32, n}, put: e.with(e.putCodes)},
			{Name: module + "qzeros", Dtype: packing.I32, Shape: []int64{groups, n * bits / 32}, put: e.with(e.putZeros)},
			{Name: module + "scales", Dtype: packing.F16, Shape: []int64{groups, n}, put: e.with(e.putScales)},
			{Name: module + "g_idx", Dtype: packing.I32, Shape: []int64{k}, constant: func() []byte {
				index := make([]byte, 0, 4*k)
				for i := range k {
					index = binary.LittleEndian.AppendUint32(index, uint32(i/(k/groups)))
				}
				return index
			}},
		},
		RowStep: gptqStep(k),
		exact: func(r *Row) error {
			for g, v := range r.Scales {
				if !isExact(packing.F16, v) {
					return fmt.Errorf("scale %g of group %d is not an F16 number, which format gptq stores", v, g)
				}
			}
			return nil
		},
	}
}

// gptqStep is the number of rows of k weights that are written at once, a multiple of 32. Words of
// a row are not adjacent, but lie next to the same words of other rows: the more rows, the fewer
// and the longer the ranges of bytes. 1 MiB of codes bounds the memory of a thread.
func gptqStep(k int64) int64 { return min(max((1<<20)/k/32, 1), 16) * 32 }

type gptqEncoder struct {
	scheme    Scheme
	n, groups int64
	words     int // of a row's codes
}

type gptqBuffers struct {
	stream []byte // the codes of a row
	out    []byte // the words of some rows
	zeros  []int8 // of a group
}

var gptqPool = sync.Pool{New: func() any { return new(gptqBuffers) }}

// with gives put buffers.
func (e *gptqEncoder) with(put func(b *gptqBuffers, rows []Row, first int64, write func(off int64, b []byte) error) error) putFunc {
	return func(rows []Row, first int64, write func(off int64, b []byte) error) error {
		b := gptqPool.Get().(*gptqBuffers)
		defer gptqPool.Put(b)
		return put(b, rows, first, write)
	}
}

// putCodes writes the words of rows. Each word of a row goes to another row of the part.
func (e *gptqEncoder) putCodes(b *gptqBuffers, rows []Row, first int64, write func(off int64, b []byte) error) error {
	stride := 4 * len(rows)
	b.stream = resize(b.stream, 4*e.words)
	b.out = resize(b.out, e.words*stride)
	for r := range rows {
		packCodes(b.stream, rows[r].Codes, e.scheme.Bits)
		out := b.out[4*r:]
		for i := range e.words {
			binary.LittleEndian.PutUint32(out[i*stride:], binary.LittleEndian.Uint32(b.stream[4*i:]))
		}
	}
	if int64(len(rows)) == e.n {
		return write(0, b.out)
	}
	for i := range e.words {
		if err := write(4*(int64(i)*e.n+first), b.out[i*stride:][:stride]); err != nil {
			return err
		}
	}
	return nil
}

// putZeros writes zero points: less 1 in format "gptq".
func (e *gptqEncoder) putZeros(b *gptqBuffers, rows []Row, first int64, write func(off int64, b []byte) error) error {
	b.zeros = resize(b.zeros, len(rows))
	b.out = resize(b.out, len(rows)*e.scheme.Bits/8)
	for g := range e.groups {
		for r := range rows {
			if b.zeros[r] = -1; e.scheme.Zeros == IntZeros {
				b.zeros[r] = rows[r].Zeros[g]
			}
		}
		packCodes(b.out, b.zeros, e.scheme.Bits)
		if err := write((g*e.n+first)*int64(e.scheme.Bits)/8, b.out); err != nil {
			return err
		}
	}
	return nil
}

func (e *gptqEncoder) putScales(b *gptqBuffers, rows []Row, first int64, write func(off int64, b []byte) error) error {
	b.out = resize(b.out, 2*len(rows))
	for g := range e.groups {
		for r := range rows {
			putFloat(b.out[2*r:], packing.F16, rows[r].Scales[g])
		}
		if err := write(2*(g*e.n+first), b.out); err != nil {
			return err
		}
	}
	return nil
}

type gptqEntry struct {
	Bits       int                 `json:"bits"`
	GroupSize  int64               `json:"group_size"`
	DescAct    bool                `json:"desc_act"`
	Sym        bool                `json:"sym"`
	LMHead     bool                `json:"lm_head"`
	Method     string              `json:"quant_method"`
	Checkpoint string              `json:"checkpoint_format"`
	PackDtype  string              `json:"pack_dtype"`
	Dynamic    map[string]gptqRule `json:"dynamic,omitempty"`
	Meta       gptqMeta            `json:"meta"`
}

type gptqRule struct {
	Bits      int   `json:"bits,omitempty"`
	GroupSize int64 `json:"group_size,omitempty"`
}

type gptqMeta struct {
	Quantizer []string `json:"quantizer"`
}

// configGPTQ describes the most frequent scheme, with rules for linear layers of another or none.
func configGPTQ(_ Format, config []byte, weights []ModelWeight) ([]byte, map[string]string, error) {
	usual, err := usualScheme(weights)
	if err != nil {
		return nil, nil, err
	}
	e := gptqEntry{Bits: usual.Bits, GroupSize: gptqGroup(usual.Group), Sym: true, Method: "gptq", Checkpoint: "gptq", PackDtype: "int32",
		Dynamic: map[string]gptqRule{}, Meta: gptqMeta{Quantizer: []string{"gq"}}}
	exceptions := map[string]gptqException{}
	kind := map[Zeros]string{}
	for _, w := range weights {
		module := strings.TrimSuffix(w.Name, ".weight")
		_, last := splitName(module)
		switch {
		case w.Scheme != nil && !w.Linear:
			return nil, nil, fmt.Errorf("%s is not the weight of a linear layer, the only ones that it holds", quote(w.Name))
		case w.Scheme == nil && (!w.Linear || last == "lm_head"):
		case w.Scheme == nil:
			exceptions[module] = gptqException{sign: "-:"}
		default:
			e.LMHead = e.LMHead || last == "lm_head"
			kind[w.Scheme.Zeros] = w.Name
			if w.Scheme.Bits != usual.Bits || w.Scheme.Group != usual.Group {
				exceptions[module] = gptqException{"+:", gptqRule{Bits: w.Scheme.Bits, GroupSize: gptqGroup(w.Scheme.Group)}}
			}
		}
	}
	if kind[NoZeros] != "" && kind[IntZeros] != "" {
		return nil, nil, fmt.Errorf("%s is symmetric and %s has zero points, which have different values of checkpoint_format: quantize all weights with the same mapping",
			quote(kind[NoZeros]), quote(kind[IntZeros]))
	}
	if kind[IntZeros] != "" {
		e.Sym, e.Checkpoint = false, "gptq_v2"
	}
	addMerged(exceptions)
	for module, x := range exceptions {
		e.Dynamic[x.sign+"^"+regexp.QuoteMeta(module)+"$"] = x.gptqRule
	}
	out, err := WithEntry(config, "quantization_config", e)
	return out, nil, err
}

// gptqException is an entry of dynamic: "-:" excludes a module, "+:" has other values.
type gptqException struct {
	sign string
	gptqRule
}

// addMerged adds the layers that vLLM merges and looks up, if the parts have the same exception.
func addMerged(exceptions map[string]gptqException) {
	for _, merged := range mergedLayers {
		for module, x := range maps.Clone(exceptions) {
			parent, last := splitName(module)
			if last == merged.parts[0] && !slices.ContainsFunc(merged.parts, func(part string) bool { return exceptions[parent+part] != x }) {
				exceptions[parent+merged.name] = x
			}
		}
	}
}

// gptqGroup is group_size: -1 stands for a row.
func gptqGroup(group int64) int64 {
	if group == 0 {
		return -1
	}
	return group
}

// usualScheme returns the bits and the group that most weights have.
func usualScheme(weights []ModelWeight) (Scheme, error) {
	count := map[Scheme]int{}
	var usual Scheme
	for _, w := range weights {
		if w.Scheme == nil {
			continue
		}
		s := Scheme{Bits: w.Scheme.Bits, Group: w.Scheme.Group}
		count[s]++
		if count[s] > count[usual] {
			usual = s
		}
	}
	if len(count) == 0 {
		return usual, errNothingQuantized
	}
	return usual, nil
}
