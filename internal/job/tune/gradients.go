package tune

import (
	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/quantizer"
)

type tapes struct {
	teacher, student *forward.Tape
	logits           []float32 // the teacher's
	rows             []float32 // of a gradient of weights
	divergence       []float64 // by goroutine: probabilities of teacher and student
}

var tapeOptions = forward.TapeOptions{MaxTokens: StepTokens}

// gradients adds the gradients of a batch's mean divergence. Experts are the teacher's choice.
func (j *job) gradients(batch [][]int32) error {
	t := &j.tapes
	if err := t.teacher.Forward(batch, nil); err != nil {
		return err
	}
	if err := t.student.Forward(batch, t.teacher.Routing()); err != nil {
		return err
	}
	tokens := 0
	for _, s := range batch {
		tokens += len(s)
	}
	g := &forward.Gradients{Linear: j.linearGradient, Norm: j.normGradient}
	if j.embedding != nil {
		g.Embedding = func(sequence int, gradient []float32) error {
			cols := j.embedding.Cols
			for i, id := range batch[sequence] {
				j.embedding.gradient(int(id), gradient[i*cols:][:cols])
			}
			return nil
		}
	}
	return t.student.Backward(func(sequence, from, n int, logits []float32) error {
		return j.loss(sequence, from, n, logits, 1/float64(tokens))
	}, g)
}

func (j *job) loss(sequence, from, n int, logits []float32, share float64) error {
	t, vocab := &j.tapes, j.student.VocabSize()
	want := buffer.Grow(&t.logits, n*vocab)
	if err := t.teacher.Logits(sequence, from, n, want); err != nil {
		return err
	}
	threads := j.pool.Threads()
	p := buffer.Grow(&t.divergence, 2*threads*vocab)
	j.pool.Run(n, func(worker, row int) {
		own := p[2*worker*vocab:][:2*vocab]
		klGradient(logits[row*vocab:][:vocab], want[row*vocab:][:vocab], share, own[:vocab], own[vocab:])
	})
	return nil
}

// linearGradient adds the gradient of a linear layer's weights to its parameters.
func (j *job) linearGradient(g *forward.LinearGradient) error {
	m := j.linears[g.Name]
	if m == nil {
		return nil
	}
	if j.Kind == quantizer.TuneNorms {
		factors := buffer.Grow(&j.tapes.rows, g.N)
		if err := g.Factors(factors); err != nil {
			return err
		}
		m.factorGradient(factors)
		return nil
	}
	step := gradientRows(g.N, g.K)
	for from := 0; from < g.N; from += step {
		n := min(step, g.N-from)
		dw := buffer.Grow(&j.tapes.rows, n*g.K)
		if err := g.Weights(dw, from, n); err != nil {
			return err
		}
		j.rows(n, max(1, 1<<13/g.K), func(a, b int) {
			for r := a; r < b; r++ {
				m.gradient(from+r, dw[r*g.K:][:g.K])
			}
		})
	}
	return nil
}

// gradientRows is the number of rows of a matrix's gradient that are computed together: at most 16
// MiB of gradients.
func gradientRows(rows, cols int) int { return min(rows, max(64, 4<<20/cols)) }

// gradientBytes is the memory of the gradients of weights.
func gradientBytes(p *fromcheckpoint.Plan, k quantizer.Tune) (n int64) {
	if k == quantizer.TuneNorms { // needs factors of rows alone
		return 0
	}
	for _, m := range p.Matrices() {
		n = max(n, 4*int64(gradientRows(m.Rows, m.Cols))*int64(m.Cols))
	}
	return n
}

func (j *job) normGradient(tensor string, gradient []float32) error {
	if g := j.gainsOf[tensor]; g != nil {
		for i, v := range gradient {
			g.add(i, v)
		}
	}
	return nil
}
