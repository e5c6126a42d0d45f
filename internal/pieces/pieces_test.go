package pieces

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// store keeps the pieces that were sent, in the order in which sending began.
type store struct {
	mu    sync.Mutex
	data  map[int][]byte
	order []int
	err   error
}

func (s *store) send(i int, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		s.data = map[int][]byte{}
	}
	s.data[i] = bytes.Clone(data)
	s.order = append(s.order, i)
	return s.err
}

// TestAssembler writes files in any order, with gaps that are not written, and compares the pieces.
func TestAssembler(t *testing.T) {
	for _, c := range []struct {
		name        string
		size, piece int64
		front       int64
		gaps        bool // the first byte of every second piece is not written
	}{
		{"one piece", 10, 100, 0, false},
		{"empty", 0, 100, 0, false},
		{"exact pieces", 300, 100, 0, false},
		{"last piece is smaller", 1234, 100, 1, false},
		{"gaps and front", 1234, 100, 250, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := make([]byte, c.size)
			for i := range want {
				want[i] = byte(rand.Uint32()) | 1
			}
			gap := func(off int64) bool { return c.gaps && off%(2*c.piece) == 0 }
			for off := range c.size {
				if gap(off) {
					want[off] = 0
				}
			}
			s := &store{}
			a := New(Options{
				Name: "file", Size: c.size, Piece: c.piece, Front: c.front, Send: s.send,
				Expect: func(from, to int64) int64 {
					if gap(from) {
						from++
					}
					return to - from
				},
			})
			var wg sync.WaitGroup
			for _, i := range rand.Perm(int(c.size)) {
				if gap(int64(i)) {
					continue
				}
				wg.Go(func() {
					if n, err := a.WriteAt(want[i:i+1], int64(i)); n != 1 || err != nil {
						t.Error(n, err)
					}
				})
			}
			wg.Wait()
			if err := a.Wait(); err != nil {
				t.Fatal(err)
			}
			for _, i := range s.order {
				if from, _ := a.Bounds(i); from < c.front {
					t.Errorf("piece %d of the front was sent before Flush", i)
				}
			}
			if n := len(s.order); c.size > 0 && n != a.Count()-int((c.front+c.piece-1)/c.piece) {
				t.Errorf("%d of %d pieces were sent before Flush", n, a.Count())
			}
			for i := a.Count() - 1; i >= 0; i-- {
				if err := a.Flush(i); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Wait(); err != nil {
				t.Fatal(err)
			}
			var got []byte
			for i := range a.Count() {
				got = append(got, s.data[i]...)
			}
			if len(s.order) != a.Count() || !bytes.Equal(got, want) {
				t.Errorf("%d of %d pieces, equal bytes %v", len(s.order), a.Count(), bytes.Equal(got, want))
			}
		})
	}
}

// TestErrors: bytes outside the file and bytes of a piece that is sent are refused, and the error
// of a piece that cannot be sent comes back.
func TestErrors(t *testing.T) {
	s := &store{}
	a := New(Options{Name: "file", Size: 250, Piece: 100, Send: s.send})
	for _, off := range []int64{-1, 201, 251} {
		if _, err := a.WriteAt(make([]byte, 50), off); err == nil || !strings.Contains(err.Error(), "an object of 250 bytes") {
			t.Errorf("50 bytes at %d: %v", off, err)
		}
	}
	if _, err := a.WriteAt(make([]byte, 100), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := a.WriteAt(make([]byte, 1), 150); err == nil || !strings.Contains(err.Error(), "piece 2 was sent already") {
		t.Error(err)
	}
	s.err = errors.New("no")
	if _, err := a.WriteAt(make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(); !errors.Is(err, s.err) {
		t.Error(err)
	}
	if _, err := a.WriteAt(make([]byte, 1), 200); !errors.Is(err, s.err) {
		t.Error(err)
	}
}
