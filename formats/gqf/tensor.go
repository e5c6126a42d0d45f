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

// A Tensor describes a tensor of a File and stays valid after Close.
type Tensor struct {
	Index     int           // in the file
	Name      string        // canonical
	Shape     []int64       // in the checkpoint, outermost first; empty for a scalar
	Dtype     packing.Dtype // in the checkpoint
	Role      Role
	Mapping   Mapping
	Algorithm Algorithm
	// the checkpoint stores the last two dimensions as inputs x outputs
	Transposed bool
	Experts    int // number of slices, each with its own payload; 1 for most tensors
	Bias       int // index of the layer's bias tensor; -1 if the file links none

	f        *File
	payloads int
	first    int // index of the first payload
	names    int
}

// A Payload describes a payload of a File. A Payload is a copy, valid after Close.
//
// A file may hold variants of a tensor in layouts that this version does not know. These variants
// are skipped: known variants count from 0, wherever in the file. A tensor may have no known
// variant, see [Tensor.Usable].
type Payload struct {
	Index  int // in the file
	Tensor int // index
	Slice  int // expert
	Kind   Kind
	// from 0; the others hold the same codes in other layouts; -1 in a skipped variant
	Variant int
	Stored  int         // the variant's number in the file, with skipped variants
	CPU     CPUFeatures // required by the variant; 0: none
	// from the directory; in a skipped variant only the layout's code
	Header packing.Header
	Offset int64 // of the packed header in the file; a multiple of 64
	Length int64 // bytes of packed header and data
}

// A Name is a name of a tensor and its origin in the checkpoint.
type Name struct {
	Name         string
	Tensor       int    // index
	Absorbed     bool   // the name of scales that the tensor's values include
	InCheckpoint bool   // false for a name that only the model's code knows
	SourceFile   int    // index into the sources of the provenance; -1 for none
	SourceBytes  int64  // size in the checkpoint
	SourceCRC    uint32 // CRC32C of the bytes in the checkpoint
}

func (f *File) Len() int { return f.count(secTensors) }

// Tensor returns tensor i, 0 <= i < Len, in the order of the file, with its own name and shape.
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

// Lookup finds a tensor by a name that is not absorbed, in time logarithmic in the names' number.
func (f *File) Lookup(name string) (Tensor, bool) {
	n, ok := f.FindName(name)
	if !ok || n.Absorbed {
		return Tensor{}, false
	}
	return f.Tensor(n.Tensor), true
}

// FindName finds a name, in time logarithmic in their number.
func (f *File) FindName(name string) (Name, bool) {
	key := []byte(name)
	n := f.count(secNames)
	i := sort.Search(n, func(i int) bool { return bytes.Compare(f.nameBytes(i), key) >= 0 })
	if i == n || !bytes.Equal(f.nameBytes(i), key) {
		return Name{}, false
	}
	return f.nameOf(i), true
}

// AllNames iterates over all names, absorbed names too, in ascending order of their bytes.
func (f *File) AllNames() iter.Seq[Name] {
	return func(yield func(Name) bool) {
		for i := range f.count(secNames) {
			if !yield(f.nameOf(i)) {
				return
			}
		}
	}
}

// Names returns all names that AllNames yields.
func (f *File) Names() []Name { return slices.Collect(f.AllNames()) }

func (f *front) nameOf(i int) Name {
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

// Names returns the tensor's names but absorbed names: first the canonical, then in ascending
// order.
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

// findAliases collects the names that are not canonical. Real files have few, so the file stores no
// list of names per tensor.
func (f *File) findAliases() {
	f.aliases = map[int32][]int32{}
	for i := range f.count(secNames) {
		r := f.nameRec(i)
		if r.flags&flagAbsorbed == 0 && f.tensor(int(r.tensor)).name != uint32(i) {
			f.aliases[int32(r.tensor)] = append(f.aliases[int32(r.tensor)], int32(i))
		}
	}
}

func (t Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= d // cannot overflow: checkTensors bounds the product
	}
	return n
}

