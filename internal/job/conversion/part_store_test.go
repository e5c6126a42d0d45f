package conversion

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/job/divide"
	"github.com/lowbit-go/gq/internal/job/part"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/test/testmodels"
)

// memoryStore is a PartStore in memory. Its sinks refuse a file unless each byte was written once
// or is in a gap.
type memoryStore struct {
	mu       sync.Mutex
	files    map[string][]byte
	created  []string
	onCommit func() // before the next file appears
}

func newMemoryStore() *memoryStore { return &memoryStore{files: map[string][]byte{}} }

func (s *memoryStore) List(_ context.Context, name string) (map[int][]bool, error) {
	var names []string
	for n := range s.files {
		names = append(names, path.Base(n))
	}
	return part.Sort(path.Base(name), names), nil
}

func (s *memoryStore) Open(_ context.Context, name string) (*divide.StoredFile, error) {
	b, ok := s.files[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return &divide.StoredFile{ReaderAt: bytes.NewReader(b), Size: int64(len(b)), Close: func() error { return nil }}, nil
}

func (s *memoryStore) Create(_ context.Context, name string, size int64, gaps iter.Seq2[int64, int64]) (write.Sink, error) {
	sink := &storedSink{memorySink{data: make([]byte, size), times: make([]byte, size)}, s, name}
	if gaps != nil {
		for from, to := range gaps {
			for i := from; i < to; i++ {
				sink.times[i]++
			}
		}
	}
	s.created = append(s.created, name)
	return sink, nil
}

func (s *memoryStore) RemoveParts(_ context.Context, name string, of int) error {
	for i := range of {
		delete(s.files, part.Path(name, i, of))
	}
	return nil
}

// storedSink is a file of a memoryStore that is being written.
type storedSink struct {
	memorySink
	store *memoryStore
	name  string
}

func (s *storedSink) Commit() error {
	for i, n := range s.times {
		if n != 1 {
			return fmt.Errorf("%s: byte %d of %d was written %d times", s.name, i, len(s.data), n)
		}
	}
	if f := s.store.onCommit; f != nil {
		s.store.onCommit = nil
		f()
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.files[s.name] = s.data
	return nil
}

const object = "s3://bucket/m.gqf"

// TestPartsOfObjects: parts in a store are found again, damage is found, and a merge that is
// repeated removes the parts that are left. TestParts compares objects of more recipes.
func TestPartsOfObjects(t *testing.T) {
	src := testmodels.Books(t, 2)
	want, _ := single(t, src, Options{})
	s := newMemoryStore()
	merge := func(expect string) {
		t.Helper()
		if _, err := divide.MergeParts(t.Context(), object, divide.MergeOptions{Store: s}); err == nil || !strings.Contains(err.Error(), expect) {
			t.Errorf("%v, want %q", err, expect)
		}
		if s.files[object] != nil {
			t.Error("there is an object")
		}
	}
	merge("there are no parts of it")
	makeParts(t, src, object, Options{}, s, 3, 1, 2)
	merge("missing: 0:")
	makeParts(t, src, object, Options{}, s, 3, 0)
	s.created = nil
	for _, r := range makeParts(t, src, object, Options{}, s, 3, upTo(3)...) {
		if !r.Found {
			t.Errorf("%s is made again", r.Part)
		}
	}
	if len(s.created) > 0 {
		t.Errorf("%q are written again", s.created)
	}
	for at, expect := range map[int]string{20: "checksum of the header", 200: "do not have the checksum", -1: "checksum of the record"} {
		b := s.files[part.Path(object, 2, 3)]
		b[(at+len(b))%len(b)] ^= 1
		merge(expect)
		if r := makeParts(t, src, object, Options{}, s, 3, 2)[0]; r.Found {
			t.Errorf("a part with a damaged byte %d is found", at)
		}
	}
	if _, err := divide.MergeParts(t.Context(), object, divide.MergeOptions{Store: s, KeepParts: true}); err != nil || !bytes.Equal(s.files[object], want) {
		t.Fatalf("the object is not the file: %v", err)
	}
	delete(s.files, part.Path(object, 2, 3)) // a merge was ended while it removed the parts
	r, err := divide.MergeParts(t.Context(), object, divide.MergeOptions{Store: s})
	if err != nil || !r.Merged || len(s.files) != 1 {
		t.Errorf("%+v, %d objects: %v", r, len(s.files), err)
	}
	plan := makeParts(t, src, object, Options{}, s, 3, 1)[0].Plan // a worker that is started again
	for range 2 {
		r, err := divide.MergeParts(t.Context(), object, divide.MergeOptions{Plan: plan, Maker: "test", Store: s})
		if err != nil || !r.Merged || len(s.files) != 1 || !bytes.Equal(s.files[object], want) {
			t.Errorf("%+v, %d objects: %v", r, len(s.files), err)
		}
	}
}

// TestPartDuringMerge: the parts are merged while a second worker makes one of them. The next merge
// removes the part, and the object stays.
func TestPartDuringMerge(t *testing.T) {
	src := testmodels.Books(t, 2)
	want, _ := single(t, src, Options{})
	s := newMemoryStore()
	makeParts(t, src, object, Options{}, s, 2, 1)
	s.onCommit = func() {
		makeParts(t, src, object, Options{}, s, 2, 0)
		if _, err := divide.MergeParts(t.Context(), object, divide.MergeOptions{Store: s}); err != nil {
			t.Error(err)
		}
	}
	makeParts(t, src, object, Options{}, s, 2, 0)
	if r, err := divide.MergeParts(t.Context(), object, divide.MergeOptions{Store: s}); err != nil || !r.Merged || len(s.files) != 1 || !bytes.Equal(s.files[object], want) {
		t.Errorf("%+v, %d objects: %v", r, len(s.files), err)
	}
}
