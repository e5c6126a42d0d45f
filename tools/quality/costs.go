package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/tools/internal/memory"
)

// costJobs are the jobs of table costs, in flags of gq quantize.
var costJobs = []string{
	"--algorithm imatrix --calibrate self", "--algorithm awq --calibrate self", "--algorithm search --target-bpw 4.5",
	"--quality good", "--quality good --target-bpw 4.5", "--quality best", "--quality best --target-bpw 4.5",
	"--tune norms --tune-tokens 8192", "--tune floats --tune-tokens 8192", "--tune blocks --tune-tokens 8192",
	"--tune codes --tune-tokens 8192", "--quality max --tune-tokens 8192",
}

// realJobs are the jobs for trained models of tools/realmodels.
var realJobs = []string{"--quality good --calibrate-tokens 1024", "--quality good --calibrate-tokens 1024 --target-bpw 4.5"}

// costs compares what jobs take with their plans: user and system time of one thread, and the
// largest RssAnon of the command.
func (b *bench) costs() (string, error) {
	program := filepath.Join(b.tmp, "gq")
	if out, err := exec.CommandContext(b.ctx, "go", "build", "-o", program, "./cmd/gq").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	var t strings.Builder
	t.WriteString("| | instruction sets | CPU s | planned | MB | planned |\n|---|---|---|---|---|---|\n")
	for _, m := range b.models {
		jobs := costJobs
		if m.real {
			jobs = realJobs
		}
		for _, job := range jobs {
			if !b.rows.MatchString(job) {
				continue
			}
			for _, set := range []string{"", "avx2"} {
				args := append([]string{"quantize", m.dir, "-q", "--json", "--threads", "1", "-o", b.file()}, strings.Fields(job)...)
				if m.real {
					args = append(args, "--calibrate", m.head)
				}
				row, err := b.cost(program, set, args)
				if err != nil {
					return "", fmt.Errorf("%s, %s: %w", m.name, job, err)
				}
				name := map[string]string{"": "all", "avx2": "up to AVX2"}[set]
				row = fmt.Sprintf("| %s, `%s` | %s | %s |\n", m.name, job, name, row)
				if t.WriteString(row); *verbose {
					log.Print(row)
				}
			}
		}
	}
	return t.String(), nil
}

// cost plans and runs gq with an instruction set. It returns the last four columns.
func (b *bench) cost(program, set string, args []string) (string, error) {
	run := func(args ...string) (out []byte, seconds, megabytes float64, err error) {
		c := exec.CommandContext(b.ctx, program, args...)
		c.Env = append(os.Environ(), "GQ_CPU="+set)
		var stdout, stderr bytes.Buffer
		c.Stdout, c.Stderr = &stdout, &stderr
		if err := c.Start(); err != nil {
			return nil, 0, 0, err
		}
		largest := memory.Watch(c.Process.Pid)
		err = c.Wait()
		if megabytes = 1000 * largest(); err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.Bytes())
		}
		return stdout.Bytes(), (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds(), megabytes, err
	}
	out, _, _, err := run(append(args, "--dry-run")...)
	var plan struct{ Estimate gq.Estimate }
	if err == nil {
		err = json.Unmarshal(out, &plan)
	}
	if err != nil {
		return "", err
	}
	_, seconds, megabytes, err := run(args...)
	e := plan.Estimate
	return fmt.Sprintf("%.1f | %.1f | %.0f | %.0f", seconds, e.Seconds, megabytes, float64(e.MemoryBytes)/1e6), err
}
