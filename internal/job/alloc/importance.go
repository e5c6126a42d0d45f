package alloc

import (
	"context"
	"math"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
)

// importance predicts the divergence of a linear layer's rounding errors e:
//
//	0.5 sum of rows[i] cols[k] e[i][k]^2, over rows i and columns k
//
// in nats, summed over the tokens. rows[i] is the sum over tokens of the squared gradient of output
// i, and cols[k] the mean square of input k with each token weighted by its squared gradients.
//
// For the rows of an embedding that tokens look up, rows[i] is the sum over the tokens i of their
// squared gradients, and cols[k] the share of column k in all squared gradients. A tied embedding
// has both importances.
type importance struct {
	rows, cols []float64
	// coarse[k], for GGUF files, is how much greater the mean square error of input k is in
	// llama.cpp's activations for types with blocks of 256 (int8 in blocks of 256) than in
	// activations for other types (int8 in blocks of 32). Tokens are weighted as for cols.
	coarse []float64
}

type importances struct {
	linears   map[string]*importance // without linear layers that no token reaches
	embedding *importance            // of the rows that tokens look up
}

// columns returns weights of columns, with mean 1, for searches of linear layers with the same
// inputs: the cols of their importances. nil: no token reaches the layers.
func (im *importances) columns(linears []string) []float32 {
	var sums []float64
	total := 0.0
	for _, name := range linears {
		i := im.linears[name]
		if i == nil {
			continue
		}
		if sums == nil {
			sums = make([]float64, len(i.cols))
		}
		for k, v := range i.cols {
			sums[k] += v
			total += v
		}
	}
	if !(total > 0) {
		return nil
	}
	list := make([]float32, len(sums))
	for k, v := range sums {
		list[k] = float32(max(v/total*float64(len(sums)), leastColumn))
	}
	return list
}

// leastColumn is the least weight of a column, of 1 on average: a column without activations in the
// text is not arbitrary.
const leastColumn = 1e-6

// batchTokens bounds the tokens that pass backward together, unless a single sequence is longer.
const batchTokens = 1024

// Bytes is the memory that a Job takes for gradients, with sequences of up to so many tokens.
func Bytes(m *forward.Model, threads, longest int) (int64, error) {
	tape, err := m.NewTape(forward.TapeOptions{MaxTokens: max(batchTokens, longest), MaxLength: longest})
	if err != nil {
		return 0, err
	}
	n := tape.Bytes() + 8*int64(threads)*int64(m.VocabSize()) + 8*int64(m.VocabSize()+m.Config().HiddenSize)
	for _, name := range m.Linears() {
		l := m.Linear(name)
		n += 8 * int64(l.Rows()+2*l.Cols())
	}
	return n, nil
}

// gradients finds the importances in a single pass forward and backward.
type gradients struct {
	importances
	model  *forward.Model
	pool   *kernels.Pool
	weight map[*importance]float64 // sum of squared gradients
	tokens []float64               // squared gradients of each token's outputs, or looked-up row
	rows   [][]float64             // by goroutine: roots of probabilities
}

func (j *Job) importances(ctx context.Context) (*importances, error) {
	sequences := j.Reference.Sequences()
	batches := batchesOf(sequences)
	tape, err := j.Model.NewTape(tapeOptions(sequences))
	if err != nil {
		return nil, err
	}
	pool := kernels.NewPool(cpu.Threads(j.Options.Threads))
	defer pool.Close()
	g := &gradients{model: j.Model, pool: pool, weight: map[*importance]float64{}, rows: make([][]float64, pool.Threads())}
	g.linears = map[string]*importance{}
	g.embedding = &importance{rows: make([]float64, j.Model.VocabSize()), cols: make([]float64, j.Model.Config().HiddenSize)}
	first := 0
	for _, batch := range batches {
		if err := tape.Forward(batch, nil); err != nil {
			return nil, err
		}
		err := tape.Backward(func(sequence, from, n int, logits []float32) error {
			vocab := j.Model.VocabSize()
			pool.Run(n, func(worker, row int) {
				root := buffer.Grow(&g.rows[worker], vocab)
				sampleRow(logits[row*vocab:][:vocab], root, detmath.Source(uint64(first+sequence)<<32|uint64(from+row)))
			})
			return nil
		}, &forward.Gradients{Linear: func(l *forward.LinearGradient) error {
			i := g.linears[l.Name]
			if i == nil {
				i = &importance{rows: make([]float64, l.N), cols: make([]float64, l.K)}
				if j.Options.Recipe.ForGGUF() && l.K%coarseBlock == 0 {
					i.coarse = make([]float64, l.K)
				}
				g.linears[l.Name] = i
			}
			tokens := g.squaresOfTokens(i, l.DY, l.M)
			g.squares(i.rows, l.DY, nil)
			g.squares(i.cols, l.X, tokens)
			if i.coarse != nil {
				g.coarser(i.coarse, l.X, tokens)
			}
			return ctx.Err()
		}, Embedding: func(sequence int, gradient []float32) error {
			ids := batch[sequence]
			for m, w := range g.squaresOfTokens(g.embedding, gradient, len(ids)) {
				g.embedding.rows[ids[m]] += w
			}
			g.squares(g.embedding.cols, gradient, nil)
			return nil
		}})
		if err != nil {
			return nil, err
		}
		first += len(batch)
		j.progress(len(batch))
	}
	for i, w := range g.weight {
		if w > 0 {
			for k := range i.cols {
				i.cols[k] /= w
			}
			for k := range i.coarse {
				i.coarse[k] /= w
			}
		}
	}
	return &g.importances, nil
}

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

func tapeOptions(sequences [][]int32) (o forward.TapeOptions) {
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

func sampleRow(logits []float32, root []float64, random detmath.Source) {
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

// squaresOfTokens sums the squares of each row of x, [tokens][...], and adds the sums to the weight
// of an importance. The sums are valid until the next call.
func (g *gradients) squaresOfTokens(i *importance, x []float32, tokens int) []float64 {
	list, n := buffer.Grow(&g.tokens, tokens), len(x)/tokens
	g.pool.Run(tokens, func(_, m int) {
		list[m] = 0
		for _, v := range x[m*n:][:n] {
			list[m] += float64(float64(v) * float64(v))
		}
	})
	for _, w := range list {
		g.weight[i] += w
	}
	return list
}

// squares adds the squares of each column of x, [tokens][len(sums)], times the token's weight
// (default: 1). Goroutines divide the columns, not the tokens.
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

// coarseBlock is the number of activations with a common scale for types with blocks of 256, and
// fineBlock for other types.
const coarseBlock, fineBlock = 256, 32

// coarser adds to sums, an element for each column of x, [tokens][len(sums)], by how much mean
// square errors of int8 in blocks of coarseBlock exceed errors in blocks of fineBlock, times the
// token's weight. A block with the largest magnitude v has steps of v/127, and errors with the mean
// square step^2/12.
func (g *gradients) coarser(sums []float64, x []float32, weights []float64) {
	n := len(sums)
	largest := func(x []float32) (square float64) {
		for _, v := range x {
			square = max(square, float64(float64(v)*float64(v)))
		}
		return square
	}
	g.pool.Run(n/coarseBlock, func(_, part int) {
		sums := sums[part*coarseBlock:][:coarseBlock]
		for m, w := range weights {
			block := x[m*n+part*coarseBlock:][:coarseBlock]
			most := largest(block)
			for at := 0; at < coarseBlock; at += fineBlock {
				more := float64((most - largest(block[at:][:fineBlock])) * w / (12 * 127 * 127))
				for k := range fineBlock {
					sums[at+k] += more
				}
			}
		}
	})
}
