package gqf

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
)

// contents returns three contents of n bytes: text that zstd shrinks, one repeated byte, and noise.
func contents(n int) [][]byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	noise := make([]byte, n)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	text := []byte(strings.Repeat("merges and tokens ", n/18+1))[:n]
	for i := 0; i < n; i += 37 {
		text[i] = noise[i]
	}
	return [][]byte{text, bytes.Repeat([]byte("x"), n), noise}
}

// TestAssetSizes writes and reads assets of every size from 0 to 512 bytes, past the size from
// which on zstd headers have a wider field, and of every seventh size up to 2048 bytes; with -short
// of every seventh size.
func TestAssetSizes(t *testing.T) {
	const last, some = 2048, 256
	for from := 0; from <= last; from += some {
		step := 1
		if testing.Short() || from > 512 {
			step = 7
		}
		b := NewBuilder()
		want := map[string][]byte{}
		for n := from; n < min(from+some, last+1); n += step {
			for i, data := range contents(n) {
				name := fmt.Sprint(n, "-", i)
				want[name] = data
				b.AddAsset(AssetSpec{Kind: AssetFile, Name: name, Data: data})
			}
		}
		f := open(t, build(t, b))
		for name, data := range want {
			if got, err := f.Asset(name); err != nil || !bytes.Equal(got, data) {
				t.Errorf("asset %s: %d bytes, %v", name, len(got), err)
			}
			var w bytes.Buffer
			if n, err := f.CopyAsset(&w, name); err != nil || n != int64(len(data)) || !bytes.Equal(w.Bytes(), data) {
				t.Errorf("copy of asset %s: %d bytes, %v", name, n, err)
			}
		}
		if r, err := f.Verify(context.Background(), VerifyOptions{}); err != nil || !r.OK() {
			t.Errorf("%v %v", r, err)
		}
	}
}

// A zstdHeader is a variant of the header of a zstd frame (RFC 8878, 3.1.1.1).
type zstdHeader struct {
	single     bool
	window     byte // descriptor
	dictionary int  // 0 to 3: no bytes, 1, 2 or 4 of zeros
	width      int  // bytes of the field with the content's size
	checksum   bool
}

// headers returns all headers that docs/FORMAT.md, 5.7, allows for a content of n bytes.
func headers(n int) (list []zstdHeader) {
	for _, width := range []int{1, 2, 4, 8} {
		if width == 1 && n > 255 || width == 2 && (n < 256 || n > 65535+256) {
			continue
		}
		for dictionary := range 4 {
			for _, checksum := range []bool{false, true} {
				list = append(list, zstdHeader{true, 0, dictionary, width, checksum})
				if width == 1 {
					continue
				}
				// To 32 MiB.
				for _, window := range []byte{0, 1, 7, 1 << 3, 7 << 3, 10 << 3, 10<<3 | 7, 15 << 3} {
					if size := uint64(8+window&7) << (7 + window>>3); uint64(n) <= size {
						list = append(list, zstdHeader{false, window, dictionary, width, checksum})
					}
				}
			}
		}
	}
	return list
}

// frame puts the header before body, the blocks and the checksum.
func (h zstdHeader) frame(n int, body []byte) []byte {
	descriptor := byte(h.dictionary)
	for i := h.width; i > 1; i >>= 1 {
		descriptor += 1 << 6
	}
	if h.single {
		descriptor |= 1 << 5
	}
	if h.checksum {
		descriptor |= 1 << 2
	}
	b := append([]byte("\x28\xb5\x2f\xfd"), descriptor)
	if !h.single {
		b = append(b, h.window)
	}
	b = append(b, make([]byte, []int{0, 1, 2, 4}[h.dictionary])...)
	if h.width == 2 {
		n -= 256
	}
	b = append(b, le.AppendUint64(nil, uint64(n))[:h.width]...)
	return append(b, body...)
}

// body returns the blocks into which zstd compresses raw, and their checksum if asked for.
func body(t *testing.T, raw []byte, checksum bool) []byte {
	if len(raw) == 0 && checksum { // the encoder writes no checksum then
		return append(block(true, 0, 0, nil), 0x99, 0xe9, 0xd8, 0x51)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(checksum), zstd.WithZeroFrames(true))
	if err != nil {
		t.Fatal(err)
	}
	z := enc.EncodeAll(raw, nil)
	var h zstd.Header
	if err := h.Decode(z); err != nil {
		t.Fatal(err)
	}
	return z[h.HeaderSize:]
}

