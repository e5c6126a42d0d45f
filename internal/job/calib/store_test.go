package calib_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/calib"
	"github.com/lowbit-go/gq/internal/job/conversion"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// tiny is a model whose job takes a moment.
const tiny = "../../../internal/lm/forward/testdata/torch/llama3"

// childEnv makes the test binary run a job in the directory that it names.
const childEnv = "GQ_CALIB_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func tinyText() *text.Text { return testplan.Text(64, 32, 32) }

// child runs the job and prints a line each time that weights are done.
func child(dir string) error {
	work, err := workdir.Open(dir)
	if err != nil {
		return err
	}
	ck, err := safetensors.Open(tiny, safetensors.Options{})
	if err != nil {
		return err
	}
	config, err := assets.ReadConfig(ck)
	if err != nil {
		return err
	}
	p, err := conversion.NewPlan(ck, config, conversion.Options{Recipe: jobRecipe})
	if err != nil {
		return err
	}
	_, err = calib.Run(context.Background(), p, tinyText(), calib.Options{Work: work, Threads: 1, Progress: func(int64) {
		fmt.Println("progress")
		time.Sleep(time.Millisecond) // so that it can be killed between two layers
	}})
	return err
}

func openWork(t testing.TB, path string) *workdir.Dir {
	t.Helper()
	work, err := workdir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { work.Close() })
	return work
}

// tinyFile runs the job in a directory and returns the file's bytes and the number of layers it
// resumed from.
func tinyFile(t testing.TB, work *workdir.Dir) (b []byte, found int) {
	t.Helper()
	o := calib.Options{Work: work, Threads: 1, Resumed: func(layers, of int) { found = layers }}
	b, _ = file(t, testplan.New(t, tiny, jobRecipe), tinyText(), o)
	return b, found
}

