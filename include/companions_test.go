//go:build unix

package include_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// otherCompanions are changes of one packed header, in all slices. Afterwards companions do not fit
// the weights, or the elements of a plain payload do not fit its tensor. Everything else, including
// the sizes, is correct.
func otherCompanions(t testing.TB, good []byte) []func(b []byte) {
	var list []func(b []byte)
	c64, _ := packing.ParseDtype("C64")
	sameSize := map[packing.Dtype][]packing.Dtype{
		packing.F32: {packing.I32, packing.U32}, packing.BF16: {packing.F16, packing.I16}, packing.F16: {packing.BF16, packing.U16},
		packing.I8: {packing.U8, packing.Bool, packing.F8E4M3}, packing.I64: {packing.F64, c64},
	}
	records := func(b []byte) []byte { return section(b, secPayloads) }
	for i := range len(records(good)) / 96 {
		r := records(good)[96*i:][:96]
		h, err := packing.ParseHeader(r[32:])
		if err != nil {
			t.Fatal(err)
		}
		if le.Uint32(r[20:]) > 0 {
			continue
		}
		size, _ := h.DataSize()
		add := func(edit func(h *packing.Header), more ...func(b []byte)) {
			changed := h
			edit(&changed)
			changed = changed.Canonical()
			n, err := changed.DataSize()
			if err != nil || n > size || n < size && r[24] == 0 || changed.Validate() != nil || changed == h {
				return
			}
			list = append(list, func(b []byte) {
				for all := records(b); len(all) > 0; all = all[96:] {
					if le.Uint32(all[16:]) == le.Uint32(r[16:]) && all[24] == r[24] && all[25] == r[25] {
						changed.Append(all[32:32])
						le.PutUint64(all[8:], packing.HeaderSize+uint64(n))
					}
				}
				for _, f := range more {
					f(b)
				}
			})
		}
		for _, d := range sameSize[h.Dtype] {
			add(func(h *packing.Header) { h.Dtype = d })
		}
		if r[24] != 0 {
			add(func(h *packing.Header) { h.Rows-- })
			add(func(h *packing.Header) { h.Cols-- })
			add(func(h *packing.Header) { h.Rows, h.Cols = h.Cols, h.Rows })
			add(func(h *packing.Header) { h.Rows, h.Cols = 1, h.Rows*h.Cols })
			continue
		}
		for _, group := range []uint64{0, 16, 32, 48} {
			changed := h
			if changed.Group = group; changed.Groups() != h.Groups() {
				add(func(h *packing.Header) { h.Group = group })
			}
		}
		tensor := section(good, secTensors)[48*le.Uint32(r[16:]):]
		switch {
		case h.Layout == packing.LayoutCodes:
			add(func(h *packing.Header) { h.ZeroKind ^= packing.ZeroInt8 })
			for dtype := packing.ScaleBF16; dtype <= packing.ScaleF32; dtype++ {
				add(func(h *packing.Header) { h.ScaleDtype = dtype })
			}
			if tensor[15] == 0 { // not transposed: the same shape as plain
				add(func(h *packing.Header) { *h = packing.PlainHeader(packing.U8, h.Rows, h.Cols) },
					func(b []byte) { section(b, secTensors)[48*le.Uint32(r[16:])+13] = byte(packing.U8) })
			}
		case h.Layout == packing.LayoutPlain && h.Dtype.Bits() == 8 && h.Rows > 0:
			add(func(h *packing.Header) {
				*h = packing.Header{Layout: packing.LayoutCodes, Bits: 8, ScaleDtype: packing.ScaleF32, Rows: h.Rows, Cols: h.Cols}
			})
		}
	}
	return list
}

// TestCompanions checks that both readers refuse companions that do not fit.
func TestCompanions(t *testing.T) {
	good := everything(t)
	list := otherCompanions(t, good)
	count := map[string]int{}
	for _, tc := range []toolchain{sanitized, arm64} {
		opened, _ := differ(t, tc, good, false, len(list), func(i int) []byte {
			b := bytes.Clone(good)
			list[i](b)
			sealAll(b)
			_, err := gqf.OpenBytes(b, gqf.Options{})
			for _, rule := range []string{"without a companion", "do not have", "the weights need", "the tensor's are"} {
				if err != nil && strings.Contains(err.Error(), rule) {
					count[rule]++
					return b
				}
			}
			t.Errorf("change %d: %v, want an error of a companion or of elements", i, err)
			return b
		})
		if opened > 0 {
			t.Errorf("%d of %d opened", opened, len(list))
		}
	}
	t.Logf("%d changes: %v", len(list), count)
	if len(count) != 4 {
		t.Error("not all rules were broken")
	}
}
