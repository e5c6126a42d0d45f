package gqf

import (
	"bytes"
	"fmt"
	"iter"
	"math/bits"
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
	Bias       int  // index of the tensor with the layer's bias; -1 if the file links none

	f        *File
	payloads int
	first    int // payload
	names    int
}

// A Payload describes a payload of a File. It is a copy, valid after Close.
//
// A file may hold variants of a tensor in layouts that this version does not know.
// They are skipped: the variants that it knows count from 0, whatever is before or
// between them in the file. A tensor may be left without any, see [Tensor.Usable].
type Payload struct {
	Index   int // in the file
	Tensor  int // index
	Slice   int // expert
	Kind    Kind
	Variant int            // 0 first; others hold the same codes in another layout; -1 in a variant that is skipped
	Stored  int            // the variant's number in the file, skipped ones counted
	CPU     CPUFeatures    // of the CPUs that the variant is for; 0: of any
	Header  packing.Header // as the directory has it; in a variant that is skipped just the layout's code
	Offset  int64          // in the file, of the packed header; a multiple of 64
	Length  int64          // bytes of packed header and data
}

// A Name is one of the names of a tensor, and says where the checkpoint had it.
type Name struct {
	Name         string
	Tensor       int    // index
	Absorbed     bool   // not a name of the tensor but of scales that its values include
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
		Index: i, Name: f.nameString(int(r.name)), Shape: shape, Dtype: packing.Dtype(r.dtype),
		Role: Role(r.role), Mapping: Mapping(r.mapping), Algorithm: Algorithm(r.algorithm),
		Transposed: r.flags&flagTransp != 0, Experts: int(r.slices), Bias: int(r.bias) - 1,
		f: f, payloads: int(r.payloads), first: int(r.payloadFirst), names: int(r.names),
	}
}

// Lookup finds a tensor by any of its names, in a time that grows with the
// logarithm of their number. Absorbed names do not count.
func (f *File) Lookup(name string) (Tensor, bool) {
	key := []byte(name)
	n := f.count(secNames)
	i := sort.Search(n, func(i int) bool { return bytes.Compare(f.nameBytes(i), key) >= 0 })
	if i == n || !bytes.Equal(f.nameBytes(i), key) {
		return Tensor{}, false
	}
	r := f.nameRec(i)
	if r.flags&flagAbsorbed != 0 {
		return Tensor{}, false
	}
	return f.Tensor(int(r.tensor)), true
}

// AllNames goes through all names, absorbed ones included, in ascending order of their bytes.
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
		Name: f.nameString(i), Tensor: int(r.tensor), Absorbed: r.flags&flagAbsorbed != 0,
		InCheckpoint: r.flags&flagCheckpt != 0, SourceFile: -1, SourceBytes: int64(r.sourceBytes), SourceCRC: r.sourceCRC,
	}
	if r.sourceFile != noSource {
		n.SourceFile = int(r.sourceFile)
	}
	return n
}

