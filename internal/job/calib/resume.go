package calib

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// complete takes the layers of a finished job, without running text.
func (j *job) complete(r *Result) error {
	for layer := range len(j.quant.Config().Layers) + 1 {
		l, err := j.store.get(layer)
		if err != nil {
			return err
		}
		j.count(l)
		r.note(l.notes)
	}
	r.finish(j)
	return nil
}

// resumed opens the finished layers and reports how many an interrupted job has left.
func (j *job) resumed(layers int) (found int, err error) {
	for layer := range layers {
		l, err := j.store.get(layer)
		if err != nil {
			return 0, err
		}
		if l != nil {
			found++
		}
	}
	if found > 0 && j.Resumed != nil {
		j.Resumed(found, layers)
	}
	return found, nil
}

func (j *job) resume(layer int, l *finished) error {
	j.notes = l.notes
	var undo []func()
	for i := range l.matrices {
		m := &l.matrices[i]
		c, err := rounding.LoadCodes(m.Shape, m.rows.ReadRow)
		if err != nil {
			return err
		}
		u, err := j.replace(m.name, c)
		if err != nil {
			return err
		}
		undo = append(undo, u)
	}
	for _, part := range []forward.Part{forward.Attention, forward.FeedForward} {
		if err := j.advance(layer, part); err != nil {
			return err
		}
	}
	for _, u := range undo {
		u()
	}
	j.count(l)
	return nil
}

func (j *job) count(l *finished) {
	for _, m := range l.matrices {
		j.progress(int64(m.Rows) * int64(m.Cols))
	}
}

func (j *job) info() provenance.Calibration {
	c := provenance.Calibration{Source: j.text.Source, SHA256: j.text.SHA256, Tokens: j.text.Tokens(), Sequences: len(j.text.Sequences), Seed: j.text.Seed, Parameters: map[string]any{},
		SequencesSHA256: j.text.Hash(), Version: version}
	follows := false
	var names []string
	for _, m := range j.matrices {
		if name := m.Scheme.Algorithm.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
		follows = follows || m.Scheme.Algorithm == gqf.AlgorithmGPTQFT
	}
	slices.Sort(names)
	for i, n := range names {
		if i > 0 {
			c.Algorithm += ", "
		}
		c.Algorithm += n
	}
	c.Parameters["damping"] = "max(.01, .2 K/n)"
	c.Parameters["refine"] = j.Refine
	if follows {
		for name, v := range map[string]float64{"follow-inputs": j.FollowInputs, "follow-residual": j.FollowResidual} {
			if c.Parameters[name] = max(v, 0); v == 0 {
				c.Parameters[name] = "1/2 + log2(min(n/8192, n/12K))/4, 1/2 to 1"
			}
		}
	}
	return c
}

// version is recorded in files and changes whenever the codes change.
const version = 10

// key hashes everything that the codes depend on.
func (j *job) key() (string, error) {
	type matrix struct {
		Name          string
		Scheme        rounding.Scheme
		SmallestScale float32
	}
	var list []matrix
	for _, m := range j.plan.Matrices() {
		list = append(list, matrix{m.Name(), m.Scheme, m.SmallestScale})
	}
	return workdir.Key("codes", j.info(), j.plan.SourceStamps(), list)
}

func (r *Result) note(n layerNotes) {
	r.info.Fallbacks += len(n.Unreached) + len(n.Searched)
	if len(n.Unreached) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: no calibration token reached it: quantized by search", n.Unreached[0], more(n.Unreached)))
	}
	if len(n.Searched) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: the search has the smaller error: kept", n.Searched[0], more(n.Searched)))
	}
}

func (r *Result) finish(j *job) {
	var missed []string
	for _, m := range r.plan.Matrices() {
		if m.Scheme.Algorithm.ByLayers() && r.store.results[m.Name()] == nil {
			missed = append(missed, m.Name())
		}
	}
	if len(missed) > 0 {
		r.info.Fallbacks += len(missed)
		r.Warnings = append(r.Warnings, fmt.Sprintf("%q%s: not part of the language model that calibration runs: quantized by search", missed[0], more(missed)))
	}
}

func more(names []string) string {
	if len(names) == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", len(names)-1)
}
