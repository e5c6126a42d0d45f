package gqf

import (
	"bytes"
	"iter"
	"slices"
	"sort"

	"github.com/lowbit-go/gq/packing"
)

// A Tensor describes a tensor of a File. It stays valid after Close.
type Tensor struct {
	Index      int           // in the file
	Name       string        // canonical
	Shape      []int64       // as in the checkpoint, outermost first; empty for a scalar
	Dtype      packing.Dtype // of the checkpoint
	Role       Role
	Mapping    Mapping
	Algorithm  Algorithm
	Transposed bool // the checkpoint has the last two dimensions as inputs x outputs
	Experts    int  // slices, each a payload of its own; 1 for most

	f        *File
	payloads int
	first    int // payload
	names    int
}

// A Payload describes a payload of a File. It is a copy, valid after Close.
type Payload struct {
	Index   int // in the file
	Tensor  int // index
	Slice   int // expert
	Kind    Kind
	Variant int            // 0 first; others hold the same codes in another layout
	Header  packing.Header // as the directory has it
	Offset  int64          // in the file, of the packed header; a multiple of 64
	Length  int64          // bytes of packed header and data
}

// A Name is one of the names of a tensor, and says where the checkpoint had it.
type Name struct {
	Name         string
	Tensor       int    // index
	Folded       bool   // not a name of the tensor but of scales that its values include
	InCheckpoint bool   // false for a name that the model's code makes
	SourceFile   int    // index into the sources of the provenance; -1 for none
	SourceBytes  int64  // size in the checkpoint
	SourceCRC    uint32 // CRC32C of the bytes in the checkpoint
}

// Len is the number of tensors.
func (f *File) Len() int { return f.count(secTensors) }

// Tensor returns tensor i, 0 <= i < Len, in the file's order. It allocates name
// and shape.
func (f *File) Tensor(i int) Tensor {
	r := f.tensor(i)
	shape := make([]int64, r.ndim)
	for j := range shape {
		shape[j] = int64(f.dim(int(r.dimsFirst) + j))
	}
	return Tensor{
		Index: i, Name: string(f.nameBytes(int(r.name))), Shape: shape, Dtype: packing.Dtype(r.dtype),
		Role: Role(r.role), Mapping: Mapping(r.mapping), Algorithm: Algorithm(r.algorithm),
		Transposed: r.flags&flagTransp != 0, Experts: int(r.slices),
		f: f, payloads: int(r.payloads), first: int(r.payloadFirst), names: int(r.names),
	}
}

// Lookup finds a tensor by any of its names, in a time that grows with the
// logarithm of their number. Folded names do not count.
func (f *File) Lookup(name string) (Tensor, bool) {
	key := []byte(name)
	n := f.count(secNames)
	i := sort.Search(n, func(i int) bool { return bytes.Compare(f.nameBytes(i), key) >= 0 })
	if i == n || !bytes.Equal(f.nameBytes(i), key) {
		return Tensor{}, false
	}
	r := f.nameRec(i)
	if r.flags&flagFolded != 0 {
		return Tensor{}, false
	}
	return f.Tensor(int(r.tensor)), true
}

// AllNames goes through all names, folded ones included, in ascending order of their bytes.
func (f *File) AllNames() iter.Seq[Name] {
	return func(yield func(Name) bool) {
		for i := range f.count(secNames) {
			if !yield(f.nameAt(i)) {
				return
			}
		}
	}
}

// Names lists what AllNames goes through.
func (f *File) Names() []Name { return slices.Collect(f.AllNames()) }

func (f *File) nameAt(i int) Name {
	r := f.nameRec(i)
	n := Name{
		Name: string(f.str(r.strOff, r.strLen)), Tensor: int(r.tensor), Folded: r.flags&flagFolded != 0,
		InCheckpoint: r.flags&flagCheckpt != 0, SourceFile: -1, SourceBytes: int64(r.sourceBytes), SourceCRC: r.sourceCRC,
	}
	if r.sourceFile != noSource {
		n.SourceFile = int(r.sourceFile)
	}
	return n
}

