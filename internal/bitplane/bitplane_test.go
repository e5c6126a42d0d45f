package bitplane

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

var units = []int{128, 64, 32}

// bitpackCase is a case of TorchAO's bitpack.json.
type bitpackCase struct {
	Bits   int `json:"nbit"`
	Unit   int
	In     []int8
	Packed string  `json:"packed_hex"`
	Bitmap [][]int // byte*8+bit where stored bit j of code i lands
}

func bitpackCases(t testing.TB) map[[2]int]bitpackCase {
	var cases []bitpackCase
	if err := json.Unmarshal(testshared.VectorsZst(t, "../../testdata/vectors/torchao/bitpack.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	byUnit := map[[2]int]bitpackCase{}
	for _, c := range cases {
		byUnit[[2]int{c.Bits, c.Unit}] = c
	}
	if len(byUnit) != 24 {
		t.Fatalf("%d cases, want 8 bit widths of 3 units", len(byUnit))
	}
	return byUnit
}

// TestPackUnitTorchAO compares the bit planes with TorchAO's bytes, and the place of every bit of
// every code with TorchAO's bitmap.
func TestPackUnitTorchAO(t *testing.T) {
	for _, c := range bitpackCases(t) {
		t.Run(fmt.Sprintf("%d bits unit %d", c.Bits, c.Unit), func(t *testing.T) {
			dst := make([]byte, c.Unit*c.Bits/8)
			PackUnit(c.Bits, c.Unit, dst, c.In)
			if got := hex.EncodeToString(dst); got != c.Packed {
				t.Fatalf("packed\n%s, want\n%s", got, c.Packed)
			}
			back := make([]int8, c.Unit)
			if UnpackUnit(c.Bits, c.Unit, back, dst); !slices.Equal(back, c.In) {
				t.Errorf("unpacked %v, want %v", back, c.In)
			}
			for i, places := range c.Bitmap {
				for j, at := range places {
					checkBit(t, c.Bits, c.Unit, i, j, at)
				}
			}
		})
	}
}

// checkBit packs codes whose only set stored bit is bit j of code i, and wants exactly bit `at` of
// the packed bytes set.
func checkBit(t *testing.T, bits, unit, i, j, at int) {
	t.Helper()
	zero := storedToCode(bits, 0)
	in := slices.Repeat([]int8{zero}, unit)
	in[i] = storedToCode(bits, 1<<j)
	got := make([]byte, unit*bits/8)
	PackUnit(bits, unit, got, in)
	want := make([]byte, len(got))
	want[at/8] = 1 << (at % 8)
	if !slices.Equal(got, want) {
		t.Errorf("stored bit %d of code %d: packed %x, want %x", j, i, got, want)
	}
	back := make([]int8, unit)
	if UnpackUnit(bits, unit, back, want); !slices.Equal(back, in) {
		t.Errorf("stored bit %d of code %d: unpacked %v, want %v", j, i, back, in)
	}
}

// storedToCode returns the code that TorchAO stores as u.
func storedToCode(bits, u int) int8 {
	if bits == 8 {
		return int8(u)
	}
	return int8(u - 1<<(bits-1))
}

func TestPackUnitRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for bits := 1; bits <= 8; bits++ {
		for _, unit := range units {
			for range 50 {
				in, back := randomCodes(rng, bits, unit), make([]int8, unit)
				packed := make([]byte, unit*bits/8)
				PackUnit(bits, unit, packed, in)
				if UnpackUnit(bits, unit, back, packed); !slices.Equal(in, back) {
					t.Fatalf("%d bits unit %d: %v came back as %v", bits, unit, in, back)
				}
			}
		}
	}
}

func randomCodes(rng *rand.Rand, bits, n int) []int8 {
	q := make([]int8, n)
	for i := range q {
		q[i] = int8(rng.IntN(1<<bits) - 1<<(bits-1))
	}
	return q
}

func TestPackUnitPanics(t *testing.T) {
	for _, c := range []struct{ bits, unit, dst, src int }{
		{0, 128, 0, 128}, {9, 32, 36, 32}, {4, 16, 8, 16}, {4, 32, 15, 32}, {4, 32, 16, 31},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: no panic", c)
				}
			}()
			PackUnit(c.bits, c.unit, make([]byte, c.dst), make([]int8, c.src))
		}()
	}
}

// FuzzUnit tests that unpacking any bytes and packing them again gives the same bytes.
func FuzzUnit(f *testing.F) {
	for _, c := range bitpackCases(f) {
		packed, err := hex.DecodeString(c.Packed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(c.Bits, slices.Index(units, c.Unit), packed)
	}
	f.Fuzz(func(t *testing.T, bits, unit int, packed []byte) {
		if bits < 1 || bits > 8 || unit < 0 || unit > 2 {
			return
		}
		u := units[unit]
		if len(packed) != u*bits/8 {
			return
		}
		codes, again := make([]int8, u), make([]byte, len(packed))
		UnpackUnit(bits, u, codes, packed)
		for i, q := range codes {
			if int(q) < -1<<(bits-1) || int(q) >= 1<<(bits-1) {
				t.Fatalf("code %d is %d, out of %d bits", i, q, bits)
			}
		}
		if PackUnit(bits, u, again, codes); !slices.Equal(again, packed) {
			t.Fatalf("%x became %x", packed, again)
		}
	})
}

// TestColumn compares Column with UnpackUnit.
func TestColumn(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for bits := 1; bits <= 8; bits++ {
		unit, codes := make([]byte, 16*bits), make([]int8, 128)
		for i := range unit {
			unit[i] = byte(rng.Uint32())
		}
		UnpackUnit(bits, 128, codes, unit)
		for half := range 2 {
			var x [8]uint64
			Column(bits, &x, unit, half)
			for i, q := range codes {
				if i%16/8 != half {
					continue
				}
				want := uint8(q)
				if bits < 8 {
					want += 1 << (bits - 1)
				}
				if got := uint8(x[i/16] >> (8 * (i % 8))); got != want {
					t.Fatalf("%d bits: code %d is stored as %d, want %d", bits, i, got, want)
				}
			}
		}
	}
}
