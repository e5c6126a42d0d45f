package tune

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// states are the values of tokens between two layers, in memory or in a file. A file belongs to a
// single process, so it has the machine's byte order.
type states struct {
	width  int
	starts []int     // of each sequence, in tokens, and the end
	memory []float32 // nil: in the file
	file   *scratch
	at     int64 // of the first byte in the file
}

// scratch is a temporary file; nil without a working directory.
type scratch struct {
	*os.File
	dir string
	end int64
}

// statesName is the name of the directory of the temporary file. No later job takes up the file.
const statesName = "tuned-states"

func openScratch(work *workdir.Dir) (*scratch, error) {
	if work == nil {
		return nil, nil
	}
	dir, err := work.Scratch(statesName)
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "states"))
	if err != nil {
		return nil, err
	}
	return &scratch{f, dir, 0}, nil
}

func (f *scratch) remove() {
	if f != nil {
		f.Close()
		_ = os.RemoveAll(f.dir) // else the next job does
	}
}

// newStates makes room for sequences of these lengths.
func newStates(f *scratch, width int, lengths []int) *states {
	s := &states{width: width, starts: []int{0}, file: f}
	n := 0
	for _, l := range lengths {
		n += l
		s.starts = append(s.starts, n)
	}
	if f == nil {
		s.memory = make([]float32, n*width)
		return s
	}
	s.at = f.end
	f.end += 4 * int64(n) * int64(width)
	return s
}

// add appends the values of sequences from .. to-1 to dst.
func (s *states) add(dst []float32, from, to int) ([]float32, error) {
	first, n := s.starts[from]*s.width, (s.starts[to]-s.starts[from])*s.width
	if s.memory != nil {
		return append(dst, s.memory[first:][:n]...), nil
	}
	have := len(dst)
	if cap(dst) < have+n {
		dst = append(make([]float32, 0, have+n), dst...)
	}
	dst = dst[:have+n]
	if _, err := s.file.ReadAt(buffer.Bytes(dst[have:]), s.at+4*int64(first)); err != nil {
		return nil, s.failed("read", err)
	}
	return dst, nil
}

// set replaces the values of sequences from sequence first on.
func (s *states) set(first int, values []float32) error {
	at := s.starts[first] * s.width
	if s.memory != nil {
		copy(s.memory[at:], values)
		return nil
	}
	if _, err := s.file.WriteAt(buffer.Bytes(values), s.at+4*int64(at)); err != nil {
		return s.failed("write", err)
	}
	return nil
}

func (s *states) failed(what string, err error) error {
	return fmt.Errorf("tuning: cannot %s hidden states, which take %.1f MB of disk: make room, or tune on a shorter text (--tune-tokens): %w",
		what, float64(s.file.end)/1e6, err)
}

// together is the end of the sequences from first on that have at most limit tokens together.
func (s *states) together(first, limit int) int {
	last := first + 1
	for last < len(s.starts)-1 && s.starts[last+1]-s.starts[first] <= limit {
		last++
	}
	return last
}

// openStates looks up the tokens of all sequences in a model's embedding.
func (b *blocks) openStates(m *forward.Model, sequences [][]int32) (*states, error) {
	lengths := make([]int, len(sequences))
	for i, s := range sequences {
		lengths[i] = len(s)
	}
	s := newStates(b.scratch, m.Width(), lengths)
	for first, last := 0, 0; first < len(sequences); first = last {
		if err := b.ctx.Err(); err != nil {
			return nil, err
		}
		last = s.together(first, b.longest)
		stream, err := m.NewStream(sequences[first:last])
		if err != nil {
			return nil, err
		}
		b.x = b.x[:0]
		for seq := range stream.Len() {
			b.x = append(b.x, stream.Rows(seq)...)
		}
		if err := s.set(first, b.x); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// advance moves states through a layer.
func (b *blocks) advance(tape *forward.Tape, s *states, layer int) (err error) {
	for first, last := 0, 0; first < len(s.starts)-1; first = last {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		last = s.together(first, b.longest)
		b.in.Lengths = b.in.Lengths[:0]
		for seq := first; seq < last; seq++ {
			b.in.Lengths = append(b.in.Lengths, s.starts[seq+1]-s.starts[seq])
		}
		if b.x, err = s.add(b.x[:0], first, last); err != nil {
			return err
		}
		b.in.X = b.x
		out := buffer.Grow(&b.out, len(b.x))
		if err := tape.LayerForward(layer, &b.in, out); err != nil {
			return err
		}
		if err := s.set(first, out); err != nil {
			return err
		}
	}
	return nil
}

// logitsBytes bounds a model's logits while divergences are computed.
const logitsBytes = 32 << 20

// divergences are the mean divergences of held-out text before and after training, from the states
// behind the last layer.
func (b *blocks) divergences() (before, after float64, err error) {
	vocab, width := b.student.VocabSize(), b.student.Width()
	chunk := max(1, min(logitsBytes/4/vocab, b.longest))
	p := buffer.Grow(&b.tapes.divergence, 2*b.pool.Threads()*vocab)
	var logits [3][]float32
	values := make([][2]float64, chunk)
	scored := 0
	for i, w := range b.text.HeldOut {
		if err := b.ctx.Err(); err != nil {
			return 0, 0, err
		}
		var rows [3][]float32
		for k, s := range []*states{b.float, b.untuned, b.quant} {
			seq := i
			if s != b.untuned {
				seq += b.trains
			}
			if rows[k], err = s.add(nil, seq, seq+1); err != nil {
				return 0, 0, err
			}
		}
		for at := w.First - 1; at < len(w.Tokens)-1; at += chunk {
			n := min(chunk, len(w.Tokens)-1-at)
			for k, tape := range []*forward.Tape{b.teaching, b.tape, b.tape} {
				if err := tape.LogitsOf(rows[k][at*width:], n, buffer.Grow(&logits[k], n*vocab)); err != nil {
					return 0, 0, err
				}
			}
			b.pool.Run(n, func(worker, row int) {
				own := p[2*worker*vocab:][:2*vocab]
				for k := range values[row] {
					values[row][k] = divergence(logits[k+1][row*vocab:][:vocab], logits[0][row*vocab:][:vocab], own[:vocab], own[vocab:])
				}
			})
			for _, v := range values[:n] {
				before, after = before+v[0], after+v[1]
			}
			scored += n
		}
	}
	return before / float64(scored), after / float64(scored), nil
}
