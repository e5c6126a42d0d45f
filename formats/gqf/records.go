package gqf

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/lowbit-go/gq/packing"
)

// checkRecords checks every record of the directory after checkFrame has accepted the rest (or a
// Builder has made the rest). Afterwards the accessors can use the records' indices without further
// checks. checkRecords allocates 4 bytes per tensor.
func (f *front) checkRecords() error {
	names := make([]uint32, f.count(secTensors)) // number of names by tensor
	end, err := f.checkNames(names)
	if err != nil {
		return err
	}
	if err := f.checkAssets(end); err != nil {
		return err
	}
	return f.checkTensors(names)
}

// checkNames checks the names, counts the names of each tensor that are not absorbed, and returns
// the offset in the strings section behind the last name.
func (f *front) checkNames(names []uint32) (uint64, error) {
	var end uint64
	var prev []byte
	for i := range f.count(secNames) {
		r := f.nameRec(i)
		s, err := f.checkString(secNames, i, r.strOff, r.strLen, maxNameBytes, &end)
		if err != nil {
			return 0, err
		}
		switch b := f.record(secNames, i); {
		case bytes.IndexByte(s, 0) >= 0:
			return 0, f.badRecord(secNames, i, 0, "name %q holds a zero byte", s)
		case i > 0 && bytes.Equal(prev, s):
			return 0, f.badRecord(secNames, i, 0, "name %q occurs twice", s)
		case i > 0 && bytes.Compare(prev, s) > 0:
			return 0, f.badRecord(secNames, i, 0, "name %q after %q, want ascending order", s, prev)
		case int64(r.tensor) >= int64(len(names)):
			return 0, f.badRecord(secNames, i, 8, "name %q is of tensor %d, but there are %d tensors", s, r.tensor, len(names))
		case r.flags&^(flagCheckpt|flagAbsorbed) != 0 || !isZero(b[21:24]):
			return 0, f.badRecord(secNames, i, 20, "name %q has reserved bits set", s)
		case r.flags&flagCheckpt == 0 && (r.sourceFile != noSource || r.sourceCRC != 0 || r.sourceBytes != 0):
			return 0, f.badRecord(secNames, i, 12, "name %q has a source and is not in the checkpoint", s)
		case r.flags == flagAbsorbed:
			return 0, f.badRecord(secNames, i, 20, "name %q is absorbed and not in the checkpoint", s)
		case r.sourceBytes > 1<<62:
			return 0, f.badRecord(secNames, i, 24, "name %q: %d source bytes, at most 2^62 are possible", s, r.sourceBytes)
		}
		if r.flags&flagAbsorbed == 0 {
			names[r.tensor]++
		}
		prev = s
	}
	return end, nil
}

// checkString checks that a record's string starts at *end, after the previous, and advances *end.
func (f *front) checkString(sec, i int, off, length uint32, limit int, end *uint64) ([]byte, error) {
	switch {
	case uint64(off) != *end:
		return nil, f.badRecord(sec, i, 0, "string at %d, want %d, where the previous one ends", off, *end)
	case length == 0 || int64(length) > int64(limit):
		return nil, f.badRecord(sec, i, 4, "string of %d bytes, want 1 to %d", length, limit)
	case *end+uint64(length) > f.h.sections[secStrings].length:
		return nil, f.badRecord(sec, i, 4, "string at %d with %d bytes, the section has %d", off, length, f.h.sections[secStrings].length)
	}
	*end += uint64(length)
	if sec == secAssets {
		i += f.count(secNames)
	}
	s := f.stringOf(i, off, length)
	if !utf8.Valid(s) {
		return nil, f.badRecord(sec, i, 0, "%q is not valid UTF-8", s)
	}
	return s, nil
}