// block is a block of a frame: type 0 raw, 1 repeated, n bytes of content.
func block(last bool, kind, n int, content []byte) []byte {
	b := kind<<1 | n<<3
	if last {
		b |= 1
	}
	return append([]byte{byte(b), byte(b >> 8), byte(b >> 16)}, content...)
}

func unzstd(z []byte, n int) ([]byte, error) {
	var w bytes.Buffer
	err := decompress(&w, z, int64(n))
	return w.Bytes(), err
}

// TestZstdFrames reads every form of frame that the specification allows.
func TestZstdFrames(t *testing.T) {
	for _, n := range []int{0, 1, 2, 255, 256, 257, 511, 600, 1023, 1024, 1025, 2048, 65536, 65791, 65792, decodeWhole, decodeWhole + 1, 3 << 20} {
		if testing.Short() && n > 65792 {
			continue
		}
		for _, raw := range contents(n)[:2] {
			bodies := map[bool][]byte{false: body(t, raw, false), true: body(t, raw, true)}
			for _, h := range headers(n) {
				if n > 65792 && (h.dictionary > 0 || h.width == 8 || !h.checksum) {
					continue
				}
				if got, err := unzstd(h.frame(n, bodies[h.checksum]), n); err != nil || !bytes.Equal(got, raw) {
					t.Errorf("%d bytes, %+v: %d bytes, %v", n, h, len(got), err)
				}
			}
		}
	}
	// Blocks that are raw, repeat a byte, or hold nothing.
	raw := []byte("raw and" + strings.Repeat("!", 700))
	var blocks []byte
	for _, b := range [][]byte{block(false, 0, 0, nil), block(false, 0, 7, raw[:7]), block(false, 0, 0, nil), block(false, 1, 700, []byte("!")), block(true, 0, 0, nil)} {
		blocks = append(blocks, b...)
	}
	for _, h := range headers(len(raw)) {
		if h.checksum {
			continue
		}
		if got, err := unzstd(h.frame(len(raw), blocks), len(raw)); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%+v: %q, %v", h, got, err)
		}
	}
}

// TestLibzstd reads frames that libzstd 1.5 made of zeros.
func TestLibzstd(t *testing.T) {
	const twoMiB = "28b52ffda4000020004c000008000100fcff391002020010000200100002001000020010000200100002001000020010000200100002001000020010000200100002001000020010000200100003001000db238ef8"
	tests := []struct {
		zeros int
		frame string
	}{
		{0, "28b52ffd2000010000"}, {0, "28b52ffd240001000099e9d851"}, {600, "28b52ffd64580145000008000100542a2004dd205853"}, {2 << 20, twoMiB},
	}
	for _, test := range tests {
		z, err := hex.DecodeString(test.frame)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := unzstd(z, test.zeros); err != nil || !bytes.Equal(got, make([]byte, test.zeros)) {
			t.Errorf("%s: %d bytes, %v", test.frame, len(got), err)
		}
	}
}

// TestZstdRefused damages a frame, or appends bytes to it.
func TestZstdRefused(t *testing.T) {
	for _, n := range []int{600, 2 << 20} { // decoded in one piece, and as a stream
		raw := contents(n)[0]
		h := zstdHeader{single: true, width: 4, checksum: true}
		good := h.frame(n, body(t, raw, true))
		if _, err := unzstd(good, n); err != nil {
			t.Fatal(err)
		}
		with := func(b ...byte) []byte { return append(bytes.Clone(good), b...) }
		nothing := zstdHeader{single: true, width: 1}.frame(0, block(true, 0, 0, nil))
		window := zstdHeader{window: 15<<3 | 1, width: 4, checksum: true}
		flip := func(at int, bit byte) []byte { b := bytes.Clone(good); b[at] ^= bit; return b }
		dictionary := zstdHeader{single: true, dictionary: 1, width: 4, checksum: true}.frame(n, body(t, raw, true))
		dictionary[5] = 7
		tests := []struct {
			name string
			z    []byte
			want string
		}{
			{"a byte behind it", with(0), "follow the frame"},
			{"a skippable frame behind it", with(0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0), "follow the frame"},
			{"a long skippable frame behind it", with(append([]byte{0x5f, 0x2a, 0x4d, 0x18, 9, 0, 0, 0}, "skip this"...)...), "follow the frame"},
			{"an empty frame behind it", with(nothing...), "follow the frame"},
			{"the frame twice", with(good...), "follow the frame"},
			{"a skippable frame before it", append([]byte{0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0}, good...), "skippable"},
			{"cut in the checksum", good[:len(good)-1], "within its checksum"},
			{"cut in a block", good[:len(good)-5], "within a block"},
			{"cut behind the header", good[:10], "header of a block"},
			{"cut in the header", good[:7], "header of the zstd frame"},
			{"empty", nil, "header of the zstd frame"},
			{"other magic", flip(0, 1), "header of the zstd frame"},
			{"reserved bit", flip(4, 8), "reserved bit"},
			{"wrong size", flip(5, 1), "states a content"},
			{"wrong checksum", flip(len(good)-1, 1), ""},
			{"reserved block", h.frame(n, block(true, 3, 5, []byte("abcde"))), "reserved type"},
			{"large window", window.frame(n, body(t, raw, true)), "a window of"},
			{"dictionary", dictionary, "dictionary"},
			{"short content", zstdHeader{single: true, width: 4}.frame(n, block(true, 1, 5, []byte("x"))), ""},
		}
		for _, test := range tests {
			if _, err := unzstd(test.z, n); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
			}
		}
	}
}

