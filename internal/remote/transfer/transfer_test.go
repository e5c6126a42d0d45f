package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/internal/remote"
)

// memory is a store with one object. It counts the bytes that are read. Calls fail if fail returns
// an error.
type memory struct {
	data []byte
	read atomic.Int64
	fail func(off int64) error
}

func (m *memory) List(context.Context) ([]remote.Object, error) { return nil, nil }
func (m *memory) String() string                                { return "memory" }

func (m *memory) ReadAt(_ context.Context, _ remote.Object, dst []byte, off int64) error {
	if m.fail != nil {
		if err := m.fail(off); err != nil {
			return err
		}
	}
	m.read.Add(int64(copy(dst, m.data[off:])))
	return nil
}

func newCopy(t *testing.T, size int) (*Copy, *memory) {
	t.Helper()
	m := &memory{data: bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]}
	c := &Copy{Store: m, Object: remote.Object{Name: "x", Size: int64(size), ETag: "e"}, Path: filepath.Join(t.TempDir(), "x"), Slots: NewSlots()}
	c.Sum = Sum{"SHA-256", sha256.New, fmt.Sprintf("%x", sha256.Sum256(m.data))}
	return c, m
}

func TestCopy(t *testing.T) {
	for _, size := range []int{0, 1, 1 << 20, 1<<20 + 1, 3<<20 + 7} {
		c, m := newCopy(t, size)
		var shown atomic.Int64
		c.Progress = func(n int64) { shown.Add(n) }
		if n := c.Missing(); n != int64(size) {
			t.Errorf("%d bytes: %d are missing", size, n)
		}
		if err := c.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(c.Path)
		if err != nil || !bytes.Equal(got, m.data) || shown.Load() != int64(size) {
			t.Errorf("%d bytes: %d, %d shown, %v", size, len(got), shown.Load(), err)
		}
		for _, name := range PartialFiles(c.Path) {
			if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left", name)
			}
		}
	}
}

// TestResume: what an ended copy has is not read again, whatever the last line of its record is.
func TestResume(t *testing.T) {
	for _, tail := range []string{"", "1", "\x00\x00\x00", "99999 00000000\n", "-1 00000000\n", "3\n", "3 0\n"} {
		c, m := newCopy(t, 4<<20)
		broken := errors.New("broken")
		m.fail = func(off int64) error {
			if off >= 2<<20 {
				return broken
			}
			return nil
		}
		if err := c.Run(context.Background()); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		record, err := os.ReadFile(c.Path + recordSuffix)
		if err != nil {
			t.Fatal(err)
		}
		done := int64(strings.Count(string(record), "\n")-1) << 20
		if err := os.WriteFile(c.Path+recordSuffix, append(record, tail...), 0o666); err != nil {
			t.Fatal(err)
		}
		if n := c.Missing(); n != 4<<20-done {
			t.Errorf("tail %q: %d bytes are missing, %d are there", tail, n, done)
		}
		m.fail = nil
		m.read.Store(0)
		if err := c.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n := m.read.Load(); n != 4<<20-done {
			t.Errorf("tail %q: %d bytes were read, %d were there", tail, n, done)
		}
		if got, _ := os.ReadFile(c.Path); !bytes.Equal(got, m.data) {
			t.Errorf("tail %q: other bytes", tail)
		}
	}
}

// TestLostChunk: a chunk whose line a crash kept and whose bytes it lost is fetched again, also of
// an object without a hash.
func TestLostChunk(t *testing.T) {
	c, m := newCopy(t, 4<<20)
	c.Sum.Want = ""
	broken := errors.New("broken")
	m.fail = func(off int64) error {
		if off == 3<<20 {
			return broken
		}
		return nil
	}
	if err := c.Run(context.Background()); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Path+partialSuffix, make([]byte, 4<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	m.fail = nil
	if err := c.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(c.Path); !bytes.Equal(got, m.data) {
		t.Error("the file holds zeros")
	}
}

// TestDamaged: a record that does not fit the file or the object begins anew; wrong bytes are
// removed.
func TestDamaged(t *testing.T) {
	c, m := newCopy(t, 2<<20)
	c.Sum.Want = strings.Repeat("0", 64)
	err := c.Run(context.Background())
	if _, wrong := errors.AsType[*SumError](err); !wrong {
		t.Fatal(err)
	}
	for _, name := range append(PartialFiles(c.Path), c.Path) {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", name)
		}
	}
	c.Sum.Want = fmt.Sprintf("%x", sha256.Sum256(m.data))
	for _, other := range []string{"", "gq ranges 1: something else\n0\n1\n"} {
		if err := os.WriteFile(c.Path+partialSuffix, make([]byte, 2<<20), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.Path+recordSuffix, []byte(other), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := c.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		os.Remove(c.Path)
	}
}

// TestLock: a second copy waits until the first one is done.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(context.Background(), path, func() { t.Error("a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan bool, 1)
	second := make(chan error)
	go func() {
		unlock, err := Lock(context.Background(), path, func() { waits <- true })
		if err == nil {
			unlock()
		}
		second <- err
	}()
	<-waits
	unlock()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func FuzzRecord(f *testing.F) {
	head := (&Copy{Object: remote.Object{Size: 5 << 20}}).head()
	f.Add([]byte(head+"0 00000000\n3 89abcdef\n"), 5)
	f.Add([]byte(head+"0 00000000\n3"), 5)
	f.Add([]byte("other\n1\n"), 5)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		n = min(max(n, 0), 100)
		done, sums, whole := parseRecord(data, head, n)
		if whole > len(data) || whole > 0 && (len(done) != n || len(sums) != n) || whole == 0 && done != nil {
			t.Fatalf("%d of %d bytes, %d chunks", whole, len(data), len(done))
		}
		again, sumsAgain, same := parseRecord(data[:whole], head, n)
		if same != whole || fmt.Sprint(again, sumsAgain) != fmt.Sprint(done, sums) {
			t.Errorf("the valid part is read in another way: %v and %v", done, again)
		}
	})
}
