package gqf

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"unique"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/packing"
)

// TensorSpec describes a tensor to a [Builder].
type TensorSpec struct {
	Name       string        // canonical name; AddName must be called for it too
	Shape      []int64       // as in the checkpoint, outermost first; empty for a scalar
	Dtype      packing.Dtype // in the checkpoint
	Role       Role
	Mapping    Mapping   // MappingNone if unquantized
	Algorithm  Algorithm // AlgorithmNone if unquantized
	Bias       int       // 1 + the index that AddTensor returned for the layer's bias; 0: none
	Transposed bool      // the checkpoint stores inputs x outputs; quantized payloads are always outputs x inputs
	Experts    int       // number of slices: the product of all dimensions but the last two; 0 means 1
}

// PayloadSpec describes a payload to a [Builder]. Every variant of a tensor
// needs the payloads of all its slices, with equal headers.
type PayloadSpec struct {
	Tensor  int // as AddTensor returned it
	Slice   int // expert, from 0
	Kind    Kind
	Variant int         // from 0; the others hold the same codes in other layouts
	CPU     CPUFeatures // required by the variant, equal in all its payloads; 0: none
	Header  packing.Header
}

// payloadSpec is a PayloadSpec in a third of its memory. Numbers that no file can hold
// become others that no file can hold.
type payloadSpec struct {
	head          unique.Handle[packing.Header] // of many payloads few are different
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
	Tensor       int    // as AddTensor returned it
	InCheckpoint bool   // false for a name that only the model's code knows, such as a tied lm_head.weight
	Absorbed     bool   // the name of scales that the tensor's values include, such as FP8's X.weight_scale_inv
	SourceFile   int    // index into the sources of the provenance; -1 for none
	SourceBytes  int64  // size in the checkpoint
}

// AssetSpec describes a small file to a [Builder]. The Builder compresses the kinds AssetFile and
// AssetFold if that saves space, and stores all other kinds as they are, readable for people and
// loaders.
type AssetSpec struct {
	Kind AssetKind
	Name string // RecipeName, ProvenanceName, or a plain file name
	Data []byte
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

// NewBuilder returns a Builder of a file without content.
func NewBuilder() *Builder { return &Builder{} }

// Grow makes room for this many more tensors, payloads and names. Without it the lists of a large
// file are copied as they grow and take twice the memory.
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

// AddAsset adds an asset. The order of these calls does not matter. The Builder holds uncompressed
// data until Build.
func (b *Builder) AddAsset(a AssetSpec) {
	p, err := PackAsset(a)
	if err != nil && b.assetErr == nil {
		b.assetErr = err
	}
	b.AddPacked(p)
}

// AddPacked adds an asset in its stored form.
func (b *Builder) AddPacked(a PackedAsset) { b.assets = append(b.assets, a) }

// PackAsset brings an asset into its stored form, which several Builders may share. The result
// holds uncompressed data.
func PackAsset(a AssetSpec) (PackedAsset, error) {
	p := PackedAsset{kind: a.Kind, name: a.Name, stored: a.Data, rawLen: int64(len(a.Data)), rawCRC: crc32c.Checksum(a.Data)}
	if a.Kind == AssetFile || a.Kind == AssetFold {
		z, err := compress(a.Data)
		if err != nil {
			return p, fmt.Errorf("asset %q: %w", a.Name, err)
		}
		if z != nil {
			p.codec, p.stored = CodecZstd, z
		}
	}
	return p, nil
}

// PackedAsset returns an asset of the file in its stored form. It fails as CopyAsset does. f must
// stay open as long as the result is used.
func (f *File) PackedAsset(name string) (PackedAsset, error) {
	i := f.findAsset(name)
	if i < 0 {
		return PackedAsset{}, &NoAssetError{f.name, name}
	}
	if err := f.copyAsset(io.Discard, i); err != nil {
		return PackedAsset{}, err
	}
	r := f.asset(i)
	return PackedAsset{
		kind: AssetKind(r.kind), name: name, codec: Codec(r.codec), stored: f.b[r.off : r.off+r.stored],
		rawLen: int64(r.rawLen), rawCRC: r.rawCRC, from: f,
	}, nil
}

// CopyNames takes over all names of another file with their sources. f must have the same tensors
// in the same order. No other name may be added.
func (b *Builder) CopyNames(f *File) { b.namesOf = f }

// Build fixes the offset of every byte. It applies every check of [Open] to the result, so [Open]
// accepts the file under default limits or higher ones. Errors name the tensor, name or asset.
// Build releases the lists as it goes: the Builder is empty afterwards.
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

	// Each list becomes records and is released before the next one, so that lists and records of a
	// large file are never in memory together.
	im.allocate(secPayloads)
	for at, i := range payloadOrder {
		p := b.payloads[i].spec()
		size, _ := p.Header.DataSize()
		r := payloadRecord{uint64(im.payloadOff[i]), packing.HeaderSize + uint64(size), uint32(p.Tensor), uint32(p.Slice), uint8(p.Kind), uint8(p.Variant), uint32(p.CPU)}
		r.encode(im.record(secPayloads, at), p.Header)
	}
	b.payloads = nil
	b.encodeNames(im, nameOrder, assets)
	names := b.sortedNames(nameOrder, assets)
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
	im.dropStrings(names)
	return im, nil
}

