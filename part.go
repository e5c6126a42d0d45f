package gq

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/quantizer/conversion"
)

// PartOptions say which part of a file QuantizePart makes.
type PartOptions struct {
	conversion.Part
	// Shared writes the data of all parts to one file beside dst, on a file system that all workers see,
	// so that Merge need not copy them. Default: the part file has its data.
	Shared bool
}

// QuantizePart makes one part of the .gqf file dst that Quantize makes of the checkpoint src, as a part
// file beside dst, or as pieces of an upload if dst is an object of a store. Every worker calls it with the same arguments but for the index of the part; Merge
// joins the parts. A part that is there and undamaged is not made again. Jobs that calibrate, fold, tune,
// choose bits or measure cannot be divided.
func QuantizePart(ctx context.Context, src, dst string, p PartOptions, o QuantizeOptions) (*conversion.PartReport, error) {
	o.part = &p
	return inJob(ctx, src, dst, o, false, func(j *quantizeJob) (*conversion.PartReport, error) {
		end := func() {}
		defer func() { end() }()
		var store conversion.PartStore
		if j.to.bucket != nil {
			s, err := newPartStore(dst)
			if err != nil {
				return nil, err
			}
			store = s
		}
		return j.plan.WritePart(j.ctx, j.to.Name, conversion.PartOptions{
			Part: p.Part, Shared: p.Shared, Store: store, Maker: maker(),
			Begin: func(total int64) {
				end() // of a part that is made once more
				var add func(int64)
				add, end = j.begin(stageQuantize, "bytes", total)
				j.written.Store(&add)
			},
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
func (j *quantizeJob) checkPart() error {
	p := j.o.part
	if p == nil {
		return nil
	}
	if err := p.Check(); err != nil {
		return &OptionError{"part", err}
	}
	switch {
	case j.to.bucket != nil && p.Shared:
		return optionf("shared", "%s: an object store is shared without it", j.to.Name)
	case j.o.Format != FormatGQF:
		return optionf("part", "makes .gqf files, not %s: merge a .gqf file, and write the other one with gq export", j.o.Format.noun())
	case j.o.Budget != nil:
		return optionf("part", "beside a target of bytes or divergence: choose bits once with --dry-run --save-recipe FILE, and make the parts with --recipe FILE")
	case j.o.Reuse != "":
		return optionf("part", "beside --reuse: the older file is compared as a whole; leave one of them out")
	case j.o.Measure != nil:
		return optionf("part", "beside --gate: measure the merged file with gq accuracy --gate")
	}
	return nil
}

// checkPartSource refuses a source that parts cannot be made of.
func (j *quantizeJob) checkPartSource() error {
	if j.o.part == nil || j.foreign == nil {
		return nil
	}
	return optionf("part", "%s is %s: every worker would have to convert all of it; parts are made of unquantized safetensors", j.name, j.foreign.Noun())
}

// checkDivisible refuses a part of a job whose steps need all of the model.
func (j *quantizeJob) checkDivisible() error {
	what := ""
	switch {
	case j.o.part == nil:
		return nil
	case j.calibration != nil:
		what = "the algorithm, which calibrates with data"
	case j.tuning != nil:
		what = "--tune"
	case j.folding != nil:
		what = "--fold"
	default:
		return nil
	}
	return optionf("part", "beside %s: these steps need the whole model on one machine; parts are for search, rtn and hqq", what)
}

// ParsePart reads the name of a part: I/N, from 0/N on; /N, with the index of a Kubernetes Indexed Job or
// a Slurm array from the environment; or auto, with both from a Slurm array. getenv looks up a variable.
func ParsePart(s string, getenv func(name string) string) (conversion.Part, error) {
	var p conversion.Part
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

// environmentIndex is the index that a job array states. It is not counted from the array's first index,
// so that an array of single tasks can be submitted again.
func environmentIndex(getenv func(string) string) (int, error) {
	for _, name := range []string{envKubernetesIndex, envSlurmIndex} {
		if s := getenv(name); s != "" {
			return number(name, s)
		}
	}
	return 0, fmt.Errorf("the index is left out, and neither %s nor %s is set: state it, I/N", envKubernetesIndex, envSlurmIndex)
}

// slurmPart is the part of a task of a whole Slurm array, from 0 or from 1 on without gaps.
func slurmPart(getenv func(string) string) (p conversion.Part, err error) {
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
	return conversion.Part{Index: index - first, Of: count}, nil
}

// MergeOptions are the options of Merge. The zero value is ready to use.
type MergeOptions struct {
	// KeepParts leaves the part files. Default: they are removed when the file is complete.
	KeepParts bool
	// Progress is told how far the job is. Default (nil): none.
	Progress Progress
}

// Merge joins the parts of the file dst that QuantizePart made. dst appears when it is complete, with the
// bytes that Quantize gives it. A *conversion.PartsError lists missing and damaged parts.
func Merge(ctx context.Context, dst string, o MergeOptions) (*conversion.MergeReport, error) {
	if dst == "" {
		return nil, optionf("", "the path is empty: name the file whose parts are to be merged")
	}
	to, err := newDestination(dst, FormatGQF, 0)
	if err != nil {
		return nil, err
	}
	var store conversion.PartStore
	if to.bucket != nil {
		if store, err = newPartStore(dst); err != nil {
			return nil, err
		}
	}
	var add func(int64)
	end := func() {}
	defer func() { end() }()
	return conversion.MergeParts(ctx, to.Name, conversion.MergeOptions{
		KeepParts: o.KeepParts, Store: store,
		Begin:    func(total int64) { add, end = stages{to: o.Progress}.begin("merging", "bytes", total) },
		Progress: func(n int64) { add(n) },
	})
}
