package calib

import (
	"context"
	"unsafe"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/job/fromcheckpoint"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/vec"
	"github.com/lowbit-go/gq/kernels"
)

// Effort is the work of Run. Passes and what follows are multiply-adds.
type Effort struct {
	Models  float64 // that read the text: 2 if codes follow the float model, else 1
	Inputs  float64 // numbers that linear layers with different inputs read
	Passes  float64 // of linear layers in forward passes
	Sums    float64 // of Hessians, and of the sums for the targets of gptq-ft
	Solves  float64 // of factors, targets, codes and errors
	Refines float64 // of a product of the matrices with their Hessians, if Options.Refine is set
}

// Estimate returns the memory that Run takes for a plan at its peak, without garbage, and the
// effort. m is the model of the plan's checkpoint; the text has this many tokens, in sequences of
// up to longest tokens. Finished layers are not counted, because o.Work stores them.
func Estimate(p *fromcheckpoint.Plan, m *forward.Model, tokens, longest int, o Options) (memory int64, e Effort) {
	j := newJob(context.Background(), p, &text.Text{}, o)
	j.quant, j.longest = m, min(longest, tokens)
	s := &sizes{job: j, tokens: tokens, weights: map[string]float64{}}
	for _, m := range p.Matrices() {
		s.weights[m.Name()] = float64(m.Rows) * float64(m.Cols)
	}
	streams := int64(1)
	if j.find() {
		streams = 2
	}
	s.effort.Models = float64(streams)
	codes := int64(0)
	for layer := range m.Config().Layers {
		codes = max(codes, s.layer(layer))
	}
	if head := j.headGroup(); len(head.matrices) > 0 {
		s.stage([]*group{head}, false)
		codes = max(codes, groupCodes(head))
	}
	if j.tied != nil { // one pass of the float model
		s.effort.Passes += s.effort.Passes / s.effort.Models
		part := *j.tied
		part.Rows = min(part.Rows, tiedRows)
		s.stage([]*group{{Group: forward.Group{Expert: -1}, matrices: []plan.Matrix{part}}}, false)
		codes = max(codes, j.tied.Scheme.Shape(j.tied.Rows, j.tied.Cols).Bytes())
	}
	hidden, keys, shared := m.StreamBytes(tokens, j.longest)
	return streams*(hidden+keys) + shared + kernels.AddBytes(cpu.Threads(o.Threads)) + 4*s.inputs + 4*s.floats + s.solver + codes, s.effort
}

type sizes struct {
	*job
	tokens  int
	weights map[string]float64 // numbers of weights
	effort  Effort
	inputs  int64 // values of job.inputs
	floats  int64 // values in use of engine.floats
	solver  int64 // bytes of codes and grids while a matrix is solved
}

// layer counts the stages of a layer, and returns the bytes of its codes.
func (s *sizes) layer(layer int) (codes int64) {
	stages := s.quant.Stages(layer)
	half := 0.0 // multiply-adds of a pass of this half of the layer so far
	for i, stage := range stages {
		for len(stage) > 0 {
			batch := s.batch(stage)
			stage = stage[len(batch):]
			last := len(stage) == 0 && (i+1 == len(stages) || stages[i+1][0].Block != batch[0].Block)
			pass := 0.0
			var groups []*group
			for _, g := range batch {
				for _, name := range g.Linears {
					pass += s.rows(g) * s.weights[name]
				}
				if own := s.prepare(g); len(own.matrices) > 0 {
					groups = append(groups, own)
					codes += groupCodes(own)
				}
			}
			s.effort.Passes += s.effort.Models * pass
			if len(groups) > 0 {
				s.stage(groups, last)
				if last && inputsOf(groups[0], s.tokens) == 0 { // see job.advance
					s.effort.Passes += half
				}
			}
			if half += pass; last {
				half = 0
			}
		}
	}
	return codes
}

