package safetensors

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lowbit-go/gq/internal/mmap"
	"github.com/lowbit-go/gq/packing"
)

// Options are the limits of Open against hostile files.
type Options struct {
	// MaxHeaderBytes bounds the header of each file, and the index. Default (0): 100,000,000, as in
	// the reference implementation.
	MaxHeaderBytes int64
	// MaxTensors bounds the tensors of the whole checkpoint. Default (0): 500,000; these take about
	// 160 MB while opening and half of that afterwards, plus names.
	MaxTensors int
	// Remote lists files with weights that are read instead of files of the same name in the
	// directory. The directory's files may be of an older version. Default: none.
	Remote []RemoteFile
	// Context ends remote reading by Open and methods without a context. Default: Background.
	Context context.Context
}

func (o Options) withDefaults() Options {
	o.MaxHeaderBytes = cmp.Or(o.MaxHeaderBytes, 100_000_000)
	o.MaxTensors = cmp.Or(o.MaxTensors, 500_000)
	return o
}

// A Tensor describes a tensor of a checkpoint.
type Tensor struct {
	Name      string
	Dtype     packing.Dtype // packing.DtypeNone if DtypeName is unknown
	DtypeName string        // in the file's spelling
	Shape     []int64       // row-major, empty for a scalar; not to be changed
	File      int           // index into Checkpoint.Files
	Offset    int64         // of its first byte in the file
	Size      int64         // in bytes

	at int64 // byte offset of its name in the header
}

// Numel returns the number of elements; 1 for a scalar.
func (t Tensor) Numel() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Matrix returns the shape of t as a matrix: columns are the last dimension, rows all other
// dimensions together. A scalar is 1 x 1.
func (t Tensor) Matrix() (rows, cols int64) {
	rows, cols = 1, 1
	for i, d := range t.Shape {
		if i == len(t.Shape)-1 {
			cols = d
		} else {
			rows *= d
		}
	}
	return rows, cols
}

// A SourceFile describes a file of a checkpoint.
type SourceFile struct {
	Name         string            // without directory
	Size         int64             // in bytes
	HeaderSHA256 [32]byte          // of the bytes before the data: the length and the header
	Metadata     map[string]string // __metadata__; nil if absent
	Unverified   bool              // see RemoteFile
}

// A Checkpoint is an open checkpoint. Several goroutines may use a Checkpoint at once, except that
// Close must come after all other use.
type Checkpoint struct {
	dir     string
	files   []SourceFile
	maps    []*mmap.File
	stats   []fs.FileInfo // of the files at opening; nil for remote files
	tensors []Tensor      // sorted by name

	remote    *resident // nil: all files are local
	restore   func()    // of memory's limit; nil likewise
	context   context.Context
	maxHeader int64
}

