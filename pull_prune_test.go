package gq_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/test/testremote"
	"github.com/lowbit-go/gq/model/generate"
	"github.com/lowbit-go/gq/quantizer"
)

// pruneName is set in a process of its own that prunes the cache: TestPruneDuringPull starts it.
const pruneName = "GQ_TEST_PRUNE"

// TestPruneProcess is the process that TestPruneDuringPull starts.
func TestPruneProcess(t *testing.T) {
	names, ok := os.LookupEnv(pruneName)
	if !ok {
		t.Skip("TestPruneDuringPull starts it")
	}
	_, err := gq.PruneCache(strings.Fields(names)...)
	if err != nil && !errors.Is(err, transfer.ErrInUse) {
		t.Fatal(err)
	}
}

// TestPruneDuringPull: pruning, in this process and in another one, leaves what a running pull has
// fetched.
func TestPruneDuringPull(t *testing.T) {
	s, model := hubWith(t)
	url := s.AddPlain(t, "books", model)
	repo := s.AddRepo(t, "org/books", model)
	for _, c := range []struct{ name, prune, weights string }{
		// A commit has no branch, so that each of its files could be pruned.
		{"hf://org/books@" + repo.Commit, "org/books", "/blobs/"},
		{url, url, "model.safetensors"},
	} {
		t.Run(c.prune, func(t *testing.T) {
			var once sync.Once
			s.SetHook(func(_ int, r testremote.Request) {
				if !strings.Contains(r.Path, c.weights) || r.Header.Get("Range") == "bytes=0-0" {
					return
				}
				once.Do(func() { // the small files are there
					if _, err := gq.PruneCache(c.prune); !errors.Is(err, transfer.ErrInUse) {
						t.Errorf("pruning %s: %v", c.prune, err)
					}
					r, err := gq.PruneCache()
					if err != nil || c.prune == "org/books" && !slices.Contains(r.InUse, c.prune) {
						t.Errorf("pruning: %+v, %v", r, err)
					}
					for _, names := range []string{"", c.prune} {
						process := exec.Command(os.Args[0], "-test.run=^TestPruneProcess$")
						process.Env = append(os.Environ(), pruneName+"="+names)
						if out, err := process.CombinedOutput(); err != nil {
							t.Errorf("%v\n%s", err, out)
						}
					}
				})
			})
			r, err := gq.Pull(context.Background(), c.name, gq.PullOptions{})
			s.SetHook(nil)
			if err != nil {
				t.Fatal(err)
			}
			ran := true
			once.Do(func() { ran = false })
			if !ran || len(r.Files) < 3 {
				t.Errorf("nothing was pruned during the pull: %+v", r)
			}
			for _, f := range r.Files {
				got, err := os.ReadFile(filepath.Join(r.Path, f.Name))
				if err != nil || !bytes.Equal(got, read(t, filepath.Join(model, f.Name))) {
					t.Errorf("%s: %d bytes, or others: %v", f.Name, len(got), err)
				}
			}
			if r, err := gq.PruneCache(c.prune); err != nil || r.RemovedBytes == 0 || len(r.InUse) != 0 {
				t.Errorf("after the pull: %+v, %v", r, err)
			}
			if _, err := os.Stat(r.Path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", r.Path, err)
			}
		})
	}
}

// TestPruneDuringJob: pruning leaves the files of a job until it ends, because jobs open files
// again.
func TestPruneDuringJob(t *testing.T) {
	s, model := hubWith(t)
	out := t.TempDir()
	words := filepath.Join("testdata", "text", "lighthouse.txt")
	for _, c := range []struct {
		job string
		run func(name string, prune func()) error
	}{
		{"run", func(name string, prune func()) error {
			o := gq.RunOptions{Options: generate.Options{Prompt: "The", MaxTokens: 2, Text: func(string) error { prune(); return nil }}}
			_, err := gq.Run(t.Context(), name, o)
			return err
		}},
		{"serve", func(name string, prune func()) error {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			return gq.Serve(ctx, gq.ServeOptions{Models: []gq.ServeModel{{Path: name}}, Ready: func(gq.ServeReport) error { prune(); stop(); return nil }})
		}},
		{"calibration", func(name string, prune func()) error {
			o := gq.QuantizeOptions{Recipe: quantizer.Recipe{Bits: 4, Group: new(32), Algorithm: gqf.AlgorithmGPTQ, Calibrate: words, CalibrateTokens: 300}, Progress: &listener{done: func(string, int64) { prune() }}}
			_, err := gq.Quantize(t.Context(), name, filepath.Join(out, "a.gqf"), o)
			return err
		}},
		{"sweep", func(name string, prune func()) error {
			o := gq.SweepOptions{Recipes: []gq.SweepRecipe{{Name: "a", Recipe: quantizer.Recipe{Bits: 4, Group: new(32)}}}}
			o.Measure = gq.MeasureOptions{Texts: []gq.TextFile{{Path: words}}, Windows: text.Options{MaxTokens: 200}, Progress: &listener{done: func(string, int64) { prune() }}}
			_, err := gq.Sweep(t.Context(), name, o)
			return err
		}},
		{"accuracy", func(name string, prune func()) error {
			_, err := gq.Measure(t.Context(), name, filepath.Join(out, "a.gqf"), gq.MeasureOptions{Progress: &listener{done: func(string, int64) { prune() }}})
			return err
		}},
	} {
		for name, pruned := range map[string]string{"hf://org/books": "org/books", s.AddPlain(t, "books", model): ""} {
			if pruned == "" {
				pruned = name
			}
			times := 0
			err := c.run(name, func() {
				times++
				if _, err := gq.PruneCache(pruned); !errors.Is(err, transfer.ErrInUse) {
					t.Errorf("%s: pruning %s: %v", c.job, pruned, err)
				}
			})
			if err != nil || times == 0 {
				t.Errorf("%s of %s: pruned %d times, %v", c.job, name, times, err)
			}
			if r, err := gq.PruneCache(pruned); err != nil || r.RemovedBytes == 0 {
				t.Errorf("after %s of %s: %+v, %v", c.job, name, r, err)
			}
		}
	}
}
