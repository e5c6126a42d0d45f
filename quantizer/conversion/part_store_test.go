package conversion

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
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
	mark    string // of the object
	begun   int
	end     bool   // the next Put finds that its upload was ended
	opaque  bool   // ETags are not checksums, as with SSE-KMS
	sums    bool   // the store states checksums
	onPut   func() // before a piece, and before a part
	onWrite func()
}

type memoryUpload struct {
	store  *memoryStore
	id     string
	mark   string
	pieces map[int]memoryPiece
	puts   int
}

type memoryPiece struct {
	data []byte
	etag string
}

func (s *memoryStore) PieceSize(int64) (int64, error) { return s.size, nil }

func (s *memoryStore) Upload(ctx context.Context, mark string) (PieceUpload, error) {
	if list, _ := s.Uploads(ctx); len(list) > 0 {
		return list[0], nil
	}
	return s.Begin(ctx, mark)
}

func (s *memoryStore) Begin(_ context.Context, mark string) (PieceUpload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	u := &memoryUpload{store: s, id: fmt.Sprint(s.begun), mark: mark, pieces: map[int]memoryPiece{}}
	s.uploads = append(s.uploads, u)
	return u, nil
}

func (s *memoryStore) Uploads(context.Context) (list []PieceUpload, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uploads {
		list = append(list, u)
	}
	return list, nil
}

func (s *memoryStore) Join(id, _ string) PieceUpload {
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

func (s *memoryStore) Write(_ context.Context, t Part, data []byte) error {
	if f := s.onWrite; f != nil {
		s.onWrite = nil
		f()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[t] = bytes.Clone(data)
	return nil
}

func (s *memoryStore) Remove(_ context.Context, t Part) error { delete(s.parts, t); return nil }

func (s *memoryStore) Object(context.Context) (io.ReaderAt, int64, string, error) {
	if s.object == nil {
		return nil, 0, "", fs.ErrNotExist
	}
	return bytes.NewReader(s.object), int64(len(s.object)), s.mark, nil
}

func (u *memoryUpload) ID() string { return u.id }

func (u *memoryUpload) Put(_ context.Context, number int, data []byte) (part.Piece, error) {
	u.store.mu.Lock()
	if f := u.store.onPut; f != nil {
		u.store.onPut = nil
		u.store.mu.Unlock()
		f()
		u.store.mu.Lock()
	}
	defer u.store.mu.Unlock()
	if u.store.end {
		u.store.end, u.store.uploads = false, nil
	}
	if !slices.Contains(u.store.uploads, u) {
		return part.Piece{}, fmt.Errorf("piece %d: %w", number, ErrUploadGone)
	}
	u.puts++
	p := part.Piece{Number: uint32(number), Size: int64(len(data)), MD5: md5.Sum(data)}
	p.ETag = hex.EncodeToString(p.MD5[:])
	if u.store.opaque {
		p.ETag = fmt.Sprintf("%032x", u.puts)
	}
	copy(p.CRC64NVME[:], p.MD5[:])
	u.pieces[number] = memoryPiece{bytes.Clone(data), p.ETag}
	return p, nil
}

func (u *memoryUpload) Pieces(context.Context) (map[int]StoredPiece, error) {
	if !slices.Contains(u.store.uploads, u) {
		return nil, ErrUploadGone
	}
	list := map[int]StoredPiece{}
	for n, p := range u.pieces {
		s := StoredPiece{ETag: p.etag, Size: int64(len(p.data))}
		if u.store.sums {
			sum := md5.Sum(p.data)
			s.CRC64NVME = string(sum[:8])
		}
		list[n] = s
	}
	return list, nil
}

func (u *memoryUpload) Complete(ctx context.Context, list []StoredPiece) error {
	var object []byte
	for i, s := range list {
		p := u.pieces[i+1]
		if s.ETag != p.etag || s.Size != int64(len(p.data)) {
			return fmt.Errorf("piece %d is another one", i+1)
		}
		object = append(object, p.data...)
	}
	u.store.object, u.store.mark = object, u.mark
	return u.Abort(ctx)
}

func (u *memoryUpload) Abort(context.Context) error {
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
					u := &memoryUpload{}
					if s.begun > 0 {
						u = s.uploads[0]
					}
					puts := u.puts
					for i := range n {
						if !makeIn(i).Found {
							t.Errorf("part %d is made again", i)
						}
					}
					if u.puts != puts {
						t.Error("pieces are sent again")
					}
					if (s.begun > 0) != (len(u.pieces) > 0) {
						t.Errorf("%d uploads were begun for %d pieces", s.begun, len(u.pieces))
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
					if r := makeIn(0); !r.Found || !r.Merged {
						t.Errorf("a worker after the merge: %+v", r)
					}
					if r, err := MergeParts(t.Context(), "s3://bucket/m.gqf", MergeOptions{Store: s}); err != nil || !r.Merged {
						t.Errorf("a merge after the merge: %+v, %v", r, err)
					}
					if len(s.parts) != 0 || len(s.uploads) != 0 || s.begun > 1 {
						t.Errorf("%d parts and %d of %d uploads are left", len(s.parts), len(s.uploads), s.begun)
					}
				}
			}
		})
	}
}

