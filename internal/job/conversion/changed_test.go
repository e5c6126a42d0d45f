package conversion

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// TestChangedSource: a checkpoint that changes while it is read, without becoming shorter, is an
// error, and nothing is written. A file that replaces it is no change.
func TestChangedSource(t *testing.T) {
	testshared.SlowEmulated(t, "errors are the same natively")
	file := func(p *write.Job, out string, progress func(int64)) error {
		_, err := p.WriteWith(t.Context(), out, write.Options{Progress: progress})
		return err
	}
	part := func(p *write.Job, out string, progress func(int64)) error {
		_, err := divide.WritePart(t.Context(), p, out, divide.PartOptions{Part: write.Part{Index: 0, Of: 2}, Maker: "test", Progress: progress})
		return err
	}
	change := func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte{1}, 1<<20)
		later := time.Now().Add(time.Hour)
		return errors.Join(err, f.Close(), os.Chtimes(path, later, later))
	}
	replace := func(path string) error {
		b, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path+".new", b[:len(b)/2], 0o666), os.Rename(path+".new", path))
	}
	for _, c := range []struct {
		name   string
		make   func(p *write.Job, out string, progress func(int64)) error
		change func(path string) error
		fails  bool
	}{
		{"file", file, change, true},
		{"part", part, change, true},
		{"file, replaced", file, replace, false},
		{"part, replaced", part, replace, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeCheckpoint(t, "", testTensor{name: "layers.0.q_proj.weight", dtype: packing.F32, shape: []int64{1024, 1024}, value: func(i int) float32 { return float32(i%29) - 14 }})
			p, err := newPlan(t, dir, Options{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			first := true
			progress := func(int64) {
				if first {
					first = false
					if err := c.change(filepath.Join(dir, "model.safetensors")); err != nil {
						t.Error(err)
					}
				}
			}
			to := t.TempDir()
			err = c.make(p, filepath.Join(to, "model.gqf"), progress)
			if !c.fails {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if _, ok := errors.AsType[*safetensors.FormatError](err); !ok || !strings.Contains(err.Error(), "the file was changed while it was read") {
				t.Errorf("error %v, want a FormatError that says that the file was changed", err)
			}
			if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
				t.Errorf("%v is left, %v", left, err)
			}
		})
	}
}
