package gq

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/job/write"
)

// QuantizePart makes one part of the .gqf file dst that Quantize makes of the checkpoint src, as a
// part file or object beside dst. Every worker calls it with the same arguments but for the index
// of the part; Merge joins the parts. A part that is there and undamaged is not made again. Jobs
// that calibrate, fold, tune, choose bits or measure cannot be divided.
func QuantizePart(ctx context.Context, src, dst string, p PartOptions, o QuantizeOptions) (*divide.PartReport, error) {
	return inJob(ctx, src, dst, task{o: o, part: &p}, func(r *run, j *job) (*divide.PartReport, error) {
		var add func(int64)
		end := func() {}
		defer func() { end() }()
		store, err := j.to.Parts()
		if err != nil {
			return nil, err
		}
		return divide.WritePart(r.ctx, j.source.plan.Job, j.to.Name, divide.PartOptions{
			Part: p.Part, Dry: p.Dry, Store: store, Maker: maker(),
			Begin:    func(total int64) { add, end = r.begin(stageQuantize, "bytes", total) },
			Progress: func(n int64) { add(n) },
		})
	})
}

// maker names the version of gq in part files. Builds for different platforms make the same bytes.
func maker() string {
	b := Version()
	s := b.Version
	if b.Commit != "" {
		s += " " + b.Commit
	}
	if b.Modified {
		s += " with changes"
	}
	return s
}

// checkPart finds options that a part cannot have before the checkpoint is read.
func (t *task) checkPart() error {
	p := t.part
	if p == nil {
		return nil
	}
	if err := p.Check(); err != nil {
		return &OptionError{"part", err}
	}
	switch {
	case t.o.format != formatGQF:
		return optionf("part", "makes .gqf files, not %s: merge a .gqf file, and write the other one with gq export", t.o.format.noun())
	case t.o.Budget != nil:
		return optionf("part", "beside a target of bytes or divergence: choose bits once with --dry-run --save-recipe FILE, and make the parts with --recipe FILE")
	case t.o.Measure != nil:
		return optionf("part", "beside --gate: measure the merged file with gq accuracy --gate")
	}
	return nil
}

// checkDivisible refuses a part of a job whose steps need all of the model.
func (j *job) checkDivisible() error {
	what := ""
	switch {
	case j.part == nil:
		return nil
	case j.calibration.needed():
		what = "the algorithm, which calibrates with data"
	case j.tuning != nil:
		what = "--tune"
	case j.foldsFor() != "":
		what = "--fold"
	default:
		return nil
	}
	return optionf("part", "beside %s: these steps need the whole model on one machine; parts are for search and rtn", what)
}

// ParsePart reads the name of a part: I/N, from 0/N on; /N, with the index of a Kubernetes Indexed
// Job or a Slurm array from the environment; or auto, with both from a Slurm array. getenv looks up
// a variable.
func ParsePart(s string, getenv func(name string) string) (write.Part, error) {
	var p write.Part
	var err error
	index, of, divided := strings.Cut(s, "/")
	switch {
	case s == "auto":
		p, err = slurmPart(getenv)
	case !divided || of == "":
		return p, fmt.Errorf("%q: state the part as I/N, from 0/N on, or as /N or auto in a job array", s)
	default:
		if p.Of, err = number("the number of parts", of); err != nil {
			return p, err
		}
		if index == "" {
			p.Index, err = environmentIndex(getenv)
		} else {
			p.Index, err = number("the part", index)
		}
	}
	if err != nil {
		return p, err
	}
	return p, p.Check()
}

func number(what, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%s is %q: use a number", what, s)
	}
	return n, nil
}

// The variables that Kubernetes and Slurm set.
const (
	envKubernetesIndex = "JOB_COMPLETION_INDEX"
	envSlurmIndex      = "SLURM_ARRAY_TASK_ID"
	envSlurmCount      = "SLURM_ARRAY_TASK_COUNT"
	envSlurmFirst      = "SLURM_ARRAY_TASK_MIN"
	envSlurmLast       = "SLURM_ARRAY_TASK_MAX"
)

// environmentIndex is the index that a job array states. It is not counted from the array's first
// index, so that an array of single tasks can be submitted again.
func environmentIndex(getenv func(string) string) (int, error) {
	for _, name := range []string{envKubernetesIndex, envSlurmIndex} {
		if s := getenv(name); s != "" {
			return number(name, s)
		}
	}
	return 0, fmt.Errorf("the index is left out, and neither %s nor %s is set: state it, I/N", envKubernetesIndex, envSlurmIndex)
}

// slurmPart is the part of a task of a whole Slurm array, from 0 or from 1 on without gaps.
func slurmPart(getenv func(string) string) (p write.Part, err error) {
	if getenv(envSlurmIndex) == "" {
		if getenv(envKubernetesIndex) != "" {
			return p, fmt.Errorf("auto: Kubernetes states the index of a part, not how many there are: use /N with the job's completions")
		}
		return p, fmt.Errorf("auto: %s is not set: this is no task of a Slurm array; state I/N", envSlurmIndex)
	}
	var values [4]int
	for i, name := range []string{envSlurmIndex, envSlurmCount, envSlurmFirst, envSlurmLast} {
		if values[i], err = number(name, getenv(name)); err != nil {
			return p, err
		}
	}
	index, count, first, last := values[0], values[1], values[2], values[3]
	if first > 1 || last-first+1 != count || count < 2 {
		return p, fmt.Errorf("auto: the array has %d tasks from %d to %d, and a whole one goes from 0 or 1 on without gaps: use /N in an array of some parts, from 0 on", count, first, last)
	}
	return write.Part{Index: index - first, Of: count}, nil
}

// MergeOptions are the options of Merge.
type MergeOptions struct {
	// Plan is the plan of the job, as the report of each of its parts has it. It must be set: parts
	// or a file of another plan are refused.
	Plan string
	// KeepParts leaves the part files. Default: they are removed when the file is complete.
	KeepParts bool
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

var planForm = regexp.MustCompile(`^[0-9a-f]{24}$`)

// Merge joins the parts of the file dst that QuantizePart made. dst appears when it is complete,
// with the bytes that Quantize gives it. A *divide.PartsError lists missing and damaged parts.
func Merge(ctx context.Context, dst string, o MergeOptions) (*divide.MergeReport, error) {
	if dst == "" {
		return nil, optionf("", "the path is empty: name the file whose parts are to be merged")
	}
	if !planForm.MatchString(o.Plan) {
		return nil, optionf("plan", "%q: expected the 24 hexadecimal digits that gq quantize --part prints", o.Plan)
	}
	to, err := newDestination(dst, formatGQF, 0)
	if err != nil {
		return nil, err
	}
	store, err := to.Parts()
	if err != nil {
		return nil, err
	}
	var add func(int64)
	end := func() {}
	defer func() { end() }()
	return divide.MergeParts(ctx, to.Name, divide.MergeOptions{
		Plan: o.Plan, Maker: maker(), KeepParts: o.KeepParts, Store: store,
		Begin:    func(total int64) { add, end = stages{to: o.Progress}.begin("merging", "bytes", total) },
		Progress: func(n int64) { add(n) },
	})
}
