package safetensors

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/atomicfile"
	"github.com/lowbit-go/gq/packing"
)

type TensorSpec struct {
	Name  string        // not empty, valid UTF-8, not "__metadata__"
	Dtype packing.Dtype // any but packing.DtypeNone
	Shape []int64       // row-major; empty for a scalar
}

type WriteOptions struct {
	// MaxShardBytes bounds a file's data, unless a single tensor is larger. Default (0): no bound.
	MaxShardBytes int64
	// Metadata is stored in each file as __metadata__. Default, also for a map without this key:
	// format = "pt". Transformers refuses files without a format.
	Metadata map[string]string
}

// A Writer writes a checkpoint: model.safetensors, or model-00001-of-0000N.safetensors and so on
// with model.safetensors.index.json. The final names appear only in Commit, the index last.
type Writer struct {
	dir     string
	layout  *Layout
	files   []*atomicfile.File // of the shards
	written []atomic.Int64     // bytes of each tensor so far
}

// Create begins a checkpoint in dir, creates dir if necessary, and writes the headers. Tensors lie
// in files as NewLayout places the tensors. The same arguments and data give the same bytes.
//
// Create fails if dir has a checkpoint that would contradict the new checkpoint: an index, or
// model.safetensors if there will be several files. A single model.safetensors is replaced.
func Create(dir string, tensors []TensorSpec, opts WriteOptions) (*Writer, error) {
	layout, err := NewLayout(tensors, opts)
	if err != nil {
		return nil, err
	}
	w := &Writer{dir: dir, layout: layout, written: make([]atomic.Int64, len(tensors))}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	if err := w.checkDir(); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// checkDir refuses a directory with files that would make the result ambiguous.
func (w *Writer) checkDir() error {
	old := []string{IndexName}
	if len(w.layout.Shards) > 1 {
		old = append(old, SingleName)
	}
	for _, name := range old {
		path := filepath.Join(w.dir, name)
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "create", Path: path, Err: errors.New("another checkpoint is in the way; remove it or choose another directory")}
		}
	}
	total := int64(0)
	for _, s := range w.layout.Shards {
		total += s.Size
	}
	free, err := atomicfile.FreeSpace(w.dir)
	if err != nil {
		return err
	}
	if free < total {
		return &fs.PathError{Op: "create", Path: w.dir, Err: fmt.Errorf("the checkpoint needs %d bytes, but only %d are free", total, free)}
	}
	return nil
}

func (w *Writer) open() error {
	for i, s := range w.layout.Shards {
		f, err := atomicfile.Create(filepath.Join(w.dir, s.Name))
		if err != nil {
			return err
		}
		w.files = append(w.files, f)
		if err := f.Truncate(s.Size); err != nil {
			return err
		}
		if err := w.layout.WriteHeader(i, io.NewOffsetWriter(f, 0)); err != nil {
			return err
		}
	}
	return nil
}

// writebackFrom is the size from which the system is asked to write a piece out at once, so that
// the sync of Commit finds less to do.
const writebackFrom = 1 << 20

// WriteAt writes p to the bytes off to off+len(p) of the data of tensor i, by the order of Create's
// specs. Each byte must be written exactly once, in any order and by any number of goroutines.
func (w *Writer) WriteAt(i int, p []byte, off int64) error {
	t := w.layout.Places[i]
	if off < 0 || int64(len(p)) > t.Size-off {
		return fmt.Errorf("safetensors: bytes %d to %d do not lie in tensor %s, which has %d", off, off+int64(len(p)), quote(w.layout.name(i)), t.Size)
	}
	f := w.files[t.Shard]
	if _, err := f.WriteAt(p, t.Offset+off); err != nil {
		return err
	}
	if len(p) >= writebackFrom {
		f.StartWriteback(t.Offset+off, int64(len(p)))
	}
	w.written[i].Add(int64(len(p)))
	return nil
}

