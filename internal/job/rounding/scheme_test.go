package rounding

import (
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func TestSchemeValidate(t *testing.T) {
	const (
		full, sym, noClip, asym = gqf.MappingFullRange, gqf.MappingSymmetric, gqf.MappingSymmetricNoClip, gqf.MappingAsymmetric
		bf16                    = packing.ScaleBF16
		half, rtn               = gqf.MappingHalfStep, gqf.AlgorithmRTN
	)
	tests := []struct {
		s       Scheme
		library []string // parts of Validate's error; nil: the scheme is valid
		command []string // parts of ValidateCommand's error; nil likewise
	}{
		{Scheme{4, 32, full, bf16, false, rtn, 0, false, false}, nil, nil},
		{Scheme{8, 0, asym, packing.ScaleF32, true, rtn, 0, false, false}, nil, nil},
		{Scheme{3, 48, noClip, packing.ScaleF16, false, rtn, 0, false, false}, nil, nil},
		{Scheme{1, 16, full, bf16, false, rtn, 0, false, false}, nil, nil},
		{Scheme{1, 16, asym, bf16, true, rtn, 0, false, false}, nil, nil},
		{Scheme{2, 16, full, bf16, true, rtn, 0, false, false}, nil, nil},
		{Scheme{1, 32, sym, bf16, false, rtn, 0, false, false}, nil, []string{"symmetric", "1 bit", "full-range", "asymmetric"}},
		{Scheme{1, 32, noClip, bf16, false, rtn, 0, false, false}, nil, []string{"symmetric-no-clip", "1 bit", "full-range", "asymmetric"}},
		{Scheme{1, 32, full, bf16, true, rtn, 0, false, false}, []string{"1-bit", "asymmetric"}, []string{"1-bit", "asymmetric"}},
		{Scheme{0, 32, full, bf16, false, rtn, 0, false, false}, []string{"0 bits", "1 to 8"}, []string{"1 to 8"}},
		{Scheme{9, 32, full, bf16, false, rtn, 0, false, false}, []string{"9 bits", "1 to 8"}, []string{"1 to 8"}},
		{Scheme{4, 24, full, bf16, false, rtn, 0, false, false}, []string{"group 24", "multiple of 16"}, []string{"multiple of 16"}},
		{Scheme{4, -16, full, bf16, false, rtn, 0, false, false}, []string{"group -16"}, []string{"group -16"}},
		{Scheme{4, 32, gqf.MappingNone, bf16, false, rtn, 0, false, false}, []string{"mapping none", "full-range"}, []string{"mapping none"}},
		{Scheme{4, 32, full, packing.ScaleNone, false, rtn, 0, false, false}, []string{"scale dtype none", "bf16"}, []string{"scale dtype"}},
		{Scheme{1, 32, half, bf16, false, rtn, 0, false, false}, nil, nil},
		{Scheme{2, 32, half, bf16, true, gqf.AlgorithmSearch, 0, false, false}, nil, nil},
		{Scheme{3, 32, half, bf16, false, rtn, 0, false, false}, []string{"half-step", "1 and 2 bits"}, []string{"half-step"}},
		{Scheme{4, 32, asym, bf16, false, gqf.AlgorithmHQQ, 0, false, false}, []string{"hqq", "search"}, []string{"hqq"}},
		{Scheme{4, 32, full, bf16, false, gqf.AlgorithmMSE, 0, false, false}, []string{"mse", "search"}, []string{"mse"}},
		{Scheme{4, 32, full, bf16, false, 200, 0, false, false}, []string{"algorithm 200: use search or rtn"}, []string{"algorithm"}},
		{Scheme{7, 32, asym, bf16, false, gqf.AlgorithmSearch, 0, true, false}, nil, nil},
		{Scheme{8, 32, asym, bf16, false, gqf.AlgorithmSearch, 0, true, false}, []string{"fractional", "1 to 7 bits"}, []string{"fractional"}},
		{Scheme{4, 32, full, bf16, false, gqf.AlgorithmSearch, 0, true, false}, []string{"fractional", "asymmetric"}, []string{"fractional"}},
		{Scheme{4, 32, full, 77, false, rtn, 0, false, false}, []string{"scale dtype", "bf16"}, []string{"scale dtype"}},
	}
	check := func(s Scheme, what string, err error, want []string) {
		switch {
		case want == nil && err != nil:
			t.Errorf("%s: %s: %v", s, what, err)
		case want != nil && err == nil:
			t.Errorf("%s: %s accepts it", s, what)
		case want != nil && !containsAll(err.Error(), want...):
			t.Errorf("%s: %s: %q does not have all of %q", s, what, err, want)
		}
	}
	for _, tt := range tests {
		check(tt.s, "Validate", tt.s.Validate(), tt.library)
		check(tt.s, "ValidateCommand", tt.s.ValidateCommand(), tt.command)
		if _, err := NewRowQuantizer(tt.s, 64); (err == nil) != (tt.library == nil) {
			t.Errorf("%s: NewRowQuantizer: %v", tt.s, err)
		}
		if _, err := NewRowQuantizer(tt.s, 0); err == nil {
			t.Errorf("%s: NewRowQuantizer accepts empty rows", tt.s)
		}
	}
}

func TestSchemeHeader(t *testing.T) {
	tests := []struct {
		s     Scheme
		cols  int64
		zero  packing.ZeroKind
		flags packing.Flags
		name  string
	}{
		{Scheme{4, 32, gqf.MappingFullRange, packing.ScaleBF16, false, gqf.AlgorithmRTN, 0, false, false}, 64,
			packing.ZeroNone, packing.FlagQSI4C32P, "4-bit group 32 full-range bf16"},
		{Scheme{4, 32, gqf.MappingFullRange, packing.ScaleBF16, true, gqf.AlgorithmRTN, 0, false, false}, 64,
			packing.ZeroNone, packing.FlagQSI4C32P | packing.FlagPositiveScales, "4-bit group 32 full-range bf16 positive-scales"},
		{Scheme{4, 32, gqf.MappingSymmetric, packing.ScaleBF16, false, gqf.AlgorithmRTN, 0, false, false}, 172,
			packing.ZeroNone, packing.FlagPositiveScales, "4-bit group 32 symmetric bf16"},
		{Scheme{4, 32, gqf.MappingAsymmetric, packing.ScaleBF16, false, gqf.AlgorithmRTN, 0, false, false}, 64,
			packing.ZeroInt8, packing.FlagPositiveScales, "4-bit group 32 asymmetric bf16"},
		{Scheme{3, 0, gqf.MappingFullRange, packing.ScaleF32, false, gqf.AlgorithmRTN, 0, false, false}, 172,
			packing.ZeroNone, 0, "3-bit per channel full-range f32"},
	}
	for _, tt := range tests {
		h := tt.s.Header(40, tt.cols, packing.DefaultTile)
		want := packing.Header{
			Layout: packing.LayoutLowbit, Flags: tt.flags, Bits: uint8(tt.s.Bits), Grid: packing.GridInteger,
			ScaleDtype: tt.s.ScaleDtype, ZeroKind: tt.zero, Tile: packing.DefaultTile,
			Rows: 40, Cols: uint64(tt.cols), Group: uint64(tt.s.Group),
		}
		if h != want {
			t.Errorf("%s: header %+v, want %+v", tt.s, h, want)
		}
		if err := h.Validate(); err != nil {
			t.Errorf("%s: %v", tt.s, err)
		}
		if got, want := tt.s.Groups(int(tt.cols)), int(h.Groups()); got != want {
			t.Errorf("%s: %d groups, the header has %d", tt.s, got, want)
		}
		if tt.s.String() != tt.name {
			t.Errorf("got %q, want %q", tt.s.String(), tt.name)
		}
	}
}

func TestSchemeGroups(t *testing.T) {
	for _, tt := range []struct{ group, k, want int }{
		{32, 64, 2}, {32, 65, 3}, {32, 172, 6}, {48, 48, 1}, {48, 32, 1}, {16, 1, 1}, {0, 172, 1},
	} {
		if got := (Scheme{Group: tt.group}).Groups(tt.k); got != tt.want {
			t.Errorf("%d weights in groups of %d: %d groups, want %d", tt.k, tt.group, got, tt.want)
		}
	}
}
