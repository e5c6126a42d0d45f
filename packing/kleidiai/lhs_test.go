package kleidiai

import (
	"errors"
	"math"
	"testing"
)

func TestLHSRefuses(t *testing.T) {
	good := LHSConfig{Kind: QSI8D32P, M: 3, K: 64, BL: 32, MR: 4, KR: 16, SR: 2}
	for _, c := range []struct {
		edit func(c *LHSConfig)
		msg  string
	}{
		{func(c *LHSConfig) { c.Kind = 0 }, "kleidiai: unknown(0): no such kind"},
		{func(c *LHSConfig) { c.MR = 0 }, "kleidiai: qsi8d32p: 3 x 64 activations, mr 0, kr 16, sr 2: all must be above 0"},
		{func(c *LHSConfig) { c.KR = 12 }, "kleidiai: qsi8d32p: kr 12 / sr 2: want a divisor of 32"},
		{func(c *LHSConfig) { c.M = math.MaxInt }, ""},
		{func(c *LHSConfig) { c.BL = 48 }, "kleidiai: qsi8d32p: bl is 48, want a multiple of 32 that divides the 64 columns"},
		{func(c *LHSConfig) { c.Kind = QAI8DXP }, "kleidiai: qai8dxp: bl is 32: there is one scale per row"},
	} {
		config := good
		c.edit(&config)
		if _, err := NewLHS(config); err == nil || c.msg != "" && err.Error() != c.msg {
			t.Errorf("error %v\nwant  %s", err, c.msg)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, kind := range []LHSKind{QAI8DXP, QSI8D32P, QSI8D32P4X8SB, QSI8D32PNeon, QSI8D32PScaleF32} {
		config := good
		config.Kind, config.SR = kind, 4
		column := 32
		if kind == QAI8DXP {
			config.BL, column = 0, 0
		}
		l, err := NewLHS(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []float32{nan, inf, 1e-44} {
			x := make([]float32, 3*64)
			x[2*64+40] = bad
			var got *ActivationError
			if err := l.Pack(make([]byte, l.PackedSize()), x); !errors.As(err, &got) || got.Row != 2 || got.Column != column {
				// The smallest numbers are as good as 0 where the scale underflows.
				if bad == 1e-44 && err == nil && kind != QAI8DXP && kind != QSI8D32PScaleF32 {
					continue
				}
				t.Errorf("%s of %v: error %v", kind, bad, err)
			}
		}
	}
	l, err := NewLHS(good)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 3*64)
	x[0] = 1e7 // its scale is beyond F16
	if err := l.Pack(make([]byte, l.PackedSize()), x); err == nil || err.Error() != "activations: row 0, column 0: no finite scale" {
		t.Errorf("scale beyond F16: error %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("short: no panic")
		}
	}()
	_ = l.Pack(make([]byte, l.PackedSize()), x[1:])
}
