package torchao

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// TestLUTDamage changes every byte of a buffer: what is still accepted must be
// the packed form of what is read.
func TestLUTDamage(t *testing.T) {
	c := vectorCases[lutCase](t, "linear_lut_type4", 8)[3] // 2 bits, 3 tables, bias
	data := slices.Clone([]byte(c.Packed))
	for i := range data {
		data[i] ^= 0x81
		w, err := UnpackLUT(c.shape(), data)
		checkDamage(t, i, err, func() ([]byte, error) { return PackLUT(c.shape(), w) }, data)
		data[i] ^= 0x81
	}
	for _, n := range []int{0, 63, 64, len(data) - 1} {
		checkDamage(t, n, second(UnpackLUT(c.shape(), data[:n])), nil, nil)
	}
}

func TestGroupwiseDamage(t *testing.T) {
	c := vectorCases[groupwiseCase](t, "groupwise_lut_type5", 10)[1] // 6 rows of 8, scales, bias
	data := slices.Clone([]byte(c.Packed))
	for i := range data {
		data[i] ^= 0x81
		w, err := UnpackGroupwise(c.shape(), data)
		checkDamage(t, i, err, func() ([]byte, error) { return PackGroupwise(c.shape(), w) }, data)
		data[i] ^= 0x81
	}
	for _, n := range []int{0, 63, 64, len(data) - 1} {
		checkDamage(t, n, second(UnpackGroupwise(c.shape(), data[:n])), nil, nil)
	}
}

func second[T any](_ T, err error) error { return err }

// checkDamage wants err to be typed, or without one pack to give data.
func checkDamage(t *testing.T, at int, err error, pack func() ([]byte, error), data []byte) {
	t.Helper()
	var format *FormatError
	var unsupported *UnsupportedError
	if errors.As(err, &format) || errors.As(err, &unsupported) {
		return
	}
	if err != nil || pack == nil {
		t.Fatalf("byte %d: error %v, want a FormatError or an UnsupportedError", at, err)
	}
	again, err := pack()
	if err != nil || !slices.Equal(again, data) {
		t.Fatalf("byte %d: accepted what does not pack to it again, error %v", at, err)
	}
}

func TestLUTRefuses(t *testing.T) {
	base := LUTShape{Bits: 2, Rows: 16, Cols: 32, Group: 16, Tables: 2, Bias: true}
	for _, c := range []struct {
		edit  func(s *LUTShape, w *LUTWeights)
		field string
		index int
	}{
		{func(s *LUTShape, _ *LUTWeights) { s.Bits = 5 }, "bits", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Bits = -1 }, "bits", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Rows = 0 }, "rows", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Cols = math.MaxInt }, "rows", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Rows, s.Cols = 1<<16, 1<<15 }, "rows", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Group = 0 }, "group", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Group = 48 }, "group", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Rows, s.Tables, s.Cols, s.Group = 1, 1, 1<<25, 1<<25 }, "group", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Tables = 3 }, "tables", -1},
		{func(s *LUTShape, _ *LUTWeights) { s.Tables = 4 }, "tables", -1},
		{func(_ *LUTShape, w *LUTWeights) { w.Indices[511] = 4 }, "indices", 511},
		{func(_ *LUTShape, w *LUTWeights) { w.Indices = nil }, "indices", -1},
		{func(_ *LUTShape, w *LUTWeights) { w.Tables = w.Tables[1:] }, "tables", -1},
		{func(_ *LUTShape, w *LUTWeights) { w.Scales[31] = 0 }, "scales", 31},
		{func(_ *LUTShape, w *LUTWeights) { w.Scales = w.Scales[1:] }, "scales", -1},
		{func(_ *LUTShape, w *LUTWeights) { w.Bias[0] = float32(math.Inf(1)) }, "bias", 0},
		{func(s *LUTShape, _ *LUTWeights) { s.Bias = false }, "bias", -1},
	} {
		s, w := base, &LUTWeights{Indices: make([]uint8, 512), Tables: make([]int8, 8), Scales: slices.Repeat([]float32{1}, 32), Bias: make([]float32, 16)}
		if _, err := PackLUT(s, w); err != nil {
			t.Fatal(err)
		}
		c.edit(&s, w)
		checkInputError(t, second(PackLUT(s, w)), c.field, c.index)
	}
}

func TestGroupwiseRefuses(t *testing.T) {
	base := GroupwiseShape{Bits: 2, Rows: 6, Cols: 64, ScaleGroup: 32, TableGroup: 256, Scales: true, Bias: true}
	for _, c := range []struct {
		edit  func(s *GroupwiseShape, w *GroupwiseWeights)
		field string
		index int
	}{
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.Bits = 0 }, "bits", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.Rows = -1 }, "rows", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.Cols = 48 }, "scale group", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.ScaleGroup = 0 }, "scale group", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.ScaleGroup = 128 }, "scale group", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.TableGroup = 128 }, "table group", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.TableGroup = 0 }, "table group", -1},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.TableGroup = 512 }, "tables", -1},
		{func(_ *GroupwiseShape, w *GroupwiseWeights) { w.Tables[7] = float32(math.NaN()) }, "tables", 7},
		{func(_ *GroupwiseShape, w *GroupwiseWeights) { w.Indices[0] = 255 }, "indices", 0},
		{func(s *GroupwiseShape, _ *GroupwiseWeights) { s.Scales = false }, "scales", -1},
	} {
		s, w := base, &GroupwiseWeights{Indices: make([]uint8, 384), Tables: make([]float32, 8), Scales: slices.Repeat([]float32{1}, 12), Bias: make([]float32, 6)}
		if _, err := PackGroupwise(s, w); err != nil {
			t.Fatal(err)
		}
		c.edit(&s, w)
		checkInputError(t, second(PackGroupwise(s, w)), c.field, c.index)
	}
}

func checkInputError(t *testing.T, err error, field string, index int) {
	t.Helper()
	var input *InputError
	if !errors.As(err, &input) || input.Field != field || input.Index != index {
		t.Errorf("error %v, want an InputError for %s[%d]", err, field, index)
	}
}
