package gqf

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/packing"
)

// checkRanges refuses values that the records cannot express; checkRecords checks the rest.
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
		size, _ := p.Header.DataSize() // checked by Validate
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
	h := header{major: versionMajor, minor: versionMinor, headerSize: headerSize, blockLog2: blockLog2}
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

// encodeNames fills the section names, and lists the strings in memory.
func (b *Builder) encodeNames(im *Image, nameOrder []uint32, assets []PackedAsset) {
	if b.namesOf != nil {
		b.shareNames(im, assets)
		return
	}
	im.allocate(secNames)
	im.strings = make([]string, 0, len(b.names)+len(assets))
	var at uint32
	im.nameAt = make([]uint32, len(b.names))
	for k, i := range nameOrder {
		n := &b.names[i]
		r := nameRecord{strOff: at, strLen: uint32(len(n.Name)), tensor: uint32(n.Tensor), sourceFile: noSource, sourceCRC: n.SourceCRC, sourceBytes: uint64(n.SourceBytes)}
		at += r.strLen
		im.strings = append(im.strings, n.Name)
		if n.SourceFile >= 0 {
			r.sourceFile = uint32(n.SourceFile)
		}
		if n.InCheckpoint {
			r.flags |= flagCheckpt
		}
		if n.Absorbed {
			r.flags |= flagAbsorbed
		}
		encode(im.record(secNames, k), &r)
		im.nameAt[i] = uint32(k)
	}
	for i := range assets {
		im.strings = append(im.strings, assets[i].name)
	}
}

// shareNames lets the image use equal name sections of the copied file. Neither side changes any.
func (b *Builder) shareNames(im *Image, assets []PackedAsset) {
	f := b.namesOf
	im.sec[secNames] = f.sec[secNames]
	end := f.namesEnd()
	var tail []byte
	for i := range assets {
		tail = append(tail, assets[i].name...)
	}
	if bytes.Equal(tail, f.sec[secStrings][end:]) {
		im.sec[secStrings] = f.sec[secStrings]
	} else {
		im.sec[secStrings] = slices.Concat(f.sec[secStrings][:end], tail)
	}
}

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
		encode(im.record(secAssets, k), &r)
	}
	return nil
}

// encodeTensors fills the sections tensors and dims, after names and payloads.
func (b *Builder) encodeTensors(im *Image) {
	im.allocate(secTensors)
	im.allocate(secDims)
	// Of each tensor.
	canonical, names := make([]uint32, len(b.tensors)), make([]uint32, len(b.tensors))
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
		encode(im.record(secTensors, i), &r)
	}
}
