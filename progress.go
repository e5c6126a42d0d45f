package gq

import (
	"fmt"
	"slices"
	"sync"
)

// Progress receives how far a job has come. A nil Progress is silent.
type Progress interface {
	// Stage begins a stage of the job. The job calls add, from several goroutines, with the units that are done since the
	// last call, and end once when the stage has ended, whether it succeeded or not. Stages do not overlap.
	Stage(s Stage) (add func(n int64), end func())
	// Log receives a line of text about the job at hand, without a newline.
	Log(line string)
}

// Stage is a part of a job that takes a while.
type Stage struct {
	Name  string // "quantizing"
	Unit  string // what is counted: "bytes", "tokens", "weights", "steps"; "" if the stage counts nothing
	Total int64  // units in all; 0 if the stage counts nothing
	// Number counts the stages of the job from 1 to Count. Both are 0 if the job is a single stage.
	Number, Count int
}

// stages tells a Progress, which may be nil, of the stages of one job.
type stages struct {
	to    Progress
	names []string // of the job's stages, in their order; nil: a single stage
}

// begin begins a stage. A stage that runs more than once keeps its number.
func (s stages) begin(name, unit string, total int64) (add func(n int64), end func()) {
	if s.to == nil {
		return func(int64) {}, func() {}
	}
	stage := Stage{Name: name, Unit: unit, Total: total}
	if i := slices.Index(s.names, name); i >= 0 && len(s.names) > 1 {
		stage.Number, stage.Count = i+1, len(s.names)
	}
	add, end = s.to.Stage(stage)
	return add, sync.OnceFunc(end)
}

func (s stages) logf(format string, args ...any) {
	if s.to != nil {
		s.to.Log(fmt.Sprintf(format, args...))
	}
}
