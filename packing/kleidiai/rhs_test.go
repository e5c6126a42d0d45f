package kleidiai

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// rhsConfigs has a configuration of every kind, of which tests set N and K.
var rhsConfigs = []RHSConfig{
	{Kind: QSI4C32P, BL: 32, NR: 4, KR: 8, SR: 2},
	{Kind: QSI4C32P, BL: 64, NR: 8, KR: 16, SR: 2, Sums: SumBlocks},
	{Kind: QSI4C32PS1S0NRX4, BL: 32, NR: 16, KR: 8, SR: 2},
	{Kind: QSI4C32PScaleF16, BL: 64, NR: 4, KR: 16, SR: 2},
	{Kind: QSI4C32PScaleF16, BL: 32, NR: 5, KR: 16, SR: 1},
	{Kind: QSI4C32PS1S0ScaleF16, BL: 32, NR: 16, KR: 4, SR: 2},
	{Kind: QSI4C32PS4S0SF16, BL: 64, NR: 16, KR: 4, SR: 2},
	{Kind: QSI4CXP, NR: 8, KR: 8, SR: 2},
	{Kind: QSI4CXP, NR: 16, KR: 4, SR: 2},
	{Kind: QSI4CXPS1S0, NR: 16, KR: 4, SR: 1},
	{Kind: QSI4CXPS1S0, NR: 16, KR: 16, SR: 2},
	{Kind: QSI8CXP, NR: 4, KR: 8, SR: 1, LHSZeroPoint: -3},
	{Kind: QSI8CXP, NR: 16, KR: 4, SR: 1},
	{Kind: QAI4C32P, BL: 32, NR: 4, KR: 8, SR: 2},
	{Kind: QAI4C32PS1S0NRX4, BL: 64, NR: 16, KR: 8, SR: 2},
	{Kind: QSU2CXP4X4, NR: 4, KR: 4, SR: 1, LUT: &[4]int32{-3, -1, 1, 3}},
	{Kind: QSU2CXP4VLX4, NR: 16, KR: 4, SR: 1},
}

// randomWeights makes weights for r out of any numbers.
func randomWeights(rng *rand.Rand, r *RHS, pairs, bias bool) *Weights {
	f, n := r.f, r.c.N
	w := &Weights{RowPairs: pairs, Scales: make([]float32, n*f.groups)}
	rows := n
	if pairs {
		rows += n % 2
	}
	w.Codes = make([]int8, rows*r.c.K)
	half := 1 << (f.bits - 1)
	for i := range w.Codes {
		w.Codes[i] = int8(rng.IntN(2*half) - half)
	}
	for i := range w.Scales {
		// Rounded to F16 times 16, so that all kinds store it exactly.
		w.Scales[i] = 16 * packing.ScaleF16.Round(packing.ScaleBF16.Round(float32(math.Ldexp(rng.Float64()-0.5, rng.IntN(12)-6))))
	}
	if f.zero0 >= 0 {
		w.Zeros = make([]float32, n*f.groups)
		for i := range w.Zeros {
			w.Zeros[i] = rng.Float32()
		}
	}
	if bias {
		w.Bias = make([]float32, n)
		for i := range w.Bias {
			w.Bias[i] = rng.Float32()
		}
	}
	return w
}

// FuzzRHS holds that Unpack gives back what Pack packed, for every kind, and
// that the bytes are those of another Pack.
func FuzzRHS(f *testing.F) {
	for i := range rhsConfigs {
		f.Add(uint8(i), uint8(2*i+1), uint8(i%3), uint8(i), uint64(i))
	}
	f.Fuzz(func(t *testing.T, config, n, groups, options uint8, seed uint64) {
		c := rhsConfigs[int(config)%len(rhsConfigs)]
		c.N = int(n)%40 + 1
		c.K = (int(groups)%4 + 1) * max(c.BL, 32)
		if c.BL == 0 && options&4 != 0 && slices.Contains([]Kind{QSI4CXP, QSI4CXPS1S0, QSI8CXP}, c.Kind) {
			c.K -= int(seed % 31)
		}
		r, err := NewRHS(c)
		if err != nil {
			t.Fatal(err)
		}
		w := randomWeights(rand.New(rand.NewPCG(seed, 1)), r, options&1 != 0, options&2 != 0)
		packed := slices.Repeat([]byte{0x11}, r.PackedSize())
		r.Pack(packed, w)
		checkUnpack(t, r, packed, w)
		again := slices.Repeat([]byte{0x11}, r.PackedSize())
		back := r.Unpack(packed)
		if w.RowPairs { // whose padding only w says
			back.Codes, back.RowPairs = w.Codes, true
		}
		if r.Pack(again, back); !slices.Equal(packed, again) {
			t.Fatal("what was unpacked packs to other bytes")
		}
	})
}

