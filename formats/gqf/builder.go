package gqf

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"unique"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

type TensorSpec struct {
	// canonical name; AddName must add this name, too
	Name      string
	Shape     []int64       // as in the checkpoint, outermost first; empty for a scalar
	Dtype     packing.Dtype // in the checkpoint
	Role      Role
	Mapping   Mapping   // MappingNone if unquantized
	Algorithm Algorithm // AlgorithmNone if unquantized
	Bias      int       // 1 + the index that AddTensor returned for the layer's bias; 0: none
	// the checkpoint stores inputs x outputs; quantized payloads are always outputs x inputs
	Transposed bool
	Experts    int // number of slices: the product of all dimensions but the last two; 0 means 1
}

// PayloadSpec describes a payload to a [Builder]. Every variant of a tensor
// needs the payloads of all its slices, with equal headers.
type PayloadSpec struct {
	Tensor  int // from AddTensor
	Slice   int // expert, from 0
	Kind    Kind
	Variant int         // from 0; the others hold the same codes in other layouts
	CPU     CPUFeatures // required by the variant, equal in all its payloads; 0: none
	Header  packing.Header
}

// payloadSpec is a PayloadSpec in a third of its memory. Numbers that no file can hold become other
// such numbers.
type payloadSpec struct {
	head          unique.Handle[packing.Header] // payloads share few different headers
	tensor, slice int32
	cpu           CPUFeatures
	variant       int16
	kind          Kind
}

func makePayloadSpec(p PayloadSpec) payloadSpec {
	clamp := func(n, most int) int { return max(-1, min(n, most)) }
	return payloadSpec{
		head: unique.Make(p.Header), tensor: int32(clamp(p.Tensor, math.MaxInt32)), slice: int32(clamp(p.Slice, math.MaxInt32)),
		cpu: p.CPU, variant: int16(clamp(p.Variant, math.MaxUint8+1)), kind: p.Kind,
	}
}

func (p *payloadSpec) spec() PayloadSpec {
	return PayloadSpec{Tensor: int(p.tensor), Slice: int(p.slice), Kind: p.kind, Variant: int(p.variant), CPU: p.cpu, Header: p.header()}
}

func (p *payloadSpec) header() packing.Header { return p.head.Value() }

// NameSpec describes a name of a tensor to a [Builder].
type NameSpec struct {
	Name         string // 1 to 65,535 bytes of UTF-8 without NUL
	Tensor       int    // from AddTensor
	InCheckpoint bool   // false for a name of the model's code only, such as a tied lm_head.weight
	// the name of scales that the tensor's values include, such as FP8's X.weight_scale_inv
	Absorbed    bool
	SourceFile  int    // index into the sources of the provenance; -1 for none
	SourceBytes int64  // size in the checkpoint
	SourceCRC   uint32 // CRC32C of the bytes there; 0 if not known yet, see Image.SetSourceCRC
}

// AssetSpec describes a small file to a [Builder]. The Builder compresses the kinds AssetFile and
// AssetFold if that saves space, and stores all other kinds uncompressed, readable for people and
// loaders.
type AssetSpec struct {
	Kind   AssetKind
	Name   string // RecipeName, ProvenanceName, or a plain file name
	Data   []byte
	Stored bool // not compressed: for an Image.View
}

// A Builder collects the content of a file; Build then fixes every offset. Each Add method returns
// the index by which later calls refer to the addition, counted from 0 for each method. Use
// [NewBuilder]; the zero Builder is not ready.
type Builder struct {
	tensors  []TensorSpec
	payloads []payloadSpec
	names    []NameSpec
	namesOf  *File // see CopyNames
	assets   []PackedAsset
	assetErr error // the error of the first AddAsset that failed
}

func NewBuilder() *Builder { return &Builder{} }

// Grow makes room for this many more tensors, payloads and names. Without Grow the lists of a large
// file are copied while growing and take twice the memory.
func (b *Builder) Grow(tensors, payloads, names int) {
	b.tensors = slices.Grow(b.tensors, tensors)
	b.payloads = slices.Grow(b.payloads, payloads)
	b.names = slices.Grow(b.names, names)
}

// AddTensor adds a tensor. The file has its tensors in the order of these calls.
func (b *Builder) AddTensor(t TensorSpec) int {
	b.tensors = append(b.tensors, t)
	return len(b.tensors) - 1
}

// AddPayload adds a payload. The order of these calls does not matter: payloads
// are stored by tensor, variant, slice and kind.
func (b *Builder) AddPayload(p PayloadSpec) int {
	b.payloads = append(b.payloads, makePayloadSpec(p))
	return len(b.payloads) - 1
}

// AddName adds a name of a tensor, canonical or not. The order of these calls does not matter.
func (b *Builder) AddName(n NameSpec) int {
	b.names = append(b.names, n)
	return len(b.names) - 1
}

// AddAsset adds an asset, in any order. The Builder holds uncompressed data until Build.
func (b *Builder) AddAsset(a AssetSpec) {
	p, err := PackAsset(a)
	if err != nil && b.assetErr == nil {
		b.assetErr = err
	}
	b.AddPacked(p)
}

func (b *Builder) AddPacked(a PackedAsset) { b.assets = append(b.assets, a) }

