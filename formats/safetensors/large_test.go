package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

const largeTensors = 200_000

// writeLarge writes a file with the header of a mixture of experts: 200,000 tensors with realistic
// names and numbers, 20 MB. The data are a hole in the file.
func writeLarge(t testing.TB, shuffled bool) string {
	t.Helper()
	h := []byte("{")
	for i := range largeTensors {
		j := i
		if shuffled {
			j = i * 7919 % largeTensors // 7919 is prime, so each j once
		}
		h = fmt.Appendf(h, `"model.language_model.layers.%d.mlp.experts.%d.%s_proj.weight":{"dtype":"BF16","shape":[2,16],"data_offsets":[%d,%d]},`,
			j/1536, j/3%512, [3]string{"gate", "up", "down"}[j%3], 64*j, 64*j+64)
	}
	h[len(h)-1] = '}'
	path := writeFile(t, "large.safetensors", image(string(h), 0))
	if err := os.Truncate(path, int64(8+len(h)+64*largeTensors)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLargeHeaderMemory demands at most 100 MB for 200,000 tensors. BenchmarkOpenLarge measures the
// time: 0.12 s, shuffled 0.19 s, on an AMD EPYC.
func TestLargeHeaderMemory(t *testing.T) {
	testshared.SlowEmulated(t, "allocations and limits are the same natively")
	for _, shuffled := range []bool{false, true} {
		path := writeLarge(t, shuffled)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := Open(path, Options{})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Tensors()) != largeTensors {
			t.Errorf("%d tensors", len(c.Tensors()))
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		t.Logf("shuffled=%v: %d bytes in %d allocations", shuffled, allocated, after.Mallocs-before.Mallocs)
		if allocated >= 100e6 {
			t.Errorf("%d bytes were allocated", allocated)
		}
		if n := after.Mallocs - before.Mallocs; n > largeTensors/10 {
			t.Errorf("%d allocations: tensors cost some each", n)
		}
		c.Close()
	}
}

func BenchmarkOpenLarge(b *testing.B) {
	for _, shuffled := range []bool{false, true} {
		b.Run(fmt.Sprintf("shuffled=%v", shuffled), func(b *testing.B) {
			path := writeLarge(b, shuffled)
			b.ReportAllocs()
			for b.Loop() {
				c, err := Open(path, Options{})
				if err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

func BenchmarkOpenLargeSharded(b *testing.B) {
	const shards = 100
	dir := b.TempDir()
	index := []byte(`{"metadata":{"total_size":1},"weight_map":{`)
	for s := range shards {
		h := []byte("{")
		for i := range largeTensors / shards {
			name := fmt.Sprintf("model.language_model.layers.%d.mlp.experts.%d.gate_proj.weight", s, i)
			h = fmt.Appendf(h, `%q:{"dtype":"BF16","shape":[1,1],"data_offsets":[%d,%d]},`, name, 2*i, 2*i+2)
			index = fmt.Appendf(index, "%q:\"model-%05d.safetensors\",", name, s)
		}
		h[len(h)-1] = '}'
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("model-%05d.safetensors", s)), image(string(h), 2*largeTensors/shards), 0o666); err != nil {
			b.Fatal(err)
		}
	}
	index[len(index)-1] = '}'
	if err := os.WriteFile(filepath.Join(dir, IndexName), append(index, '}'), 0o666); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
