package gqf

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Compression pays if it saves a tenth of an asset of at least this size.
const minCompress = 512

// compress returns raw as one zstd frame, or nil where that does not pay. The
// result is a function of raw (and of the version of the compressor) only.
func compress(raw []byte) ([]byte, error) {
	if len(raw) < minCompress {
		return nil, nil
	}
	// One goroutine for the same bytes everywhere; no content checksum, because
	// the record has one.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	z := enc.EncodeAll(raw, nil)
	if len(z) > len(raw)-len(raw)/10 {
		return nil, nil
	}
	return z, nil
}

// decompress returns the content of the zstd frame z, which the directory says is
// rawLen bytes. It allocates rawLen bytes and some 100 kB.
func decompress(z []byte, rawLen int) ([]byte, error) {
	var h zstd.Header
	if err := h.Decode(z); err != nil {
		return nil, err
	}
	switch {
	case h.Skippable || h.DictionaryID != 0:
		return nil, fmt.Errorf("the frame is skippable or needs a dictionary")
	case !h.HasFCS || h.FrameContentSize != uint64(rawLen):
		return nil, fmt.Errorf("the frame states a content of %d bytes, the directory %d", h.FrameContentSize, rawLen)
	case !h.SingleSegment && h.WindowSize > maxZstdWindow:
		return nil, fmt.Errorf("the frame needs a window of %d bytes, at most %d are allowed", h.WindowSize, maxZstdWindow)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(rawLen)),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(max(maxZstdWindow, uint64(rawLen))))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	raw, err := dec.DecodeAll(z, make([]byte, 0, rawLen))
	if err != nil {
		return nil, err
	}
	if len(raw) != rawLen {
		return nil, fmt.Errorf("%d bytes, want %d", len(raw), rawLen)
	}
	return raw, nil
}

// AssetInfo describes an asset.
type AssetInfo struct {
	Name        string    `json:"name"`
	Kind        AssetKind `json:"kind"`
	Codec       Codec     `json:"codec"`
	StoredBytes int64     `json:"stored_bytes"`
	RawBytes    int64     `json:"raw_bytes"`
}

// Assets lists the assets, sorted by name.
func (f *File) Assets() []AssetInfo {
	list := make([]AssetInfo, f.count(secAssets))
	for i := range list {
		r := f.asset(i)
		list[i] = AssetInfo{string(f.str(r.strOff, r.strLen)), AssetKind(r.kind), Codec(r.codec), int64(r.stored), int64(r.rawLen)}
	}
	return list
}

// Asset returns the content of an asset as a new slice. An unknown name is a plain
// error, damage a [*FormatError], an asset beyond Options.MaxAssetBytes an
// [*UnsupportedError].
func (f *File) Asset(name string) ([]byte, error) {
	n := f.count(secAssets)
	i := sort.Search(n, func(i int) bool {
		r := f.asset(i)
		return string(f.str(r.strOff, r.strLen)) >= name
	})
	if i < n {
		if r := f.asset(i); string(f.str(r.strOff, r.strLen)) == name {
			var raw []byte
			err := f.Guard(func() (err error) {
				raw, err = f.assetAt(i)
				return err
			})
			return raw, err
		}
	}
	return nil, fmt.Errorf("%s: no asset %q in this file", f.name, name)
}

// assetAt reads asset i; under Guard.
func (f *File) assetAt(i int) ([]byte, error) {
	r := f.asset(i)
	name := f.str(r.strOff, r.strLen)
	if r.rawLen > uint64(f.opts.MaxAssetBytes) {
		return nil, &UnsupportedError{f.name, fmt.Sprintf("asset %q has %d bytes, beyond the limit of %d (Options.MaxAssetBytes)", name, r.rawLen, f.opts.MaxAssetBytes)}
	}
	stored := f.b[r.off : r.off+r.stored]
	damaged := func(msg string, err error) ([]byte, error) {
		return nil, &FormatError{f.name, sectionNames[secAssetData], int64(r.off), fmt.Sprintf("asset %q %s", name, msg), err}
	}
	var raw []byte
	if Codec(r.codec) == CodecZstd {
		var err error
		if raw, err = decompress(stored, int(r.rawLen)); err != nil {
			return damaged("cannot be decompressed", err)
		}
	} else {
		raw = slices.Clone(stored)
	}
	if crc := checksum(raw); crc != r.rawCRC {
		return damaged(fmt.Sprintf("has checksum %08x, the directory says %08x", crc, r.rawCRC), nil)
	}
	return raw, nil
}

// checkAssetName says what is wrong with the name of an asset, or nothing. Assets
// that were files become files again in gq dequantize, so their names must be
// plain ones on every system.
func checkAssetName(kind AssetKind, name string) string {
	switch kind {
	case AssetRecipe:
		if name != RecipeName {
			return fmt.Sprintf("the recipe is called %q, want %q", name, RecipeName)
		}
	case AssetProvenance:
		if name != ProvenanceName {
			return fmt.Sprintf("the provenance is called %q, want %q", name, ProvenanceName)
		}
	case AssetFold:
		if name != FoldName {
			return fmt.Sprintf("the fold record is called %q, want %q", name, FoldName)
		}
	case AssetConfig, AssetFile:
		control := func(r rune) bool { return r < 0x20 || r == 0x7F }
		if name == "" || len(name) > maxAssetName || !utf8.ValidString(name) || name == "." || name == ".." ||
			strings.ContainsAny(name, `/\:`) || strings.ContainsFunc(name, control) {
			return fmt.Sprintf("%q is not a plain file name", name)
		}
	default:
		return fmt.Sprintf("asset %q has kind %d, which version %d.%d does not have", name, kind, VersionMajor, VersionMinor)
	}
	return ""
}
