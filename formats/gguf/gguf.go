package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/internal/mmap"
)

// Magic starts every GGUF file.
const Magic = "GGUF"

const (
	defaultAlignment = 32 // without general.alignment
	maxAlignment     = 1 << 20
	maxDims          = 4
	maxKey           = 1<<16 - 1 // bytes of a key, from the specification
	maxElements      = 1 << 56   // of a tensor: sizes in bits stay below 2^63
)

// KeyArchitecture is the key of the model's architecture. All files of models have the key.
const KeyArchitecture = "general.architecture"

// FormatError reports where and why a GGUF file is malformed.
type FormatError struct {
	File   string // path of the file or shard; empty for Parse
	Offset int64  // in the file
	Msg    string
}

func (e *FormatError) Error() string { return position(e.File, e.Offset) + e.Msg }

// UnsupportedError reports a version, a type of tensor or a size that this package does not read.
type UnsupportedError struct {
	File   string // path of the file or shard; empty for Parse
	Offset int64  // in the file
	Msg    string
}

func (e *UnsupportedError) Error() string { return position(e.File, e.Offset) + e.Msg }

func position(file string, offset int64) string {
	if file == "" {
		return fmt.Sprintf("byte %d: ", offset)
	}
	return fmt.Sprintf("%s: byte %d: ", file, offset)
}

// File is the content of a GGUF file, or of the shards of a model.
type File struct {
	Version uint32
	// Metadata has the values by key, see ValueType.
	Metadata map[string]any
	// Keys are the keys of Metadata in the order of the file.
	Keys []string
	// Tensors are in the order of the file, or of the shards.
	Tensors []*Tensor

	byName map[string]*Tensor
	shards []shard
}

type shard struct {
	data  []byte
	m     *mmap.File // nil after Parse
	start int64      // offset of the tensors' data
}

// Array is a list of values. Data holds the values as encoded in the file, in the file's memory.
type Array struct {
	Type ValueType // not typeArray: llama.cpp has no nested arrays
	Len  int
	Data []byte
}

// Tensor describes a tensor and its place.
type Tensor struct {
	Name string
	// Dims are the sizes of the dimensions. The elements of the first dimension are adjacent.
	Dims []int64
	Type TensorType
	// At is the offset of the tensor's description, Offset the offset of its data, both in the
	// file, or in the shard of number Shard. Size is in bytes.
	At, Offset, Size int64
	Shard            int
}

func (t *Tensor) Elements() int64 { return elements(t.Dims) }

