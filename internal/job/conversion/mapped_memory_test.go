package conversion

import (
	"path/filepath"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/internal/test/testmapped"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestWriteReleases reads a whole checkpoint and then quantizes it. Afterwards no page of the
// checkpoint is in memory, neither of matrices nor of the unquantized embedding.
func TestWriteReleases(t *testing.T) {
	dir := filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16")
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	o := Options{Threads: 1}
	o.Recipe.Algorithm, o.Recipe.Bits = gqf.AlgorithmRTN, 4
	p, err := NewPlan(ck, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	resident := func() int64 { return testmapped.Resident(t, filepath.Join(dir, "model.safetensors")) }
	touch := func() {
		for _, x := range ck.Tensors() {
			b, err := ck.Bytes(x)
			if err != nil {
				t.Fatal(err)
			}
			crc32c.Checksum(b)
		}
		if n := resident(); n < ck.DataBytes() {
			t.Fatalf("%d bytes of %d are in memory", n, ck.DataBytes())
		}
	}
	touch()
	for _, m := range p.Matrices() {
		if err := p.ReadMatrix(make([]float32, m.Rows*m.Cols), m); err != nil {
			t.Fatal(err)
		}
	}
	// The first and the last matrix have neighbours that are not matrices.
	if n := resident(); n > 512<<10 {
		t.Errorf("behind ReadMatrix: %d bytes are in memory", n)
	}
	touch()
	if _, err := p.WriteWith(t.Context(), filepath.Join(t.TempDir(), "x.gqf"), write.Options{}); err != nil {
		t.Fatal(err)
	}
	if n := resident(); n > 4*mmap.Granule {
		t.Errorf("behind the job: %d bytes are in memory", n)
	}
}
