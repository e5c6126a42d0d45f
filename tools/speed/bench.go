package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lowbit-go/gq/tools/internal/memory"
)

// memoryColumn is the greatest private memory of a command.
const memoryColumn = "memory"

// bench runs commands in its directory.
type bench struct {
	ctx     context.Context
	kept    *store
	machine machine
	repo    string // the repository
	dir     string // where models lie and commands run
	remove  bool   // the directory, at the end
	env     []string
	own     float64 // CPU seconds of the commands so far
	failed  int     // rows whose commands failed
}

func newBench(ctx context.Context, kept *store) (*bench, error) {
	b := &bench{ctx: ctx, kept: kept, dir: *scratch}
	var err error
	if b.repo, err = os.Getwd(); err != nil {
		return nil, err
	}
	if b.dir == "" {
		b.remove = true
		b.dir, err = os.MkdirTemp("", "speed")
	} else if b.dir, err = filepath.Abs(b.dir); err == nil {
		if *quick {
			b.dir = filepath.Join(b.dir, "quick") // not the tiny model's files for the large one's
		}
		err = os.MkdirAll(b.dir, 0o777)
	}
	if err != nil {
		return nil, err
	}
	b.env = append(os.Environ(), "THREADS="+strconv.Itoa(*threads), "CC="+*cc, "CXX="+*cxx, "WORK="+b.dir, "CGO_ENABLED=0")
	for name, path := range map[string]string{"TOKENIZER": *tokenizer, "KLEIDIAI": *kleidiai, "TORCHAO": *torchao, "PLUGIN": *plugin, "LLAMA": *llama} {
		if path != "" {
			if path, err = filepath.Abs(path); err != nil {
				return nil, err
			}
		}
		b.env = append(b.env, name+"="+path)
		if name == "LLAMA" {
			b.env = append(b.env, fmt.Sprintf("PATH=%s%c%s%c%s", b.dir, os.PathListSeparator, path, os.PathListSeparator, os.Getenv("PATH")))
		}
	}
	if _, err := b.sh(b.repo, `go build -trimpath -o "$WORK/gq" ./cmd/gq`); err != nil {
		return nil, err
	}
	b.machine = machine{Date: time.Now().UTC().Format(time.DateOnly), CPU: cpuName(), Threads: *threads}
	commit, err := b.sh(b.repo, "git rev-parse --short HEAD")
	b.machine.Version = strings.TrimSpace(string(commit.stdout))
	return b, err
}

