package eval

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// Reference is a float model's prediction of a text, for measuring several quantized versions of
// the model in turn. A Reference keeps the float model's hidden states, so that only layers behind
// a change are computed again. A Reference is not for concurrent use.
type Reference struct {
	float     *forward.Model
	windows   []text.Window
	sequences [][]int32 // tokens of the windows
	end       *forward.Stream
	// before has the hidden states before layer number layer.
	before *forward.Stream
	layer  int
	// stored are the float model's predictions at all scored positions. nil: there are too many to
	// keep, and each KL computes the predictions again.
	stored []prediction

	predictions [][2]prediction // by thread: the float model's and the other model's
	logits      [2][]float32
}

// ReferenceBytes bounds the predictions that a Reference keeps. Each position has a logit and its
// exponential per token of the vocabulary.
const ReferenceBytes = 384 << 20

// NewReference runs the float model on the windows. The model must stay open and unchanged as long
// as the Reference is used.
func NewReference(ctx context.Context, float *forward.Model, windows []text.Window) (*Reference, error) {
	r := &Reference{float: float, windows: windows}
	for _, w := range windows {
		r.sequences = append(r.sequences, w.Tokens)
	}
	var err error
	if r.end, err = r.stream(ctx, float); err != nil {
		return nil, err
	}
	if r.before, err = float.NewStream(r.sequences); err != nil {
		return nil, err
	}
	return r, r.store(ctx, ReferenceBytes)
}

// KLBytes is the memory that KL takes, with the Reference, for a text of this many tokens in
// windows of up to longest tokens.
func KLBytes(float *forward.Model, tokens, longest int) int64 {
	vocab := int64(float.VocabSize())
	hidden, keys, shared := float.StreamBytes(tokens, longest)
	n := 3*hidden + 2*(keys+shared) + 24*vocab*int64(runtime.GOMAXPROCS(0))
	buffers := int64(2)
	if stored := 12 * vocab * int64(tokens); stored <= ReferenceBytes {
		n, buffers = n+stored, 1
	}
	return n + 4*buffers*vocab*min(max(logitsBytes/4/vocab, 1), int64(longest))
}

func (r *Reference) Sequences() [][]int32 { return r.sequences }

// stream runs a model up to its lm_head.
func (r *Reference) stream(ctx context.Context, m *forward.Model) (*forward.Stream, error) {
	s, err := m.NewStream(r.sequences)
	if err != nil {
		return nil, err
	}
	return s, advance(ctx, s, 0, len(m.Config().Layers))
}

