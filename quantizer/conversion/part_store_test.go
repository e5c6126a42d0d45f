package conversion

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/formats/part"
	"github.com/lowbit-go/gq/internal/testmodels"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/quantizer"
)

// memoryStore is a PartStore in memory with small pieces.
type memoryStore struct {
	size int64

	mu      sync.Mutex
	parts   map[Part]memory
	uploads []*memoryUpload
	object  []byte
	end     bool // the next Put finds that its upload was ended
}

type memoryUpload struct {
	store  *memoryStore
	id     string
	pieces map[int][]byte
	puts   int
}

func (s *memoryStore) PieceSize(int64) (int64, error) { return s.size, nil }

func (s *memoryStore) Upload(context.Context) (PieceUpload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.uploads) == 0 {
		s.uploads = append(s.uploads, &memoryUpload{store: s, id: "first", pieces: map[int][]byte{}})
	}
	return s.uploads[0], nil
}

func (s *memoryStore) Find(context.Context) (PieceUpload, error) {
	if len(s.uploads) == 0 {
		return nil, nil
	}
	return s.uploads[0], nil
}

func (s *memoryStore) Join(id string) PieceUpload {
	for _, u := range s.uploads {
		if u.id == id {
			return u
		}
	}
	return &memoryUpload{store: s, id: id}
}

func (s *memoryStore) List(context.Context) (map[int][]bool, error) {
	found := map[int][]bool{}
	for t := range s.parts {
		if found[t.Of] == nil {
			found[t.Of] = make([]bool, t.Of)
		}
		found[t.Of][t.Index] = true
	}
	return found, nil
}

func (s *memoryStore) Open(_ context.Context, t Part) (io.ReaderAt, int64, error) {
	b, ok := s.parts[t]
	if !ok {
		return nil, 0, fmt.Errorf("%s: %w", t, fs.ErrNotExist)
	}
	return bytes.NewReader(b), int64(len(b)), nil
}

func (s *memoryStore) Write(_ context.Context, t Part, size int64, write func(w io.WriterAt) error) error {
	b := make(memory, size)
	if err := write(b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[t] = b
	return nil
}

func (s *memoryStore) Remove(_ context.Context, t Part) error { delete(s.parts, t); return nil }

func (s *memoryStore) Object(context.Context) (io.ReaderAt, int64, error) {
	if s.object == nil {
		return nil, 0, fs.ErrNotExist
	}
	return bytes.NewReader(s.object), int64(len(s.object)), nil
}

func (u *memoryUpload) ID() string { return u.id }

// etag is the same for the same bytes, as MD5 is.
func etag(b []byte) string {
	return fmt.Sprintf("%x", bytes.Clone(b[:min(8, len(b))])) + fmt.Sprint(len(b))
}

func (u *memoryUpload) Put(_ context.Context, number int, data []byte) (string, error) {
	u.store.mu.Lock()
	defer u.store.mu.Unlock()
	if u.store.end {
		u.store.end, u.store.uploads = false, nil
		return "", fmt.Errorf("piece %d: %w", number, ErrUploadGone)
	}
	u.pieces[number] = bytes.Clone(data)
	u.puts++
	return etag(data), nil
}

func (u *memoryUpload) Pieces(context.Context) (map[int]string, error) {
	if !slices.Contains(u.store.uploads, u) {
		return nil, fmt.Errorf("the upload is gone")
	}
	list := map[int]string{}
	for n, b := range u.pieces {
		list[n] = etag(b)
	}
	return list, nil
}

func (u *memoryUpload) Complete(_ context.Context, etags []string) error {
	var object []byte
	for i, e := range etags {
		b := u.pieces[i+1]
		if etag(b) != e {
			return fmt.Errorf("piece %d is another one", i+1)
		}
		object = append(object, b...)
	}
	u.store.object = object
	u.store.uploads = slices.DeleteFunc(u.store.uploads, func(x *memoryUpload) bool { return x == u })
	return nil
}

// TestPartsOfObjects merges parts in an upload, for pieces that are smaller and larger than shares, and
// compares the object with one job's file.
func TestPartsOfObjects(t *testing.T) {
	testshared.SlowEmulated(t, "TestParts merges parts there, uploads are the same natively")
	layouts, err := quantizer.ParseLayouts("lowbit,codes")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, src string
		recipe    quantizer.Recipe
	}{
		{"books", testmodels.Books(t, 2), quantizer.Recipe{HashFiles: true}},
		{"transposed and tied", mixedCheckpoint(t), quantizer.Recipe{Bits: 4, Layouts: layouts}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, report := single(t, c.src, Options{Recipe: c.recipe})
			for _, size := range []int64{1 << 12, 100_001, 1 << 18, 1 << 30} {
				for _, n := range []int{1, 3, 8} {
					s := &memoryStore{size: size, parts: map[Part]memory{}}
					makeIn := func(i int) *PartReport {
						t.Helper()
						p, err := newPlan(t, c.src, Options{Recipe: c.recipe})
						if err != nil {
							t.Fatal(err)
						}
						r, err := p.WritePart(t.Context(), "s3://bucket/m.gqf", PartOptions{Part: Part{i, n}, Store: s, Maker: "test"})
						if err != nil {
							t.Fatal(err)
						}
						return r
					}
					merge := func(expect string) {
						t.Helper()
						if _, err := MergeParts(t.Context(), "s3://bucket/m.gqf", MergeOptions{Store: s}); err == nil || !strings.Contains(err.Error(), expect) {
							t.Errorf("%v, want %q", err, expect)
						}
						if s.object != nil {
							t.Error("there is an object")
						}
					}
					for _, i := range upTo(n) {
						if i == 0 && n > 1 {
							merge("missing: 0:")
						}
						makeIn(i)
					}
					u := s.uploads[0]
					puts := u.puts
					for i := range n {
						if !makeIn(i).Found {
							t.Errorf("part %d is made again", i)
						}
					}
					if u.puts != puts {
						t.Error("pieces are sent again")
					}
					if len(u.pieces) > 0 { // a piece that is lost, and one that another plan has sent
						lost := slices.Min(slices.Collect(maps.Keys(u.pieces)))
						delete(u.pieces, lost)
						merge(fmt.Sprintf("piece %d of the upload is missing", lost))
						again := 0
						for i := range n {
							if !makeIn(i).Found {
								again++
							}
						}
						if again != 1 {
							t.Errorf("%d parts are made again", again)
						}
					}
					b := s.parts[Part{n - 1, n}]
					b[len(b)-1] ^= 1
					merge("checksum of the record")
					makeIn(n - 1)
					r, err := MergeParts(t.Context(), "s3://bucket/m.gqf", MergeOptions{Store: s, KeepParts: true})
					if err != nil {
						t.Fatalf("pieces of %d, %d parts: %v", size, n, err)
					}
					if !bytes.Equal(s.object, want) {
						t.Errorf("pieces of %d, %d parts: the object differs at byte %d of %d", size, n, firstDifference(s.object, want), len(want))
					}
					if got, want := timeless(t, *r.Report), timeless(t, *report); got != want {
						t.Errorf("pieces of %d, %d parts: the report is\n%s\nwant\n%s", size, n, got, want)
					}
					// A merge that was ended before it removed the parts.
					if r, err := MergeParts(t.Context(), "s3://bucket/m.gqf", MergeOptions{Store: s}); err != nil || !r.Merged {
						t.Errorf("%+v, %v", r, err)
					}
					if len(s.parts) != 0 || len(s.uploads) != 0 {
						t.Errorf("%d parts and %d uploads are left", len(s.parts), len(s.uploads))
					}
				}
			}
		})
	}
}