// TestCopyAssetErrors distinguishes damage of the file from a failure of the writer.
func TestCopyAssetErrors(t *testing.T) {
	file := build(t, sample())
	f := open(t, file)
	full := errors.New("disk full")
	for _, a := range f.Assets() {
		r, w := io.Pipe()
		r.CloseWithError(full)
		if _, err := f.CopyAsset(w, a.Name); err != full {
			t.Errorf("%s: %v, want the writer's error", a.Name, err)
		}
	}
	for i := range f.count(secAssets) {
		r := f.asset(i)
		file[r.off+r.stored-1] ^= 1
		_, err := f.CopyAsset(io.Discard, f.Assets()[i].Name)
		if fe, ok := errors.AsType[*FormatError](err); !ok || fe.Offset != int64(r.off) {
			t.Errorf("damaged asset %d: %v", i, err)
		}
		file[r.off+r.stored-1] ^= 1
	}
	if _, err := f.CopyAsset(io.Discard, "b"); err == nil {
		t.Error("copied an asset that is not there")
	}
	if !f.HasAsset("a.txt") || f.HasAsset("b") {
		t.Error("HasAsset")
	}
}

// pieces records the length of the longest piece written to it.
type pieces struct{ longest int }

func (p *pieces) Write(b []byte) (int, error) {
	p.longest = max(p.longest, len(b))
	return len(b), nil
}

// TestCopyAssetPieces copies assets that are much larger than CopyAsset's buffer.
func TestCopyAssetPieces(t *testing.T) {
	testshared.SlowEmulated(t, "allocations and limits are the same natively")
	b := NewBuilder()
	b.AddAsset(AssetSpec{Kind: AssetFile, Name: "compressed", Data: contents(20 << 20)[0]})
	b.AddAsset(AssetSpec{Kind: AssetFile, Name: "stored", Data: contents(20 << 20)[2]})
	f := open(t, build(t, b))
	for i, a := range f.Assets() {
		if want := []string{"zstd", "stored"}[i]; a.Codec != want {
			t.Fatalf("%+v", a)
		}
		var p pieces
		if n, err := f.CopyAsset(&p, a.Name); err != nil || n != 20<<20 || p.longest > 1<<20 {
			t.Errorf("%s: %d bytes in pieces of up to %d, %v", a.Name, n, p.longest, err)
		}
	}
}

func TestAssetNames(t *testing.T) {
	tests := []struct {
		name string
		ok   bool
	}{
		{"tokenizer.json", true}, {".hidden", true}, {"a b (1)+[2]{3}~'#$%&!@^_=,;`-.txt", true}, {strings.Repeat("n", 200), true},
		{"com", true}, {"com10", true}, {"comx", true}, {"lpt", true}, {"nul_", true}, {"console.txt", true}, {"a.nul", true}, {".con", true},
		{strings.Repeat("n", 201), false}, {"é", false}, {"a\x7f", false}, {"a\n", false},
		{".", false}, {"..", false}, {"a.", false}, {"a ", false}, {"a/b", false}, {`a\b`, false}, {"c:x", false},
		{"a*", false}, {"a?", false}, {`"`, false}, {"<", false}, {">", false}, {"|", false},
		{"con", false}, {"CON", false}, {"Prn.txt", false}, {"aux.tar.gz", false}, {"nul", false}, {"nul .json", false}, {"NUL.", false},
		{"com0", false}, {"COM1", false}, {"lpt9.x", false}, {"CONIN$", false}, {"conout$.txt", false},
	}
	for _, test := range tests {
		b := NewBuilder()
		b.AddAsset(AssetSpec{Kind: AssetFile, Name: test.name, Data: []byte("x")})
		if _, err := built(b); (err == nil) != test.ok {
			t.Errorf("%q: %v", test.name, err)
		}
	}
}

