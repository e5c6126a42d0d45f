package write

import (
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/rounding"
	"github.com/lowbit-go/gq/packing"
)

// report is the report of a job that took so long; the time after w.seconds was spent on sync and
// rename.
func (w *Run) report(path string, total time.Duration) *Report {
	r, p := w.Outline(), w.Job
	n, dir := w.Target.Shards()
	if n > 1 {
		r.Shards = n
	}
	if r.Output = path; !dir {
		r.Output = w.Target.Files(path)[0].Path
	}
	r.Seconds, r.SyncSeconds, r.BytesPerSecond = total.Seconds(), (total - w.seconds).Seconds(), float64(r.SourceBytes)/total.Seconds()
	var found []ItemResult
	if w.found != nil {
		found = make([]ItemResult, 0, len(r.Tensors))
		for _, it := range p.Items {
			if e := it.Common(); e.Line.Action == plan.ActionQuantize {
				found = append(found, w.found[e.Index])
			}
		}
	}
	r.AddFound(found)
	return r
}

// Outline is the report without times and without the units' findings.
func (w *Run) Outline() *Report {
	p := w.Job
	r := &Report{
		Warnings: append([]string{}, slices.Concat(p.Warnings, w.codes.Warnings, w.notes)...), Fold: p.Fold, ReadBack: w.readBack,
		SourceBytes: p.In.Facts().Bytes, OutputBytes: w.size, Tensors: make([]TensorSQNR, 0, len(p.Items)),
	}
	for _, t := range p.Tensors {
		switch t.Action {
		case plan.ActionQuantize:
			r.Quantized++
			switch t.ZeroPoints {
			case rounding.FloatZeros:
				r.FloatZeros++
			case rounding.FractionalZeros:
				r.Fractions++
			case rounding.IntegerZeros:
				r.IntegerZeros++
			}
		case plan.ActionUnquantized:
			r.Unquantized++
		case plan.ActionShare:
			r.Shared++
		case plan.ActionAbsorb:
			r.Absorbed++
		}
	}
	var bytes, weights, allBytes, allWeights int64
	var used []gqf.Algorithm
	for _, it := range p.Items {
		e, n := it.Common(), it.Weights()
		allBytes, allWeights = allBytes+e.Line.Bytes, allWeights+n
		if e.Line.Action != plan.ActionQuantize {
			continue
		}
		bytes, weights = bytes+e.Line.Bytes, weights+n
		ts := TensorSQNR{Name: e.Name(), Algorithm: e.Line.Algorithm}
		if !slices.Contains(used, ts.Algorithm) {
			used = append(used, ts.Algorithm)
		}
		r.Tensors = append(r.Tensors, ts)
	}
	slices.Sort(used)
	names := make([]string, len(used))
	for i, a := range used {
		names[i] = a.String()
	}
	r.Algorithm = strings.Join(names, ", ")
	r.BitsPerWeight, r.AllBitsPerWeight = packing.BitsPerWeight(bytes, weights), packing.BitsPerWeight(allBytes, allWeights)
	return r
}
