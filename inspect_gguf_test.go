package gq

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/inspect"
)

// TestLongRows: a row of a hostile file may be as long as a sparse file, and takes no memory.
func TestLongRows(t *testing.T) {
	const weights, limit = 1 << 24, 8 << 20
	info := gguf.TensorInfo{Name: "a", Dims: []int64{weights, 2}, Type: gguf.Q8_0}
	l, err := gguf.NewLayout(nil, []gguf.TensorInfo{info}, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "long.gguf")
	if err := os.WriteFile(file, l.Shards[0].Header, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, l.Shards[0].Size); err != nil {
		t.Fatal(err)
	}
	allocated := func(fn func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	verify := func() *GGUFReport {
		r, err := VerifyGGUF(context.Background(), file, VerifyOptions{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if n := allocated(func() { verify() }); n > limit {
		t.Errorf("verifying allocates %d bytes", n)
	}
	inspect := func() (*GGUFTensor, error) {
		f, err := gguf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return inspectGGUF(f, inspect.GGUFTensor{Name: "a"})
	}
	if n := allocated(func() {
		if r, err := inspect(); err != nil || len(r.Codes) != 1 || r.Codes[0].Count != 2*weights {
			t.Errorf("%+v, %v", r, err)
		}
	}); n > limit {
		t.Errorf("inspecting allocates %d bytes", n)
	}
	// The last block of all.
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xff, 0xff}, l.Places[0].Offset+info.Size()-34); err != nil {
		t.Fatal(err)
	}
	if r := verify(); len(r.NotFinite) != 1 || !strings.Contains(r.NotFinite[0], `tensor "a": row 1 `) {
		t.Errorf("%q", r.NotFinite)
	}
	const want = `tensor "a", row 1 from weight 16711680 on: block 2047 has the scale NaN`
	if _, err := inspect(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
}
