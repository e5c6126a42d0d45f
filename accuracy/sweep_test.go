package accuracy

import (
	"testing"

	"github.com/lowbit-go/gq/internal/lm/eval"
)

func TestMarkPareto(t *testing.T) {
	file := func(size int64, kl float64) *SweepFile {
		m := &eval.Comparison{}
		m.KL.Mean = kl
		return &SweepFile{FileBytes: size, Texts: []TextReport{{Model: m}}}
	}
	unmeasured := &SweepFile{FileBytes: 1, Texts: []TextReport{{}}}
	for _, c := range []struct {
		name  string
		files []*SweepFile
		want  []bool
	}{
		{"one beats one", []*SweepFile{file(10, .1), file(20, .2)}, []bool{true, false}},
		{"both", []*SweepFile{file(10, .2), file(20, .1)}, []bool{true, true}},
		{"equal files", []*SweepFile{file(10, .2), file(10, .2)}, []bool{true, true}},
		{"equal size", []*SweepFile{file(10, .2), file(10, .1)}, []bool{false, true}},
		{"equal divergence", []*SweepFile{file(10, .2), file(20, .2), file(30, .1)}, []bool{true, false, true}},
		{"not measured", []*SweepFile{unmeasured, file(20, .2)}, []bool{false, true}},
	} {
		r := &SweepReport{Files: c.files}
		r.MarkPareto()
		for i, f := range r.Files {
			if f.Pareto != c.want[i] {
				t.Errorf("%s: file %d: %v, want %v", c.name, i, f.Pareto, c.want[i])
			}
		}
	}
}