// sortedNames lists the strings of section strings, which belong to the caller; nil after
// CopyNames.
func (b *Builder) sortedNames(nameOrder []uint32, assets []PackedAsset) []string {
	if b.namesOf != nil {
		return nil
	}
	list := make([]string, 0, len(b.names)+len(assets))
	for _, i := range nameOrder {
		list = append(list, b.names[i].Name)
	}
	for i := range assets {
		list = append(list, assets[i].name)
	}
	return list
}

// orderBy sorts the indices 0..n-1, equal ones by index.
func orderBy(n int, compare func(i, j int) int) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(i, j uint32) int { return compare(int(i), int(j)) })
	return order
}

// checkRanges refuses values that the records cannot express; checkRecords checks everything else.
func (b *Builder) checkRanges() error {
	const (
		maxCount     = 1 << 31 // of records of a kind; every index and sum then fits its field
		maxDataBytes = 1 << 48 // the number of checksums then fits its field
	)
	for what, n := range map[string]int{"tensors": len(b.tensors), "payloads": len(b.payloads), "names": len(b.names), "assets": len(b.assets)} {
		if n > maxCount {
			return fmt.Errorf("%d %s, at most %d fit into a file", n, what, maxCount)
		}
	}
	assetBytes := 0
	for i := range b.assets {
		if assetBytes += len(b.assets[i].stored); assetBytes > maxAssetBytes {
			return fmt.Errorf("asset %q: with it, assets take more than %d bytes", b.assets[i].name, maxAssetBytes)
		}
	}
	for i := range b.tensors {
		t := &b.tensors[i]
		if len(t.Shape) > maxDims {
			return fmt.Errorf("tensor %q has %d dimensions, at most %d fit into a file", t.Name, len(t.Shape), maxDims)
		}
		if t.Experts < 0 || t.Experts > maxCount {
			return fmt.Errorf("tensor %q: %d experts, want 1 to %d", t.Name, t.Experts, maxCount)
		}
		if t.Bias < 0 || t.Bias > len(b.tensors) {
			return fmt.Errorf("tensor %q: its bias is tensor %d, but there are %d tensors", t.Name, t.Bias-1, len(b.tensors))
		}
	}
	for _, a := range b.assets {
		if !a.kind.Known() {
			return fmt.Errorf("asset %q has kind %d, which does not exist", a.name, a.kind)
		}
	}
	var dataBytes int64
	for i := range b.payloads {
		p := b.payloads[i].spec()
		if p.Tensor < 0 || p.Tensor >= len(b.tensors) {
			return fmt.Errorf("payload of tensor %d, but there are %d tensors", p.Tensor, len(b.tensors))
		}
		name := b.tensors[p.Tensor].Name
		if p.Slice < 0 || p.Slice > maxCount || p.Variant < 0 || p.Variant >= maxVariants {
			return fmt.Errorf("tensor %q: payload of slice %d, variant %d out of range", name, p.Slice, p.Variant)
		}
		if err := p.Header.Validate(); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		size, _ := p.Header.DataSize() // Validate checked it
		if size > maxDataBytes-dataBytes {
			return fmt.Errorf("tensor %q: with it, the payloads are larger than %d bytes", name, int64(maxDataBytes))
		}
		dataBytes += size
	}
	var stringBytes int
	canonical := make([]bool, len(b.tensors))
	for _, n := range b.names {
		if n.Tensor < 0 || n.Tensor >= len(b.tensors) {
			return fmt.Errorf("name %q is of tensor %d, but there are %d tensors", n.Name, n.Tensor, len(b.tensors))
		}
		if n.SourceFile < -1 || n.SourceFile >= maxCount || n.SourceBytes < 0 {
			return fmt.Errorf("name %q: source file %d, %d bytes out of range", n.Name, n.SourceFile, n.SourceBytes)
		}
		stringBytes += len(n.Name)
		canonical[n.Tensor] = canonical[n.Tensor] || !n.Absorbed && n.Name == b.tensors[n.Tensor].Name
	}
	if f := b.namesOf; f != nil {
		if len(b.names) > 0 || len(b.tensors) != f.Len() {
			return fmt.Errorf("CopyNames needs the %d tensors of %s and no other names, but %d tensors and %d names were added", f.Len(), f.name, len(b.tensors), len(b.names))
		}
		for i := range b.tensors {
			if b.tensors[i].Name != f.tensorName(i) {
				return fmt.Errorf("CopyNames needs the tensors of %s in the same order, but tensor %d is %q, not %q", f.name, i, b.tensors[i].Name, f.tensorName(i))
			}
		}
	} else if i := slices.Index(canonical, false); i >= 0 {
		return fmt.Errorf("tensor %q: its canonical name was not added", b.tensors[i].Name)
	}
	if stringBytes > maxCount {
		return fmt.Errorf("names of %d bytes, at most %d fit into a file", stringBytes, maxCount)
	}
	return nil
}