// PackAsset brings an asset into its stored form. Several Builders may share the result. The result
// holds uncompressed data.
func PackAsset(a AssetSpec) (PackedAsset, error) {
	p := PackedAsset{kind: a.Kind, name: a.Name, stored: a.Data, rawLen: int64(len(a.Data)), rawCRC: crc32c.Checksum(a.Data)}
	if (a.Kind == AssetFile || a.Kind == AssetFold) && !a.Stored {
		z, err := compress(a.Data)
		if err != nil {
			return p, fmt.Errorf("asset %q: %w", a.Name, err)
		}
		if z != nil {
			p.codec, p.stored = codecZstd, z
		}
	}
	return p, nil
}

// PackedAsset returns an asset of the file in its stored form. It fails as CopyAsset does. f must
// stay open as long as the result is used.
func (f *File) PackedAsset(name string) (PackedAsset, error) {
	i := f.findAsset(name)
	if i < 0 {
		return PackedAsset{}, &noAssetError{f.name, name}
	}
	if err := f.copyAsset(io.Discard, i); err != nil {
		return PackedAsset{}, err
	}
	r := f.asset(i)
	return PackedAsset{
		kind: AssetKind(r.kind), name: name, codec: assetCodec(r.codec), stored: f.storedAsset(&r),
		rawLen: int64(r.rawLen), rawCRC: r.rawCRC, from: f,
	}, nil
}

// CopyNames takes over all names of another file with their sources. f must have the same tensors
// in the same order. No other name may be added.
func (b *Builder) CopyNames(f *File) { b.namesOf = f }

// Build fixes the offset of every byte. Build applies every check of [Open] to the result, so
// [Open] accepts the file under default limits or higher. Errors name the tensor, name or asset.
// Build releases the lists on the way: the Builder is empty afterwards.
func (b *Builder) Build() (*Image, error) {
	if err := b.checkRanges(); err != nil {
		return nil, err
	}
	if b.assetErr != nil {
		return nil, b.assetErr
	}
	assets := slices.SortedStableFunc(slices.Values(b.assets), func(a, b PackedAsset) int { return cmp.Compare(a.name, b.name) })
	nameOrder := orderBy(len(b.names), func(i, j int) int { return cmp.Compare(b.names[i].Name, b.names[j].Name) })
	payloadOrder := orderBy(len(b.payloads), func(i, j int) int {
		p, q := &b.payloads[i], &b.payloads[j]
		return cmp.Or(cmp.Compare(p.tensor, q.tensor), cmp.Compare(p.variant, q.variant),
			cmp.Compare(p.slice, q.slice), cmp.Compare(p.kind, q.kind))
	})

	h, im := b.frontSize(assets), &Image{}
	im.view = slices.ContainsFunc(b.payloads, func(p payloadSpec) bool { return p.head.Value().Layout == packing.LayoutBlocks })
	im.payloadOff = make([]int64, len(b.payloads))
	end := h.dataOff
	for _, i := range payloadOrder {
		size, _ := b.payloads[i].header().DataSize() // checkRanges validated the header
		off := alignUp(end, align)
		im.payloadOff[i] = int64(off)
		end = off + packing.HeaderSize + uint64(size)
		im.payloadBytes += packing.HeaderSize + size
	}
	h.dataLen = alignUp(end, align) - h.dataOff
	h.fileSize = h.dataOff + h.dataLen
	im.place(h)

	// Each list becomes records and is released before the next list, so that lists and records of a
	// large file are never in memory together.
	im.places, im.headOf = make([]byte, len(b.payloads)*payloadHeader), make([]uint32, len(b.payloads))
	numbers := map[unique.Handle[packing.Header]]uint32{}
	for at, i := range payloadOrder {
		p := b.payloads[i].spec()
		size, _ := p.Header.DataSize()
		r := payloadRecord{
			off: uint64(im.payloadOff[i]), length: packing.HeaderSize + uint64(size), tensor: uint32(p.Tensor), slice: uint32(p.Slice),
			kind: uint8(p.Kind), variant: uint8(p.Variant), cpu: uint32(p.CPU),
		}
		encode(im.payloadPlace(at), &r)
		head := b.payloads[i].head
		if _, ok := numbers[head]; !ok {
			numbers[head], im.heads = uint32(len(numbers)), p.Header.Append(im.heads)
		}
		im.headOf[at] = numbers[head]
	}
	b.payloads = nil
	b.encodeNames(im, nameOrder, assets)
	b.names = nil
	b.encodeTensors(im)
	b.tensors = nil
	if err := b.encodeAssets(im, assets); err != nil {
		return nil, err
	}
	im.allocate(secChecksums)
	*b = Builder{}
	if err := im.checkRecords(); err != nil {
		// Offsets in a file that does not exist help nobody.
		if fe, ok := err.(*FormatError); ok {
			if fe.Err != nil {
				return nil, fmt.Errorf("%s: %w", fe.Msg, fe.Err)
			}
			return nil, fmt.Errorf("%s", fe.Msg)
		}
		return nil, err
	}
	return im, nil
}

// orderBy sorts the indices 0..n-1; equal elements stay in order of index.
func orderBy(n int, compare func(i, j int) int) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(i, j uint32) int { return compare(int(i), int(j)) })
	return order
}

type PackedAsset struct {
	kind   AssetKind
	name   string
	codec  assetCodec
	stored []byte
	rawLen int64
	rawCRC uint32
	from   *File // the file that owns the bytes of stored; nil: none
}

func (a *PackedAsset) copy(dst []byte) error {
	if a.from == nil {
		copy(dst, a.stored)
		return nil
	}
	return a.from.Guard(func() error { copy(dst, a.stored); return nil })
}