// Payloads returns the payloads of the tensor's known variants, ordered by variant, slice and kind.
func (t Tensor) Payloads() []Payload {
	list := make([]Payload, 0, t.payloads)
	for i := range t.payloads {
		if p := t.f.Payload(t.first + i); p.Variant >= 0 {
			list = append(list, p)
		}
	}
	return list
}

// Payload finds a payload. Variant 0 with KindWeights exists for every slice of a usable tensor.
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

// Usable returns an [*UnsupportedError] if this version knows none of the tensor's layouts.
func (t Tensor) Usable() error {
	if _, ok := t.Payload(0, 0, KindWeights); ok {
		return nil
	}
	_, err := t.f.front.parseHeader(t.f.packedHeader(t.first))
	return &UnsupportedError{t.f.name, fmt.Sprintf("tensor %q exists only in layouts that this version does not know (%v): use a newer gq", t.Name, err)}
}

// VariantsFor returns the numbers of the tensor's variants, best first for a CPU with these
// features. Variants that the CPU can run come first, most features first, then the others. Equal
// variants keep the order of the file.
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

// storedVariant returns the number in the file of known variant number known, or -1.
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

// knownVariant is the inverse of storedVariant; -1 for a skipped variant.
func (f *front) knownVariant(tensor, stored int) int {
	unknown := f.unknown[int32(tensor)]
	if unknown>>stored&1 != 0 {
		return -1
	}
	return stored - bits.OnesCount8(unknown&(1<<stored-1))
}

func (f *File) NumPayloads() int { return f.count(secPayloads) }

// Payload returns payload i, 0 <= i < NumPayloads, in order of offset.
func (f *File) Payload(i int) Payload {
	r := f.payload(i)
	p := Payload{
		Index: i, Tensor: int(r.tensor), Slice: int(r.slice), Kind: Kind(r.kind), Variant: f.knownVariant(int(r.tensor), int(r.variant)),
		Stored: int(r.variant), CPU: CPUFeatures(r.cpu), Offset: int64(r.off), Length: int64(r.length),
	}
	raw := f.packedHeader(i)
	if p.Variant < 0 {
		p.Header.Layout = packing.LayoutOf(raw)
		return p
	}
	var err error
	if p.Header, err = f.front.parseHeader(raw); err != nil {
		panic(err) // checkRecords parsed the same bytes
	}
	return p
}

// Data returns the data of a payload in place, without the packed header. The package comment says
// how long the slice is valid. If the packed header before the data differs from its copy in the
// directory, the error is a [*FormatError]; for a skipped variant, an [*UnsupportedError]. The data
// are checked only after [File.CheckSums].
func (f *File) Data(p Payload) (data []byte, err error) {
	if p.Variant < 0 {
		return nil, &UnsupportedError{f.name, fmt.Sprintf("tensor %q, variant %d: layout %s is not known to this version: use a newer gq", f.tensorName(p.Tensor), p.Stored, p.Header.Layout)}
	}
	if v := f.View(p); v != nil {
		return v.whole(p.Header), nil
	}
	err = f.Guard(func() error {
		r := f.payload(p.Index)
		if err := f.checkPacked(p.Index, &r); err != nil {
			return err
		}
		end := r.off + r.length
		data = f.b[r.off+packing.HeaderSize : end : end]
		return f.checkSums(&r)
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// checkPacked compares the packed header of payload i with its copy in the directory.
func (f *File) checkPacked(i int, r *payloadRecord) error {
	if !bytes.Equal(f.b[r.off:][:packing.HeaderSize], f.packedHeader(i)) {
		t := f.tensorName(int(r.tensor))
		return &FormatError{File: f.name, Section: "data", Offset: int64(r.off), Msg: "packed header of tensor \"" + t + "\" differs from its copy in the directory"}
	}
	return nil
}
