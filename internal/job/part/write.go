package part

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// MaxParts is the greatest number of parts of a job.
const MaxParts = 1 << 16

// HashPlan returns the digest of a plan. The first half is of the SHA-256 of the version of part
// files, the name of the program's version and the template. The template holds recipe, sources and
// all places, so the file that the parts make has all of the first half. The second half is of the
// number of parts and Header.Samples.
func HashPlan(of int, maker string, samples [32]byte, template func(io.Writer) error) (digest [32]byte, size int64, err error) {
	h := sha256.New()
	b := binary.LittleEndian.AppendUint32(nil, Version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(maker)))
	h.Write(append(b, maker...))
	n := counter{w: h}
	if err := template(&n); err != nil {
		return digest, 0, err
	}
	h.Sum(digest[:0])
	rest := sha256.Sum256(append(binary.LittleEndian.AppendUint32(nil, uint32(of)), samples[:]...))
	copy(digest[16:], rest[:])
	return digest, n.n, nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.w.Write(p)
}

type Writer struct {
	header Header
	w      io.WriterAt
	place  Place
}

// NewWriter begins a part file with the data of the extents.
func NewWriter(w io.WriterAt, h Header, extents []Extent) *Writer {
	h.dataLen = DataBytes(extents)
	return &Writer{h, w, NewPlace(extents)}
}

// Stream is a long piece of a record: Write writes Size bytes. The zero Stream is empty.
type Stream struct {
	Size  int64
	Write func(io.Writer) error
}

// NewStream measures what write writes.
func NewStream(write func(io.Writer) error) (Stream, error) {
	n := counter{w: io.Discard}
	err := write(&n)
	return Stream{n.n, write}, err
}

// PartSize returns the size of the part file with the record, before Finish.
func (r *Record) PartSize(report, template Stream) (int64, error) {
	err := r.encode(io.Discard, Stream{}, Stream{})
	return headerSize + DataBytes(r.Extents) + int64(r.recordLen) + report.Size + template.Size, err
}

// WriteAt writes data with their offset in the .gqf file. The bytes must be of a single extent.
func (w *Writer) WriteAt(p []byte, off int64) (int, error) {
	at, err := w.Place(off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	return w.w.WriteAt(p, at)
}

// Place returns the offset in the part file of n bytes of an extent.
func (w *Writer) Place(off, n int64) (int64, error) {
	at, err := w.place.Find(off, n)
	return headerSize + at, err
}

// Finish writes the record, and the header last.
func (w *Writer) Finish(r *Record, report, template Stream) error {
	r.Header = w.header
	at := headerSize + w.header.dataLen
	if err := r.encode(io.NewOffsetWriter(w.w, at), report, template); err != nil {
		return err
	}
	_, err := w.w.WriteAt(r.Header.encode(), 0)
	return err
}

// Path is the path of part index of so many, of the file at path.
func Path(path string, index, of int) string {
	return fmt.Sprintf("%s.part-%d-of-%d", path, index, of)
}

// Output is the path of the file that the part at path belongs to; not ok if path names no part.
func Output(path string) (output string, ok bool) {
	i := strings.LastIndex(path, ".part-")
	if i < 0 || !name.MatchString(path[i:]) {
		return "", false
	}
	return path[:i], true
}

// name is what Path adds.
var name = regexp.MustCompile(`^\.part-(0|[1-9]\d{0,5})-of-([1-9]\d{0,5})$`)

// List finds the parts of the file at path: the present parts for each number of parts.
func List(path string) (map[int][]bool, error) {
	dir, base := filepath.Split(path)
	dir = cmp.Or(dir, ".")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return Sort(base, names), nil
}

// Sort finds the parts of the file called base among names, as List does.
func Sort(base string, names []string) map[int][]bool {
	found := map[int][]bool{}
	for _, n := range names {
		suffix, ok := strings.CutPrefix(n, base)
		m := name.FindStringSubmatch(suffix)
		if !ok || m == nil {
			continue
		}
		index, _ := strconv.Atoi(m[1])
		of, _ := strconv.Atoi(m[2])
		if of > MaxParts || index >= of {
			continue
		}
		if found[of] == nil {
			found[of] = make([]bool, of)
		}
		found[of][index] = true
	}
	return found
}
