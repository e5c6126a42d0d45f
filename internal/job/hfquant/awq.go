package hfquant

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/packing"
)

// AWQ stores a linear layer M of shape [N, K] with 4 bits in two ways.
//
// Version gemm, transposed:
//
//	M.qweight I32 [K, N/8], the nibbles of a word belong to rows 0, 2, 4, 6, 1, 3, 5, 7 of 8
//	M.qzeros  I32 [groups, N/8], the same
//	M.scales  F16 [groups, N]
//
// Version gemv:
//
//	M.qweight I32 [N, K/8], nibbles in order
//	M.qzeros  I32 [N, words], the same; words is groups/8 rounded up
//	M.scales  F16 [N, 8*words]
//
// Codes and zero points are unsigned.
//
// Source: awq/modules/linear/gemm.py and gemv.py of AutoAWQ.

// awqNibble is the nibble of a word, from the least significant bits, that each of 8 rows has.
var awqNibble = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

const awqBits = 4

// awqConfig is the entry of config.json, and quant_config.json of older checkpoints.
type awqConfig struct {
	Bits       int    `json:"bits"`
	WBit       int    `json:"w_bit"`
	GroupSize  int64  `json:"group_size"`
	QGroupSize int64  `json:"q_group_size"`
	Version    string `json:"version"`
	Format     string `json:"format"` // the same, of GPTQModel
	Backend    string `json:"backend"`
}

func findAWQ(f *finder) error {
	c := awqConfig{}
	if err := f.readEntry(&c); err != nil {
		return err
	}
	c.Version = cmp.Or(c.Version, c.Format)
	bits, group := max(c.Bits, c.WBit), c.GroupSize
	group = cmp.Or(group, c.QGroupSize)
	add := f.addAWQ
	switch version := strings.ToLower(c.Version); {
	case bits != awqBits:
		return f.unsupported("", "AWQ with %d bits, expected %d", bits, awqBits)
	case c.Backend != "" && c.Backend != "autoawq":
		return f.unsupported("", "AWQ weights of %s are not read: only those of autoawq are", quote(c.Backend))
	case version == "gemv":
		add = f.addAWQRows
	case version != "" && version != "gemm":
		return f.unsupported("", "AWQ version %s is not read: only gemm and gemv are", quote(c.Version))
	}
	for _, t := range f.ck.Tensors() {
		switch module, last := splitName(t.Name); last {
		case "qweight":
			if err := add(module, t, group); err != nil {
				return err
			}
		case "scales":
			if _, ok := f.ck.Lookup(module + "qweight"); !ok { // ScaledActivation
				return f.unsupported(t.Name, "it scales activations, which is not read")
			}
		}
	}
	f.q.Format = AWQ
	return nil
}

// addAWQ adds the weight of a module with the codes t, in version gemm.
func (f *finder) addAWQ(module string, t safetensors.Tensor, group int64) error {
	name := module + "weight"
	w := &awqWeight{}
	n, groups, err := f.transposedScales(&w.transposed, name, module)
	if err != nil {
		return err
	}
	k, words, err := f.dimensions(name, t.Name)
	if err != nil {
		return err
	}
	if n != 8*words {
		return f.formatError(t.Name, "shape %v, expected [K, %d/8]", t.Shape, n)
	}
	if w.codes, err = f.part(name, t.Name, []packing.Dtype{packing.I32}, []int64{k, words}); err != nil {
		return err
	}
	if w.zeros, err = f.part(name, module+"qzeros", []packing.Dtype{packing.I32}, []int64{groups, words}); err != nil {
		return err
	}
	scheme := Scheme{Bits: awqBits, Scales: w.scales.dtype, Zeros: IntZeros}
	if bytes.Count(w.zeros.view, []byte{0x88}) == len(w.zeros.view) { // all 8, the middle
		scheme.Zeros = NoZeros
	}
	if scheme.Group, err = f.transposedGroup(name, group, k, groups, false); err != nil {
		return err
	}
	return f.add(Weight{Name: name, Shape: []int64{n, k}, Scheme: scheme, codec: w}, t.Name, module+"qzeros", module+"scales")
}

type awqWeight struct{ transposed }

func (w *awqWeight) readCodes(row *Row, n int64) error {
	shift := 4 * awqNibble[n%8]
	words := row.tile.column(w.codes, n/8)
	for k := range row.Codes {
		row.Codes[k] = int8(binary.LittleEndian.Uint32(words[4*k:])>>shift&15) - 8
	}
	return nil
}

func (w *awqWeight) readGroups(row *Row, n int64) error {
	shift := 4 * awqNibble[n%8]
	for g := range row.Zeros {
		word := binary.LittleEndian.Uint32(w.zeros.row(int64(g))[n/8*4:])
		row.Zeros[g] = int8(word>>shift&15) - 8
	}
	return w.readScales(row, n)
}

// addAWQRows adds the weight of a module with the codes t, in version gemv.
func (f *finder) addAWQRows(module string, t safetensors.Tensor, group int64) error {
	name := module + "weight"
	n, words, err := f.dimensions(name, t.Name)
	if err != nil {
		return err
	}
	k := 8 * words
	if group <= 0 {
		group = k
	}
	if k%group != 0 {
		return f.formatError(t.Name, "groups of %d do not divide rows of %d columns", group, k)
	}
	scheme := Scheme{Bits: awqBits, Group: group}
	groups := k / group
	if groups == 1 {
		scheme.Group = 0
	}
	_, padded, err := f.dimensions(name, module+"qzeros")
	if err != nil {
		return err
	}
	w := &awqRows{}
	if w.codes, err = f.part(name, t.Name, []packing.Dtype{packing.I32}, []int64{n, words}); err != nil {
		return err
	}
	padded = max(padded, (groups+7)/8)
	if w.zeros, err = f.part(name, module+"qzeros", []packing.Dtype{packing.I32}, []int64{n, padded}); err != nil {
		return err
	}
	if w.scales, err = f.part(name, module+"scales", scaleDtypes, []int64{n, 8 * padded}); err != nil {
		return err
	}
	scheme.Scales, scheme.Zeros = w.scales.dtype, IntZeros
	return f.add(Weight{Name: name, Shape: []int64{n, k}, Scheme: scheme, codec: w}, t.Name, module+"qzeros", module+"scales")
}

type awqRows struct{ codes, zeros, scales *matrix }

func (w *awqRows) readCodes(row *Row, n int64) error {
	unpackCodes(row.Codes, w.codes.row(n), awqBits)
	return nil
}

func (w *awqRows) readGroups(row *Row, n int64) error {
	unpackCodes(row.Zeros, w.zeros.row(n), awqBits)
	size := w.scales.dtype.Bits() / 8
	safetensors.Widen(row.Scales, w.scales.row(n)[:size*len(row.Scales)], w.scales.dtype)
	return checkFinite(w.scales.name, n, row.Scales)
}
