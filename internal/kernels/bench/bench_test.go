package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

func header(bits uint8, rows, cols uint64) packing.Header {
	return packing.Header{Layout: packing.LayoutLowbit, Bits: bits, ScaleDtype: packing.ScaleBF16, Tile: packing.DefaultTile, Rows: rows, Cols: cols, Group: 32}.Canonical()
}

func TestRun(t *testing.T) {
	var seen []Figure
	logged := map[string]int{}
	o := Options{
		Headers: []packing.Header{header(4, 64, 256), {Layout: packing.LayoutQSI8CXP, Bits: 8, ScaleDtype: packing.ScaleF32, Tile: packing.Tile{NR: 4, KR: 8, SR: 1}, Rows: 64, Cols: 256}},
		CPU:     kernels.Features(), M: []int{1, 5}, Threads: []int{1, 2}, CacheBytes: 10000, Rounds: 3, Time: time.Millisecond,
		Log:  func(c kernels.Choice) { logged[c.String()]++ },
		Each: func(f *Figure) { seen = append(seen, *f) },
	}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(seen, r.Figures) {
		t.Error("Each and the report differ")
	}
	if len(logged) == 0 {
		t.Error("nothing was logged")
	}
	for line, n := range logged {
		if n > len(o.CPU) { // as often as one kernel is the choice of several instruction sets
			t.Errorf("%s was logged %d times", line, n)
		}
	}
	if want := len(o.CPU) * 4 * 2 * 2; len(r.Figures) != want {
		t.Fatalf("%d figures, want %d", len(r.Figures), want)
	}
	for i, f := range r.Figures {
		name := o.CPU[i/16]
		quantized := f.Layout != "plain"
		if f.Seconds <= 0 || f.GBps <= 0 || f.GMACps <= 0 || f.ReadGBps <= 0 || f.Share <= 0 || f.Rounds < 1 || f.Rounds > 3 {
			t.Errorf("%+v", f)
		}
		if int64(f.Copies)*f.Bytes < 16*o.CacheBytes {
			t.Errorf("%d copies of %d bytes are not 16 times a cache of %d", f.Copies, f.Bytes, o.CacheBytes)
		}
		if quantized && (f.OverFloat32 <= 0 || f.OverBF16 <= 0) || (f.M > 1) != (f.OverOneRow > 0) {
			t.Errorf("comparisons of %+v", f)
		}
		if !quantized {
			continue
		}
		h := o.Headers[i%16/4-2]
		if want, err := kernels.KernelFor(h, f.M, kernels.Options{CPU: name}); err != nil || f.Kernel != want {
			t.Errorf("%s is measured as %s, chosen is %s, %v", name, f.Kernel, want, err)
		}
	}
}

