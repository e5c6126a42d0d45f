package packing

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// qsi4c32pCase is an entry of the shared vectors' manifest, see shared/vectors/kleidiai/README.md.
// Package kleidiai tests the other entries.
type qsi4c32pCase struct {
	ID, Func   string
	N, K, BL   uint64
	NR, KR, SR uint8
	RHS, Scale *blobRange // nibbles (even k low) of q+8; BF16, both row-major
	Bias       *blobRange // float32, nil for none
	Packed     *blobRange
}

type blobRange struct{ Offset, Bytes int }

// in returns the range's bytes of blob, none for nil.
func (r *blobRange) in(blob []byte) []byte {
	if r == nil {
		return nil
	}
	return blob[r.Offset:][:r.Bytes]
}

// TestQSI4C32P compares 4-bit symmetric panels with BF16 scales with KleidiAI's packer, byte for
// byte, for the four tiles.
func TestQSI4C32P(t *testing.T) {
	var cases []qsi4c32pCase
	if err := json.Unmarshal(testshared.VectorsZst(t, "../testdata/vectors/kleidiai/pack.json.zst"), &cases); err != nil {
		t.Fatal(err)
	}
	blob := testshared.VectorsZst(t, "../testdata/vectors/kleidiai/rhs_pack.bin.zst")
	cases = slices.DeleteFunc(cases, func(c qsi4c32pCase) bool { return c.Func != "kai_run_rhs_pack_nxk_qsi4c32p_qsu4c32s1s0" })
	seen := map[Tile]int{}
	for _, c := range cases {
		tile := Tile{c.NR, c.KR, c.SR}
		seen[tile]++
		groups := []uint64{c.BL}
		if c.BL == c.K { // one group: the per-channel payload has the same bytes
			groups = append(groups, 0)
		}
		for _, group := range groups {
			t.Run(c.ID, func(t *testing.T) {
				h := Header{Layout: LayoutLowbit, Flags: FlagQSI4C32P, Bits: 4, ScaleDtype: ScaleBF16, Tile: tile, Rows: c.N, Cols: c.K, Group: group}
				if c.Bias != nil {
					h.Flags |= FlagBias
				}
				l, err := NewLowbit(h)
				if err != nil {
					t.Fatal(err)
				}
				if got := c.matrix(h, blob).pack(t, l); !slices.Equal(got, c.Packed.in(blob)) {
					t.Error("other bytes than KleidiAI's")
				}
			})
		}
	}
	if len(cases) != 47 || len(seen) != len(lowbitTiles) {
		t.Errorf("%d cases of %d tiles, want 47 of %d", len(cases), len(seen), len(lowbitTiles))
	}
}

func (c *qsi4c32pCase) matrix(h Header, blob []byte) *matrix {
	m := &matrix{h: h}
	for _, b := range c.RHS.in(blob) {
		m.codes = append(m.codes, int8(b&15)-8, int8(b>>4)-8)
	}
	scales := c.Scale.in(blob)
	for i := 0; i < len(scales); i += 2 {
		m.scales = append(m.scales, floats.BF16ToF32(binary.LittleEndian.Uint16(scales[i:])))
	}
	bias := c.Bias.in(blob)
	for i := 0; i < len(bias); i += 4 {
		m.bias = append(m.bias, math.Float32frombits(binary.LittleEndian.Uint32(bias[i:])))
	}
	return m
}