func (b *bench) close() {
	if b.remove {
		os.RemoveAll(b.dir)
	}
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// cpuName is the CPU's name, as far as Linux knows it.
func cpuName() string {
	raw, _ := os.ReadFile("/proc/cpuinfo") // absent elsewhere
	if m := modelName.FindSubmatch(raw); m != nil {
		return string(m[1])
	}
	return "unknown CPU"
}

// outcome is what a command printed and took.
type outcome struct {
	stdout  []byte
	seconds float64
	memory  float64 // greatest private memory, GB
	others  float64 // part of the CPUs' time that others took meanwhile
}

// sh runs a command line.
func (b *bench) sh(dir, command string) (o outcome, err error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(b.ctx, "sh", "-e", "-c", command)
	c.Dir, c.Env, c.Stdout, c.Stderr = dir, b.env, &stdout, &stderr
	before, start := now(b.own), time.Now()
	if err = c.Start(); err == nil {
		largest := memory.Watch(c.Process.Pid)
		err = c.Wait()
		o.seconds = time.Since(start).Seconds()
		o.memory = largest()
		b.own += (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
	}
	o.stdout, o.others = stdout.Bytes(), now(b.own).others(before)
	if *verbose {
		log.Printf("%.2f s, others %.0f %%: %s", o.seconds, 100*o.others, command)
	}
	if err != nil {
		text := stderr.String()
		err = fmt.Errorf("%s: %w\n%s", command, err, text[max(0, len(text)-2000):])
	}
	return o, err
}

// selected are the rows whose names match, and the rows that these are compared with.
func (t table) selected(rows *regexp.Regexp) map[string]bool {
	selected := map[string]bool{}
	for _, r := range t.rows {
		if rows.MatchString(r.name) {
			selected[r.name] = true
			for _, base := range r.against {
				for name := range strings.SplitSeq(base, both) {
					selected[name] = true
				}
			}
		}
	}
	return selected
}

// measure measures the rows of a table whose names match, and the rows that these are compared
// with.
func (b *bench) measure(t table, rows *regexp.Regexp) error {
	selected := t.selected(rows)
	runs := map[string]*samples{}
	var order []row
	for _, r := range t.rows {
		if !selected[r.name] {
			continue
		}
		missing := b.missing(r)
		if t.long && !*long {
			missing = "it takes long: measured with -long only"
		}
		if missing == "" {
			if err := b.prepare(r.files); err == nil {
				order, runs[r.name] = append(order, r), &samples{}
				continue
			} else if missing, err = b.failure(err); err != nil {
				return err
			}
		}
		b.leave(t, r, missing)
	}
	for round := range *rounds {
		for _, r := range order {
			if runs[r.name] == nil || round > 0 && r.once {
				continue
			}
			if err := b.sample(r, runs[r.name]); err != nil {
				missing, err := b.failure(err)
				if err != nil {
					return err
				}
				b.leave(t, r, missing)
				delete(runs, r.name)
			}
		}
	}
	for _, r := range order {
		// A row that others are compared with keeps its figure and its own ratios.
		old := b.kept.find(t.name, r.name)
		if runs[r.name] == nil || !rows.MatchString(r.name) && old != nil && old.Missing == "" {
			continue
		}
		f := runs[r.name].figure(t, r, runs)
		f.Machine = &b.machine
		b.kept.put(f)
	}
	return nil
}

// leave records why a row is not measured.
func (b *bench) leave(t table, r row, missing string) {
	log.Printf("%s: %s: not run: %s", t.name, r.name, missing)
	b.kept.put(figure{Table: t.name, Row: r.name, Missing: missing})
}

// failure is the reason of a command that failed. It is an error if the program was interrupted.
func (b *bench) failure(err error) (string, error) {
	if b.ctx.Err() != nil {
		return "", b.ctx.Err()
	}
	b.failed++
	log.Print(err)
	_, last, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	last, _, _ = strings.Cut(last, "\n")
	return "the command failed: " + last, nil
}

// sample runs a row once.
func (b *bench) sample(r row, s *samples) error {
	dir := b.dir
	if r.repo {
		dir = b.repo
	}
	o, err := b.sh(dir, r.command)
	if err != nil {
		return err
	}
	values := map[string]float64{}
	if r.parse != nil {
		if values, err = r.parse(o.stdout); err != nil {
			return fmt.Errorf("%s:\n%w", r.command, err)
		}
	}
	values[secondsColumn], values[memoryColumn] = o.seconds, o.memory
	if !r.counted {
		s.others = max(s.others, o.others)
	}
	s.runs = append(s.runs, values)
	// What a command has written goes with it: its pages must not be written to the disk in the next
	// command's time.
	written, err := filepath.Glob(filepath.Join(b.dir, "out.*"))
	for _, f := range written {
		err = os.RemoveAll(f)
	}
	return err
}

// samples are the runs of a row.
type samples struct {
	runs   []map[string]float64
	others float64
}

// figure is the median of the samples.
func (s *samples) figure(t table, r row, all map[string]*samples) figure {
	f := figure{Table: t.name, Row: r.name, Values: map[string]float64{}, Others: s.others}
	for _, c := range t.columns {
		if list := s.column(c.key); list != nil {
			f.Values[c.key] = median(list)
		}
	}
	key := t.columns[0].key
	f.Samples = s.column(key)
	for _, base := range r.against {
		var ratios []float64
		for i, v := range f.Samples {
			if divisor := t.base(base, i, all); divisor > 0 {
				ratios = append(ratios, v/divisor)
			}
		}
		f.Ratios = append(f.Ratios, median(ratios))
	}
	return f
}

// column is the values of a column, nil if a row has none.
func (s *samples) column(key string) (list []float64) {
	for _, r := range s.runs {
		if v, ok := r[key]; ok {
			list = append(list, v)
		}
	}
	return list
}

// both parts the names of two rows whose work is done one after the other.
const both = " + "

// base is the figure that a row is compared with in a round, or 0 if there is none. For two rows,
// which have rates, it is the rate of doing the one's and the other's work.
func (t table) base(names string, round int, all map[string]*samples) float64 {
	list := strings.Split(names, both)
	var inverse float64
	for _, name := range list {
		s := all[name]
		if s == nil || round >= len(s.runs) {
			return 0
		}
		v := s.runs[round][t.columns[0].key]
		if len(list) == 1 {
			return v
		}
		inverse += 1 / v
	}
	return 1 / inverse
}

// median is 0 if there are no values.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
