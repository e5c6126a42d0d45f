package packing

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/testshared"
)

// qsi4c32pCase is a run of KleidiAI's kai_run_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0:
// the cases of the shared vectors' manifest with that function, the blobs'
// bytes in place.
type qsi4c32pCase struct {
	ID         string
	N, K, BL   uint64
	NR, KR, SR uint8
	RHS, Scale string // nibbles (even k low) of q+8; BF16, both row-major
	Bias       string // float32, "" for none
	Packed     string
}

// TestQSI4C32P holds 4-bit symmetric panels with BF16 scales to KleidiAI's
// packer, byte for byte, for the four tiles.
func TestQSI4C32P(t *testing.T) {
	var cases []qsi4c32pCase
	if err := json.Unmarshal(testshared.VectorsZst(t, "../testdata/vectors/kleidiai/qsi4c32p.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	seen := map[Tile]int{}
	for _, c := range cases {
		tile := Tile{c.NR, c.KR, c.SR}
		seen[tile]++
		groups := []uint64{c.BL}
		if c.BL == c.K { // one group: per channel is the same bytes
			groups = append(groups, 0)
		}
		for _, group := range groups {
			t.Run(c.ID, func(t *testing.T) {
				h := Header{Layout: LayoutLowbit, Flags: FlagQSI4C32P, Bits: 4, ScaleDtype: ScaleBF16, Tile: tile, Rows: c.N, Cols: c.K, Group: group}
				if c.Bias != "" {
					h.Flags |= FlagBias
				}
				l, err := NewLowbit(h)
				if err != nil {
					t.Fatal(err)
				}
				if got := c.matrix(t, h).pack(t, l); !slices.Equal(got, unhex(t, c.Packed)) {
					t.Error("other bytes than KleidiAI's")
				}
			})
		}
	}
	if len(cases) != 47 || len(seen) != len(LowbitTiles) {
		t.Errorf("%d cases of %d tiles, want 47 of %d", len(cases), len(seen), len(LowbitTiles))
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (c *qsi4c32pCase) matrix(t *testing.T, h Header) *matrix {
	m := &matrix{h: h}
	for _, b := range unhex(t, c.RHS) {
		m.codes = append(m.codes, int8(b&15)-8, int8(b>>4)-8)
	}
	scales := unhex(t, c.Scale)
	for i := 0; i < len(scales); i += 2 {
		m.scales = append(m.scales, floats.BF16ToF32(binary.LittleEndian.Uint16(scales[i:])))
	}
	bias := unhex(t, c.Bias)
	for i := 0; i < len(bias); i += 4 {
		m.bias = append(m.bias, math.Float32frombits(binary.LittleEndian.Uint32(bias[i:])))
	}
	return m
}
