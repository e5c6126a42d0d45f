package gguf

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"path/filepath"
	"strings"
)

// maxName is ggml's limit for the bytes of a tensor's name (GGML_MAX_NAME, less the zero byte).
const maxName = 63

// TensorInfo is a tensor to be written. The elements of the first dimension are adjacent.
type TensorInfo struct {
	Name string
	Dims []int64
	Type TensorType
}

func (t TensorInfo) Size() int64 { return t.Type.Size(elements(t.Dims)) }

// Layout is a file to be written, or a set of shards: the bytes before the data, and the place of
// each tensor's data. Data may then be written in any order; bytes between tensors and at the end
// of a file are zero.
type Layout struct {
	Shards []ShardLayout
	// Places has the place of each tensor's data, in the order of the tensors.
	Places []Place
}

type ShardLayout struct {
	Header []byte // the file's bytes up to the data
	Size   int64  // of the file

	pairsEnd int // in Header: where the metadata end
}

type Place struct {
	Shard  int   // index in Layout.Shards
	Offset int64 // in the file of that shard
}

// NewLayout lays out a file with these metadata and tensors, in their order, or several if split is
// not 0 and the file would have more than split bytes. NewLayout fails for everything that
// llama.cpp would not load: names of 64 bytes or more, more than 4 dimensions, duplicates, rows
// that are no whole number of blocks, values of other types than [Pair] names; and if a tensor
// alone is larger than split.
func NewLayout(pairs []Pair, tensors []TensorInfo, split int64) (*Layout, error) {
	p, err := encodePairs(pairs)
	if err != nil {
		return nil, err
	}
	if err := checkTensors(tensors); err != nil {
		return nil, err
	}
	ends, err := cut(p, tensors, split)
	if err != nil {
		return nil, err
	}
	l := &Layout{}
	from := 0
	for i, end := range ends {
		shard := p
		if len(ends) > 1 {
			shard = p.shard(i, len(ends), len(tensors))
		}
		s, offsets := shard.layout(tensors[from:end])
		l.Shards = append(l.Shards, s)
		for _, at := range offsets {
			l.Places = append(l.Places, Place{i, at})
		}
		from = end
	}
	return l, nil
}

// NameSet writes the id of the set into each shard: a hash of the headers and of content, a hash of
// the data. Open refuses shards of several ids. A single file has none.
func (l *Layout) NameSet(content []byte) {
	if len(l.Shards) == 1 {
		return
	}
	h := sha256.New()
	for _, s := range l.Shards {
		h.Write(s.Header)
	}
	h.Write(content)
	id := hex.EncodeToString(h.Sum(nil))[:setDigits]
	for _, s := range l.Shards {
		copy(s.Header[s.pairsEnd-setDigits:], id)
	}
}

// Paths returns the paths of the layout's files: path, or llama.cpp's names of shards, path without
// .gguf and -00001-of-00003.gguf.
func (l *Layout) Paths(path string) []string {
	if len(l.Shards) == 1 {
		return []string{path}
	}
	paths := make([]string, len(l.Shards))
	for i := range paths {
		paths[i] = shardPath(shardPrefix(path), i, len(paths))
	}
	return paths
}

// shardPrefix is path without the ending .gguf, the beginning of the names of path's shards.
func shardPrefix(path string) string {
	if strings.EqualFold(filepath.Ext(path), ".gguf") {
		return path[:len(path)-len(".gguf")]
	}
	return path
}

// ShardLike returns the path of path's shard with the numbers in name, the name of a file:
// b/y-00001-of-00003.gguf for b/y.gguf and x-00001-of-00003.gguf. The result is "" if name, in any
// case, is not like a shard's name.
func ShardLike(path, name string) string {
	parts := shardName.FindStringSubmatch(strings.ToLower(name))
	if parts == nil {
		return ""
	}
	return shardPrefix(path) + "-" + parts[2] + "-of-" + parts[3] + ".gguf"
}

