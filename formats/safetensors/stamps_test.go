package safetensors

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lowbit-go/gq/packing"
)

// TestStamps changes a file and restores its time: the stamps still differ.
func TestStamps(t *testing.T) {
	for _, size := range []int64{64, 1 << 22} {
		dir := t.TempDir()
		specs := []TensorSpec{{Name: "w", Dtype: packing.F32, Shape: []int64{size / 4}}}
		stamps := func(change int64) []string {
			t.Helper()
			sub := filepath.Join(dir, "model")
			if err := os.RemoveAll(sub); err != nil {
				t.Fatal(err)
			}
			w, err := Create(sub, specs, WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Abort()
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(int64(i) * change)
			}
			if err := w.WriteAt(0, data, 0); err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(sub, "*.safetensors"))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			if err := os.Chtimes(files[0], time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			ck, err := Open(sub, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			return ck.Stamps()
		}
		if a, b := stamps(0), stamps(0); !slices.Equal(a, b) {
			t.Errorf("%d bytes: %q and %q for the same files", size, a, b)
		}
		if a, b := stamps(0), stamps(1); slices.Equal(a, b) {
			t.Errorf("%d bytes: %q for other weights", size, a)
		}
	}
}
