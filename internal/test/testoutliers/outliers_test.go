package testoutliers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/orthogonal"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// tiny is a random model of internal/lm/forward.
func tiny(name string) string {
	return filepath.Join("../../lm/forward/testdata/torch", name)
}

func openCheckpoint(t *testing.T, dir string) *safetensors.Checkpoint {
	t.Helper()
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	return ck
}

// hashOf hashes a directory.
func hashOf(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		fmt.Fprintln(h, d.Name(), len(raw))
		h.Write(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func makeOutliers(t *testing.T, dir string, o Options) (string, *Report) {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "copy")
	r, err := Copy(context.Background(), dir, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(dst)); len(entries) != 1 {
		t.Errorf("%v is left", entries)
	}
	return dst, r
}

// TestOutliers makes copies of every architecture. Copy compares the logits.
func TestOutliers(t *testing.T) {
	testshared.SlowEmulated(t, "TestOutlierBytes has the bytes")
	configs, err := filepath.Glob(filepath.Join(tiny("*"), "config.json"))
	if err != nil || len(configs) < 16 {
		t.Fatalf("%d models, %v", len(configs), err)
	}
	for _, config := range configs {
		dir := filepath.Dir(config)
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			dst, r := makeOutliers(t, dir, Options{Seed: 1})
			if r.Check.Tokens < 128 {
				t.Errorf("%+v", r.Check)
			}
			if post := strings.HasPrefix(name, "gemma"); post != (r.NotRotated != "") || post != (len(r.Residual) == 0) {
				t.Errorf("channels %v of hidden states, %q", r.Residual, r.NotRotated)
			}
			for _, s := range []struct {
				kind          string
				before, after Spread
			}{{"norms", r.Before.Norms, r.After.Norms}, {"values", r.Before.Values, r.After.Values}, {"up", r.Before.Up, r.After.Up}} {
				if r.Channels[s.kind] == 0 || !(s.after.Largest > 4*s.before.Largest) || !(s.after.Median > 2*s.before.Median) {
					t.Errorf("%s: %d channels, %+v before, %+v after", s.kind, r.Channels[s.kind], s.before, s.after)
				}
			}
			for _, s := range openCheckpoint(t, dst).Tensors() {
				if s.Dtype != packing.F32 {
					t.Errorf("%s has dtype %s", s.Name, s.DtypeName)
				}
			}
		})
	}
}

// TestOutliersExact checks the powers of two of a model that cannot be rotated: weights only change
// by powers of two up to the strength, and some do.
func TestOutliersExact(t *testing.T) {
	src := tiny("gemma2")
	dst, _ := makeOutliers(t, src, Options{Seed: 5, Strength: 32})
	before, after := openCheckpoint(t, src), openCheckpoint(t, dst)
	most := 1.0
	for _, a := range before.Tensors() {
		if strings.Contains(a.Name, "norm") {
			continue // the norm multiplies by 1 + weight
		}
		b, _ := after.Lookup(a.Name)
		x, y := values(t, before, a), values(t, after, b)
		for i := range x {
			if x[i] == 0 && y[i] == 0 {
				continue
			}
			f, power := math.Frexp(float64(y[i]) / float64(x[i]))
			if f != 0.5 || power > 6 || power < -4 {
				t.Fatalf("%s: weight %d was %g and is %g", a.Name, i, x[i], y[i])
			}
			most = max(most, float64(y[i])/float64(x[i]))
		}
	}
	if most != 32 {
		t.Errorf("the largest factor is %g, want 32", most)
	}
}

