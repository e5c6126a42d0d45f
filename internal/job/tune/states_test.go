package tune

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/workdir"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// TestLayersAlone trains a model by layers alone: with hidden states in memory, with hidden states
// in a file, and with interruptions in and behind each layer. The files are equal.
func TestLayersAlone(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the optimizer, model.TestGradientBits the gradients")
	const layers = 3
	p := testplan.New(t, testmodels.Books(t, layers), quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmRTN})
	words := ids(t, 512, 100, 100, 100, 100)
	options := Options{Kind: quantizer.TuneBlocks, Threads: 1, mostState: 1}
	n := LayerSteps(words.TrainTokens())

	r, err := Run(context.Background(), p, nil, words, options)
	if err != nil {
		t.Fatal(err)
	}
	if all := Work(p, options, words, layers); all != layers*n || r.Steps != all || r.Step != all || !(r.After < r.Before) {
		t.Errorf("KL %g, then %g at step %d of %d, want %d", r.Before, r.After, r.Step, r.Steps, layers*n)
	}
	want := file(t, p, r)

	work, err := workdir.Open(filepath.Join(t.TempDir(), "work"))
	if err != nil {
		t.Fatal(err)
	}
	var resumed []int
	for stop := 1; ; stop++ { // in the first layer, behind it, and so on
		ctx, cancel := context.WithCancel(context.Background())
		at := 0
		interrupt := func() {
			if at++; at == 2 && stop < 2*layers {
				cancel()
			}
		}
		o := options
		o.Threads, o.Work = 1+stop%3, work
		o.Resumed = func(steps, of int) { resumed = append(resumed, steps) }
		o.Trained = func(TrainedLayer) { interrupt() }
		o.Progress = func(int64) { interrupt() }
		r, err = Run(ctx, p, nil, words, o)
		cancel()
		if _, e := os.Stat(filepath.Join(work.Path(), statesName+".tree")); !errors.Is(e, os.ErrNotExist) {
			t.Fatalf("stop %d: the file of hidden states is there (%v)", stop, e)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if got := file(t, p, r); got != want {
		t.Errorf("with a working directory: the file has the checksum %s, want %s", got, want)
	}
	r.Close()
	if len(resumed) == 0 || !slices.IsSorted(resumed) || resumed[len(resumed)-1]%n != 0 {
		t.Errorf("resumed at steps %v", resumed)
	}
	if _, err := work.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLayersMemory: with a working directory, live memory does not grow from layer to layer, and a
// longer text adds nothing. Without a directory, both grow.
func TestLayersMemory(t *testing.T) {
	testshared.SlowEmulated(t, "memory is the same natively")
	const layers = 3
	p := testplan.New(t, testmodels.Books(t, layers), quantizer.Recipe{Bits: 2, Algorithm: gqf.AlgorithmRTN})
	codes, width := int64(0), int64(0)
	for _, m := range p.Matrices() {
		if !m.Embedded() {
			codes += int64(m.Rows) * int64(m.Cols) / layers
		}
		if width == 0 || int64(m.Cols) < width {
			width = int64(m.Cols)
		}
	}
	// live returns the live memory after each layer, up to a number of layers.
	live := func(work *workdir.Dir, most int, lengths ...int) (list []int64) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		o := Options{Kind: quantizer.TuneBlocks, Threads: 1, mostState: 1, Work: work}
		o.Trained = func(TrainedLayer) {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			if list = append(list, int64(m.HeapAlloc)); len(list) == most {
				cancel()
			}
		}
		r, err := Run(ctx, p, nil, ids(t, 512, lengths...), o)
		if err == nil {
			r.Close()
		} else if !errors.Is(err, context.Canceled) || len(list) < most {
			t.Fatal(err)
		}
		return list
	}
	short, long := []int{500, 150}, []int{500, 500, 500, 150}
	more := int64(2 * 4 * 1000 * width) // of hidden states
	for _, stored := range []bool{true, false} {
		var work *workdir.Dir
		if stored {
			var err error
			if work, err = workdir.Open(filepath.Join(t.TempDir(), "work")); err != nil {
				t.Fatal(err)
			}
		}
		a := live(work, layers, short...)
		b := live(work, 1, long...)
		if deep := a[layers-1] - a[0]; stored != (deep < codes) {
			t.Errorf("stored %t: %d bytes more in layer %d than in layer 0, a layer has %d codes", stored, deep, layers-1, codes)
		}
		// Buffers are of 512 tokens.
		if longer := b[0] - a[0]; stored != (longer < more/2) {
			t.Errorf("stored %t: %d bytes more with a longer text, its hidden states take %d", stored, longer, more)
		}
		if stored {
			if err := work.Remove(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFullDisk writes hidden states to a full disk.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs /dev/full")
	}
	defer full.Close()
	s := newStates(&scratch{File: full}, 8, []int{100, 25_000})
	err = s.set(0, make([]float32, 800))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "hidden states, which take 0.8 MB of disk: make room") {
		t.Errorf("the error is %v", err)
	}
}
