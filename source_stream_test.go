package gq

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
	"github.com/lowbit-go/gq/internal/remote/transfer"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testremote"
	"github.com/lowbit-go/gq/quantizer"
)

// hubOfBooks starts a hub with the bundled model as org/books, and a new cache at home.
func hubOfBooks(t *testing.T) (s *testremote.Server, home string) { return hubOf(t, books) }

// hubOf has a model under the name of the bundled one.
func hubOf(t *testing.T, dir string) (s *testremote.Server, home string) {
	t.Helper()
	s, home = testremote.Start(t), t.TempDir()
	s.AddRepo(t, "org/books", dir)
	for name, value := range map[string]string{
		"HF_ENDPOINT": s.URL, "HF_HOME": home, "HF_TOKEN": "", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "", "XDG_CACHE_HOME": filepath.Join(home, "xdg"),
		"HTTP_PROXY": "", "http_proxy": "",
	} {
		t.Setenv(name, value)
	}
	return s, home
}

// pulled is the directory of the model in the cache.
func pulled(t *testing.T) string {
	t.Helper()
	r, err := Pull(t.Context(), "org/books", PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Path
}

// largest is the size of the largest file below a directory.
func largest(t *testing.T, dir string) (most int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			most = max(most, info.Size())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return most
}

// notes is a Progress that keeps the log.
type notes struct{ lines []string }

func (n *notes) Stage(Stage) (func(int64), func()) { return func(int64) {}, func() {} }
func (n *notes) Log(line string)                   { n.lines = append(n.lines, line) }

// TestStreamedSource: jobs that read the weights once leave no copy of them. The others say that
// they use the cache. All give the bytes of a local job.
func TestStreamedSource(t *testing.T) {
	for _, c := range []struct {
		name string
		o    QuantizeOptions
		note string // why the cache is used; "": it is not
	}{
		{name: "default"},
		{name: "rules", o: QuantizeOptions{Recipe: quantizer.Recipe{Bits: 3, Algorithm: gqf.AlgorithmRTN}}},
		{name: "hashes", o: QuantizeOptions{Recipe: quantizer.Recipe{HashFiles: true}}, note: "it hashes the files"},
		{name: "gguf", o: QuantizeOptions{Recipe: quantizer.Recipe{Targets: []quantizer.Target{quantizer.TargetGGUF}}}, note: "it compares the new file with them"},
		{name: "calibration", o: QuantizeOptions{Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: story, CalibrateTokens: 64}}, note: "it calibrates"},
	} {
		t.Run(c.name, func(t *testing.T) {
			hubOfBooks(t)
			snapshot := pulled(t)
			_, home := hubOfBooks(t) // with an empty cache
			dir, ext := t.TempDir(), ".gqf"
			if c.o.Recipe.ForGGUF() {
				ext = ".gguf"
			}
			want, got := filepath.Join(dir, "local"+ext), filepath.Join(dir, "remote"+ext)
			if _, err := Quantize(t.Context(), snapshot, want, c.o); err != nil {
				t.Fatal(err)
			}
			var n notes
			c.o.Progress = &n
			if _, err := Quantize(t.Context(), "hf://org/books", got, c.o); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(contents(t, got), contents(t, want)) {
				t.Error("the file differs from a local job's")
			}
			log := strings.Join(n.lines, "\n")
			if c.note == "" {
				if size := largest(t, home); size > 1e6 || strings.Contains(log, "cache") {
					t.Errorf("a file of %d bytes is in the cache; log: %s", size, log)
				}
			} else if !strings.Contains(log, "reads the weights more than once ("+c.note+"): it uses the cache") || largest(t, home) < 2e6 {
				t.Errorf("log: %s", log)
			}
		})
	}
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestStreamedHeaders: a plan and an inspection read headers, and samples of rows.
func TestStreamedHeaders(t *testing.T) {
	_, home := hubOfBooks(t)
	plan, err := Plan(t.Context(), "hf://org/books", "x.gqf", QuantizeOptions{Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self}})
	if err != nil {
		t.Fatal(err)
	}
	local, err := Plan(t.Context(), books, "x.gqf", QuantizeOptions{Recipe: quantizer.Recipe{Algorithm: gqf.AlgorithmGPTQ, Calibrate: quantizer.Self}})
	if err != nil {
		t.Fatal(err)
	}
	if plan.OutputBytes != local.OutputBytes || !slices.Equal(plan.Warnings, local.Warnings) {
		t.Errorf("plan: %d bytes, %q; local: %d bytes, %q", plan.OutputBytes, plan.Warnings, local.OutputBytes, local.Warnings)
	}
	in, err := Inspect(t.Context(), "hf://org/books", InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if in.Summary.Parameters == 0 || in.Checkpoint == nil || !strings.HasPrefix(in.Name, "hf://org/books@") {
		t.Errorf("inspection: %+v", in.Summary)
	}
	if _, err := InspectTensors(t.Context(), "hf://org/books", "re:.*norm.*", 0, InspectOptions{}); err != nil {
		t.Error(err)
	}
	if size := largest(t, home); size > 1e6 {
		t.Errorf("a file of %d bytes is in the cache", size)
	}
}

// impatient is a client that repeats requests at once.
func impatient() *remote.Client {
	c := remote.NewClient()
	c.Sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return c
}

// TestStreamedFaults has each fault at each request of a streamed job. Either the file has the
// bytes of a local job, or the job fails and leaves nothing.
func TestStreamedFaults(t *testing.T) {
	s, _ := hubOf(t, testmodels.Books(t, 2))
	want := filepath.Join(t.TempDir(), "local.gqf")
	if _, err := Quantize(t.Context(), pulled(t), want, QuantizeOptions{}); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := remote.Parse("hf://org/books")
	if err != nil {
		t.Fatal(err)
	}
	client := impatient()
	// A job, from the opening of the weights on.
	job := func(faults map[int]testremote.Fault) (file []byte, err error) {
		s.SetFaults(nil)
		h, err := hub.Open(t.Context(), l, hub.Settings{Endpoint: u, Cache: t.TempDir()}, client)
		if err != nil {
			t.Fatal(err)
		}
		list, err := h.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		weights := func(o remote.Object) bool { return strings.HasSuffix(o.Name, ".safetensors") }
		src := &location.Source{Name: h.String(), Path: h.Dir(), Store: h}
		for _, o := range list {
			if weights(o) {
				src.Weights = append(src.Weights, o)
			}
		}
		if err := h.Fetch(t.Context(), slices.DeleteFunc(list, weights), transfer.Options{}); err != nil {
			t.Fatal(err)
		}
		s.SetFaults(faults)
		return quantizeFrom(t, src)
	}
	if file, err := job(nil); err != nil || !bytes.Equal(file, contents(t, want)) {
		t.Fatalf("without a fault: %d bytes, %v", len(file), err)
	}
	requests := len(s.Requests())
	t.Log(requests)
	for _, fault := range testremote.Faults() {
		for n := 1; n <= requests; n++ {
			file, err := job(map[int]testremote.Fault{n: fault})
			passing := fault <= testremote.WrongRange
			switch {
			case err == nil && !bytes.Equal(file, contents(t, want)):
				t.Errorf("%v at request %d: other bytes", fault, n)
			case err != nil && passing:
				t.Errorf("%v at request %d: %v", fault, n, err)
			case err != nil && strings.Contains(err.Error(), testremote.Signature):
				t.Errorf("%v at request %d: the error has a signature: %v", fault, n, err)
			}
			if changed := new(remote.ChangedError); fault == testremote.OtherETag && err != nil && !errors.As(err, &changed) {
				t.Errorf("%v at request %d: %v", fault, n, err)
			}
		}
	}
	everywhere := map[int]testremote.Fault{}
	for n := range requests * 2 {
		everywhere[n+1] = testremote.Flipped
	}
	if _, err := job(everywhere); err == nil {
		t.Error("bits of all answers are changed, and nothing is noticed")
	}
	// The number of requests depends on the order in which workers need bytes.
	if _, err := job(map[int]testremote.Fault{requests: testremote.Flipped}); err == nil && len(s.Requests()) >= requests {
		t.Error("bits of the last answer are changed, and nothing is noticed")
	}
	if requests < 3 {
		t.Errorf("%d requests only", requests)
	}
}

// quantizeFrom makes a file of the source. Nothing is left if it fails.
func quantizeFrom(t *testing.T, s *location.Source) ([]byte, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "x.gqf")
	write := func() error {
		ck, err := s.OpenCheckpoint(t.Context())
		if err != nil {
			return err
		}
		defer ck.Close()
		config, err := assets.ReadConfig(ck)
		if err != nil {
			return err
		}
		p, err := conversion.NewPlan(ck, config, conversion.Options{Threads: 2})
		if err != nil {
			return err
		}
		_, err = p.Write(t.Context(), out)
		return err
	}
	if err := write(); err != nil {
		if left, e := os.ReadDir(filepath.Dir(out)); e != nil || len(left) > 0 {
			t.Errorf("%v: there are left %v, %v", err, left, e)
		}
		return nil, err
	}
	return contents(t, out), nil
}