func values(t *testing.T, ck *safetensors.Checkpoint, s safetensors.Tensor) []float32 {
	t.Helper()
	x := make([]float32, s.Numel())
	rows, _ := s.Matrix()
	if err := ck.ReadRows(x, s, 0, int(rows)); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestOutlierBytes demands the same bytes of any number of threads, on every CPU.
func TestOutlierBytes(t *testing.T) {
	m, err := openModel(tiny("llama-bias-tied"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	o := Options{Seed: 9, Text: &text.Text{Source: "tokens", Sequences: fold.RandomTokens(m.VocabSize(), 32)}}
	o.Threads = 1
	one, _ := makeOutliers(t, tiny("llama-bias-tied"), o)
	o.Threads = 2
	two, _ := makeOutliers(t, tiny("llama-bias-tied"), o)
	if hashOf(t, one) != hashOf(t, two) {
		t.Error("threads make a difference")
	}
	if got, want := hashOf(t, one)[:16], "09578ffefee1ca2f"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	raw, err := os.ReadFile(filepath.Join(one, "README.md"))
	if err != nil || !strings.Contains(string(raw), "that gq made") {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestOutliersRefused(t *testing.T) {
	for _, strength := range []int{-2, 1, 3, 100, 2048} {
		if _, err := Copy(context.Background(), tiny("llama3"), filepath.Join(t.TempDir(), "c"), Options{Strength: strength}); err == nil || !strings.Contains(err.Error(), "power of two") {
			t.Errorf("strength %d: %v", strength, err)
		}
	}
	if _, err := Copy(context.Background(), tiny("llama3"), t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("%v, want a refusal to replace a directory", err)
	}
}

// TestOutliersKilled: a job removes what a killed job left beside its output, and does not touch
// the work of a running one.
func TestOutliersKilled(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "copy")
	work := dst + ".outliers"
	left := filepath.Join(work, "checkpoint.tree", "checkpoint.part0")
	if err := os.MkdirAll(left, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{filepath.Join(left, "model.safetensors"), filepath.Join(work, "job.lock")} {
		if err := os.WriteFile(name, []byte("1"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	running, err := workdir.Open(work)
	if err != nil {
		t.Fatal(err)
	}
	var locked *workdir.LockedError
	if _, err := Copy(t.Context(), tiny("llama3"), dst, Options{Seed: 1}); !errors.As(err, &locked) {
		t.Errorf("beside a running job: %v", err)
	}
	if _, err := running.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), tiny("llama3"), dst, Options{Seed: 1}); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(dst)); len(entries) != 1 {
		t.Errorf("%v is left", entries)
	}
}

// TestPrincipal finds known directions, and turns them into channels.
func TestPrincipal(t *testing.T) {
	const n = 24
	random := orthogonal.Random(3, 0)
	basis := orthogonal.Rows(n, n, &random)
	var x [][]float64
	for range 400 {
		row := make([]float64, n)
		for i, b := range basis {
			size := 0.1
			if i < 3 {
				size = 8 / float64(1+2*i)
			}
			size *= random.Float() - 0.5
			for c, v := range b {
				row[c] += size * v
			}
		}
		x = append(x, row)
	}
	pool := kernels.NewPool(2)
	defer pool.Close()
	found := principal(x, n, 3, &random, pool)
	channels := []int{7, 0, 23}
	turn := concentrating(found, channels)
	for i, c := range channels {
		if d := math.Abs(orthogonal.Dot(found[i], basis[i])); d < 0.99 {
			t.Errorf("direction %d: its cosine with the real one is %.4f", i, d)
		}
		y := append([]float64(nil), found[i]...)
		turn(y, nil)
		if math.Abs(math.Abs(y[c])-1) > 1e-14 {
			t.Errorf("direction %d: channel %d is %g", i, c, y[c])
		}
	}
	// Orthogonal: lengths and angles stay.
	for i := range n {
		for k := range n {
			a, b := make([]float64, n), make([]float64, n)
			a[i], b[k] = 1, 1
			turn(a, nil)
			turn(b, nil)
			want := 0.0
			if i == k {
				want = 1
			}
			if d := orthogonal.Dot(a, b); math.Abs(d-want) > 1e-14 {
				t.Fatalf("rows %d and %d: %g", i, k, d)
			}
		}
	}
	// Fewer directions than asked for.
	for _, v := range principal(x[:1], n, 3, &random, pool) {
		if math.Abs(orthogonal.Dot(v, v)-1) > 1e-12 {
			t.Errorf("a direction has length %g", orthogonal.Dot(v, v))
		}
	}
}

// TestEqualizedOutliers equalizes copies with outliers: the factors are taken back but for a small
// rest, also when the model is rotated behind that.
func TestEqualizedOutliers(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBytes has the bytes")
	for _, name := range []string{"llama3", "qwen2", "mixtral"} {
		copied, r := makeOutliers(t, tiny(name), Options{Seed: 3})
		for _, j := range []fold.Job{{Equalize: true}, {Equalize: true, Rotate: true, Seed: 1}} {
			folded := filepath.Join(t.TempDir(), "folded")
			if _, err := fold.Make(t.Context(), copied, folded, j); err != nil {
				t.Fatal(err)
			}
			m, err := openModel(folded, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			o, err := observe(context.Background(), m, randomTokens(m), false)
			if err != nil {
				t.Fatal(err)
			}
			now := o.channels()
			for _, s := range []struct {
				kind               string
				before, after, now Spread
			}{
				{"norms", r.Before.Norms, r.After.Norms, now.Norms}, {"values", r.Before.Values, r.After.Values, now.Values},
				{"up", r.Before.Up, r.After.Up, now.Up},
			} {
				if limit := 3 * s.before.Largest; s.now.Largest > limit || s.after.Largest < limit {
					t.Errorf("%s, rotated %v, %s: ratio %.1f, then %.1f, and %.1f when folded", name, j.Rotate, s.kind, s.before.Largest, s.after.Largest, s.now.Largest)
				}
			}
		}
	}
}