func TestKinds(t *testing.T) {
	seen := map[Kind]bool{}
	for _, c := range rhsConfigs {
		seen[c.Kind] = true
		if strings.HasPrefix(c.Kind.String(), "unknown") {
			t.Errorf("kind %d has no name", c.Kind)
		}
	}
	if len(seen) != len(kindNames) || Kind(0).String() != "unknown(0)" || LHSKind(9).String() != "unknown(9)" || QAI8DXP.String() != "qai8dxp" {
		t.Errorf("%d kinds in the tests, %d exist", len(seen), len(kindNames))
	}
}

func TestNewRHSRefuses(t *testing.T) {
	good := RHSConfig{Kind: QSI4C32P, N: 5, K: 128, BL: 32, NR: 4, KR: 8, SR: 2}
	for _, c := range []struct {
		edit func(c *RHSConfig)
		msg  string
	}{
		{func(c *RHSConfig) { c.Kind = 0 }, "kleidiai: unknown(0): no such kind"},
		{func(c *RHSConfig) { c.N = 0 }, "kleidiai: qsi4c32p: 0 x 128 weights, bl 32, nr 4, kr 8, sr 2: all must be above 0"},
		{func(c *RHSConfig) { c.SR = -2 }, "kleidiai: qsi4c32p: 5 x 128 weights, bl 32, nr 4, kr 8, sr -2: all must be above 0"},
		{func(c *RHSConfig) { c.N = math.MaxInt }, fmt.Sprintf("kleidiai: qsi4c32p: %d x 128 weights, nr 4: more than this machine can address", math.MaxInt)},
		{func(c *RHSConfig) { c.KR = 9 }, "kleidiai: qsi4c32p: kr 9 is not a multiple of sr 2"},
		{func(c *RHSConfig) { c.KR = 64 }, "kleidiai: qsi4c32p: kr/sr is 32, want a divisor of 16"},
		{func(c *RHSConfig) { c.BL = 48 }, "kleidiai: qsi4c32p: bl is 48, want a multiple of 32 that divides the 128 columns"},
		{func(c *RHSConfig) { c.K = 100 }, "kleidiai: qsi4c32p: 100 columns, want a multiple of 32"},
		{func(c *RHSConfig) { c.NR = 16 }, `kleidiai: qsi4c32p: packed header: tile (byte 12): tile 16x8x2, want one of [4x8x2 4x16x2 8x8x2 8x16x2]`},
		{func(c *RHSConfig) { c.Kind = QSI4CXP }, "kleidiai: qsi4cxp: bl is 32: there is one scale per row"},
		{func(c *RHSConfig) { c.Kind = QSI4C32PS1S0NRX4; c.KR = 16 }, "kleidiai: qsi4c32ps1s0nrx4: kr/sr is 8, want 4"},
		{func(c *RHSConfig) { c.Kind = QSI4C32PS4S0SF16 }, "kleidiai: qsi4c32ps4s0sf16: kr 8, sr 2: want 4 and 2"},
		{func(c *RHSConfig) { c.Kind, c.BL, c.KR = QSI4CXPS1S0, 0, 12 }, "kleidiai: qsi4cxps1s0: kr is 12, want an even divisor of 32"},
		{func(c *RHSConfig) { c.Kind, c.BL, c.KR, c.SR = QSI8CXP, 0, 64, 1 }, "kleidiai: qsi8cxp: kr is 64, want a divisor of 32"},
		{func(c *RHSConfig) { c.Kind, c.BL, c.NR, c.KR, c.SR = QSU2CXP4X4, 0, 8, 4, 1 }, "kleidiai: qsu2cxp4x4: nr is 8, want 4"},
		{func(c *RHSConfig) { c.Kind, c.BL = QSU2CXP4VLX4, 0 }, "kleidiai: qsu2cxp4vlx4: kr 8, sr 2: want 4 and 1"},
	} {
		config := good
		c.edit(&config)
		if _, err := NewRHS(config); err == nil || err.Error() != c.msg {
			t.Errorf("error %v\nwant  %s", err, c.msg)
		}
	}
}