func TestRunFails(t *testing.T) {
	h := header(4, 64, 256)
	other := header(4, 64, 512)
	for name, o := range map[string]Options{
		"nothing":    {},
		"two shapes": {Headers: []packing.Header{h, other}},
		"no rows":    {Headers: []packing.Header{h}, M: []int{0}},
		"no threads": {Headers: []packing.Header{h}, Threads: []int{0}},
		"rounds":     {Headers: []packing.Header{h}, Rounds: -1},
		"cpu":        {Headers: []packing.Header{h}, CPU: []string{"z80"}},
		"no kernel":  {Headers: []packing.Header{{Layout: packing.LayoutCodes, Bits: 4, ScaleDtype: packing.ScaleF32, Rows: 8, Cols: 64}}},
		"size":       {Headers: []packing.Header{header(4, 1<<20, 1<<20)}},
	} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := o.Memory(); err == nil {
			t.Errorf("%s: memory without an error", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Options{Headers: []packing.Header{h}, CacheBytes: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestMemory holds the sizes of the default matrix.
func TestMemory(t *testing.T) {
	const cache = 32 << 20
	o := Options{CacheBytes: cache, M: []int{128}}
	for bits := uint8(1); bits <= 8; bits++ {
		h := header(bits, 4096, 14336)
		o.Headers = append(o.Headers, h)
		s, err := newSpace(h, cache)
		if err != nil || int64(s.copies)*s.size <= 16*cache || int64(s.copies-1)*s.size > 16*cache || s.stride%pageBytes != 0 || s.stride < s.size {
			t.Errorf("%d bits: %+v, %v", bits, s, err)
		}
	}
	if n, err := o.Memory(); err != nil || n > 1500<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if s, err := newSpace(o.Headers[0], 1<<40); err != nil || int64(s.copies-1)*s.size > maxCopies {
		t.Errorf("a huge cache: %d bytes, %v", s.bytes(), err)
	}
}

func TestCacheBytes(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  int64
	}{
		{nil, defaultCache},
		{map[string]string{"index0": "1 Data 48K", "index1": "1 Instruction 32K", "index2": "2 Unified 1024K", "index3": "3 Unified 32768K"}, 32 << 20},
		{map[string]string{"index0": "1 Data 48K", "index1": "2 Unified 2M"}, 2 << 20},
		{map[string]string{"index0": "1 Data x", "index1": "2 Unified 5T"}, defaultCache},
	} {
		dir := t.TempDir()
		for name, text := range c.files {
			if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
			var words [3]string
			n := 0
			for i, r := range text + " " {
				if r == ' ' {
					words[slices.Index(words[:], "")] = text[n:i]
					n = i + 1
				}
			}
			for i, file := range []string{"level", "type", "size"} {
				if err := os.WriteFile(filepath.Join(dir, name, file), []byte(words[i]+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := cacheBytes(dir); got != c.want {
			t.Errorf("%v: %d, want %d", c.files, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	of := func(r round) float64 { return r.read }
	for want, list := range map[float64][]round{
		3:   {{0, 9}, {0, 1}, {0, 3}},
		2.5: {{0, 9}, {0, 1}, {0, 3}, {0, 2}},
		7:   {{0, 7}},
	} {
		if got := median(list, of); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestFillFloats(t *testing.T) {
	for _, d := range []packing.Dtype{packing.F32, packing.BF16} {
		b := make([]byte, 3<<16+8)
		fillFloats(b, d)
		for i := 0; i < len(b); i += 4 {
			// Neither NaN nor infinite nor subnormal, in either half.
			for _, e := range []byte{b[i+1], b[i+3]} {
				if d == packing.F32 {
					e = b[i+3]
				}
				if e &= 0x7f; e < 0x20 || e > 0x3f {
					t.Fatalf("%s: exponent %#x at %d", d, e, i)
				}
			}
		}
	}
}

// TestBlocks measures types of ggml, with weights of usual size in every copy.
func TestBlocks(t *testing.T) {
	var headers []packing.Header
	for _, name := range []string{"Q4_K", "NVFP4", "Q4_1"} {
		f, _ := gguf.ParseType(name)
		headers = append(headers, f.Header(64, 256))
		s, err := newSpace(headers[len(headers)-1], 10000)
		if err != nil {
			t.Fatal(err)
		}
		memory, row := make([]byte, s.bytes()), make([]float32, 256)
		s.fillBlocks(memory, f)
		last := s.copy(memory, s.copies-1)
		for size := len(last) / 64; len(last) > 0; last = last[size:] {
			if err := f.Decode(row, last[:size]); err != nil {
				t.Fatal(err)
			}
			unusual := func(x float32) bool { return !(x > -1e9 && x < 1e9) }
			if slices.ContainsFunc(row, unusual) || !slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
				t.Errorf("%s: weights %v ...", name, row[:8])
			}
		}
	}
	r, err := Run(context.Background(), Options{
		Headers: headers, CPU: []string{"generic"}, M: []int{1}, Threads: []int{1}, CacheBytes: 10000, Rounds: 1, Time: time.Millisecond,
		Log: func(kernels.Choice) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range r.Figures[2:] {
		got = append(got, f.Layout+" "+f.Kernel)
	}
	if diff := cmp.Diff([]string{"Q4_K gemm_q4_k_generic", "NVFP4 gemm_nvfp4_generic", "Q4_1 gemm_q4_1_generic"}, got); diff != "" {
		t.Error(diff)
	}
}
