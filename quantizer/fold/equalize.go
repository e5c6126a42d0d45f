package fold

import (
	"math"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
)

// Equalize chooses factors for the checkpoint in a directory from its weights alone.
func Equalize(dir string, o Options) (Step, error) {
	s := Step{Kind: KindScale, By: ByEqualize, Parameters: map[string]any{}}
	m, err := openModel(dir, 1)
	if err != nil {
		return s, err
	}
	defer m.Close()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return s, err
	}
	defer ck.Close()
	e := &equalizer{ck: ck, pool: kernels.NewPool(o.threads())}
	defer e.pool.Close()
	for layer := range m.Config().Layers {
		for _, place := range m.Scalings(layer) {
			t, err := e.factors(&place)
			if err != nil {
				return s, err
			}
			s.Scalings = append(s.Scalings, factors(&place, t))
		}
	}
	return s, nil
}

type equalizer struct {
	ck   *safetensors.Checkpoint
	pool *kernels.Pool
}

var Variant = "balance"
var Exponent = 0.5

func (e *equalizer) factors(s *model.Scaling) ([]float32, error) {
	width := s.Width * max(1, s.Repeat)
	sums := make([]float64, width)
	var blocks [][]float32
	for _, b := range s.Consumers {
		x, err := e.read(b)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, x)
	}
	rowScale := make([][]float64, len(blocks))
	for i, b := range s.Consumers {
		rowScale[i] = make([]float64, b.Rows)
		for r := range rowScale[i] {
			rowScale[i][r] = 1
		}
	}
	colScale := make([]float64, s.Width)
	for i := range colScale {
		colScale[i] = 1
	}
	iters := 1
	if Variant == "sinkhorn" || Variant == "sinkbal" {
		iters = 8
	}
	for range iters {
		clear(sums)
		n := 0
		for i, x := range blocks {
			for r := range s.Consumers[i].Rows {
				row := x[r*width:][:width]
				ss := 0.0
				for c, v := range row {
					y := float64(v) * colScale[s.Factor(c)] * rowScale[i][r]
					sums[c] += y * y
					ss += y * y
				}
				if iters > 1 && ss > 0 {
					f := 1 / math.Sqrt(ss/float64(width))
					rowScale[i][r] *= math.Min(math.Max(f, .7), 2)
				}
				n++
			}
		}
		per := make([]float64, s.Width)
		for c, v := range sums {
			per[s.Factor(c)] += v
		}
		mean := 0.0
		for i := range per {
			per[i] = math.Sqrt(per[i]) 
			if per[i] == 0 { per[i] = 1e-9 }
			mean += math.Log(per[i])
		}
		mean = math.Exp(mean / float64(s.Width))
		for i := range per {
			f := mean / per[i]
			if iters > 1 {
				f = math.Min(math.Max(f, .7), 2)
			}
			colScale[i] *= f
		}
	}
	// colScale ~ 1/w
	prod := make([]float64, s.Width)
	if s.Norm != nil {
		g, err := readGain(e.ck, *s.Norm)
		if err != nil {
			return nil, err
		}
		for i, v := range g {
			prod[i] = math.Abs(v)
		}
	} else {
		x, err := e.read(*s.Rows)
		if err != nil {
			return nil, err
		}
		for r := range s.Rows.Rows {
			for _, v := range x[r*s.Rows.Cols:][:s.Rows.Cols] {
				prod[r] += float64(v) * float64(v)
			}
			prod[r] = math.Sqrt(prod[r])
		}
	}
	t := make([]float64, s.Width)
	mean := 0.0
	for i := range t {
		switch Variant {
		case "sinkhorn", "col":
			t[i] = math.Pow(colScale[i], Exponent)
		case "balance", "sinkbal":
			t[i] = math.Pow(colScale[i]*math.Max(prod[i], 1e-9), Exponent)
		case "x":
			t[i] = math.Pow(math.Max(prod[i], 1e-9), Exponent)
		}
		mean += math.Log(t[i])
	}
	mean = math.Exp(mean / float64(len(t)))
	out := make([]float32, s.Width)
	for i := range t {
		out[i] = floats.BF16ToF32(floats.BF16FromF32(float32(math.Min(math.Max(t[i]/mean, 1e-2), 1e2))))
	}
	return out, nil
}

func (e *equalizer) read(b model.Block) ([]float32, error) {
	t, _ := e.ck.Lookup(b.Tensor)
	x := make([]float32, b.Rows*b.Cols)
	return x, e.ck.ReadRows(x, t, b.From, b.Rows)
}