// TestSources reads small sources by hand.
func TestSources(t *testing.T) {
	for name, c := range map[string]struct{ got, want []int8 }{
		// Two rows of 3 columns, stride 3; the last nibble of a row is unused.
		"nxk":    {NibblesNxK([]byte{0x98, 0xf0, 0, 0x7f, 0x08}, 2, 3, 3, NibblesU4), []int8{0, 1, -8, 7, -1, 0}},
		"signed": {NibblesNxK([]byte{0x98, 0xf0}, 1, 3, 2, NibblesS4), []int8{-8, -7, 0}},
		"s0s1":   {NibblesNxK([]byte{0x98, 0xf0}, 1, 4, 2, NibblesU4S0S1), []int8{1, 0, 7, -8}},
		// Three columns of 3 rows: row 3 comes along.
		"kxn":      {NibblesKxN([]byte{0x98, 0xf0, 0x87, 0x8a, 0, 0xff}, 3, 3, 2, NibblesU4), []int8{0, -1, -8, 1, 0, -8, -8, 2, 7, 7, 0, 7}},
		"int8 kxn": {Int8KxN([]int8{1, 2, 99, 3, 4, 99, 5, 6}, 2, 3, 3), []int8{1, 3, 5, 2, 4, 6}},
		"quarters": {QuartersNxK([]byte{0b11100100}, 1, 4), []int8{-2, -1, 0, 1}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	codes, scales := Blocks16([]byte{0x00, 0x3c, 0x98, 0xf0, 0x00, 0xc0, 0x88, 0x88}, 1, 8, 4, 8)
	if !slices.Equal(codes, []int8{0, -8, 1, 7, 0, 0, 0, 0}) || !slices.Equal(scales, []float32{1, -2}) {
		t.Errorf("blocks: %v, %v", codes, scales)
	}
	r, err := NewRHS(RHSConfig{Kind: QSI4C32P, N: 5, K: 128, BL: 32, NR: 4, KR: 8, SR: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"short":      func() { NibblesNxK(make([]byte, 5), 2, 6, 3, NibblesU4) },
		"stride":     func() { NibblesKxN(make([]byte, 50), 6, 2, 2, NibblesU4) },
		"blocks":     func() { Blocks16(make([]byte, 50), 1, 33, 32, 50) },
		"2-bit rows": func() { QuartersNxK(make([]byte, 50), 1, 33) },
		"packed":     func() { r.Unpack(make([]byte, 5)) },
		"weights":    func() { r.Pack(make([]byte, r.PackedSize()), &Weights{}) },
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

// TestRowPairsPadding holds padding of an even number of rows, which no vector
// has: row 6 of 8 is even, so it repeats row 4, the low half of the last byte.
func TestRowPairsPadding(t *testing.T) {
	r, err := NewRHS(RHSConfig{Kind: QSI4CXP, N: 6, K: 32, NR: 8, KR: 16, SR: 2})
	if err != nil {
		t.Fatal(err)
	}
	w := randomWeights(rand.New(rand.NewPCG(1, 1)), r, true, true)
	packed := make([]byte, r.PackedSize())
	r.Pack(packed, w)
	codes := make([]byte, 32)
	for row, want := range []int{0, 1, 2, 3, 4, 5, 4, 5} {
		r.f.codes(codes, packed, row)
		if !slices.Equal(codes, codeBytes(w.Codes[32*want:][:32])) {
			t.Errorf("row %d has not the codes of row %d", row, want)
		}
		if at := r.f.scaleAt(row, 0); binary.LittleEndian.Uint32(packed[at:]) != math.Float32bits(w.Scales[min(row, 5)]/16) {
			t.Errorf("row %d has not the scale of row %d", row, min(row, 5))
		}
	}
}

func ExampleRHS() {
	// Two rows of 32 codes as KleidiAI's packer takes them, q + 8 in nibbles.
	src := slices.Repeat([]byte{0x97}, 2*16)
	r, err := NewRHS(RHSConfig{Kind: QSI4CXP, N: 2, K: 32, NR: 4, KR: 8, SR: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	w := &Weights{Codes: NibblesNxK(src, 2, 32, 16, NibblesU4), Scales: []float32{0.5, 2}}
	packed := make([]byte, r.PackedSize())
	r.Pack(packed, w)
	fmt.Println(len(packed), r.Unpack(packed).Codes[:4])
	// Output: 112 [-1 1 -1 1]
}