// TestKilled kills a job at random moments and resumes it until it ends: the file must equal the
// file of an uninterrupted job.
func TestKilled(t *testing.T) {
	testshared.SlowEmulated(t, "resumption is the same natively")
	want, _ := tinyFile(t, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	resumed := 0
	for range 6 {
		dir := filepath.Join(t.TempDir(), "work")
		for range 3 {
			kill(t, exe, dir, 1+r.IntN(18))
		}
		work := openWork(t, dir)
		got, found := tinyFile(t, work)
		if !bytes.Equal(got, want) {
			t.Fatalf("a resumed job gives another file (%d layers were there)", found)
		}
		resumed += found
		if err := work.Remove(); err != nil {
			t.Error(err)
		}
	}
	if resumed == 0 {
		t.Error("no job was killed behind a layer")
	}
}

// kill starts a job in a directory and kills it when it has reported progress so many times.
func kill(t *testing.T, exe, dir string, times int) {
	t.Helper()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.ENOEXEC) {
		t.Skip("this machine runs the test in an emulator and cannot start its like")
	} else if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range times {
		if lines.Scan() && lines.Text() != "progress" {
			t.Fatalf("the child says %q", lines.Text())
		}
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
}

// TestDamagedWork damages every kind of place in a job's directory: damaged layers and other jobs'
// layers must be made again, and the file must be the same.
func TestDamagedWork(t *testing.T) {
	testshared.SlowEmulated(t, "resumption is the same natively")
	work := openWork(t, filepath.Join(t.TempDir(), "work"))
	want, found := tinyFile(t, work)
	if found != 0 {
		t.Fatalf("%d layers were there", found)
	}
	files, err := filepath.Glob(filepath.Join(work.Path(), "layer-*.work"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	if got, found := tinyFile(t, work); found != len(files) || !bytes.Equal(got, want) {
		t.Fatalf("of %d layers %d were found, the same file: %v", len(files), found, bytes.Equal(got, want))
	}
	whole := map[string][]byte{}
	for _, name := range files {
		if whole[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what, name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
		if got, found := tinyFile(t, work); found != len(files)-1 || !bytes.Equal(got, want) {
			t.Errorf("%s %s: %d layers were taken, the same file: %v", what, filepath.Base(name), found, bytes.Equal(got, want))
		}
		if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, whole[name]) {
			t.Errorf("%s %s: it was not made again (%v)", what, filepath.Base(name), err)
		}
	}
	seeds := 40
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		name := files[seed%len(files)]
		b := bytes.Clone(whole[name])
		// Most places are codes. Every second damage is to the header or the index.
		i := r.IntN(len(b) / (1 + seed%2*8))
		if seed%5 == 0 {
			check(fmt.Sprint("truncated to ", i), name, b[:i])
			continue
		}
		b[i] ^= 1 << r.IntN(8)
		check(fmt.Sprint("a bit flipped at ", i), name, b)
	}
	check("another layer's file as", files[0], whole[files[1]])

	// Layers of another job have other keys.
	other := openWork(t, filepath.Join(t.TempDir(), "other"))
	file(t, testplan.New(t, tiny, quantizer.Recipe{Bits: 4, Algorithm: gqf.AlgorithmGPTQ}), tinyText(), calib.Options{Work: other, Threads: 1})
	b, err := os.ReadFile(filepath.Join(other.Path(), filepath.Base(files[0])))
	if err != nil {
		t.Fatal(err)
	}
	check("another job's", files[0], b)
	if _, found := tinyFile(t, other); found != 0 {
		t.Errorf("%d layers of another job were taken", found)
	}
}

// TestFinishedWork runs a job whose layers are all there: it takes them without running the text
// again, which would fail because the job is cancelled.
func TestFinishedWork(t *testing.T) {
	work := openWork(t, filepath.Join(t.TempDir(), "work"))
	tinyFile(t, work)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found := 0
	o := calib.Options{Work: work, Threads: 1, Resumed: func(layers, _ int) { found = layers }}
	r, err := calib.Run(ctx, testplan.New(t, tiny, jobRecipe), tinyText(), o)
	if err != nil || found != 3 {
		t.Fatalf("%d layers were found, %v", found, err)
	}
	r.Close()
}

// TestWorkLocked starts a second job in the directory of a running one.
func TestWorkLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	work := openWork(t, dir)
	second := errors.New("not tried")
	o := calib.Options{Work: work, Threads: 1, Progress: func(int64) { _, second = workdir.Open(dir) }}
	file(t, testplan.New(t, tiny, jobRecipe), tinyText(), o)
	if _, ok := errors.AsType[*workdir.LockedError](second); !ok || !strings.Contains(second.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a second job: %v", second)
	}
}

// TestInterrupted cancels a job: the next job resumes from the finished layers.
func TestInterrupted(t *testing.T) {
	testshared.SlowEmulated(t, "resumption is the same natively")
	work := openWork(t, filepath.Join(t.TempDir(), "work"))
	ctx, cancel := context.WithCancel(t.Context())
	o := calib.Options{Work: work, Threads: 1, Progress: func(int64) {
		if _, err := os.Stat(filepath.Join(work.Path(), "layer-0.work")); err == nil {
			cancel()
		}
	}}
	if _, err := calib.Run(ctx, testplan.New(t, tiny, jobRecipe), tinyText(), o); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	want, _ := tinyFile(t, nil)
	if got, found := tinyFile(t, work); found != 1 || !bytes.Equal(got, want) {
		t.Errorf("%d layers were found, the same file: %v", found, bytes.Equal(got, want))
	}
}

// TestOtherLayout resumes a job for another layout: one whose least scale is larger does not take
// the codes, which may have smaller scales.
func TestOtherLayout(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameBits has the bits")
	work := openWork(t, filepath.Join(t.TempDir(), "work"))
	run := func(f quantizer.Family) (found int) {
		r := quantizer.Recipe{Group: new(quantizer.PerChannel), ScaleDtype: packing.ScaleF32, Algorithm: gqf.AlgorithmGPTQ, Layouts: []quantizer.LayoutRequest{{Family: f}}}
		file(t, testplan.New(t, tiny, r), tinyText(), calib.Options{Work: work, Threads: 1, Resumed: func(layers, of int) { found = layers }})
		return found
	}
	for _, test := range []struct {
		family quantizer.Family
		want   int
	}{{quantizer.FamilyLowbit, 0}, {quantizer.FamilyCodes, 3}, {quantizer.FamilyKleidiAI, 0}} {
		if found := run(test.family); found != test.want {
			t.Errorf("%v: %d layers were taken, expected %d", test.family, found, test.want)
		}
	}
}