func TestAssetLimits(t *testing.T) {
	tests := []struct {
		name string
		add  func(b *Builder)
		want string
	}{
		{"equal but for case", func(b *Builder) {
			b.AddAsset(AssetSpec{Kind: AssetFile, Name: "Vocab.txt"})
			b.AddAsset(AssetSpec{Kind: AssetFile, Name: "a"})
			b.AddAsset(AssetSpec{Kind: AssetFile, Name: "vocab.TXT"})
		}, "the case of letters"},
		{"1025 assets", func(b *Builder) {
			for i := range 1025 {
				b.AddAsset(AssetSpec{Kind: AssetFile, Name: fmt.Sprint(i)})
			}
		}, "at most 1024"},
		{"too large together", func(b *Builder) {
			data := make([]byte, MaxAssetBytes/4) // zeros shrink to nothing
			for i := range 5 {
				b.AddAsset(AssetSpec{Kind: AssetFile, Name: fmt.Sprint(i), Data: data})
			}
		}, "assets have more than 134217728 bytes"},
	}
	for _, test := range tests {
		b := NewBuilder()
		test.add(b)
		if _, err := built(b); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
}

// TestPackedAsset copies assets from another file in their stored form: here a frame that the
// encoder would not produce.
func TestPackedAsset(t *testing.T) {
	raw := contents(600)[0]
	z := zstdHeader{window: 15 << 3, width: 4, checksum: true}.frame(len(raw), body(t, raw, true))
	b := sample()
	b.AddPacked(PackedAsset{kind: AssetFile, name: "other.json", codec: codecZstd, stored: z, rawLen: int64(len(raw)), rawCRC: crc32c.Checksum(raw)})
	file := build(t, b)
	f := open(t, file)
	again := NewBuilder()
	for _, a := range f.Assets() {
		packed, err := f.PackedAsset(a.Name)
		if err != nil {
			t.Fatal(err)
		}
		again.AddPacked(packed)
	}
	g := open(t, build(t, again))
	for i, a := range f.Assets() {
		r, s := f.asset(i), g.asset(i)
		if g.Assets()[i] != a || !bytes.Equal(f.b[r.off:r.off+r.stored], g.b[s.off:s.off+s.stored]) {
			t.Errorf("asset %q was changed: %+v", a.Name, g.Assets()[i])
		}
		want, _ := f.Asset(a.Name)
		if got, err := g.Asset(a.Name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("asset %q: %d bytes, %v", a.Name, len(got), err)
		}
	}
	if _, err := f.PackedAsset("b"); err == nil {
		t.Error("copied an asset that is not there")
	}
	file[bytes.Index(file, z)+len(z)-1] ^= 1
	if _, err := f.PackedAsset("other.json"); err == nil {
		t.Error("copied a damaged asset")
	}
}

// TestAssetsTogether opens a small file whose assets claim to be huge.
func TestAssetsTogether(t *testing.T) {
	b := NewBuilder()
	ti := b.AddTensor(TensorSpec{Name: "w", Shape: []int64{1}, Dtype: packing.U8})
	b.AddName(NameSpec{Name: "w", Tensor: ti, SourceFile: -1})
	b.AddPayload(PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.U8, 1, 1)})
	data := make([]byte, MaxAssetBytes/40)
	for i := range 40 {
		b.AddAsset(AssetSpec{Kind: AssetFile, Name: fmt.Sprint(i), Data: data})
	}
	file := build(t, b)
	for i := range 40 {
		at := decodeHeader(file).sections[secAssets].off + uint64(i)*assetSize + 24
		le.PutUint64(file[at:], 100<<20)
	}
	reseal(file)
	_, err := OpenBytes(file, Options{})
	if fe, ok := errors.AsType[*FormatError](err); !ok || !strings.Contains(fe.Msg, "with it, assets have more than") {
		t.Errorf("opened: %v", err)
	}
}