// frontSize lays out the front sections. File size and data length are still unknown.
func (b *Builder) frontSize(assets []PackedAsset) header {
	h := header{major: VersionMajor, minor: VersionMinor, headerSize: headerSize, blockLog2: blockLog2}
	var counts [numSections]int
	var lengths [numSections]uint64
	counts[secTensors], counts[secPayloads], counts[secNames], counts[secAssets] = len(b.tensors), len(b.payloads), len(b.names), len(assets)
	for i := range b.tensors {
		counts[secDims] += len(b.tensors[i].Shape)
	}
	for i := range b.names {
		lengths[secStrings] += uint64(len(b.names[i].Name))
	}
	if f := b.namesOf; f != nil {
		counts[secNames], lengths[secStrings] = f.count(secNames), f.namesEnd()
	}
	for i := range assets {
		lengths[secStrings] += uint64(len(assets[i].name))
		lengths[secAssetData] = alignUp(lengths[secAssetData], align) + uint64(len(assets[i].stored))
	}
	var dataBytes uint64
	for i := range b.payloads {
		size, _ := b.payloads[i].header().DataSize()
		dataBytes = alignUp(dataBytes+packing.HeaderSize+uint64(size), align)
	}
	counts[secChecksums] = int(alignUp(dataBytes, 1<<blockLog2) >> blockLog2)
	end := uint64(headerSize)
	for i := range h.sections {
		if recordSizes[i] != 0 {
			lengths[i] = uint64(counts[i]) * uint64(recordSizes[i])
		}
		off := alignUp(end, align)
		h.sections[i] = section{off: off, length: lengths[i], count: uint32(counts[i])}
		end = off + lengths[i]
	}
	h.dataOff = alignUp(end, dataAlign)
	return h
}

// encodeNames fills the sections names and strings.
func (b *Builder) encodeNames(im *Image, nameOrder []uint32, assets []PackedAsset) {
	if b.namesOf != nil {
		b.shareNames(im, assets)
		return
	}
	im.allocate(secNames)
	im.allocate(secStrings)
	var at uint32
	im.nameAt = make([]uint32, len(b.names))
	for k, i := range nameOrder {
		n := &b.names[i]
		r := nameRecord{strOff: at, strLen: uint32(len(n.Name)), tensor: uint32(n.Tensor), sourceFile: noSource, sourceBytes: uint64(n.SourceBytes)}
		at += uint32(copy(im.sec[secStrings][at:], n.Name))
		if n.SourceFile >= 0 {
			r.sourceFile = uint32(n.SourceFile)
		}
		if n.InCheckpoint {
			r.flags |= flagCheckpt
		}
		if n.Absorbed {
			r.flags |= flagAbsorbed
		}
		r.encode(im.record(secNames, k))
		im.nameAt[i] = uint32(k)
	}
	putNames(im.sec[secStrings][at:], assets)
}