// Names lists the names of the tensor, the canonical one first, the others in
// ascending order, without folded ones.
func (t Tensor) Names() []string {
	list := []string{t.Name}
	if t.names > 1 {
		t.f.aliasOnce.Do(t.f.findAliases)
		for _, i := range t.f.aliases[int32(t.Index)] {
			list = append(list, string(t.f.nameBytes(int(i))))
		}
	}
	return list
}

// findAliases collects the names that are not canonical: few in real files, which
// is why no tensor has a list of its own in the file.
func (f *File) findAliases() {
	f.aliases = map[int32][]int32{}
	for i := range f.count(secNames) {
		r := f.nameRec(i)
		if r.flags&flagFolded == 0 && f.tensor(int(r.tensor)).name != uint32(i) {
			f.aliases[int32(r.tensor)] = append(f.aliases[int32(r.tensor)], int32(i))
		}
	}
}

// Elements is the number of elements of the shape.
func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d // the reader has checked that this does not overflow
	}
	return n
}

// Payloads lists the payloads of the tensor by variant, slice and kind.
func (t Tensor) Payloads() []Payload {
	list := make([]Payload, t.payloads)
	for i := range list {
		list[i] = t.f.Payload(t.first + i)
	}
	return list
}

// Payload finds one payload of the tensor. Variant 0 with KindWeights exists for
// every slice.
func (t Tensor) Payload(variant, slice int, kind Kind) (Payload, bool) {
	i := sort.Search(t.payloads, func(i int) bool {
		r := t.f.payload(t.first + i)
		if int(r.variant) != variant {
			return int(r.variant) > variant
		}
		if int(r.slice) != slice {
			return int(r.slice) > slice
		}
		return Kind(r.kind) >= kind
	})
	if i == t.payloads {
		return Payload{}, false
	}
	p := t.f.Payload(t.first + i)
	return p, p.Variant == variant && p.Slice == slice && p.Kind == kind
}

// NumPayloads is the number of payloads of all tensors.
func (f *File) NumPayloads() int { return f.count(secPayloads) }

// Payload returns payload i, 0 <= i < NumPayloads, in the order of their offsets.
func (f *File) Payload(i int) Payload {
	r := f.payload(i)
	h, err := packing.ParseHeader(f.record(secPayloads, i)[payloadHeader:])
	if err != nil {
		panic(err) // checkRecords parsed the same bytes
	}
	return Payload{i, int(r.tensor), int(r.slice), Kind(r.kind), int(r.variant), h, int64(r.off), int64(r.length)}
}

// Data returns the data of a payload, without the packed header, in place: see
// the package comment for how long the slice is valid. It fails with a
// [*FormatError] if the packed header before the data is not the one that the
// directory has. The data themselves are checked only if [File.CheckSums] was called
// before.
func (f *File) Data(p Payload) ([]byte, error) {
	var data []byte
	err := f.Guard(func() error {
		r := f.payload(p.Index)
		if err := f.checkPacked(p.Index, &r); err != nil {
			return err
		}
		if err := f.checkSums(&r); err != nil {
			return err
		}
		end := r.off + r.length
		data = f.b[r.off+packing.HeaderSize : end : end]
		return nil
	})
	return data, err
}

// checkPacked compares the packed header of payload i with its copy in the
// directory.
func (f *File) checkPacked(i int, r *payloadRecord) error {
	if !bytes.Equal(f.b[r.off:][:packing.HeaderSize], f.record(secPayloads, i)[payloadHeader:]) {
		t := f.tensorName(int(r.tensor))
		return &FormatError{File: f.name, Section: "data", Offset: int64(r.off), Msg: "packed header of tensor \"" + t + "\" differs from its copy in the directory"}
	}
	return nil
}