func checkTensors(tensors []TensorInfo) error {
	if len(tensors) > maxTensors {
		return fmt.Errorf("%d tensors: a GGUF file has at most %d", len(tensors), maxTensors)
	}
	seen := make(map[string]bool, len(tensors))
	total := int64(0)
	for _, t := range tensors {
		if err := t.check(); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if seen[t.Name] {
			return fmt.Errorf("tensor %q is given twice", t.Name)
		}
		seen[t.Name] = true
		if total += t.Size(); total > math.MaxInt64/2 {
			return fmt.Errorf("tensor %q: the file would have more than 2^62 bytes", t.Name)
		}
	}
	return nil
}

func (t TensorInfo) check() error {
	switch {
	case t.Name == "" || len(t.Name) > maxName || strings.ContainsRune(t.Name, 0):
		return fmt.Errorf("the name has %d bytes: llama.cpp takes 1 to %d, none of them zero", len(t.Name), maxName)
	case len(t.Dims) == 0 || len(t.Dims) > maxDims:
		return fmt.Errorf("it has %d dimensions: llama.cpp takes 1 to %d", len(t.Dims), maxDims)
	case !t.Type.Known():
		return fmt.Errorf("%s", t.Type.unknown())
	case t.Dims[0]%int64(t.Type.BlockWeights()) != 0:
		return fmt.Errorf("its rows of %d weights are no whole number of blocks: %s has blocks of %d", t.Dims[0], t.Type, t.Type.BlockWeights())
	}
	elements := int64(1)
	for _, d := range t.Dims {
		if d < 1 || d > maxElements/elements {
			return fmt.Errorf("its shape is %d: want dimensions of 1 or more, and at most 2^56 elements in all", t.Dims)
		}
		elements *= d
	}
	return nil
}

func cut(p encodedPairs, tensors []TensorInfo, split int64) (ends []int, err error) {
	if split < 0 {
		return nil, fmt.Errorf("shards of %d bytes: want 1 byte or more, or 0 for one file", split)
	}
	if split == 0 {
		return []int{len(tensors)}, nil
	}
	if s, _ := p.layout(tensors); s.Size <= split {
		return []int{len(tensors)}, nil
	}
	// The size of the keys does not depend on their values.
	size := newSizer(p.shard(0, maxShards, len(tensors)))
	for i, t := range tensors {
		if size.add(t); size.bytes() <= split {
			continue
		}
		if size.tensors > 1 {
			ends = append(ends, i)
			size = newSizer(p.shard(1, maxShards, len(tensors)))
			size.add(t)
		}
		if size.bytes() > split {
			return nil, fmt.Errorf("tensor %q makes a file of %d bytes alone, more than the %d bytes of a shard: take larger shards", t.Name, size.bytes(), split)
		}
		if len(ends) >= maxShards {
			return nil, fmt.Errorf("shards of %d bytes: more than %d of them, take larger ones", split, maxShards)
		}
	}
	return append(ends, len(tensors)), nil
}

type sizer struct {
	header, data, alignment int64
	tensors                 int
}

func newSizer(p encodedPairs) sizer {
	return sizer{header: headerBytes + int64(len(p.bytes)), alignment: p.alignment}
}

func (s *sizer) add(t TensorInfo) {
	s.header += 8 + int64(len(t.Name)) + 4 + 8*int64(len(t.Dims)) + 4 + 8
	s.data += align(t.Size(), s.alignment)
	s.tensors++
}

func (s *sizer) bytes() int64 { return align(s.header, s.alignment) + s.data }

const headerBytes = 4 + 4 + 8 + 8

func align(n, a int64) int64 { return (n + a - 1) &^ (a - 1) }

// layout returns the layout of a single file, and the offsets of the tensors' data.
func (p encodedPairs) layout(tensors []TensorInfo) (ShardLayout, []int64) {
	b := append(make([]byte, 0, headerBytes+len(p.bytes)), Magic...)
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(p.n))
	b = append(b, p.bytes...)
	pairsEnd := len(b)
	offsets := make([]int64, len(tensors))
	size := newSizer(p)
	for i, t := range tensors {
		b = le.AppendUint32(appendString(b, t.Name), uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(le.AppendUint32(b, uint32(t.Type)), uint64(size.data))
		offsets[i] = size.data
		size.add(t)
	}
	start := size.bytes() - size.data
	b = append(b, make([]byte, start-int64(len(b)))...)
	for i := range offsets {
		offsets[i] += start
	}
	return ShardLayout{Header: b, Size: size.bytes(), pairsEnd: pairsEnd}, offsets
}
