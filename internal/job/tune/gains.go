package tune

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/packing"
)

// gains are the factors of a norm, stored in the checkpoint's dtype.
type gains struct {
	plan.Vector
	*factors
}

// dtypes of vectors, as dtypes of scales.
var vectorDtypes = map[packing.Dtype]packing.ScaleDtype{packing.F32: packing.ScaleF32, packing.F16: packing.ScaleF16, packing.BF16: packing.ScaleBF16}

func (j *job) openGains(rate float64) error {
	vectors := map[string]plan.Vector{}
	for _, v := range j.plan.Vectors() {
		vectors[v.Name] = v
	}
	j.gainsOf = map[string]*gains{}
	for _, n := range j.student.Norms() {
		v, ok := vectors[n.Tensor]
		if !ok || v.Size != n.Width {
			continue
		}
		stored, err := j.student.NormGains(n.Tensor)
		if err != nil {
			return err
		}
		minus := float32(0)
		if n.PlusOne {
			minus = 1
			for i := range stored {
				stored[i]++
			}
		}
		g := &gains{v, newFactors(stored, vectorDtypes[v.Dtype], 0, 1, rate)}
		g.minus = minus
		j.gains, j.gainsOf[n.Tensor] = append(j.gains, g), g
		j.all = append(j.all, g.by)
	}
	return nil
}

// setGains computes the gains from their parameters, for the student.
func (j *job) setGains() error {
	for _, g := range j.gains {
		g.refresh(0, len(g.value))
		if _, err := j.student.SetNorm(g.Name, g.stored()); err != nil {
			return err
		}
	}
	return nil
}

func (g *gains) stored() []float32 {
	list := make([]float32, len(g.value))
	for i, v := range g.value {
		list[i] = v - g.minus
	}
	return list
}

func (j *job) vectors() map[string][]byte {
	list := map[string][]byte{}
	for _, g := range j.gains {
		g.refresh(0, len(g.value))
		if slices.Equal(g.value, g.base) {
			continue
		}
		var b []byte
		for _, v := range g.stored() {
			switch g.Dtype {
			case packing.F32:
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			case packing.F16:
				b = binary.LittleEndian.AppendUint16(b, floats.F16FromF32(v))
			case packing.BF16:
				b = binary.LittleEndian.AppendUint16(b, floats.BF16FromF32(v))
			}
		}
		list[g.Name] = b
	}
	return list
}