// TestPartOfEndedUpload: a part whose upload ends meanwhile is made for the next one. A worker that only
// looks whether its part is there begins no upload.
func TestPartOfEndedUpload(t *testing.T) {
	src := testmodels.Books(t, 2)
	want, _ := single(t, src, Options{})
	s := &memoryStore{size: 1 << 16, parts: map[Part]memory{}, end: true}
	for i := range 2 {
		p, err := newPlan(t, src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.WritePart(t.Context(), "s3://bucket/m.gqf", PartOptions{Part: Part{i, 2}, Store: s, Maker: "test"}); err != nil {
			t.Fatal(err)
		}
	}
	if s.end {
		t.Fatal("no piece was sent")
	}
	if _, err := MergeParts(t.Context(), "s3://bucket/m.gqf", MergeOptions{Store: s}); err != nil || !bytes.Equal(s.object, want) {
		t.Errorf("the object is not the file: %v", err)
	}
	r := &part.Record{Upload: "first", Pieces: []part.Piece{{Number: 1, ETag: "e"}}}
	if ok, err := sent(t.Context(), s, r); ok || err != nil || len(s.uploads) > 0 {
		t.Errorf("after the merge: %v, %v, %d uploads", ok, err, len(s.uploads))
	}
}

// TestPartElsewhere: parts of an object are not merged as files, and the other way round.
func TestPartElsewhere(t *testing.T) {
	src := mixedCheckpoint(t)
	path := filepath.Join(t.TempDir(), "m.gqf")
	makeParts(t, src, path, Options{}, false, 1, 0)
	s := &memoryStore{size: 1 << 20, parts: map[Part]memory{}}
	s.parts[Part{0, 1}] = mustRead(t, path+".part-0-of-1")
	if _, err := MergeParts(t.Context(), "s3://b/m.gqf", MergeOptions{Store: s}); err == nil || !strings.Contains(err.Error(), "another output") {
		t.Error(err)
	}
}