// shareNames lets the image use the name sections of the copied file where they are equal. Neither
// side changes them.
func (b *Builder) shareNames(im *Image, assets []PackedAsset) {
	f := b.namesOf
	im.sec[secNames] = f.sec[secNames]
	end := f.namesEnd()
	tail := make([]byte, im.h.sections[secStrings].length-end)
	putNames(tail, assets)
	if bytes.Equal(tail, f.sec[secStrings][end:]) {
		im.sec[secStrings] = f.sec[secStrings]
	} else {
		im.sec[secStrings] = slices.Concat(f.sec[secStrings][:end], tail)
	}
}

// putNames writes the names of assets one after the other.
func putNames(dst []byte, assets []PackedAsset) {
	for i := range assets {
		dst = dst[copy(dst, assets[i].name):]
	}
}

// encodeAssets fills the sections assets and asset data.
func (b *Builder) encodeAssets(im *Image, assets []PackedAsset) error {
	im.allocate(secAssets)
	im.allocate(secAssetData)
	data, from := im.sec[secAssetData], im.h.sections[secAssetData].off
	var end uint64
	str := uint32(im.namesEnd())
	for k := range assets {
		a := &assets[k]
		off := alignUp(end, align)
		if err := a.copy(data[off:]); err != nil {
			return err
		}
		end = off + uint64(len(a.stored))
		r := assetRecord{
			strOff: str, strLen: uint32(len(a.name)), off: from + off, stored: uint64(len(a.stored)),
			rawLen: uint64(a.rawLen), rawCRC: a.rawCRC, kind: uint8(a.kind), codec: uint8(a.codec),
		}
		str += r.strLen
		r.encode(im.record(secAssets, k))
	}
	return nil
}

// encodeTensors fills the sections tensors and dims, after names and payloads.
func (b *Builder) encodeTensors(im *Image) {
	im.allocate(secTensors)
	im.allocate(secDims)
	canonical, names := make([]uint32, len(b.tensors)), make([]uint32, len(b.tensors)) // of each tensor
	for k := range im.count(secNames) {
		n := im.nameRec(k)
		if n.flags&flagAbsorbed != 0 {
			continue
		}
		names[n.tensor]++
		if string(im.nameBytes(k)) == b.tensors[n.tensor].Name {
			canonical[n.tensor] = uint32(k)
		}
	}
	dims, payloads := 0, 0
	for i := range b.tensors {
		t := &b.tensors[i]
		r := tensorRecord{
			name: canonical[i], names: names[i], dimsFirst: uint32(dims), ndim: uint8(len(t.Shape)),
			dtype: uint8(t.Dtype), role: uint8(t.Role), mapping: uint8(t.Mapping), algorithm: uint8(t.Algorithm),
			payloadFirst: uint32(payloads), slices: uint32(max(t.Experts, 1)), bias: uint32(t.Bias),
		}
		if t.Transposed {
			r.flags |= flagTransp
		}
		for _, d := range t.Shape {
			le.PutUint64(im.record(secDims, dims), uint64(d))
			dims++
		}
		for ; payloads < im.count(secPayloads) && im.payload(payloads).tensor == uint32(i); payloads++ {
			r.payloads++
		}
		r.encode(im.record(secTensors, i))
	}
}

// PackedAsset is an asset as it is stored.
type PackedAsset struct {
	kind   AssetKind
	name   string
	codec  Codec
	stored []byte
	rawLen int64
	rawCRC uint32
	from   *File // the file that owns the bytes of stored; nil: none
}

// copy copies the stored bytes to dst.
func (a *PackedAsset) copy(dst []byte) error {
	if a.from == nil {
		copy(dst, a.stored)
		return nil
	}
	return a.from.Guard(func() error { copy(dst, a.stored); return nil })
}