// Open opens the checkpoint at path:
//   - a file, read as safetensors whatever its name, or
//   - an index, a file with a name that ends in ".safetensors.index.json", or
//   - a directory with model.safetensors.index.json, or model.safetensors, or exactly one other
//     file with the ending .safetensors.
//
// Open maps the files and reads their headers, not their data.
func Open(path string, opts Options) (*Checkpoint, error) {
	if opts.MaxHeaderBytes < 0 || opts.MaxTensors < 0 {
		return nil, fmt.Errorf("safetensors: limits cannot be negative: %d bytes of header, %d tensors", opts.MaxHeaderBytes, opts.MaxTensors)
	}
	if err := opts.checkRemote(); err != nil {
		return nil, err
	}
	file, index, err := find(path, opts.Remote)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint(filepath.Dir(cmp.Or(file, index)), opts)
	l := &loader{opts: opts.withDefaults()}
	if index != "" {
		err = c.openShards(index, l)
	} else if err = c.addFile(file, l); err == nil {
		err = c.load(l)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func newCheckpoint(dir string, opts Options) *Checkpoint {
	c := &Checkpoint{dir: dir, context: opts.Context, maxHeader: opts.withDefaults().MaxHeaderBytes}
	if c.context == nil {
		c.context = context.Background()
	}
	return c
}

// OpenFiles opens files, whatever their names, as a checkpoint without an index. OpenFiles maps the
// files and reads their headers, not their data.
func OpenFiles(paths []string, opts Options) (*Checkpoint, error) {
	c := newCheckpoint("", opts)
	l := &loader{opts: opts.withDefaults()}
	for _, path := range paths {
		c.dir = filepath.Dir(path)
		if err := c.addFile(path, l); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err := c.load(l); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// OpenParts opens files of another format as a checkpoint. name is the first file's path below dir.
// read decodes this file, and returns the paths of the other files and the tensors of all files.
// The first file's HeaderSHA256 covers the whole file.
func OpenParts(dir, name string, read func(file []byte) (others []string, tensors []Tensor, err error)) (*Checkpoint, error) {
	c, l := newCheckpoint(dir, Options{}), &loader{}
	add := func(name string) error {
		err := c.addFile(filepath.Join(dir, name), l)
		if err == nil {
			c.files = append(c.files, SourceFile{Name: filepath.ToSlash(name), Size: c.maps[len(c.files)].Size()})
		}
		return err
	}
	err := add(name)
	if err == nil {
		err = c.Guard(func() error {
			c.files[0].HeaderSHA256 = sha256.Sum256(c.maps[0].Bytes())
			others, tensors, err := read(c.maps[0].Bytes())
			for i := 0; err == nil && i < len(others); i++ {
				err = add(others[i])
			}
			for _, t := range tensors {
				l.add(t)
			}
			return err
		})
	}
	if err == nil {
		err = c.sortTensors(l)
	}
	for i := 0; err == nil && i < len(c.tensors); i++ {
		_, err = c.Bytes(c.tensors[i])
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// addFile adds the remote file of the name, or else the file at path, to the checkpoint.
func (c *Checkpoint) addFile(path string, l *loader) error {
	if f := l.opts.remoteFile(filepath.Base(path)); f != nil {
		return c.addRemote(f)
	}
	m, err := mmap.Open(path)
	if err != nil {
		return err
	}
	c.maps = append(c.maps, m)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Size() != m.Size() {
		return &FormatError{File: path, Offset: min(st.Size(), m.Size()), Msg: "the file's size changed while it was opened"}
	}
	c.stats = append(c.stats, st)
	return nil
}

func (c *Checkpoint) load(l *loader) error {
	err := c.fetchHeaders(func(i int) error {
		return c.Guard(func() error {
			f, err := l.file(c.maps[i].Bytes(), c.maps[i].Name(), i)
			f.Name = filepath.Base(c.maps[i].Name())
			if r, ok := c.remoteFile(i); ok {
				f.Name, f.Unverified = r.Name, r.Unverified
			}
			c.files = append(c.files, f)
			return err
		})
	})
	if err != nil {
		return err
	}
	return c.sortTensors(l)
}

// sortTensors takes over the tensors of l in order of name and refuses duplicate names.
func (c *Checkpoint) sortTensors(l *loader) error {
	type key struct { // faster than indices, see covered
		name string
		i    int32
	}
	order := make([]key, l.count)
	for i := range order {
		order[i] = key{l.at(i).Name, int32(i)}
	}
	slices.SortFunc(order, func(a, b key) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.i, b.i))
	})
	c.tensors = make([]Tensor, l.count)
	for i, k := range order {
		c.tensors[i] = *l.at(int(k.i))
		if i == 0 || c.tensors[i-1].Name != c.tensors[i].Name {
			continue
		}
		s, t := c.tensors[i-1], c.tensors[i]
		msg := fmt.Sprintf("tensor %s appears twice", quote(t.Name))
		if s.File != t.File {
			msg = fmt.Sprintf("tensor %s is in %s as well", quote(t.Name), c.files[s.File].Name)
		}
		return &FormatError{File: c.maps[t.File].Name(), Offset: t.at, Msg: msg}
	}
	c.joinBlocks()
	return nil
}

// Close removes the maps. Views from Bytes must not be read afterwards. A second call does nothing.
func (c *Checkpoint) Close() error {
	var errs []error
	for i, m := range c.maps {
		if r, ok := c.remoteFile(i); ok {
			errs = append(errs, r.region.Close())
			continue
		}
		errs = append(errs, m.Close())
	}
	c.maps = nil
	if c.restore != nil {
		c.restore()
	}
	return errors.Join(errs...)
}

func (c *Checkpoint) Dir() string { return c.dir }

// Files returns the files in order of name. The caller must not change the list.
func (c *Checkpoint) Files() []SourceFile { return c.files }

// Tensors returns all tensors in bytewise order of name. The caller must not change the list.
func (c *Checkpoint) Tensors() []Tensor { return c.tensors }

// DataBytes is the size of all tensors.
func (c *Checkpoint) DataBytes() (n int64) {
	for _, t := range c.tensors {
		n += t.Size
	}
	return n
}

// Lookup returns the tensor called name.
func (c *Checkpoint) Lookup(name string) (Tensor, bool) {
	i, ok := c.find(name)
	if !ok {
		return Tensor{}, false
	}
	return c.tensors[i], true
}

func (c *Checkpoint) find(name string) (int, bool) {
	return slices.BinarySearchFunc(c.tensors, name, func(t Tensor, name string) int {
		return strings.Compare(t.Name, name)
	})
}

// Bytes returns the data of t, little-endian and row-major, as a view of the mapped file. The view
// has any alignment and no spare capacity, is valid until Close, and must not be written to. Read
// the view inside Guard. Of a remote file, Fetch the bytes first: bytes that were not fetched
// fault.
//
// Bytes fails for a tensor of an unknown dtype (*UnsupportedError) and for a tensor of another
// checkpoint.
func (c *Checkpoint) Bytes(t Tensor) ([]byte, error) {
	if t.File < 0 || t.File >= len(c.maps) {
		return nil, fmt.Errorf("safetensors: tensor %s is of file %d of a checkpoint that has %d open files", quote(t.Name), t.File, len(c.maps))
	}
	if t.Dtype == packing.DtypeNone {
		return nil, c.unsupported(t, "dtype "+quote(t.DtypeName)+" is not known to this program")
	}
	b := c.maps[t.File].Bytes()
	size := int64(len(b))
	if t.Offset < 0 || t.Size < 0 || t.Offset > size || t.Size > size-t.Offset {
		return nil, fmt.Errorf("safetensors: tensor %s: bytes %d to %d do not lie in %s", quote(t.Name), t.Offset, t.Offset+t.Size, c.maps[t.File].Name())
	}
	return b[t.Offset : t.Offset+t.Size : t.Offset+t.Size], nil
}

// ReadAt fills p with the bytes of the tensor from byte off on, under Guard. For bytes that are
// read once ReadAt takes less time than Bytes.
func (c *Checkpoint) ReadAt(t Tensor, p []byte, off int64) error {
	if _, err := c.Bytes(t); err != nil {
		return err
	}
	return c.maps[t.File].ReadAt(p, t.Offset+off)
}

// Need begins to read ranges of local files from disk.
func (c *Checkpoint) Need(ranges ...Range) {
	for _, g := range ranges {
		c.maps[g.File].Need(g.Offset, g.Size)
	}
}

// Release takes ranges of local files, or all local files if there are no ranges, out of the memory
// of this process until they are read again. Linux would count the pages until Close otherwise.
func (c *Checkpoint) Release(ranges ...Range) {
	if ranges == nil {
		for i, m := range c.maps {
			ranges = append(ranges, Range{File: i, Size: m.Size()})
		}
	}
	for _, g := range ranges {
		c.maps[g.File].Release(g.Offset, g.Size)
	}
}

func (c *Checkpoint) unsupported(t Tensor, msg string) error {
	return &UnsupportedError{File: c.maps[t.File].Name(), Offset: t.at, Tensor: t.Name, Msg: msg}
}

// Guard calls fn and returns its error. fn may read views of this checkpoint: a fault because a
// file became shorter is a *FormatError with the file and the offset of the missing byte. A
// goroutine that fn starts needs its own Guard.
func (c *Checkpoint) Guard(fn func() error) error { return guard(fn, c.maps) }

func guard(fn func() error, maps []*mmap.File) error {
	err := mmap.Guard(fn)
	var fault *mmap.FaultError
	var known *FormatError
	if !errors.As(err, &fault) || errors.As(err, &known) || fault.Absent {
		return err
	}
	if !slices.ContainsFunc(maps, func(m *mmap.File) bool { return m.Name() == fault.Name }) {
		return err
	}
	return &FormatError{File: fault.Name, Offset: fault.Offset, Msg: "the file was truncated while it was read", Err: err}
}

// Unchanged reports files with another size or modification time than at opening: their data may
// mix two states. Call Unchanged after the last read and before publishing results. A file that was
// replaced (renamed over, or removed) is not a change: the map still shows the old file. For a
// remote file, each reading has compared the version; Unchanged calls its Check.
func (c *Checkpoint) Unchanged() error {
	for i, m := range c.maps {
		was := c.stats[i]
		if was == nil {
			if f, ok := c.remoteFile(i); ok && f.Check != nil {
				if err := f.Check(c.context); err != nil {
					return err
				}
			}
			continue
		}
		is, err := os.Stat(m.Name())
		if err != nil || !os.SameFile(was, is) {
			continue
		}
		if is.Size() < was.Size() {
			return &FormatError{File: m.Name(), Offset: is.Size(), Msg: "the file was truncated while it was read"}
		}
		if is.Size() != was.Size() || !is.ModTime().Equal(was.ModTime()) {
			return &FormatError{File: m.Name(), Msg: fmt.Sprintf("the file was changed while it was read (%d bytes of %s then, %d bytes of %s now)",
				was.Size(), was.ModTime().Format(time.RFC3339Nano), is.Size(), is.ModTime().Format(time.RFC3339Nano))}
		}
	}
	return nil
}