// checkAssets checks the assets. Their names end the strings section, from stringsEnd on.
func (f *front) checkAssets(stringsEnd uint64) error {
	if n := f.count(secAssets); n > maxAssets {
		return f.bad(32+24*secAssets+16, "%d assets, at most %d fit into a file", n, maxAssets)
	}
	end := f.h.sections[secAssetData].off
	last := end + f.h.sections[secAssetData].length
	var prev []byte
	var once [256]bool                                // by kind
	seen := make(map[string]bool, f.count(secAssets)) // names in lower case
	var raw, stored uint64
	for i := range f.count(secAssets) {
		r := f.asset(i)
		s, err := f.checkString(secAssets, i, r.strOff, r.strLen, maxAssetName, &stringsEnd)
		if err != nil {
			return err
		}
		if msg := checkAssetName(AssetKind(r.kind), string(s)); msg != "" {
			return f.badRecord(secAssets, i, 36, "%s", msg)
		}
		name := foldName(string(s))
		if seen[name] && !bytes.Equal(prev, s) {
			return f.badRecord(secAssets, i, 0, "asset %q has the name of another asset but for the case of letters", s)
		}
		seen[name] = true
		kind := AssetKind(r.kind)
		if once[kind] && kind.Known() && kind != AssetFile {
			return f.badRecord(secAssets, i, 36, "a second asset of kind %s", kind)
		}
		once[kind] = true
		off := alignUp(end, align)
		switch {
		case i > 0 && bytes.Compare(prev, s) >= 0:
			return f.badRecord(secAssets, i, 0, "asset %q after %q, want ascending order and no duplicates", s, prev)
		case r.off != off:
			return f.badRecord(secAssets, i, 8, "asset %q at byte %d, want %d", s, r.off, off)
		case r.off > last || r.stored > last-r.off:
			return f.badRecord(secAssets, i, 16, "asset %q at %d with %d bytes, the section ends at %d", s, r.off, r.stored, last)
		case kind.Known() && r.codec > uint8(codecZstd):
			return f.badRecord(secAssets, i, 37, "asset %q has codec %d, which version %d.%d does not have", s, r.codec, versionMajor, versionMinor)
		case kind.Known() && r.codec != uint8(codecStored) && kind != AssetFile && kind != AssetFold:
			return f.badRecord(secAssets, i, 37, "asset %q has codec %s, which is only for files and fold records", s, assetCodec(r.codec))
		case r.codec == uint8(codecStored) && r.stored != r.rawLen:
			return f.badRecord(secAssets, i, 24, "asset %q is stored as it is, in %d bytes for %d", s, r.stored, r.rawLen)
		case r.stored > maxAssetBytes-stored:
			return f.badRecord(secAssets, i, 16, "asset %q of %d stored bytes: with it, assets take more than %d bytes", s, r.stored, maxAssetBytes)
		case r.rawLen > maxAssetBytes-raw:
			return f.badRecord(secAssets, i, 24, "asset %q of %d bytes: with it, assets have more than %d bytes", s, r.rawLen, maxAssetBytes)
		case !isZero(f.record(secAssets, i)[assetReserved:]):
			return f.badRecord(secAssets, i, assetReserved, "reserved bytes are not zero")
		}
		base := f.h.sections[secAssetData].off
		if !isZero(f.sec[secAssetData][end-base : off-base]) {
			return &FormatError{f.name, sectionNames[secAssetData], int64(end), "bytes between assets are not zero", nil}
		}
		stored, raw = stored+r.stored, raw+r.rawLen
		end, prev = off+r.stored, s
	}
	if end != last {
		return &FormatError{f.name, sectionNames[secAssetData], int64(end), fmt.Sprintf("%d bytes behind the last asset", last-end), nil}
	}
	if all := f.h.sections[secStrings].length; stringsEnd != all {
		return &FormatError{f.name, sectionNames[secStrings], int64(f.h.sections[secStrings].off + stringsEnd), fmt.Sprintf("%d bytes behind the last string", all-stringsEnd), nil}
	}
	return nil
}

