package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/lowbit-go/gq/internal/jsonscan"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// use looks at every tensor and reads every value, as callers do.
func use(t testing.TB, c *Checkpoint) {
	previous := ""
	covered := int64(0)
	for i, ts := range c.Tensors() {
		if i > 0 && ts.Name <= previous {
			t.Fatalf("%q after %q", ts.Name, previous)
		}
		previous = ts.Name
		covered += ts.Size
		if _, ok := c.Lookup(ts.Name); !ok {
			t.Fatalf("%q is not found", ts.Name)
		}
		b, err := c.Bytes(ts)
		var ue *UnsupportedError
		if err != nil {
			if !errors.As(err, &ue) {
				t.Fatalf("bytes of %q: %v", ts.Name, err)
			}
			continue
		}
		if int64(len(b)) != ts.Size || cap(b) != len(b) {
			t.Fatalf("%q: %d of %d bytes, capacity %d", ts.Name, len(b), ts.Size, cap(b))
		}
		if rows, cols := ts.Matrix(); ts.Dtype.IsFloat() && rows > 0 {
			row := make([]float32, cols)
			for r := range min(rows, 4) {
				if err := c.ReadRows(row, ts, int(r), 1); err != nil {
					t.Fatalf("row %d of %q: %v", r, ts.Name, err)
				}
			}
		}
		if _, err := c.BlockScales(ts.Name, [2]int{}); err != nil && !typed(err) {
			t.Fatal(err)
		}
	}
	for _, f := range c.Files() {
		covered -= f.Size
	}
	if covered > 0 {
		t.Fatal("tensors cover more bytes than the files have")
	}
}

// typed reports whether err has one of the package's types.
func typed(err error) bool {
	var fe *FormatError
	var ue *UnsupportedError
	return errors.As(err, &fe) || errors.As(err, &ue)
}

// parse opens b without a file, so that FuzzHeader does not spend its time in the file system.
func parse(b []byte) (*Checkpoint, error) {
	c := &Checkpoint{}
	l := &loader{opts: Options{}.withDefaults()}
	f, err := l.file(b, "fuzz", 0)
	if err != nil {
		return nil, err
	}
	c.files = append(c.files, f)
	return c, c.sortTensors(l)
}

func FuzzHeader(f *testing.F) {
	for _, m := range malformed {
		f.Add([]byte(m.header), m.data)
	}
	f.Add([]byte(one(good)), 4)
	f.Add([]byte(`{"__metadata__":{"\ud83d\ude00":"\/"},"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"a":`+good+`}  `), 6)
	f.Fuzz(func(t *testing.T, header []byte, data int) {
		if data < 0 || data > 1<<16 {
			return
		}
		b := image(string(header), data)
		l := &loader{opts: Options{}.withDefaults()}
		src, err := l.file(b, "fuzz", 0)
		if err != nil {
			if !typed(err) {
				t.Fatalf("error is %T: %v", err, err)
			}
			return
		}
		if src.Size != int64(len(b)) {
			t.Fatalf("size %d of %d", src.Size, len(b))
		}
		// An accepted file's tensors cover the data. Adding sizes checks this without the parser's
		// own method.
		sum := int64(0)
		for i := range l.count {
			sum += l.at(i).Size
		}
		if sum != int64(data) {
			t.Fatalf("tensors have %d bytes of %d", sum, data)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":2.5e0,"x":[null,true,false,-1]},"weight_map":{"b":"2.safetensors","a":"1.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../1.safetensors"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ix := &index{path: "fuzz", b: b}
		err := ix.read(func(*jsonscan.Scanner, int, []byte, []byte) error { return nil })
		if err != nil && !typed(err) {
			t.Fatalf("error is %T: %v", err, err)
		}
	})
}

// mutate changes b at random: bits, bytes, runs, numbers, length.
func mutate(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	header := int(min(binary.LittleEndian.Uint64(b), uint64(len(b)-8)))
	for range 1 + r.IntN(3) {
		// Mostly in the header: data are never malformed.
		at := r.IntN(8 + header)
		if at >= len(b) {
			at = len(b) - 1
		}
		switch r.IntN(9) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b[at] = byte(r.Uint32())
		case 2:
			b[at] = `{}[]":,0123456789-e.\u `[r.IntN(23)]
		case 3:
			b = b[:at+1]
		case 4:
			b = append(b, b[:r.IntN(64)+1]...)
		case 5: // remove a run
			b = append(b[:at], b[min(len(b), at+1+r.IntN(100)):]...)
		case 6: // repeat a run
			end := min(len(b), at+1+r.IntN(100))
			b = append(b[:end:end], b[at:]...)
		case 7: // another length of the header
			if len(b) >= 8 {
				binary.LittleEndian.PutUint64(b, r.Uint64()>>r.IntN(64))
			}
		case 8: // a larger digit
			if i := bytes.IndexAny(b[at:], "12345678"); i >= 0 {
				b[at+i]++
			}
		}
		if len(b) < 8 {
			return b
		}
	}
	return b
}

