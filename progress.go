package gq

import (
	"fmt"
	"sync"
)

// Progress is told how far a job is. A nil Progress is silent.
type Progress interface {
	// Stage begins a stage. The job calls add from several goroutines, with the units done since
	// the last call, and end once after the stage, whether it succeeded or not.
	Stage(s Stage) (add func(n int64), end func())
	// Log receives a line of text about the job, without a newline.
	Log(line string)
}

// Stage is a longer part of a job.
type Stage struct {
	Name  string // "quantizing"
	Unit  string // what add counts: "bytes", "tokens", "weights", "steps"; "" if nothing
	Total int64  // units in all; 0 if add counts nothing
	// Number counts the stages of the job from 1 to Count. Both are 0 if the job is a single stage.
	// A resumed job skips finished stages.
	Number, Count int
	// Cost estimates the work of the stage, Later the work of all later stages, in the same unit.
	// With the time spent so far they predict the time of the job. Both are 0 if the job is a
	// single stage.
	Cost, Later float64
}

// planned is a stage that a job is expected to have.
type planned struct {
	name string
	cost float64 // of one run, see quantize_cost.go
	runs int     // how often it probably runs
}

// stages reports the stages of a job to a Progress.
type stages struct {
	to   Progress
	plan []*planned // in their order; nil: a single stage
}

// begin begins a stage. A stage that runs more than once keeps its number.
func (s stages) begin(name, unit string, total int64) (add func(n int64), end func()) {
	if s.to == nil {
		return func(int64) {}, func() {}
	}
	stage := Stage{Name: name, Unit: unit, Total: total}
	if len(s.plan) > 1 {
		s.number(&stage)
	}
	add, end = s.to.Stage(stage)
	return add, sync.OnceFunc(end)
}

// number finds a stage in the plan.
func (s stages) number(stage *Stage) {
	for i, p := range s.plan {
		if p.name != stage.Name {
			continue
		}
		stage.Number, stage.Count, stage.Cost = i+1, len(s.plan), p.cost
		p.runs = max(p.runs-1, 0)
		for _, later := range s.plan[i:] {
			stage.Later += later.cost * float64(later.runs)
		}
		return
	}
}

func (s stages) logf(format string, args ...any) {
	if s.to != nil {
		s.to.Log(fmt.Sprintf(format, args...))
	}
}
