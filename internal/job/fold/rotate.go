package fold

import (
	"context"
	"fmt"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/orthogonal"
)

// Rotate is the step that rotates the hidden states and the heads of values. The matrices follow
// from the seed and the model's shape.
func Rotate(seed uint64) Step { return Step{Kind: KindRotate, Seed: &seed} }

func openModel(dir string, threads int) (*forward.Model, error) {
	return forward.OpenCheckpoint(dir, forward.Options{Threads: threads, Log: quiet})
}

// rotation is an orthogonal n x n matrix R. turn computes x R for the row vector x; scratch has the
// length of x.
type rotation struct {
	n    int
	turn func(x, scratch []float64)
}

type rotations struct {
	hidden func(width int) *rotation      // of the hidden states
	values func(dim, layer int) *rotation // of the heads of values; nil: these stay
}

func seeded(seed uint64) rotations {
	return rotations{
		hidden: func(width int) *rotation { return &rotation{width, orthogonal.New(width, seed, 0).Turn} },
		values: func(dim, layer int) *rotation { return &rotation{dim, orthogonal.New(dim, seed, uint64(layer)+1).Turn} },
	}
}

// Turn rotates the hidden states of the checkpoint in the directory src by an orthogonal matrix R,
// and writes the checkpoint to dst. turn computes x R for the row vector x; scratch has the length
// of x.
func Turn(ctx context.Context, src, dst string, turn func(x, scratch []float64), o Options) error {
	return change(ctx, src, dst, func(ck *source) (*edits, error) {
		return rotateEdits(ck, rotations{hidden: func(width int) *rotation { return &rotation{width, turn} }})
	}, o)
}

func rotateEdits(ck *source, by rotations) (*edits, error) {
	m, err := openModel(ck.Dir(), 1)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	res, err := m.Residual()
	if err != nil {
		return nil, fmt.Errorf("%w; --fold equalize and --algorithm awq are possible", err)
	}
	e := newEdits()
	r1 := by.hidden(res.Width)
	gains := map[string][]float64{}
	for _, r := range res.Reads {
		g := gains[r.Norm.Tensor]
		if g == nil {
			if g, err = readGain(ck, r.Norm); err != nil {
				return nil, err
			}
			gains[r.Norm.Tensor] = g
			e.vector(r.Norm.Tensor, res.Width, one(r.Norm.PlusOne))
		}
		ed := e.matrix(r.Tensor)
		ed.cols, ed.in = append(ed.cols, colFactors{r.From, r.From + r.Rows, g}), r1
	}
	for _, b := range res.Writes {
		e.matrix(b.Tensor).outs = append(e.matrix(b.Tensor).outs, turned{b.From, r1})
		if b.Bias != "" {
			e.vector(b.Bias, b.From+b.Rows, turnVector(b.From, b.Rows, r1))
		}
	}
	if by.values != nil {
		e.rotateValues(res, by.values)
	}
	return e, e.rotateEnds(ck, res, r1)
}

func (e *edits) rotateValues(res *forward.Residual, values func(dim, layer int) *rotation) {
	for i, v := range res.Values {
		r2 := values(res.HeadDim, i)
		ed := e.matrix(v.Tensor)
		for at := v.From; at < v.From+v.Rows; at += r2.n {
			ed.outs = append(ed.outs, turned{at, r2})
		}
		if v.Bias != "" {
			e.vector(v.Bias, v.From+v.Rows, turnVector(v.From, v.Rows, r2))
		}
		e.matrix(res.Outputs[i].Tensor).in = r2
	}
}

// rotateEnds rotates the embedding and lm_head. A tied lm_head stays tied if all gains of the norm
// before lm_head are equal; otherwise the gains go into lm_head.
func (e *edits) rotateEnds(ck *source, res *forward.Residual, r1 *rotation) error {
	e.matrix(res.Embedding).in = r1
	g, err := readGain(ck, res.Final)
	if err != nil {
		return err
	}
	constant := true
	for _, v := range g {
		constant = constant && v == g[0]
	}
	if constant && res.Tied {
		return nil
	}
	head := e.matrix(res.Head)
	head.in = r1
	if constant {
		return nil
	}
	head.cols = []colFactors{{0, res.Vocab, g}}
	e.vector(res.Final.Tensor, res.Width, one(res.Final.PlusOne))
	e.untied = true
	if res.Tied {
		e.added[res.Head] = res.Embedding
	}
	return nil
}

// one sets the weights of a norm so that all gains are 1.
func one(plusOne bool) func(v []float64) {
	return func(v []float64) {
		for i := range v {
			v[i] = 1
			if plusOne {
				v[i] = 0
			}
		}
	}
}

func readGain(ck *source, n forward.Norm) ([]float64, error) {
	t, ok := ck.Lookup(n.Tensor)
	if !ok {
		return nil, &MismatchError{ck.Dir(), fmt.Sprintf("tensor %q is missing", n.Tensor)}
	}
	v := make([]float32, n.Width)
	rows, _ := t.Matrix()
	if err := ck.ReadRows(v, t, 0, int(rows)); err != nil {
		return nil, err
	}
	g := make([]float64, n.Width)
	for i, x := range v {
		if n.PlusOne {
			x++ // in float32, as the model does
		}
		g[i] = float64(x)
	}
	return g, nil
}
