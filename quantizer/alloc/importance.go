package alloc

import (
	"context"
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
)

// importance predicts the divergence of a linear layer's rounding errors e:
//
//	0.5 sum of rows[i] cols[k] e[i][k]^2, over rows i and columns k
//
// in nats, summed over the tokens. rows[i] is the sum over tokens of the squared gradient of output
// i, and cols[k] the mean square of input k, in which each token counts by its squared gradients.
type importance struct {
	rows, cols []float64
}

// batchTokens bounds the tokens that pass backward together, unless one sequence is longer.
const batchTokens = 1024

// Bytes is the memory that a Job takes for gradients, with sequences of up to so many tokens.
func Bytes(m *model.Model, threads, longest int) (int64, error) {
	tape, err := m.NewTape(model.TapeOptions{MaxTokens: max(batchTokens, longest), MaxLength: longest})
	if err != nil {
		return 0, err
	}
	n := tape.Bytes() + 8*int64(threads)*int64(m.VocabSize())
	for _, name := range m.Linears() {
		l := m.Linear(name)
		n += 8 * int64(l.Rows()+l.Cols())
	}
	return n, nil
}

// gradients finds the importance of each linear layer that a token reaches, from one pass forward and
// backward.
type gradients struct {
	model   *model.Model
	pool    *kernels.Pool
	linears map[string]*importance
	weight  map[string]float64 // sum of squared gradients of the outputs
	tokens  []float64          // squared gradients of each token's outputs
	rows    [][]float64        // by goroutine: roots of probabilities
}

// importances runs the model forward and backward.
func (j *Job) importances(ctx context.Context) (map[string]*importance, error) {
	sequences := j.Reference.Sequences()
	batches := batchesOf(sequences)
	tape, err := j.Model.NewTape(tapeOptions(sequences))
	if err != nil {
		return nil, err
	}
	pool := kernels.NewPool(cpu.Threads(j.Options.Threads))
	defer pool.Close()
	g := &gradients{model: j.Model, pool: pool, linears: map[string]*importance{}, weight: map[string]float64{}, rows: make([][]float64, pool.Threads())}
	first := 0
	for _, batch := range batches {
		if err := tape.Forward(batch, nil); err != nil {
			return nil, err
		}
		err := tape.Backward(func(sequence, from, n int, logits []float32) error {
			g.sample(first+sequence, from, n, logits)
			return nil
		}, &model.Gradients{Linear: func(l *model.LinearGradient) error {
			g.add(l)
			return ctx.Err()
		}})
		if err != nil {
			return nil, err
		}
		first += len(batch)
		j.progress(len(batch))
	}
	for name, i := range g.linears {
		if w := g.weight[name]; w > 0 {
			for k := range i.cols {
				i.cols[k] /= w
			}
		}
	}
	return g.linears, nil
}

// batchesOf divides sequences into batches of up to batchTokens.
func batchesOf(sequences [][]int32) (list [][][]int32) {
	n := batchTokens
	for _, s := range sequences {
		if n+len(s) > batchTokens {
			list, n = append(list, nil), 0
		}
		last := len(list) - 1
		list[last], n = append(list[last], s), n+len(s)
	}
	return list
}

func tapeOptions(sequences [][]int32) (o model.TapeOptions) {
	for _, batch := range batchesOf(sequences) {
		n := 0
		for _, s := range batch {
			n += len(s)
			o.MaxLength = max(o.MaxLength, len(s))
		}
		o.MaxTokens = max(o.MaxTokens, n)
	}
	return o
}

// sample replaces the logits of n tokens by a random gradient v whose mean of v v^T is
// diag(p) - p p^T, where p are the probabilities: the second derivatives of the divergence by the
// logits. So the mean of 0.5 (v d)^2 is the divergence of a small change d of the logits. With signs
// r, which depend on sequence and position only, v = sqrt(p) r - p (sum of sqrt(p) r).
func (g *gradients) sample(sequence, from, n int, logits []float32) {
	vocab := g.model.VocabSize()
	g.pool.Run(n, func(worker, row int) {
		root := buffer.Grow(&g.rows[worker], vocab)
		sampleRow(logits[row*vocab:][:vocab], root, splitmix.Source(uint64(sequence)<<32|uint64(from+row)))
	})
}

func sampleRow(logits []float32, root []float64, random splitmix.Source) {
	top := logits[0]
	for _, v := range logits {
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range logits {
		root[i] = detmath.ExpNarrow(float64(v) - float64(top))
		sum += root[i]
	}
	total := 0.0
	signs := uint64(0)
	for i, e := range root {
		if i%64 == 0 {
			signs = random.Next()
		}
		root[i] = math.Sqrt(e / sum)
		if signs>>(i%64)&1 == 1 {
			root[i] = -root[i]
		}
		total += root[i]
	}
	for i, r := range root {
		logits[i] = float32(r - float64(float64(r*r)*total))
	}
}

// add adds the tokens of a gradient to the importance of its linear layer.
func (g *gradients) add(l *model.LinearGradient) {
	i := g.linears[l.Name]
	if i == nil {
		i = &importance{make([]float64, l.N), make([]float64, l.K)}
		g.linears[l.Name] = i
	}
	tokens := buffer.Grow(&g.tokens, l.M)
	g.pool.Run(l.M, func(_, m int) {
		tokens[m] = 0
		for _, v := range l.DY[m*l.N:][:l.N] {
			tokens[m] += float64(float64(v) * float64(v))
		}
	})
	for _, w := range tokens {
		g.weight[l.Name] += w
	}
	g.squares(i.rows, l.DY, nil)
	g.squares(i.cols, l.X, tokens)
}

// squares adds the squares of each column of x, [tokens][len(sums)], times the token's weight. nil:
// the weights are 1. Goroutines divide the columns, not the tokens.
func (g *gradients) squares(sums []float64, x []float32, weights []float64) {
	const columns = 256
	n := len(sums)
	g.pool.Run((n+columns-1)/columns, func(_, part int) {
		from := part * columns
		sums := sums[from:min(from+columns, n)]
		for m := range len(x) / n {
			w := 1.0
			if weights != nil {
				w = weights[m]
			}
			for k, v := range x[m*n+from:][:len(sums)] {
				square := float64(float64(v) * float64(v))
				sums[k] += float64(square * w)
			}
		}
	})
}