func elements(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// Columns is the length of a row: the first dimension.
func (t *Tensor) Columns() int64 {
	if len(t.Dims) == 0 {
		return 1
	}
	return t.Dims[0]
}

// Rows is the number of rows: the product of the other dimensions.
func (t *Tensor) Rows() int64 { return t.Elements() / t.Columns() }

func (t *Tensor) RowBytes() int64 { return t.Type.Size(t.Columns()) }

func (f *File) Tensor(name string) *Tensor { return f.byName[name] }

// Data returns the data of a tensor of f, in the file's memory: valid until Close, and after Parse
// in the memory that Parse got. Read a mapped file's data inside Guard.
func (f *File) Data(t *Tensor) []byte { return f.shards[t.Shard].data[t.Offset:][:t.Size:t.Size] }

// The keys of shards. The first shard has the model's metadata too.
const (
	keySplitNo      = "split.no"            // uint16, from 0
	keySplitCount   = "split.count"         // uint16
	keySplitTensors = "split.tensors.count" // int32, of all shards
	keySplitSet     = "gq.split.set"        // id of the set, see Layout.NameSet; only gq's
)

// setDigits is the number of hexadecimal digits of a set's id.
const setDigits = 32

// Open maps the file at path. If the file is the first shard of a model, NAME-00001-of-00003.gguf,
// Open maps the other shards too; the File then has the tensors of all shards, and the first
// shard's metadata without the keys of shards. Errors are [*FormatError], [*UnsupportedError], or
// the operating system's, with the path.
func Open(path string) (*File, error) { return OpenAt(path, func(path string) string { return path }) }

// OpenAt is Open for files without their names yet: at returns the place of the file for path.
func OpenAt(path string, at func(path string) string) (*File, error) {
	open := func(path string) (*File, error) { return openShard(at(path)) }
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	if err := f.join(path, open); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func openShard(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	var f *File
	err = mmap.Guard(func() (err error) {
		f, err = Parse(m.Bytes())
		return err
	})
	if err != nil {
		m.Close()
		return nil, inFile(path, err)
	}
	f.shards[0].m = m
	return f, nil
}

func inFile(path string, err error) error {
	if e, ok := errors.AsType[*FormatError](err); ok {
		e.File = path
	}
	if e, ok := errors.AsType[*UnsupportedError](err); ok {
		e.File = path
	}
	return err
}

var shardName = regexp.MustCompile(`^(.+)-(\d{5,})-of-(\d{5,})\.gguf$`)

// shardPath is llama.cpp's name of shard no, from 0, of count: PREFIX-00001-of-00003.gguf.
func shardPath(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no+1, count)
}

// Shards returns the names of all shards of a model. name is the first shard, or the only file.
func Shards(name string) []string {
	m := shardName.FindStringSubmatch(name)
	if m == nil {
		return []string{name}
	}
	count, err := strconv.ParseUint(m[3], 10, 16)
	if first := shardPath(m[1], 0, int(count)); err != nil || name != first {
		return []string{name} // opening gives the error
	}
	var names []string
	for i := range int(count) {
		names = append(names, shardPath(m[1], i, int(count)))
	}
	return names
}

type splitKeys struct {
	no, count, tensors int64  // 0, 1, and the file's tensors if the file does not say
	set                string // "": the file does not say
}

// split takes the keys of shards out of the metadata of the file at path: a File is a model.
func (f *File) split(path string) (splitKeys, error) {
	s := splitKeys{count: 1, tensors: int64(len(f.Tensors))}
	for _, k := range []struct {
		key   string
		value *int64
	}{{keySplitNo, &s.no}, {keySplitCount, &s.count}, {keySplitTensors, &s.tensors}} {
		if _, has := f.Metadata[k.key]; !has {
			continue
		}
		n, ok := f.Int(k.key)
		if !ok {
			return s, &FormatError{File: path, Msg: fmt.Sprintf("%s is no integer: want a number of shards or tensors", k.key)}
		}
		*k.value = n
		delete(f.Metadata, k.key)
	}
	if v, has := f.Metadata[keySplitSet]; has {
		s.set = fmt.Sprint(v)
		delete(f.Metadata, keySplitSet)
	}
	f.Keys = slices.DeleteFunc(f.Keys, func(key string) bool { _, ok := f.Metadata[key]; return !ok })
	return s, nil
}

// join adds the other shards of a model to f, its first shard, unless f is the model's only file.
func (f *File) join(path string, open func(path string) (*File, error)) error {
	s, err := f.split(path)
	if err != nil {
		return err
	}
	if s.count <= 1 && s.no == 0 {
		return nil
	}
	name := shardName.FindStringSubmatch(filepath.Base(path))
	count := int(s.count)
	switch {
	case s.no < 0 || s.no >= s.count || s.count > maxShards:
		return &FormatError{File: path, Msg: fmt.Sprintf("%s %d and %s %d: want a number below the count, and at most %d shards", keySplitNo, s.no, keySplitCount, s.count, maxShards)}
	case name == nil:
		return fmt.Errorf("%s: it is shard %d of %d of a model: name it %s, and the others likewise", path, s.no+1, count, shardPath("NAME", int(s.no), count))
	}
	prefix := filepath.Join(filepath.Dir(path), name[1])
	switch first := shardPath(prefix, 0, count); {
	case s.no != 0:
		return fmt.Errorf("%s: it is shard %d of %d of a model: name the first shard, %s", path, s.no+1, count, first)
	case filepath.Base(path) != filepath.Base(first):
		return fmt.Errorf("%s: its content says shard 1 of %d: name it %s", path, count, filepath.Base(first))
	}
	for i := 1; i < count; i++ {
		path := shardPath(prefix, i, count)
		other, err := open(path)
		if err == nil {
			err = f.add(other, path, i, s)
		}
		if err != nil {
			return fmt.Errorf("shard %d of %d: %w", i+1, count, err)
		}
	}
	if s.tensors != int64(len(f.Tensors)) {
		return &FormatError{File: path, Msg: fmt.Sprintf("%s says %d tensors, the %d shards have %d", keySplitTensors, s.tensors, count, len(f.Tensors))}
	}
	return nil
}

// maxShards is the largest number of shards: split.count has 16 bits.
const maxShards = 1<<16 - 1

// add adds shard i to f; f closes the shard. want has the keys of the first shard.
func (f *File) add(s *File, path string, i int, want splitKeys) error {
	f.shards = append(f.shards, s.shards[0])
	is, err := s.split(path)
	switch {
	case err != nil:
		return err
	case is.no != int64(i) || is.count != want.count:
		return &FormatError{File: path, Msg: fmt.Sprintf("it says shard %d of %d, want %d of %d, as its name and the first shard say", is.no+1, is.count, i+1, want.count)}
	case is.set != want.set:
		return &FormatError{File: path, Msg: fmt.Sprintf("%s is %q, and %q in the first shard: the files are shards of two models: write or copy all of them again", keySplitSet, is.set, want.set)}
	}
	for _, t := range s.Tensors {
		t.Shard = i
		if other := f.byName[t.Name]; other != nil {
			return &FormatError{File: path, Offset: t.At, Msg: fmt.Sprintf("tensor %q is in shard %d too", t.Name, other.Shard+1)}
		}
		f.byName[t.Name] = t
	}
	if f.Tensors = append(f.Tensors, s.Tensors...); len(f.Tensors) > maxTensors {
		return &UnsupportedError{File: path, Offset: 8, Msg: fmt.Sprintf("the shards have more than %d tensors", maxTensors)}
	}
	return nil
}

// Close unmaps the files. Data and arrays must not be read afterwards.
func (f *File) Close() error {
	var err error
	for _, s := range f.shards {
		if s.m != nil {
			err = errors.Join(err, s.m.Close())
		}
	}
	return err
}

// Guard calls fn and returns its error. If fn, in this goroutine, reads bytes that a file has lost
// since Open (the file was shortened, or its disk failed), Guard returns a [*FormatError] with
// their offset; without Guard the program would crash. Guards may be nested.
func (f *File) Guard(fn func() error) error {
	err := mmap.Guard(fn)
	if fault, ok := errors.AsType[*mmap.FaultError](err); ok && slices.Contains(f.Paths(), fault.Name) {
		return &FormatError{File: fault.Name, Offset: fault.Offset, Msg: "cannot be read any more: the file was truncated while it was in use, or its disk failed"}
	}
	return err
}

// Paths returns the paths of the mapped files, in the order of the shards.
func (f *File) Paths() []string {
	var paths []string
	for _, s := range f.shards {
		if s.m != nil {
			paths = append(paths, s.m.Name())
		}
	}
	return paths
}

// Shards is the number of files.
func (f *File) Shards() int { return len(f.shards) }

// Shard returns the name of a file without its directory, "" after Parse, the size of the file, and
// the offset of the tensors' data.
func (f *File) Shard(i int) (name string, size, dataOffset int64) {
	s := f.shards[i]
	if s.m != nil {
		name = filepath.Base(s.m.Name())
	}
	return name, int64(len(s.data)), s.start
}

// Size is the size of all files in bytes.
func (f *File) Size() int64 {
	n := int64(0)
	for _, s := range f.shards {
		n += int64(len(s.data))
	}
	return n
}