// rows is the number of tokens that a group sees.
func (s *sizes) rows(g forward.Group) float64 {
	if e := s.quant.Config().Experts; g.Expert >= 0 {
		return float64(s.tokens) * float64(e.PerToken) / float64(e.Count)
	}
	return float64(s.tokens)
}

// add counts the work for a group's codes.
func (e *Effort) add(g *group, n float64, ofOutputs bool) {
	k, width := float64(g.cols()), float64(g.outputs())
	e.Inputs += e.Models * n * k
	e.Sums += n * k * k / 2
	e.Solves += k*k*k/6 + 1.5*width*k*k // codes for two sets of scales, and errors
	switch {
	case ofOutputs:
		e.Sums += 2 * n * width * k
		e.Solves += width * k * k
	case g.follow:
		e.Sums += n * k * k
		e.Solves += (k + width) * k * k
	}
}

func groupCodes(g *group) (n int64) {
	for _, m := range g.matrices {
		n += m.Scheme.Shape(m.Rows, m.Cols).Bytes()
	}
	return n
}

// stage counts groups that collect Hessians together; last says that the block then ends.
func (s *sizes) stage(groups []*group, last bool) {
	collected := int64(0)
	for _, g := range groups {
		collected += g.hessianBytes()/4 + s.rowBuffers(g)
		s.effort.add(g, s.rows(g.Group), g.ofOutputs())
		if s.Refine {
			s.effort.Refines += float64(g.outputs()) * float64(g.cols()) * float64(g.cols())
		}
	}
	inputs := int64(0) // of the float model
	if first := groups[0]; first.follow {
		rows := s.longest
		if e := s.quant.Config().Experts; e != nil && first.Expert >= 0 {
			rows *= e.PerToken
		}
		inputs = int64(rows) * int64(first.cols())
		if last {
			inputs += int64(s.longest) * int64(s.quant.Config().HiddenSize)
		}
	}
	if last {
		s.inputs = max(s.inputs, int64(inputsOf(groups[0], s.tokens)))
	}
	s.floats = max(s.floats, collected+inputs)
	for _, g := range groups {
		collected -= g.hessianBytes()/4 + s.rowBuffers(g)
		s.floats = max(s.floats, collected+s.solving(g))
	}
}

func (s *sizes) rowBuffers(g *group) int64 {
	n := g.cols()
	if g.follow {
		n += g.cols()
	}
	if g.ofOutputs() {
		n += g.outputs()
	}
	return hessianRows * int64(n)
}

// solving is the number of values that solve takes for a group, with Hessian and solvers.
func (s *sizes) solving(g *group) int64 {
	k := int64(g.cols())
	short, wide := min(k, panel), min(k, int64(wideBlock(g.cols())))
	shifted := g.hessianBytes()/4 - k*k // S, and the weights of a group that has any
	if g.ofOutputs() {
		shifted /= 2
	}
	own := k*k + shifted
	improves := s.improves(g)
	if improves {
		own += k * k
	}
	most := max(k*kernels.GramBand, shifted) // while the Hessian is factorized, and S permuted
	if shifted > 0 {
		most = max(most, shifted/k*(short+min(k, block))+k*short)
	}
	for _, m := range g.matrices {
		n := int64(m.Rows)
		reading := 2 * n * k
		if shifted > 0 && !g.ofOutputs() {
			reading += n * k
		}
		most = max(most, reading, 2*n*k+max((n+k)*short, n*wide))
		groups := int64(m.Scheme.Groups(m.Cols))
		if improves {
			most = max(most, 2*n*k+refineRows*k)
		}
		if s.Refine {
			g := m.Scheme.Groups(m.Cols)
			most = max(most, n*k+int64(refitRows(g))*int64(4*m.Cols+g*g+g))
		}
		grids := groups * (n + abreast - 1) / abreast * int64(unsafe.Sizeof(vec.ColumnGrids{}))
		s.solver = max(s.solver, 3*m.Scheme.Shape(m.Rows, m.Cols).Bytes()+grids)
	}
	return own + most
}
