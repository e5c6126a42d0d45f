package calib

import (
	"context"
	"slices"

	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
)

// Collect runs the float model of a plan's checkpoint on a text and adds the squares of the inputs
// of the linear layers that the plan quantizes. Layer by layer, Collect then chooses the rows that
// are rounded with the second moments, by outputs on a sample of the inputs, in memory for the
// sample of a block. Progress gets numbers of tokens.
func (im *Imatrix) Collect(ctx context.Context, p *fromcheckpoint.Plan, text *text.Text, o Options) error {
	m, err := forward.OpenCheckpoint(p.SourceDir(), forward.Options{Threads: o.Threads, Log: quiet})
	if err != nil {
		return err
	}
	defer m.Close()
	stream, err := m.NewStream(text.Sequences)
	if err != nil {
		return err
	}
	e := newEngine(o.Threads)
	defer e.close()
	c := &collector{im: im, matrices: map[string]plan.Matrix{}, sampler: newSampler(m, stream.Tokens()), chooser: chooser{ctx: ctx, e: e, plan: p}}
	for _, m := range p.Matrices() {
		c.matrices[m.Name()] = m
	}
	for layer := range len(m.Config().Layers) {
		for block := range stream.Blocks(layer) {
			for seq := range stream.Len() {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := stream.AdvanceVisit(seq, layer, block, c.add); err != nil {
					return err
				}
				c.sampler.start += len(text.Sequences[seq])
			}
			if err := c.finish(); err != nil {
				return err
			}
		}
		if o.Progress != nil {
			o.Progress(int64(stream.Tokens()))
		}
	}
	for seq := range stream.Len() {
		if err := stream.HeadInput(seq, c.add); err != nil {
			return err
		}
		c.sampler.start += len(text.Sequences[seq])
	}
	return c.finish()
}

type collector struct {
	im       *Imatrix
	matrices map[string]plan.Matrix
	sampler  *sampler
	chooser  chooser
	visited  []string // linear layers of the current block
}

// add adds the inputs of a linear layer for a sequence.
func (c *collector) add(in *forward.Input) {
	c.sampler.add(in)
	if _, ok := c.matrices[in.Name]; !ok {
		return
	}
	if !slices.Contains(c.visited, in.Name) {
		c.visited = append(c.visited, in.Name)
	}
	own := c.im.Linears[in.Name]
	if own == nil {
		own = &Moments{Sum: make([]float64, in.K)}
		c.im.Linears[in.Name] = own
	}
	own.Rows += int64(in.Rows)
	for r := range in.Rows {
		for i, v := range in.X[r*in.K:][:in.K] {
			own.Sum[i] += float64(float64(v) * float64(v))
		}
	}
}

// finish chooses the rows of the linear layers that all sequences have passed.
func (c *collector) finish() error {
	for _, name := range c.visited {
		if err := c.im.choose(&c.chooser, c.matrices[name], c.sampler.of(name)); err != nil {
			return err
		}
	}
	c.visited = c.visited[:0]
	c.sampler.begin()
	return nil
}

// sample holds the shared inputs of linear layers.
type sample struct {
	x    []float32 // [rows][k]
	rows int
}

type sampler struct {
	// first maps the name of each linear layer to the first layer that has the same inputs.
	first   map[string]string
	samples map[string]*sample // by first
	// every and everyExpert are the distances of sampled tokens: odd, to reach all places in windows.
	every, everyExpert int
	start              int // tokens of the sequences before the current sequence
}

func newSampler(m *forward.Model, tokens int) *sampler {
	s := &sampler{first: map[string]string{}, every: tokens/sampledTokens | 1, everyExpert: tokens/sampledByExperts | 1}
	for layer := range m.Config().Layers {
		for _, stage := range m.Stages(layer) {
			for _, g := range stage {
				for _, name := range g.Linears {
					s.first[name] = g.Linears[0]
				}
			}
		}
	}
	s.begin()
	return s
}

func (s *sampler) begin() { s.samples, s.start = map[string]*sample{}, 0 }

// source is the linear layer under which the sample of a linear layer's inputs is stored.
func (s *sampler) source(name string) string {
	if first, ok := s.first[name]; ok {
		return first
	}
	return name
}

// add samples the inputs of a linear layer for a sequence.
func (s *sampler) add(in *forward.Input) {
	if s.source(in.Name) != in.Name {
		return
	}
	own := s.samples[in.Name]
	if own == nil {
		own = &sample{}
		s.samples[in.Name] = own
	}
	every := s.every
	if in.Tokens != nil {
		every = s.everyExpert
	}
	for r := range in.Rows {
		token := r
		if in.Tokens != nil {
			token = in.Tokens[r]
		}
		if (s.start+token)%every == every/2 {
			own.x = append(own.x, in.X[r*in.K:][:in.K]...)
			own.rows++
		}
	}
}

// of returns the sample for a linear layer, or nil if there are too few activations.
func (s *sampler) of(name string) *sample {
	if own := s.samples[s.source(name)]; own != nil && own.rows >= leastSample {
		return own
	}
	return nil
}
