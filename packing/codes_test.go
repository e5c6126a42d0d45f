package packing

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// codesExample is a payload of 3 x 40 codes of 3 bits in groups of 16, and its companions.
func codesExample(t *testing.T, scale ScaleDtype, zeros ZeroKind) (c *Codes, data, scales []byte) {
	t.Helper()
	c, err := NewCodes(Header{Layout: LayoutCodes, Bits: 3, Flags: FlagPositiveScales, ScaleDtype: scale, ZeroKind: zeros, Rows: 3, Cols: 40, Group: 16})
	if err != nil {
		t.Fatal(err)
	}
	data = make([]byte, 3*40)
	for i := range data {
		data[i] = byte(i%8 - 4)
	}
	scales = make([]byte, 9*scale.Bytes())
	for i := range 9 {
		scale.put(scales[i*scale.Bytes():], float32(i+1)/8)
	}
	if c, err = c.WithCompanions(scales, []byte{0, 1, 2, 3, 4, 5, 6, 255, 128}); err != nil {
		t.Fatal(err)
	}
	return c, data, scales
}

func TestCodesRows(t *testing.T) {
	for _, dtype := range []ScaleDtype{ScaleBF16, ScaleF16, ScaleF32} {
		c, data, _ := codesExample(t, dtype, ZeroInt8)
		fractions, _, _ := codesExample(t, dtype, ZeroFraction)
		row, other := make([]float32, 40), make([]float32, 40)
		c.DequantizeRow(row, data, 2)
		fractions.DequantizeRow(other, data, 2)
		for k, w := range row {
			i := 2*3 + k/16
			zero := []float32{6, -1, -128}[k/16]
			if want := (float32((80+k)%8-4) - zero) * (float32(i+1) / 8); w != want {
				t.Errorf("%s, column %d: %v, want %v", dtype, k, w, want)
			}
			if want := (float32((80+k)%8-4) - zero/32) * (float32(i+1) / 8); other[k] != want {
				t.Errorf("%s, fractions, column %d: %v, want %v", dtype, k, other[k], want)
			}
		}
		if err := c.CheckCompanions(); err != nil {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}

func TestCodesCheckCompanions(t *testing.T) {
	for _, test := range []struct {
		dtype ScaleDtype
		bits  uint32 // of the scale of row 2, group 1
		msg   string
	}{
		{ScaleBF16, 0, "the scale of row 2 group 1 is 0, want a magnitude of 1.1754944e-38 to 3.3895314e+38 (bf16)"},
		{ScaleBF16, 0x7fc0, "the scale of row 2 group 1 is NaN, want a magnitude of 1.1754944e-38 to 3.3895314e+38 (bf16)"},
		{ScaleF16, 0xfc00, "the scale of row 2 group 1 is -Inf, want a magnitude of 5.9604645e-08 to 65504 (f16)"},
		{ScaleF32, 0x007fffff, "the scale of row 2 group 1 is 1.1754942e-38, want a magnitude of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{ScaleF32, 0xff800000, "the scale of row 2 group 1 is -Inf, want a magnitude of 1.1754944e-38 to 3.4028235e+38 (f32)"},
		{ScaleF32, math.Float32bits(-1), "the scale of row 2 group 1 is -1 in a payload of positive scales"},
	} {
		c, _, scales := codesExample(t, test.dtype, ZeroInt8)
		at := 7 * test.dtype.Bytes()
		if test.dtype == ScaleF32 {
			binary.LittleEndian.PutUint32(scales[at:], test.bits)
		} else {
			binary.LittleEndian.PutUint16(scales[at:], uint16(test.bits))
		}
		var pe *PanelError
		if err := c.CheckCompanions(); !errors.As(err, &pe) || pe.Panel != 2 || pe.Offset != int64(at) || pe.Msg != test.msg {
			t.Errorf("%v, want %q at byte %d of row 2", err, test.msg, at)
		}
	}
}

func TestCodesPanics(t *testing.T) {
	c, data, _ := codesExample(t, ScaleF32, ZeroInt8)
	bare, err := NewCodes(c.Header())
	if err != nil {
		t.Fatal(err)
	}
	row := make([]float32, 40)
	for name, f := range map[string]func(){
		"row":           func() { c.DequantizeRow(row, data, 3) },
		"negative row":  func() { c.DequantizeRow(row, data, -1) },
		"short data":    func() { c.Row(make([]int8, 40), nil, nil, data[:len(data)-1], 2) },
		"no companions": func() { bare.CheckCompanions() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