// Names lists the names of the tensor, the canonical one first, the others in
// ascending order, without absorbed ones.
func (t Tensor) Names() []string {
	list := []string{t.Name}
	if t.names > 1 {
		t.f.aliasOnce.Do(t.f.findAliases)
		for _, i := range t.f.aliases[int32(t.Index)] {
			list = append(list, t.f.nameString(int(i)))
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
		if r.flags&flagAbsorbed == 0 && f.tensor(int(r.tensor)).name != uint32(i) {
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

// Payloads lists the payloads of the tensor by variant, slice and kind, without
// those of variants that are skipped.
func (t Tensor) Payloads() []Payload {
	list := make([]Payload, 0, t.payloads)
	for i := range t.payloads {
		if p := t.f.Payload(t.first + i); p.Variant >= 0 {
			list = append(list, p)
		}
	}
	return list
}

// Payload finds one payload of the tensor. Variant 0 with KindWeights exists for
// every slice, unless Usable has an error.
func (t Tensor) Payload(variant, slice int, kind Kind) (Payload, bool) {
	stored := t.f.storedVariant(t.Index, variant)
	i := sort.Search(t.payloads, func(i int) bool {
		r := t.f.payload(t.first + i)
		if int(r.variant) != stored {
			return int(r.variant) > stored
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

// Usable reports, as [*UnsupportedError], that this version knows none of the
// layouts in which the file holds the tensor.
func (t Tensor) Usable() error {
	if _, ok := t.Payload(0, 0, KindWeights); ok {
		return nil
	}
	_, err := packing.ParseHeader(t.f.record(secPayloads, t.first)[payloadHeader:])
	return &UnsupportedError{t.f.name, fmt.Sprintf("tensor %q is only there in layouts that this version does not know (%v): use a newer gq", t.Name, err)}
}

// VariantsFor lists the numbers of the tensor's variants, the best one for a CPU
// with these features first: the variants that name no other features, by how many
// they name, then the rest; equals in the file's order.
func (t Tensor) VariantsFor(have CPUFeatures) []int {
	type variant struct{ number, features int }
	var list []variant
	for number := 0; ; number++ {
		p, ok := t.Payload(number, 0, KindWeights)
		if !ok {
			break
		}
		v := variant{number, bits.OnesCount32(uint32(p.CPU))}
		if p.CPU&^have != 0 {
			v.features = -1
		}
		list = append(list, v)
	}
	slices.SortStableFunc(list, func(a, b variant) int { return b.features - a.features })
	numbers := make([]int, len(list))
	for i, v := range list {
		numbers[i] = v.number
	}
	return numbers
}

// storedVariant is the number in the file of a variant that is counted among the
// known ones; -1 if there are fewer.
func (f *front) storedVariant(tensor, known int) int {
	unknown := f.unknown[int32(tensor)]
	for stored := range maxVariants {
		if unknown>>stored&1 != 0 {
			continue
		}
		if known == 0 {
			return stored
		}
		known--
	}
	return -1
}

// knownVariant is the inverse; -1 for a variant that is skipped.
func (f *front) knownVariant(tensor, stored int) int {
	unknown := f.unknown[int32(tensor)]
	if unknown>>stored&1 != 0 {
		return -1
	}
	return stored - bits.OnesCount8(unknown&(1<<stored-1))
}

// NumPayloads is the number of payloads of all tensors.
func (f *File) NumPayloads() int { return f.count(secPayloads) }

// Payload returns payload i, 0 <= i < NumPayloads, in the order of their offsets.
func (f *File) Payload(i int) Payload {
	r := f.payload(i)
	p := Payload{
		Index: i, Tensor: int(r.tensor), Slice: int(r.slice), Kind: Kind(r.kind), Variant: f.knownVariant(int(r.tensor), int(r.variant)),
		Stored: int(r.variant), CPU: CPUFeatures(r.cpu), Offset: int64(r.off), Length: int64(r.length),
	}
	raw := f.record(secPayloads, i)[payloadHeader:]
	if p.Variant < 0 {
		p.Header.Layout = packing.LayoutOf(raw)
		return p
	}
	var err error
	if p.Header, err = packing.ParseHeader(raw); err != nil {
		panic(err) // checkRecords parsed the same bytes
	}
	return p
}

// Data returns the data of a payload, without the packed header, in place: see
// the package comment for how long the slice is valid. It fails with a
// [*FormatError] if the packed header before the data is not the one that the
// directory has, and with a [*UnsupportedError] in a variant that is skipped. The
// data themselves are checked only if [File.CheckSums] was called before.
func (f *File) Data(p Payload) ([]byte, error) {
	if p.Variant < 0 {
		return nil, &UnsupportedError{f.name, fmt.Sprintf("tensor %q, variant %d: layout %s is not known to this version: use a newer gq", f.tensorName(p.Tensor), p.Stored, p.Header.Layout)}
	}
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