// objectPart makes part i of 2 of the object of a checkpoint.
func objectPart(t *testing.T, src string, s *memoryStore, i int) *PartReport {
	t.Helper()
	p, err := newPlan(t, src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.WritePart(t.Context(), "s3://bucket/m.gqf", PartOptions{Part: Part{i, 2}, Store: s, Maker: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mergeObject merges the parts of the object.
func mergeObject(t *testing.T, s *memoryStore) (*MergeReport, error) {
	return MergeParts(t.Context(), "s3://bucket/m.gqf", MergeOptions{Store: s})
}

// TestPartOfEndedUpload: a part whose upload ends meanwhile is made for the next one.
func TestPartOfEndedUpload(t *testing.T) {
	src := testmodels.Books(t, 2)
	want, _ := single(t, src, Options{})
	s := &memoryStore{size: 1 << 16, parts: map[Part]memory{}, end: true}
	for i := range 2 {
		objectPart(t, src, s, i)
	}
	if s.end {
		t.Fatal("no piece was sent")
	}
	if _, err := mergeObject(t, s); err != nil || !bytes.Equal(s.object, want) {
		t.Errorf("the object is not the file: %v", err)
	}
}

// TestPartTwice: another worker sends pieces of a part again when the part is complete. Where ETags say
// nothing of the bytes, the store's checksums do; without these the part is made again.
func TestPartTwice(t *testing.T) {
	src := testmodels.Books(t, 2)
	want, _ := single(t, src, Options{})
	for _, c := range []struct{ opaque, sums, again bool }{{false, false, false}, {true, true, false}, {true, false, true}} {
		s := &memoryStore{size: 1 << 16, parts: map[Part]memory{}, opaque: c.opaque, sums: c.sums}
		objectPart(t, src, s, 0)
		first := s.parts[Part{0, 2}]
		delete(s.parts, Part{0, 2})
		objectPart(t, src, s, 0)
		s.parts[Part{0, 2}] = first // the slower worker's record, and the other worker's pieces
		objectPart(t, src, s, 1)
		if c.again {
			if _, err := mergeObject(t, s); err == nil || !strings.Contains(err.Error(), "is missing, or another one") {
				t.Errorf("%+v: %v", c, err)
			}
		}
		if r := objectPart(t, src, s, 0); r.Found == c.again {
			t.Errorf("%+v: found %v", c, r.Found)
		}
		if _, err := mergeObject(t, s); err != nil || !bytes.Equal(s.object, want) {
			t.Errorf("%+v: the object is not the file: %v", c, err)
		}
	}
	s := &memoryStore{size: 1 << 16, parts: map[Part]memory{}, sums: true}
	objectPart(t, src, s, 0)
	for n, p := range s.uploads[0].pieces { // other bytes under the same ETag
		p.data[0] ^= 1
		s.uploads[0].pieces[n] = p
	}
	objectPart(t, src, s, 1)
	if r := objectPart(t, src, s, 0); r.Found {
		t.Error("pieces with other checksums are found")
	}
}

// TestPartDuringMerge: the parts are merged while a second worker makes one of them. It changes nothing and
// leaves nothing.
func TestPartDuringMerge(t *testing.T) {
	src := testmodels.Books(t, 2)
	want, _ := single(t, src, Options{})
	for name, at := range map[string]func(s *memoryStore, merge func()){
		"before its first piece": func(s *memoryStore, merge func()) { s.onPut = merge },
		"before its part":        func(s *memoryStore, merge func()) { s.onWrite = merge },
	} {
		s := &memoryStore{size: 1 << 16, parts: map[Part]memory{}}
		objectPart(t, src, s, 1)
		merge := func() {
			objectPart(t, src, s, 0)
			if _, err := mergeObject(t, s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		at(s, merge)
		if r := objectPart(t, src, s, 0); !r.Merged {
			t.Errorf("%s: %+v", name, r)
		}
		if !bytes.Equal(s.object, want) || len(s.parts) > 0 || len(s.uploads) > 0 {
			t.Errorf("%s: %d parts and %d uploads are left", name, len(s.parts), len(s.uploads))
		}
	}
}

// TestMergeBegins: a merge that fails aborts the upload that it has begun, and no other one.
func TestMergeBegins(t *testing.T) {
	src := testmodels.Books(t, 2)
	s := &memoryStore{size: 1 << 16, parts: map[Part]memory{}}
	objectPart(t, src, s, 0)
	objectPart(t, src, s, 1)
	s.uploads = nil
	if _, err := mergeObject(t, s); err == nil || !strings.Contains(err.Error(), "in an upload that was ended") {
		t.Error(err)
	}
	if len(s.uploads) > 0 {
		t.Errorf("%d uploads are left", len(s.uploads))
	}
	objectPart(t, src, s, 0)
	if _, err := mergeObject(t, s); err == nil || len(s.uploads) != 1 {
		t.Errorf("%v: %d uploads", err, len(s.uploads))
	}
	other, _ := s.Begin(t.Context(), "") // of a worker that was killed while it began one
	objectPart(t, src, s, 1)
	if _, err := mergeObject(t, s); err != nil || len(s.uploads) > 0 {
		t.Errorf("%v: %d uploads are left, and %s", err, len(s.uploads), other.ID())
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
