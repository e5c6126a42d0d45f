package safetensors

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/internal/mmap"
)

// remoteDir moves the files of a checkpoint whose names end in .safetensors out of a directory, and
// returns them as remote files. fail is called before each request.
func remoteDir(t *testing.T, dir string, fail func(name string, off, n int64) error) (string, []RemoteFile) {
	t.Helper()
	small := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var remote []RemoteFile
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.Name(), fileSuffix) {
			if err := os.WriteFile(filepath.Join(small, e.Name()), data, 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		remote = append(remote, RemoteFile{Name: e.Name(), Path: "hf://org/model/" + e.Name(), Size: int64(len(data)), Version: "v1",
			ReadAt: func(ctx context.Context, dst []byte, off int64) error {
				if fail != nil {
					if err := fail(e.Name(), off, int64(len(dst))); err != nil {
						return err
					}
				}
				if copy(dst, data[off:]) != len(dst) {
					return errors.New("a request beyond the end")
				}
				return ctx.Err()
			}})
	}
	return small, remote
}

// writeShards writes a checkpoint of three files: many tensors with long names, so that a header
// does not fit the first request, and tensors of several requests.
func writeShards(t *testing.T) string {
	t.Helper()
	dir, rng := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	index := []byte(`{"weight_map":{`)
	for shard, sizes := range [][]int{slices.Repeat([]int{3}, 3000), {5 << 20, 17, 9 << 20, 1 << 10}, {100}} {
		h, at := []byte("{"), 0
		for i, n := range sizes {
			name := fmt.Sprintf("model.layers.%d.%s.%d.weight", shard, strings.Repeat("x", 60), i)
			h = fmt.Appendf(h, `%q:{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]},`, name, n, at, at+n)
			index = fmt.Appendf(index, `%q:"part-%d.safetensors",`, name, shard)
			at += n
		}
		h[len(h)-1] = '}'
		b := image(string(h), at)
		for i := len(b) - at; i < len(b); i++ {
			b[i] = byte(rng.Uint32())
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("part-%d.safetensors", shard)), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	index[len(index)-1] = '}'
	if err := os.WriteFile(filepath.Join(dir, IndexName), append(index, '}'), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRemoteStale: a remote file is read even if the directory has a file of its name, which a
// cache may have kept of an older version.
func TestRemoteStale(t *testing.T) {
	image := func(value byte) []byte {
		const header = `{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
		return append(append(b, header...), bytes.Repeat([]byte{value}, 8)...)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, SingleName)
	if err := os.WriteFile(path, image(2), 0o666); err != nil {
		t.Fatal(err)
	}
	small, remote := remoteDir(t, dir, nil)
	stale := filepath.Join(small, SingleName)
	if err := os.WriteFile(stale, image(1), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{small, stale} {
		c, err := Open(path, Options{Remote: remote})
		if err != nil {
			t.Fatal(err)
		}
		x, _ := c.Lookup("x")
		release, err := c.Fetch(t.Context(), x.Range(0, x.Size))
		if err != nil {
			t.Fatal(err)
		}
		if got := view(t, c, x); !c.Remote() || got[0] != 2 {
			t.Errorf("%s: the stale file is read: %v", path, got)
		}
		release()
		c.Close()
	}
}

// TestRemote opens the same checkpoint from its directory and from elsewhere.
func TestRemote(t *testing.T) {
	dir := writeShards(t)
	local, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	var asked atomic.Int64
	small, remote := remoteDir(t, dir, func(_ string, _, n int64) error { asked.Add(n); return nil })
	c, err := Open(small, Options{Remote: remote})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := asked.Load(); n > 5*firstHeader {
		t.Errorf("%d bytes were read for the headers", n)
	}
	if !c.Remote() || local.Remote() {
		t.Error("Remote is wrong")
	}
	if len(c.Tensors()) != len(local.Tensors()) || fmt.Sprint(c.Files()) != fmt.Sprint(local.Files()) {
		t.Fatalf("files %v, want %v", c.Files(), local.Files())
	}
	for i, want := range local.Tensors() {
		got := c.Tensors()[i]
		if got.Name != want.Name || got.Offset != want.Offset || got.File != want.File {
			t.Fatalf("tensor %+v, want %+v", got, want)
		}
		if i%500 != 0 && want.File == 0 {
			continue
		}
		release, err := c.Fetch(t.Context(), got.Range(0, got.Size))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(view(t, c, got), view(t, local, want)) {
			t.Errorf("%s: other bytes", want.Name)
		}
		release()
		release()
	}
	if len(c.remote.chunks) != 0 {
		t.Errorf("%d chunks are left", len(c.remote.chunks))
	}
	if err := c.Unchanged(); err != nil {
		t.Error(err)
	}
	stamps := c.Stamps()
	for i, s := range local.Stamps() {
		f, g := strings.Fields(s), strings.Fields(stamps[i])
		if f[2] = "v1"; !slices.Equal(f, g) {
			t.Errorf("stamp %q, want %q", g, f)
		}
	}
	// What nobody fetched cannot be read.
	last := c.Tensors()[len(c.Tensors())-1]
	err = c.Guard(func() error { _ = bytes.Clone(view(t, c, last)); return nil })
	var fault *mmap.FaultError
	if !errors.As(err, &fault) || !fault.Absent || !strings.Contains(err.Error(), "hf://org/model/part-2.safetensors") {
		t.Errorf("reading what was not fetched: %v", err)
	}
}

func view(t *testing.T, c *Checkpoint, tensor Tensor) []byte {
	t.Helper()
	b, err := c.Bytes(tensor)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRemoteErrors opens hostile and incomplete remote files.
func TestRemoteErrors(t *testing.T) {
	dir := writeShards(t)
	small, remote := remoteDir(t, dir, nil)
	broken := errors.New("the source changed")
	fails := func(context.Context, []byte, int64) error { return broken }
	for name, c := range map[string]struct {
		change func([]RemoteFile) []RemoteFile
		want   string
	}{
		"missing":  {func(f []RemoteFile) []RemoteFile { return f[1:] }, "cannot be found"},
		"twice":    {func(f []RemoteFile) []RemoteFile { return append(f, f[0]) }, "named twice"},
		"path":     {func(f []RemoteFile) []RemoteFile { f[0].Name = "../x"; return f }, "plain name"},
		"reader":   {func(f []RemoteFile) []RemoteFile { f[0].ReadAt = nil; return f }, "cannot be read"},
		"short":    {func(f []RemoteFile) []RemoteFile { f[1].Size -= 7; return f }, "hf://org/model/part-1.safetensors: byte"},
		"tiny":     {func(f []RemoteFile) []RemoteFile { f[2].Size = 3; return f }, "fewer than the 8"},
		"empty":    {func(f []RemoteFile) []RemoteFile { f[2].Size = 0; return f }, "part-2.safetensors"},
		"no bytes": {func(f []RemoteFile) []RemoteFile { f[1].ReadAt = fails; return f }, "hf://org/model/part-1.safetensors: bytes 0 to 262144: the source changed"},
	} {
		t.Run(name, func(t *testing.T) {
			ck, err := Open(small, Options{Remote: c.change(slices.Clone(remote))})
			if err == nil {
				ck.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(small, Options{Remote: remote, Context: ctx}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}

// TestReadAhead runs steps with neighbouring, overlapping and far ranges on several goroutines.
// Hardly a byte is fetched twice if the steps that need it are near each other, and memory is
// bounded.
func TestReadAhead(t *testing.T) {
	const size = 150 << 20
	pattern := make([]byte, 1<<20+7)
	for i := range pattern {
		pattern[i] = byte(i * i >> 5)
	}
	content := func(dst []byte, off int64) {
		for len(dst) > 0 {
			n := copy(dst, pattern[off%int64(len(pattern)):])
			dst, off = dst[n:], off+int64(n)
		}
	}
	var asked, requests atomic.Int64
	c := newCheckpoint("", Options{})
	file := &RemoteFile{Name: "x", Path: "x", Size: size - 3, ReadAt: func(_ context.Context, dst []byte, off int64) error {
		asked.Add(int64(len(dst)))
		requests.Add(1)
		content(dst, off)
		return nil
	}}
	if err := c.addRemote(file); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const steps, unit = 140, 1 << 20
	ranges := func(step int, list []Range) []Range {
		list = append(list, Range{0, int64(step) * unit, unit + 5})
		return append(list, Range{0, size - unit + int64(step/100)*1000, 100}) // of many steps
	}
	a := c.ReadAhead(t.Context(), steps, ranges)
	// A step that waits ends the request to which later steps would add: the steps begin when the
	// memory is full.
	const ahead = ReadAheadBytes/unit - 2
	a.mu.Lock()
	for a.admitted < ahead {
		a.change.Wait()
	}
	a.mu.Unlock()
	var wg sync.WaitGroup
	var next, most atomic.Int64
	for range 4 {
		wg.Go(func() {
			for {
				step := int(next.Add(1) - 1)
				if step >= steps {
					return
				}
				if err := a.Wait(step); err != nil {
					t.Error(err)
					return
				}
				c.remote.mu.Lock()
				most.Store(max(most.Load(), int64(len(c.remote.chunks))*chunkBytes))
				c.remote.mu.Unlock()
				err := c.Guard(func() error {
					for _, r := range ranges(step, nil) {
						want := make([]byte, r.Size)
						if content(want, r.Offset); !bytes.Equal(c.maps[0].Bytes()[r.Offset:][:r.Size], want) {
							t.Errorf("step %d has wrong bytes", step)
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				a.Done(step)
			}
		})
	}
	wg.Wait()
	a.Close()
	// Neighbours share a chunk, which is fetched again if one is done before the next is admitted.
	if n := asked.Load(); n > steps*unit+steps/4*chunkBytes {
		t.Errorf("%d bytes were asked for, %d needed", n, steps*unit)
	}
	if n := requests.Load(); n > 2*steps*unit/requestBytes {
		t.Errorf("%d requests for %d bytes", n, steps*unit)
	}
	if n := most.Load(); n > ReadAheadBytes {
		t.Errorf("%d bytes were in memory, more than %d", n, ReadAheadBytes)
	}
	if len(c.remote.chunks) != 0 {
		t.Errorf("%d chunks are left", len(c.remote.chunks))
	}
}

// TestReadAheadLargeStep has a step that exceeds the memory of a ReadAhead: it is fetched alone.
func TestReadAheadLargeStep(t *testing.T) {
	c := newCheckpoint("", Options{})
	file := &RemoteFile{Name: "x", Path: "x", Size: 2 * ReadAheadBytes, ReadAt: func(context.Context, []byte, int64) error { return nil }}
	if err := c.addRemote(file); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a := c.ReadAhead(t.Context(), 3, func(step int, list []Range) []Range {
		return append(list, Range{Offset: int64(step%2) * 4096, Size: []int64{100, 2 * ReadAheadBytes, 100}[step]})
	})
	defer a.Close()
	for step := range 3 {
		if err := a.Wait(step); err != nil {
			t.Fatal(err)
		}
		a.Done(step)
	}
}

// TestReadAheadError has requests that fail: those with a byte beyond the first 32 MiB. Where a
// request begins depends on when the steps wait, so it may also fail steps up to requestBytes
// before that byte; all others before it succeed, and nothing is left behind.
func TestReadAheadError(t *testing.T) {
	const unit, good = 1 << 20, 32 // steps of a unit each; the bytes of the first good can be read
	broken := errors.New("the source changed")
	c := newCheckpoint("", Options{})
	file := &RemoteFile{Name: "x", Path: "hf://x", Size: 2 * good * unit, ReadAt: func(_ context.Context, dst []byte, off int64) error {
		if off+int64(len(dst)) > good*unit {
			return broken
		}
		return nil
	}}
	if err := c.addRemote(file); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a := c.ReadAhead(t.Context(), 2*good, func(step int, list []Range) []Range {
		return append(list, Range{Offset: int64(step) * unit, Size: unit})
	})
	step := 0
	err := a.Wait(step)
	for ; err == nil && step < good; err = a.Wait(step) {
		a.Done(step)
		step++
	}
	if !errors.Is(err, broken) || step <= good-requestBytes/unit {
		t.Fatalf("step %d: %v", step, err)
	}
	var off, end int64
	if _, err := fmt.Sscanf(err.Error(), "hf://x: bytes %d to %d:", &off, &end); err != nil || off > int64(step)*unit || end <= good*unit {
		t.Errorf("step %d: bytes %d to %d: %v", step, off, end, err)
	}
	a.Close()
	if len(c.remote.chunks) != 0 {
		t.Errorf("%d chunks are left", len(c.remote.chunks))
	}
}
