package gqf

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/crc32c"
)

// MaxAssetBytes bounds the decompressed size in bytes of all assets of a file together. The largest
// tokenizers seen take 40 MB.
const MaxAssetBytes = maxAssetBytes

// minCompress is the size in bytes from which an asset is compressed, if that saves a tenth of it.
const minCompress = 512

// compress returns raw as one zstd frame, or nil if compression saves too little. The result
// depends only on raw and on the version of the compressor.
func compress(raw []byte) ([]byte, error) {
	if len(raw) < minCompress {
		return nil, nil
	}
	// One goroutine makes the bytes the same everywhere. The record has a checksum, so the frame
	// needs none.
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

// findAsset returns the index of the asset called name, or -1.
func (f *File) findAsset(name string) int {
	i, ok := sort.Find(f.count(secAssets), func(i int) int {
		r := f.asset(i)
		return bytes.Compare([]byte(name), f.str(r.strOff, r.strLen))
	})
	if !ok {
		return -1
	}
	return i
}

// HasAsset reports whether the file has an asset of that name.
func (f *File) HasAsset(name string) bool { return f.findAsset(name) >= 0 }

// Asset returns the content of an asset as a new slice. An unknown name is a [*NoAssetError],
// damage a [*FormatError].
func (f *File) Asset(name string) ([]byte, error) {
	i := f.findAsset(name)
	if i < 0 {
		return nil, &NoAssetError{f.name, name}
	}
	b := bytes.NewBuffer(make([]byte, 0, f.asset(i).rawLen)) // at most MaxAssetBytes
	if err := f.copyAsset(b, i); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// CopyAsset writes the content of an asset to w in pieces and returns its size in bytes. It fails
// as Asset does, or with the error of w. The checksum is known only after the last piece, so the
// output is unusable if CopyAsset fails.
func (f *File) CopyAsset(w io.Writer, name string) (int64, error) {
	i := f.findAsset(name)
	if i < 0 {
		return 0, &NoAssetError{f.name, name}
	}
	return int64(f.asset(i).rawLen), f.copyAsset(w, i)
}

// copyAsset writes the content of asset i to w.
func (f *File) copyAsset(w io.Writer, i int) error {
	return f.Guard(func() error {
		r := f.asset(i)
		if Codec(r.codec) > CodecZstd {
			return &UnsupportedError{f.name, fmt.Sprintf("asset %q has codec %d, which this version does not know", f.str(r.strOff, r.strLen), r.codec)}
		}
		stored := f.b[r.off : r.off+r.stored]
		damaged := func(msg string, err error) error {
			return &FormatError{f.name, sectionNames[secAssetData], int64(r.off), fmt.Sprintf("asset %q %s", f.str(r.strOff, r.strLen), msg), err}
		}
		sum := &sumWriter{w: w}
		if Codec(r.codec) == CodecZstd {
			if err := decompress(sum, stored, int64(r.rawLen)); err != nil {
				if sum.err != nil {
					return sum.err
				}
				return damaged("cannot be decompressed", err)
			}
		} else {
			for piece := range slices.Chunk(stored, 1<<20) {
				if _, err := sum.Write(piece); err != nil {
					return err
				}
			}
		}
		if sum.crc != r.rawCRC {
			return damaged(fmt.Sprintf("has checksum %08x, the directory says %08x", sum.crc, r.rawCRC), nil)
		}
		return nil
	})
}

// sumWriter computes the checksum of what is written to w. It reads the bytes before w does, so
// that a fault in the map happens here and not in a system call.
type sumWriter struct {
	w   io.Writer
	crc uint32
	err error // the first error of w
}

func (s *sumWriter) Write(p []byte) (n int, err error) {
	s.crc = crc32c.Update(s.crc, p)
	n, s.err = s.w.Write(p)
	return n, s.err
}