// Commit syncs the files and renames each to its final name. Commit fails if a tensor is
// incomplete, and removes files without a final name after a failure.
func (w *Writer) Commit() error {
	defer w.Abort()
	for i, t := range w.layout.Places {
		if n := w.written[i].Load(); n != t.Size {
			return fmt.Errorf("safetensors: %d bytes of tensor %s were written, not %d", n, quote(w.layout.name(i)), t.Size)
		}
	}
	for _, f := range w.files {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	index := w.layout.Index()
	if index == nil {
		return nil
	}
	return atomicfile.WriteFile(filepath.Join(w.dir, IndexName), index)
}

// Abort removes the written files. After Commit or Abort it does nothing.
func (w *Writer) Abort() {
	for _, f := range w.files {
		f.Abort()
	}
}

// A Layout gives each tensor's file and offset in a checkpoint to be written.
type Layout struct {
	Shards []Shard
	Places []Place // of the tensors, in the order of the specs

	specs    []TensorSpec
	metadata map[string]string
	members  [][]int // of each shard: the indices of its tensors in their order in the file
}

// A Shard is a file to be written.
type Shard struct {
	Name       string // model.safetensors, or model-00001-of-00003.safetensors and so on
	HeaderSize int64  // of the first bytes of the file, see Layout.WriteHeader
	Size       int64  // of the file
}

type Place struct {
	Shard  int   // index in Layout.Shards
	Offset int64 // in the file
	Size   int64
}

// NewLayout places tensors in files in the given order. Within a file tensors with wider elements
// come first, so that all are aligned; otherwise the order stays.
func NewLayout(tensors []TensorSpec, opts WriteOptions) (*Layout, error) {
	l := &Layout{specs: tensors, Places: make([]Place, len(tensors))}
	if err := l.distribute(opts.MaxShardBytes); err != nil {
		return nil, err
	}
	l.metadata = map[string]string{"format": "pt"}
	maps.Copy(l.metadata, opts.Metadata)
	return l, l.place()
}

func (l *Layout) name(i int) string { return l.specs[i].Name }

func (l *Layout) distribute(maxShardBytes int64) error {
	if maxShardBytes < 0 {
		return fmt.Errorf("safetensors: shards of at most %d bytes", maxShardBytes)
	}
	seen := make(map[string]bool, len(l.specs))
	l.Shards = []Shard{{}}
	for i, spec := range l.specs {
		size, ok := dataSize(spec.Dtype, spec.Shape)
		if negative := slices.ContainsFunc(spec.Shape, func(d int64) bool { return d < 0 }); negative || !ok || spec.Dtype.Bits() == 0 {
			return fmt.Errorf("safetensors: tensor %s cannot be of dtype %s and shape %v", quote(spec.Name), spec.Dtype, spec.Shape)
		}
		if spec.Name == "" || spec.Name == "__metadata__" || seen[spec.Name] {
			return fmt.Errorf("safetensors: tensor name %s is empty, reserved or repeated", quote(spec.Name))
		}
		seen[spec.Name] = true
		last := &l.Shards[len(l.Shards)-1]
		if maxShardBytes > 0 && last.Size > 0 && size > maxShardBytes-last.Size {
			l.Shards = append(l.Shards, Shard{})
			last = &l.Shards[len(l.Shards)-1]
		}
		if last.Size+size < 0 {
			return errors.New("safetensors: the tensors together exceed 2^63 bytes")
		}
		last.Size += size
		l.Places[i] = Place{Shard: len(l.Shards) - 1, Size: size}
	}
	for i := range l.Shards {
		l.Shards[i].Name = SingleName
		if len(l.Shards) > 1 {
			l.Shards[i].Name = fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(l.Shards), fileSuffix)
		}
	}
	return nil
}

// place sets the offset of each tensor in its file and the sizes of the headers.
func (l *Layout) place() error {
	l.members = make([][]int, len(l.Shards))
	for i, p := range l.Places {
		l.members[p.Shard] = append(l.members[p.Shard], i)
	}
	for i, list := range l.members {
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(l.specs[b].Dtype.Bits(), l.specs[a].Dtype.Bits()) })
		n := int64(8)
		if err := l.makeHeader(i, func(piece []byte) error { n += int64(len(piece)); return nil }); err != nil {
			return err
		}
		n = (n + 7) &^ 7
		if limit := (Options{}).withDefaults().MaxHeaderBytes; n > limit {
			return fmt.Errorf("safetensors: a header of %d bytes exceeds the limit of readers, %d; use more shards", n, limit)
		}
		l.Shards[i].HeaderSize, l.Shards[i].Size = n, l.Shards[i].Size+n
		for _, t := range list {
			l.Places[t].Offset, n = n, n+l.Places[t].Size
		}
	}
	return nil
}

// makeHeader makes the JSON of a file's header without its padding, piece by piece. emit must not
// keep a piece.
func (l *Layout) makeHeader(shard int, emit func(piece []byte) error) error {
	b := append(make([]byte, 0, 1<<16), `{"__metadata__":{`...)
	var err error
	for i, k := range slices.Sorted(maps.Keys(l.metadata)) {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendString(b, k); err != nil {
			return err
		}
		b = append(b, ':')
		if b, err = appendString(b, l.metadata[k]); err != nil {
			return err
		}
	}
	b = append(b, '}')
	offset := int64(0)
	for _, i := range l.members[shard] {
		if len(b) > 1<<15 {
			if err := emit(b); err != nil {
				return err
			}
			b = b[:0]
		}
		t := l.specs[i]
		b = append(b, ',')
		if b, err = appendString(b, t.Name); err != nil {
			return err
		}
		b = fmt.Appendf(b, `:{"dtype":%q,"shape":[`, t.Dtype)
		for j, d := range t.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, d, 10)
		}
		end := offset + l.Places[i].Size
		b = fmt.Appendf(b, `],"data_offsets":[%d,%d]}`, offset, end)
		offset = end
	}
	return emit(append(b, '}'))
}

// WriteHeader writes the first bytes of shard i: the header's length, and the JSON padded with
// spaces to a multiple of 8 bytes. The header of many tensors is as large as their names, so that
// no copy is kept.
func (l *Layout) WriteHeader(i int, w io.Writer) error {
	end := l.Shards[i].HeaderSize
	b := bufio.NewWriterSize(w, 1<<16) // Flush returns its first error
	b.Write(binary.LittleEndian.AppendUint64(nil, uint64(end-8)))
	n := int64(8)
	err := l.makeHeader(i, func(piece []byte) error {
		n += int64(len(piece))
		_, err := b.Write(piece)
		return err
	})
	if err != nil {
		return err
	}
	b.WriteString("       "[:end-n])
	return b.Flush()
}

// Index returns the content of [IndexName] for a checkpoint of several files, in the form of
// Transformers: indented, with sorted names. A single file has a nil Index.
func (l *Layout) Index() []byte {
	if len(l.Shards) == 1 {
		return nil
	}
	total := int64(0)
	byName := make(map[string]string, len(l.specs))
	for i, p := range l.Places {
		total += p.Size
		byName[l.specs[i].Name] = l.Shards[p.Shard].Name
	}
	b := fmt.Appendf(nil, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b, _ = appendString(b, name) // valid in makeHeader
		b = fmt.Appendf(b, ": %q", byName[name])
	}
	return append(b, "\n  }\n}\n"...)
}

func appendString(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("safetensors: %s is not valid UTF-8", quote(s))
	}
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"'), nil
}