// allocated returns the number of bytes that the program has allocated so far. Unlike
// runtime.ReadMemStats it does not stop the world, but it counts small objects late, by the span.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// exactly returns the number of bytes that opening and using path allocates.
func exactly(t *testing.T, path string) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if c, err := Open(path, Options{}); err == nil {
		use(t, c)
		c.Close()
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// hammer replaces part, one of path's files, with each of n mutations of seed. The checkpoint must
// open and be usable, or fail with a typed error, and memory must stay in proportion to the file.
func hammer(t *testing.T, path, part string, seed []byte, n int) {
	t.Helper()
	if testing.Short() { // under emulation and the race detector, for code that depends on neither
		n /= 10
	}
	r := rand.New(rand.NewPCG(1, 2))
	limit := uint64(64*len(seed) + 1<<18) // 256 KiB for the loader's first chunks, and errors
	accepted := 0
	for i := range n {
		b := mutate(r, seed)
		if err := os.WriteFile(part, b, 0o666); err != nil {
			t.Fatal(err)
		}
		before := allocated()
		c, err := Open(path, Options{})
		if err == nil {
			accepted++
			use(t, c)
			c.Close()
		} else if !typed(err) {
			t.Fatalf("mutation %d: error is %T: %v", i, err, err)
		}
		if allocated()-before > limit {
			if n := exactly(t, path); n > limit {
				t.Fatalf("mutation %d: %d bytes were allocated for a file of %d", i, n, len(b))
			}
		}
	}
	t.Logf("%d of %d mutations of %d bytes were accepted", accepted, n, len(seed))
	if accepted == 0 || accepted == n {
		t.Error("the mutations test one side only")
	}
}

// The header is from a real model. The data are shortened, because data are never malformed.
func TestMutations(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	hammer(t, path, path, shorten(t, raw), 10_000)
}

func TestIndexMutations(t *testing.T) {
	dir := t.TempDir()
	writeCheckpoint(t, dir, WriteOptions{MaxShardBytes: 3},
		stored{TensorSpec{"a.weight", packing.F16, []int64{1}}, make([]byte, 2)}, stored{TensorSpec{"b.weight", packing.U8, []int64{3}}, make([]byte, 3)},
		stored{TensorSpec{"c.weight", packing.BF16, nil}, make([]byte, 2)})
	path := filepath.Join(dir, IndexName)
	seed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hammer(t, dir, path, seed, 2_000)
}

// shorten rewrites a file so that each tensor keeps one value.
func shorten(t *testing.T, raw []byte) []byte {
	c, err := parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []stored
	for _, ts := range c.Tensors() {
		shape := make([]int64, len(ts.Shape))
		for i := range shape {
			shape[i] = 1
		}
		tensors = append(tensors, stored{TensorSpec{ts.Name, ts.Dtype, shape}, raw[ts.Offset : ts.Offset+int64(ts.Dtype.Bits()/8)]})
	}
	return fileOf(t, tensors...)
}
