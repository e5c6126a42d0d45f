package gqf

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/zstdframe"
)

// MaxAssetBytes bounds a file's decompressed assets. The largest tokenizers seen take 40 MB.
const MaxAssetBytes = maxAssetBytes

// minCompress is the size in bytes from which an asset is compressed, if compression saves a tenth.
const minCompress = 512

// compress returns raw as a single zstd frame, or nil if compression saves too little. The result
// depends only on raw and on the version of the compressor.
func compress(raw []byte) ([]byte, error) {
	if len(raw) < minCompress {
		return nil, nil
	}
	// A single goroutine makes the bytes the same everywhere. The record's checksum suffices.
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

type AssetInfo struct {
	Name        string    `json:"name"`
	Kind        AssetKind `json:"kind"`
	Codec       string    `json:"codec"` // stored or zstd
	StoredBytes int64     `json:"stored_bytes"`
	RawBytes    int64     `json:"raw_bytes"`
}

// Assets lists the assets, sorted by name.
func (f *File) Assets() []AssetInfo {
	list := make([]AssetInfo, f.count(secAssets))
	for i := range list {
		r := f.asset(i)
		list[i] = AssetInfo{string(f.assetName(i)), AssetKind(r.kind), assetCodec(r.codec).String(), int64(r.stored), int64(r.rawLen)}
	}
	return list
}

func (f *File) findAsset(name string) int {
	i, ok := sort.Find(f.count(secAssets), func(i int) int {
		return bytes.Compare([]byte(name), f.assetName(i))
	})
	if !ok {
		return -1
	}
	return i
}

// HasAsset reports whether the file has an asset of that name.
func (f *File) HasAsset(name string) bool { return f.findAsset(name) >= 0 }

// Asset returns a copy of an asset. The error of an unknown name is fs.ErrNotExist for errors.Is;
// damage is a [*FormatError].
func (f *File) Asset(name string) ([]byte, error) {
	i := f.findAsset(name)
	if i < 0 {
		return nil, &noAssetError{f.name, name}
	}
	b := bytes.NewBuffer(make([]byte, 0, f.asset(i).rawLen)) // at most MaxAssetBytes
	if err := f.copyAsset(b, i); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// CopyAsset writes the content of an asset to w in pieces and returns its size in bytes. CopyAsset
// fails as Asset does, or with the error of w. The output is unusable if CopyAsset fails, because
// the checksum is known only after the last piece.
func (f *File) CopyAsset(w io.Writer, name string) (int64, error) {
	i := f.findAsset(name)
	if i < 0 {
		return 0, &noAssetError{f.name, name}
	}
	return int64(f.asset(i).rawLen), f.copyAsset(w, i)
}

func (f *File) copyAsset(w io.Writer, i int) error {
	return f.Guard(func() error {
		r := f.asset(i)
		if assetCodec(r.codec) > codecZstd {
			return &UnsupportedError{f.name, fmt.Sprintf("asset %q has codec %d, which this version does not know", f.assetName(i), r.codec)}
		}
		stored := f.storedAsset(&r)
		damaged := func(msg string, err error) error {
			return &FormatError{f.name, sectionNames[secAssetData], int64(r.off), fmt.Sprintf("asset %q %s", f.assetName(i), msg), err}
		}
		sum := &sumWriter{w: w}
		if assetCodec(r.codec) == codecZstd {
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

// sumWriter computes the checksum of the bytes written to w. It reads the bytes before w does, so
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

func checkAssetName(kind AssetKind, name string) string {
	switch kind {
	case AssetRecipe:
		return checkFixedName("recipe", name, RecipeName)
	case AssetProvenance:
		return checkFixedName("provenance", name, ProvenanceName)
	case AssetFold:
		return checkFixedName("fold record", name, FoldName)
	case AssetConfig, AssetFile:
		if !isPlainFileName(name) {
			return fmt.Sprintf("%q is not a plain file name: want 1 to %d printable ASCII characters other than %s, no dot or space at the end, and no name that Windows reserves", name, maxAssetName, notInNames)
		}
		return ""
	case 0:
		return fmt.Sprintf("asset %q has kind 0, which does not exist", name)
	}
	return "" // a kind of a newer version
}

func checkFixedName(what, name, want string) string {
	if name != want {
		return fmt.Sprintf("the %s is called %q, want %q", what, name, want)
	}
	return ""
}

// notInNames are characters that Windows bans from file names, or that separate directories.
const notInNames = `" * / : < > ? \ |`

// isPlainFileName reports whether name is a valid file name in any directory of any system: gq
// dequantize writes these assets as files. Names are ASCII because systems disagree on which other
// names are equal.
func isPlainFileName(name string) bool {
	if name == "" || len(name) > maxAssetName {
		return false
	}
	for i := range len(name) {
		if c := name[i]; c < ' ' || c > '~' || c != ' ' && strings.IndexByte(notInNames, c) >= 0 {
			return false
		}
	}
	// Windows drops trailing dots and spaces. This also refuses "." and "..".
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return false
	}
	return !isReservedName(name)
}

// isReservedName reports whether Windows takes name for a device, even with an extension: NUL.json.
func isReservedName(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = foldName(strings.TrimRight(stem, " "))
	switch stem {
	case "con", "prn", "aux", "nul", "conin$", "conout$":
		return true
	}
	port := strings.TrimPrefix(strings.TrimPrefix(stem, "com"), "lpt")
	return len(stem) == 4 && len(port) == 1 && port[0] >= '0' && port[0] <= '9'
}

// foldName returns name in lower case: two names in a directory must differ in more than case. File
// names are ASCII; other names keep letters beyond ASCII.
func foldName(name string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, name)
}

// decompress writes the content of z to w. z must be exactly one zstd frame in the form that
// docs/FORMAT.md, 5.7, demands, with a content of rawLen bytes. decompress allocates the smaller of
// the frame's window and the content.
func decompress(w io.Writer, z []byte, rawLen int64) error {
	if _, err := zstdframe.Check(z, rawLen, maxZstdWindow); err != nil {
		return err
	}
	if rawLen <= decodeWhole {
		raw, err := decodeAll(z, int(rawLen))
		if err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	}
	dec, err := zstd.NewReader(bytes.NewReader(z), zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(uint64(max(maxZstdWindow, rawLen))))
	if err != nil {
		return err
	}
	defer dec.Close()
	n, err := io.Copy(w, io.LimitReader(dec, rawLen+1))
	if err == nil && n != rawLen {
		err = fmt.Errorf("the content ends after %d bytes, want %d", n, rawLen)
	}
	return err
}

// decodeWhole is the largest content in bytes that is decoded at once, without a window.
const decodeWhole = 1 << 20

// decodeAll returns the content of the checked frame z.
func decodeAll(z []byte, rawLen int) ([]byte, error) {
	dec, err := zstdframe.NewDecoder(int64(rawLen), maxZstdWindow)
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	raw := make([]byte, rawLen)
	return raw, dec.Decode(raw, z)
}

// storedAsset returns the bytes of an asset in its stored form, in place.
func (f *front) storedAsset(r *assetRecord) []byte {
	return f.sec[secAssetData][r.off-f.h.sections[secAssetData].off:][:r.stored]
}

func (f *front) assetName(i int) []byte {
	r := f.asset(i)
	return f.stringOf(f.count(secNames)+i, r.strOff, r.strLen)
}
