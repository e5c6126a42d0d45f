package gq_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/job/write"
)

// TestPartsFromHub: parts of a model on a hub give the file of one job.
func TestPartsFromHub(t *testing.T) {
	hubWith(t)
	dir := t.TempDir()
	whole, merged := filepath.Join(dir, "whole.gqf"), filepath.Join(dir, "merged.gqf")
	if _, err := gq.Quantize(t.Context(), "hf://org/books", whole, gq.QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	plan := ""
	for i := range 3 {
		hubWith(t) // another machine, with a cache of its own
		p := gq.PartOptions{Part: write.Part{Index: i, Of: 3}}
		r, err := gq.QuantizePart(t.Context(), "hf://org/books", merged, p, gq.QuantizeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		plan = r.Plan
	}
	if _, err := gq.Merge(t.Context(), merged, gq.MergeOptions{}); err == nil || !strings.Contains(err.Error(), "expected the 24 hexadecimal digits") {
		t.Errorf("without a plan: %v", err)
	}
	if _, err := gq.Merge(t.Context(), merged, gq.MergeOptions{Plan: plan}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, merged), read(t, whole)) {
		t.Error("the merged file is not the file of one job")
	}
}

func TestParsePart(t *testing.T) {
	slurm := func(id, count, first, last string) map[string]string {
		return map[string]string{"SLURM_ARRAY_TASK_ID": id, "SLURM_ARRAY_TASK_COUNT": count, "SLURM_ARRAY_TASK_MIN": first, "SLURM_ARRAY_TASK_MAX": last}
	}
	for _, c := range []struct {
		spec  string
		env   map[string]string
		index int
		of    int
		bad   string
	}{
		{spec: "0/1", of: 1},
		{spec: "7/8", index: 7, of: 8},
		{spec: "7/8", env: map[string]string{"JOB_COMPLETION_INDEX": "1"}, index: 7, of: 8},
		{spec: "/8", env: map[string]string{"JOB_COMPLETION_INDEX": "3"}, index: 3, of: 8},
		{spec: "/8", env: slurm("5", "2", "4", "5"), index: 5, of: 8},
		{spec: "auto", env: slurm("3", "8", "0", "7"), index: 3, of: 8},
		{spec: "auto", env: slurm("8", "8", "1", "8"), index: 7, of: 8},

		{spec: "", bad: "state the part as I/N"},
		{spec: "8", bad: "state the part as I/N"},
		{spec: "3/", bad: "state the part as I/N"},
		{spec: "8/8", bad: "counted from 0 to 7"},
		{spec: "-1/8", bad: `"-1"`},
		{spec: "0/0", bad: "0 parts: use 1 to 65536"},
		{spec: "0/65537", bad: "65537 parts"},
		{spec: "0/x", bad: `"x"`},
		{spec: "0/8/9", bad: `"8/9"`},
		{spec: "0/99999999999999999999", bad: `"99999999999999999999"`},
		{spec: "/8", bad: "neither JOB_COMPLETION_INDEX nor SLURM_ARRAY_TASK_ID is set"},
		{spec: "/8", env: map[string]string{"JOB_COMPLETION_INDEX": "x"}, bad: `JOB_COMPLETION_INDEX is "x"`},
		{spec: "/8", env: map[string]string{"JOB_COMPLETION_INDEX": "8"}, bad: "counted from 0 to 7"},
		{spec: "auto", bad: "SLURM_ARRAY_TASK_ID is not set"},
		{spec: "auto", env: map[string]string{"JOB_COMPLETION_INDEX": "0"}, bad: "use /N with the job's completions"},
		{spec: "auto", env: slurm("3", "", "0", "7"), bad: `SLURM_ARRAY_TASK_COUNT is ""`},
		{spec: "auto", env: slurm("3", "2", "3", "5"), bad: "use /N in an array of some parts"},
		{spec: "auto", env: slurm("0", "2", "0", "5"), bad: "use /N"},
		{spec: "auto", env: slurm("1", "1", "1", "1"), bad: "use /N"},
	} {
		p, err := gq.ParsePart(c.spec, func(name string) string { return c.env[name] })
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q with %v: %v, %v, want %q", c.spec, c.env, p, err, c.bad)
			}
		} else if err != nil || p.Index != c.index || p.Of != c.of {
			t.Errorf("%q with %v: %v, %v, want part %d of %d", c.spec, c.env, p, err, c.index, c.of)
		}
	}
}
