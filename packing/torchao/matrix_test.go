package torchao

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/lowbit-go/gq/packing"
)

// matrix is a quantized matrix, row-major, of rows x K weights with G groups a row.
type matrix struct {
	Codes  []int8    // rows x K, each in -2^(bits-1) .. 2^(bits-1)-1
	Scales []float32 // rows x G; nil for an embedding, whose scales and zero points are companions
	Zeros  []int8    // rows x G where the layout stores zero points, else nil
	Bias   []float32 // rows; nil without packing.FlagBias
}

// pack packs a whole matrix into TorchAO's header and buffer for h.
func pack(t testing.TB, h packing.Header, m *matrix) []byte {
	t.Helper()
	p, err := New(h)
	if err != nil {
		t.Fatal(err)
	}
	data, panel, row, k, g := bytes.Clone(p.Prefix()), p.NewPanel(), 0, p.PackedCols(), p.Groups()
	for i := range p.Panels() {
		n := p.PanelRows(i)
		panel.Rows = n
		copy(panel.Codes, m.Codes[row*k:][:n*k]) // K is PackedCols in all three layouts
		if m.Scales != nil {
			copy(panel.Scales, m.Scales[row*g:][:n*g])
		}
		if m.Zeros != nil {
			copy(panel.Zeros, m.Zeros[row*g:][:n*g])
		}
		if m.Bias != nil {
			copy(panel.Bias, m.Bias[row:][:n])
		}
		data = append(data, make([]byte, p.PanelBytes())...)
		p.PackPanel(data[len(data)-p.PanelBytes():], panel)
		row += n
	}
	return data
}

// unpack inverts pack, for data that check accepts.
func unpack(p packing.Packer, data []byte) *matrix {
	panel, k, g := p.NewPanel(), p.PackedCols(), p.Groups()
	apart := p.Header().Layout == packing.LayoutTorchAOEmbedding
	m := &matrix{}
	for i := range p.Panels() {
		n := p.PanelRows(i)
		p.UnpackPanel(panel, data[headerSize+i*p.PanelBytes():][:p.PanelBytes()])
		m.Codes = append(m.Codes, panel.Codes[:n*k]...)
		if apart {
			continue
		}
		m.Scales = append(m.Scales, panel.Scales[:n*g]...)
		if panel.Zeros != nil {
			m.Zeros = append(m.Zeros, panel.Zeros[:n*g]...)
		}
		if panel.Bias != nil {
			m.Bias = append(m.Bias, panel.Bias[:n]...)
		}
	}
	return m
}

// check reports the first defect of data.
func check(p packing.Packer, data []byte) error {
	prefix, size := p.Prefix(), p.PanelBytes()
	if !bytes.HasPrefix(data, prefix) || len(data) != len(prefix)+p.Panels()*size {
		return fmt.Errorf("%d bytes that begin with %x", len(data), data[:min(len(data), headerSize)])
	}
	for i := range p.Panels() {
		if err := p.CheckPanel(i, data[len(prefix)+i*size:][:size]); err != nil {
			return err
		}
	}
	return nil
}

// randomMatrix makes weights for h; without scales and zero points for an embedding.
func randomMatrix(rng *rand.Rand, h packing.Header) *matrix {
	n, k, g := int(h.Rows), int(h.Cols), int(h.Groups())
	m := &matrix{Codes: randomCodes(rng, int(h.Bits), n*k)}
	if h.Flags&packing.FlagBias != 0 {
		m.Bias = make([]float32, n)
		for i := range m.Bias {
			m.Bias[i] = float32(rng.NormFloat64())
		}
	}
	if h.Layout == packing.LayoutTorchAOEmbedding {
		return m
	}
	m.Scales = randomScales(rng, h, n*g)
	if h.ZeroKind == packing.ZeroInt8 {
		m.Zeros = randomCodes(rng, 8, n*g)
	}
	return m
}

func randomScales(rng *rand.Rand, h packing.Header, n int) []float32 {
	scales := make([]float32, n)
	for i := range scales {
		scales[i] = h.ScaleDtype.Round(float32(math.Ldexp(1+rng.Float64(), rng.IntN(14)-12)))
		if h.Flags&packing.FlagPositiveScales == 0 && rng.IntN(2) == 0 {
			scales[i] = -scales[i]
		}
	}
	return scales
}

func randomCodes(rng *rand.Rand, bits, n int) []int8 {
	q := make([]int8, n)
	for i := range q {
		q[i] = int8(rng.IntN(1<<bits) - 1<<(bits-1))
	}
	return q
}

// testCompanions gives e random companions, and returns their scales.
func (e *Embedding) testCompanions(t testing.TB, seed uint64) (with *Embedding, scales []byte) {
	rng := rand.New(rand.NewPCG(seed, 9))
	zeros := make([]byte, e.Panels()*e.Groups())
	for _, s := range randomScales(rng, e.Header(), len(zeros)) {
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(s))
	}
	for i := range zeros {
		zeros[i] = byte(rng.Uint32())
	}
	with, err := e.WithCompanions(scales, zeros)
	if err != nil {
		t.Fatal(err)
	}
	return with, scales
}

// testTiles are the tiles of type 3.
var testTiles = []packing.Tile{{NR: 8, KR: 16, SR: 2}, {NR: 8, KR: 8, SR: 2}}
