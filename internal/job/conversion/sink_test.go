package conversion

import (
	"bytes"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/quantizer"
)

// memorySink keeps the written bytes, and counts how often each byte was written.
type memorySink struct {
	mu        sync.Mutex
	data      []byte
	times     []byte
	committed bool
}

func (s *memorySink) WriteAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p {
		s.times[off+int64(i)]++
	}
	return copy(s.data[off:], p), nil
}

func (s *memorySink) Commit() error { s.committed = true; return nil }
func (s *memorySink) Abort()        {}

// TestWriteTo: every byte outside of the gaps is written once, no byte of a gap is, and the file is
// the one that Write makes.
func TestWriteTo(t *testing.T) {
	path := writeCheckpoint(t, llamaConfig, llama()...)
	for _, layouts := range [][]quantizer.LayoutRequest{
		nil,
		{{Family: quantizer.FamilyLowbit}, {Family: quantizer.FamilyCodes}},
	} {
		for _, threads := range []int{1, 3} {
			opts := Options{Recipe: quantizer.Recipe{Bits: 4, Layouts: layouts}, Threads: threads}
			_, want, _ := runJob(t, path, opts)
			p, err := newPlan(t, path, opts)
			if err != nil {
				t.Fatal(err)
			}
			var sink *memorySink
			r, err := p.WriteTo(t.Context(), "s3://bucket/model.gqf", write.Options{}, func(size int64, gaps iter.Seq2[int64, int64]) (write.Sink, error) {
				sink = &memorySink{data: make([]byte, size), times: make([]byte, size)}
				for from, to := range gaps {
					for i := from; i < to; i++ {
						sink.times[i]++
					}
				}
				return sink, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if !sink.committed || !bytes.Equal(sink.data, want) {
				t.Errorf("%d threads: committed %v, equal %v", threads, sink.committed, bytes.Equal(sink.data, want))
			}
			for i, n := range sink.times {
				if n != 1 {
					t.Fatalf("%d threads: byte %d of %d is written or in a gap %d times", threads, i, len(sink.data), n)
				}
			}
			if r.Output != "s3://bucket/model.gqf" {
				t.Errorf("the report names %q", r.Output)
			}
		}
	}
}

// TestWriteToAborts: a sink that fails is never committed.
func TestWriteToAborts(t *testing.T) {
	p, err := newPlan(t, writeCheckpoint(t, llamaConfig, llama()...), Options{Recipe: quantizer.Recipe{Bits: 4}})
	if err != nil {
		t.Fatal(err)
	}
	full := &fullSink{}
	_, err = p.WriteTo(t.Context(), "s3://bucket/model.gqf", write.Options{}, func(int64, iter.Seq2[int64, int64]) (write.Sink, error) { return full, nil })
	if err == nil || full.committed || !full.aborted {
		t.Errorf("committed %v, aborted %v: %v", full.committed, full.aborted, err)
	}
}

type fullSink struct{ committed, aborted bool }

func (s *fullSink) WriteAt([]byte, int64) (int, error) { return 0, fmt.Errorf("full") }
func (s *fullSink) Commit() error                      { s.committed = true; return nil }
func (s *fullSink) Abort()                             { s.aborted = true }