// checkTensors checks tensors, dims and payloads; names[i] is the number of names of tensor i.
func (f *front) checkTensors(names []uint32) error {
	c := payloadCheck{front: f, end: f.h.dataOff}
	dims := 0
	for i := range f.count(secTensors) {
		r := f.tensor(i)
		b := f.record(secTensors, i)
		if int64(r.name) >= int64(f.count(secNames)) {
			return f.badRecord(secTensors, i, 0, "canonical name %d, but there are %d names", r.name, f.count(secNames))
		}
		if n := f.nameRec(int(r.name)); n.tensor != uint32(i) || n.flags&flagAbsorbed != 0 {
			return f.badRecord(secTensors, i, 0, "canonical name %d is not a name of this tensor", r.name)
		}
		name := f.nameBytes(int(r.name))
		switch {
		case r.names != names[i]:
			return f.badRecord(secTensors, i, 4, "tensor %q: %d names, the index has %d", name, r.names, names[i])
		case int64(r.dimsFirst) != int64(dims):
			return f.badRecord(secTensors, i, 8, "tensor %q: dimensions at %d, want %d, where the previous ones end", name, r.dimsFirst, dims)
		case r.ndim > maxDims:
			return f.badRecord(secTensors, i, 12, "tensor %q: %d dimensions, want %d or fewer", name, r.ndim, maxDims)
		case int(r.ndim) > f.count(secDims)-dims:
			return f.badRecord(secTensors, i, 12, "tensor %q: %d dimensions, %d are left in their section", name, r.ndim, f.count(secDims)-dims)
		case packing.Dtype(r.dtype).Bits() == 0:
			return f.badRecord(secTensors, i, 13, "tensor %q: dtype %d does not exist", name, r.dtype)
		case r.flags&^flagTransp != 0:
			return f.badRecord(secTensors, i, 15, "tensor %q has reserved flags set", name)
		case r.flags&flagTransp != 0 && r.ndim < 2:
			return f.badRecord(secTensors, i, 15, "tensor %q has %d dimensions and cannot be transposed", name, r.ndim)
		case int64(r.payloadFirst) != int64(c.next):
			return f.badRecord(secTensors, i, 16, "tensor %q: payloads at %d, want %d, where the previous ones end", name, r.payloadFirst, c.next)
		case r.payloads == 0 || int64(r.payloads) > int64(f.count(secPayloads)-c.next):
			return f.badRecord(secTensors, i, 20, "tensor %q: %d payloads, want 1 to %d", name, r.payloads, f.count(secPayloads)-c.next)
		case r.slices == 0 || r.slices > r.payloads:
			return f.badRecord(secTensors, i, 24, "tensor %q: %d slices in %d payloads", name, r.slices, r.payloads)
		case !isZero(b[tensorReserved:tensorBias]) || !isZero(b[tensorReserved2:]):
			return f.badRecord(secTensors, i, tensorReserved, "tensor %q: reserved bytes are not zero", name)
		case int64(r.bias) > int64(f.count(secTensors)):
			return f.badRecord(secTensors, i, tensorBias, "tensor %q: its bias is tensor %d, but there are %d tensors", name, r.bias-1, f.count(secTensors))
		case r.bias != 0 && (int(r.bias-1) == i || f.tensor(int(r.bias-1)).bias != 0):
			return f.badRecord(secTensors, i, tensorBias, "tensor %q: its bias is tensor %d, which has a bias itself", name, r.bias-1)
		}
		if err := c.tensor(i, &r, dims); err != nil {
			return err
		}
		dims += int(r.ndim)
	}
	if dims != f.count(secDims) {
		return f.badRecord(secDims, dims, 0, "%d dimensions behind the last tensor's", f.count(secDims)-dims)
	}
	if c.next != f.count(secPayloads) {
		return f.badRecord(secPayloads, c.next, 0, "%d payloads behind the last tensor's", f.count(secPayloads)-c.next)
	}
	return nil
}