func advance(ctx context.Context, s *forward.Stream, from, to int) error {
	for layer := from; layer < to; layer++ {
		for block := range s.Blocks(layer) {
			for seq := range s.Len() {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := s.Advance(seq, layer, block); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// store stores the float model's predictions if these take at most this many bytes.
func (r *Reference) store(ctx context.Context, bytes int) error {
	if r.stored = nil; text.CountScored(r.windows) > bytes/12/r.float.VocabSize() {
		return nil
	}
	list := make([]prediction, 0, text.CountScored(r.windows))
	_, err := r.score(ctx, r.end, func(float, _ *prediction) float64 {
		own := *float
		own.logits, own.exp = slices.Clone(float.logits), slices.Clone(float.exp)
		list = append(list, own)
		return 0
	}, 1)
	if err == nil {
		r.stored = list
	}
	return err
}

// KL returns the mean divergence KL(float || m) over all scored tokens, in nats, of a quantized
// model m.
func (r *Reference) KL(ctx context.Context, m *forward.Model) (float64, error) {
	d, err := r.Divergences(ctx, m)
	if err != nil {
		return 0, err
	}
	return d.Mean, nil
}

// Divergences are the divergences of a model from the float model of a Reference.
type Divergences struct {
	Mean float64
	// Bound is a mean that other text of the kind exceeds in one case of twenty. It is Mean if the
	// text has a single cluster.
	Bound float64
	// Tokens are the divergences at all scored tokens.
	Tokens []float64
}

// boundErrors is the distance of a bound from a mean in standard errors: 95 % of normally
// distributed means are below.
const boundErrors = 1.645

// Divergences measures a quantized model as KL does.
func (r *Reference) Divergences(ctx context.Context, m *forward.Model) (d Divergences, err error) {
	s, err := r.stream(ctx, m)
	if err != nil {
		return d, err
	}
	if d.Tokens, err = r.score(ctx, s, divergence, runtime.GOMAXPROCS(0)); err != nil {
		return d, err
	}
	mean, stdErr := r.mean(d.Tokens)
	if d.Mean, d.Bound = mean, mean; stdErr.Known() {
		d.Bound += float64(boundErrors * float64(stdErr))
	}
	return d, nil
}

// mean returns the mean of a figure of all scored tokens, and its standard error.
func (r *Reference) mean(tokens []float64) (float64, StdErr) {
	return meanOf(tokens, clustersOf(r.windows, tokens).sizes(func(i int) int { return r.windows[i].Scored() }))
}

// Less reports whether a model with the divergences a at all scored tokens has less divergence than
// a model with b on other text like this text, in 19 cases of 20. difference is the mean of a - b,
// and stdErr its standard error.
func (r *Reference) Less(a, b []float64) (less bool, difference float64, stdErr StdErr) {
	differences := make([]float64, len(a))
	for i := range a {
		differences[i] = a[i] - b[i]
	}
	difference, stdErr = r.mean(differences)
	return difference+float64(boundErrors*float64(stdErr)) < 0, difference, stdErr
}

// KLFrom is KL for a model that differs from the float model only in weights from this layer on.
// The lm_head is the layer after the last. KLFrom is fastest if layer does not decrease from call
// to call.
//
// change, if not nil, is called before each of these layers runs, with its number, and may replace
// weights of this layer. undo is called when all sequences have passed the layer, and also after an
// error.
func (r *Reference) KLFrom(ctx context.Context, m *forward.Model, layer int, change func(layer int) (undo func(), err error)) (kl float64, err error) {
	if layer < r.layer {
		if r.before, err = r.float.NewStream(r.sequences); err != nil {
			return 0, err
		}
		r.layer = 0
	}
	if err := advance(ctx, r.before, r.layer, layer); err != nil {
		return 0, err
	}
	r.layer = layer
	s, err := m.NewStream(r.sequences)
	if err != nil {
		return 0, err
	}
	s.Take(r.before)
	layers := len(m.Config().Layers)
	for ; layer < layers; layer++ {
		err := changed(change, layer, func() error { return advance(ctx, s, layer, layer+1) })
		if err != nil {
			return 0, err
		}
	}
	err = changed(change, layers, func() error {
		values, err := r.score(ctx, s, divergence, runtime.GOMAXPROCS(0))
		kl, _ = meanOf(values, nil)
		return err
	})
	return kl, err
}

func changed(change func(layer int) (undo func(), err error), layer int, run func() error) error {
	if change == nil {
		return run()
	}
	undo, err := change(layer)
	defer undo()
	if err != nil {
		return err
	}
	return run()
}

// score returns fn of all scored positions, with this many threads. The other model's predictions
// come from the stream.
func (r *Reference) score(ctx context.Context, s *forward.Stream, fn func(float, other *prediction) float64, threads int) ([]float64, error) {
	vocab := r.float.VocabSize()
	chunk := min(max(logitsBytes/4/vocab, 1), longest(r.windows))
	for i := range r.logits {
		buffer.Grow(&r.logits[i], chunk*vocab)
	}
	if len(r.predictions) < threads {
		r.predictions = make([][2]prediction, threads)
	}
	list := make([]float64, text.CountScored(r.windows))
	n := 0
	for i, w := range r.windows {
		for at := w.First - 1; at < len(w.Tokens)-1; at += chunk {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			rows := min(chunk, len(w.Tokens)-1-at)
			if err := s.Logits(i, at, rows, r.logits[1]); err != nil {
				return nil, err
			}
			if r.stored == nil {
				if err := r.end.Logits(i, at, rows, r.logits[0]); err != nil {
					return nil, err
				}
			}
			for row, model := range r.each(list[n:][:rows], n, threads, fn) {
				if model >= 0 {
					return nil, &NonFiniteError{Model: model, Window: i, Position: at + row + 1}
				}
			}
			n += rows
		}
	}
	return list, nil
}

// each computes fn for the rows in the buffers, from position number n on. If the logits in row i
// contain NaN, bad[i] is the index of the model, else -1.
func (r *Reference) each(values []float64, n, threads int, fn func(float, other *prediction) float64) (bad []int) {
	bad = make([]int, len(values))
	vocab := r.float.VocabSize()
	var worker atomic.Int32
	// Without an error, as no row fails.
	_ = cpu.Parallel(context.Background(), threads, len(values), func() func(row int) error {
		own := &r.predictions[worker.Add(1)-1]
		return func(row int) error {
			float, other := &own[0], &own[1]
			other.set(r.logits[1][row*vocab:][:vocab])
			if r.stored != nil {
				float = &r.stored[n+row]
			} else {
				float.set(r.logits[0][row*vocab:][:vocab])
			}
			switch {
			case !float.finite:
				bad[row] = 0
			case !other.finite:
				bad[row] = 1
			default:
				bad[row], values[row] = -1, fn(float, other)
			}
			return nil
		}
	})
	return bad
}

func longest(windows []text.Window) (n int) {
	for _, w := range windows {
		n = max(n, len(w.Tokens))
	}
	return n
}

// SaveLogits writes the float model's predictions of the windows to w. h describes the model and
// the text; SaveLogits adds the vocabulary and the counts and returns the header. sizes are the
// sizes of the windows' texts, or nil. progress is called with the number of tokens scored since
// the last call.
func SaveLogits(ctx context.Context, w io.Writer, h logits.Header, float *forward.Model, windows []text.Window, sizes []text.Size, progress func(n int)) (*logits.Header, error) {
	list := make([]logits.Window, len(windows))
	for i, win := range windows {
		list[i] = logits.Window{Tokens: win.Tokens, First: win.First}
		if sizes != nil {
			list[i].Bytes, list[i].Words = sizes[i].Bytes, sizes[i].Words
		}
	}
	h.Vocab = float.VocabSize()
	out, err := logits.NewWriter(w, h, list)
	if err != nil {
		return nil, err
	}
	s := newScorer([]*forward.Model{float}, longest(windows))
	for i, win := range windows {
		err := s.predict(ctx, i, win, func(_, row int) error {
			if err := out.Add(s.logits[0][row*h.Vocab:][:h.Vocab]); err != nil {
				return fmt.Errorf("the model: %w", err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		progress(win.Scored())
	}
	return out.Header(), out.Close()
}

// Windows returns the windows of saved predictions and the sizes of their texts, or nil for unknown
// sizes.
func Windows(f *logits.File) (windows []text.Window, sizes []text.Size) {
	known := false
	for _, w := range f.Windows {
		windows = append(windows, text.Window{Tokens: w.Tokens, First: w.First})
		sizes = append(sizes, text.Size{Bytes: w.Bytes, Words: w.Words})
		known = known || w.Bytes > 0
	}
	if !known {
		sizes = nil
	}
	return windows, sizes
}
