package seekable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// buffer is an io.WriterAt in memory.
type buffer []byte

func (b buffer) WriteAt(p []byte, off int64) (int, error) { return copy(b[off:], p), nil }

// content has n bytes: noise, then text that shrinks.
func content(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, n)
	for i := range b {
		if b[i] = byte(r.Uint32()); i > n/2 {
			b[i] = "quantize "[i%9] ^ byte(i>>15)
		}
	}
	return b
}

func archive(t testing.TB, raw []byte, threads int, frameBytes int64) []byte {
	t.Helper()
	var w bytes.Buffer
	n, err := compress(context.Background(), &w, bytes.NewReader(raw), int64(len(raw)), Options{Threads: threads}, frameBytes, level)
	if err != nil || n != int64(w.Len()) {
		t.Fatalf("%d bytes, written %d: %v", n, w.Len(), err)
	}
	return w.Bytes()
}

func restore(z []byte) ([]byte, error) {
	a, err := Open(bytes.NewReader(z), int64(len(z)), "a.zst")
	if err != nil {
		return nil, err
	}
	raw := make(buffer, a.Size())
	return raw, a.Decompress(context.Background(), raw, Options{Threads: 3})
}

func TestRoundTrip(t *testing.T) {
	const frame = 1 << 12
	for _, n := range []int{0, 1, frame - 1, frame, frame + 1, 9*frame + 5} {
		raw := content(n)
		z := archive(t, raw, 1, frame)
		for range 20 { // frames meet workers in another order each time
			if again := archive(t, raw, 5, frame); !bytes.Equal(z, again) {
				t.Fatalf("%d bytes: 5 threads give another archive", n)
			}
		}
		if got, err := restore(z); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%d bytes: %d restored, %v", n, len(got), err)
		}
		if n == 0 {
			continue // the library wants a frame
		}
		d, err := zstd.NewReader(bytes.NewReader(z))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%d bytes: a decoder of plain zstd restores %d, %v", n, len(got), err)
		}
		d.Close()
	}
}

// TestZstd restores archives, and one frame of an archive, with the program zstd.
func TestZstd(t *testing.T) {
	program, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("there is no program zstd")
	}
	const frame = 1 << 16
	run := func(z, want []byte) {
		t.Helper()
		cmd := exec.Command(program, "-d", "-c")
		cmd.Stdin = bytes.NewReader(z)
		if got, err := cmd.Output(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes instead of %d, %v", len(got), len(want), err)
		}
	}
	raw := content(5*frame + 7)
	z := archive(t, raw, 2, frame)
	run(z, raw)
	run(archive(t, nil, 2, frame), nil)
	a, err := Open(bytes.NewReader(z), int64(len(z)), "a.zst")
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for i := range a.frames() {
		n := a.entry(i).compressed
		run(z[at:at+n], raw[i*frame:min((i+1)*frame, len(raw))])
		at += n
	}
}

// TestSpecification opens an archive that is made by hand from the format's specification: two frames
// of raw blocks, whose checksums are XXH64's.
func TestSpecification(t *testing.T) {
	le := binary.LittleEndian
	frame := func(text string, sum uint32) []byte {
		b := le.AppendUint32(nil, 0xFD2FB528)
		b = append(b, 0x24, byte(len(text))) // single segment, checksum
		b = append(b, byte(1|len(text)<<3), 0, 0)
		return le.AppendUint32(append(b, text...), sum)
	}
	// XXH64 with seed 0 of "a" is d24ec4f1a98c6e5b, of "abc" 44bc2cf5ad770999.
	z := append(frame("a", 0xa98c6e5b), frame("abc", 0xad770999)...)
	z = le.AppendUint32(z, 0x184D2A5E)
	z = le.AppendUint32(z, 2*12+9)
	for _, v := range []uint32{14, 1, 0xa98c6e5b, 16, 3, 0xad770999, 2} {
		z = le.AppendUint32(z, v)
	}
	z = le.AppendUint32(append(z, 0x80), 0x8F92EAB1)
	if got, err := restore(z); err != nil || string(got) != "aabc" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestDamage flips bits, cuts and changes archives: no change is overlooked, and no wrong byte comes
// out without an error.
func TestDamage(t *testing.T) {
	raw := content(3000)
	z := archive(t, raw, 2, 1000)
	a, err := Open(bytes.NewReader(z), int64(len(z)), "a.zst")
	if err != nil {
		t.Fatal(err)
	}
	descriptors := []int{4, int(a.entry(0).compressed) + 4, int(a.entry(0).compressed+a.entry(1).compressed) + 4}
	for i := range z {
		for bit := range 8 {
			b := bytes.Clone(z)
			b[i] ^= 1 << bit
			got, err := restore(b)
			_, format := errors.AsType[*FormatError](err)
			_, unsupported := errors.AsType[*UnsupportedError](err)
			if err == nil && !bytes.Equal(got, raw) || err != nil && !format && !unsupported {
				t.Errorf("bit %d of byte %d flipped: %v", bit, i, err)
			}
			// Bits without a meaning: two of the seek table's descriptor, one of a frame's.
			ignored := i == len(z)-5 && bit < 2 || bit == 4 && slices.Contains(descriptors, i)
			if err == nil && !ignored {
				t.Errorf("bit %d of byte %d flipped: no error", bit, i)
			}
		}
	}
	for n := range len(z) {
		if _, err := restore(z[:n]); err == nil {
			t.Errorf("an archive cut to %d of %d bytes was taken", n, len(z))
		}
	}
}

// TestHostile checks limits and the positions in errors.
func TestHostile(t *testing.T) {
	le := binary.LittleEndian
	z := archive(t, content(3000), 2, 1000)
	a, err := Open(bytes.NewReader(z), int64(len(z)), "a.zst")
	if err != nil {
		t.Fatal(err)
	}
	first, second := a.entry(0).compressed, a.entry(1).compressed
	table := len(z) - footerSize - 3*entrySize // the entries
	change := func(at int, v uint32) func(b []byte) []byte {
		return func(b []byte) []byte { le.PutUint32(b[at:], v); return b }
	}
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		want   string
	}{
		{"no archive", func(b []byte) []byte { return bytes.Repeat([]byte("gqf!"), 10) }, "byte 0: not an archive: it begins with 67716621"},
		{"short", func(b []byte) []byte { return b[:16] }, "byte 0: 16 bytes are no archive"},
		{"no table", func(b []byte) []byte { return b[:first] }, "zstd -d restores it"},
		{"billions of frames", change(len(z)-footerSize, 1<<31), "lists 2147483648 frames, at most 4194304"},
		{"too many frames", change(len(z)-footerSize, 1<<20), fmt.Sprintf("byte %d: the seek table lists 1048576 frames", len(z)-footerSize)},
		{"fewer frames", change(len(z)-footerSize, 2), fmt.Sprintf("byte %d: the seek table of 2 frames begins with", table+entrySize-skippableHeader)},
		{"another size", change(table-4, 7), fmt.Sprintf("byte %d: the seek table of 3 frames states 7 bytes", table-4)},
		{"reserved bits", func(b []byte) []byte { b[len(b)-5] |= 4; return b }, "reserved bits are set"},
		{"no checksums", func(b []byte) []byte { b[len(b)-5] = 0; return b }, "has no checksums"},
		{"huge content", change(table+4, 1<<31), "frame 0, at byte 0, has a content of 2147483648 bytes"},
		{"no content", change(table+entrySize+4, 0), fmt.Sprintf("byte %d: frame 1 has no content", table+entrySize+4)},
		{"huge frame", change(table+entrySize, 1<<31), "frame 1 has 2147483648 bytes for a content of 1000"},
		{"frame past the table", change(table+entrySize, uint32(4000)), "reaches into the seek table"},
		{"a gap", change(table+2*entrySize, 1), "bytes between the last frame and the seek table"},
		{"another content size", change(table+4, 999), "byte 0: frame 0: the frame states a content of 1000 bytes, want 999"},
		{"another checksum", change(table+entrySize+8, 5), fmt.Sprintf("byte %d: frame 1: its checksum is ", first)},
		{"swapped frames", func(b []byte) []byte {
			swapped := append(bytes.Clone(b[first:first+second]), b[:first]...)
			copy(b, swapped)
			e := bytes.Clone(b[table:][:8])
			copy(b[table:], b[table+entrySize:][:8]) // sizes, not the checksums
			copy(b[table+entrySize:], e)
			return b
		}, "byte 0: frame 0: its checksum is "},
		{"not a frame", func(b []byte) []byte { b[first]++; return b }, fmt.Sprintf("byte %d: frame 1: header of the zstd frame", first)},
		{"damaged content", func(b []byte) []byte { b[first+30] ^= 1; return b }, fmt.Sprintf("byte %d: frame 1: ", first)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := restore(c.change(bytes.Clone(z))); err == nil || !strings.Contains(err.Error(), "a.zst: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %q", err, c.want)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error)          { return 0, f.err }
func (f failing) WriteAt([]byte, int64) (int, error) { return 0, f.err }
func (f failing) ReadAt([]byte, int64) (int, error)  { return 0, f.err }

func TestFailures(t *testing.T) {
	full := errors.New("the disk is full")
	raw := content(3000)
	for _, threads := range []int{1, 4} {
		o := Options{Threads: threads}
		if _, err := compress(t.Context(), failing{full}, bytes.NewReader(raw), 3000, o, 100, level); err != full {
			t.Errorf("a failed write: %v", err)
		}
		if _, err := compress(t.Context(), io.Discard, failing{full}, 3000, o, 100, level); err != full {
			t.Errorf("a failed read: %v", err)
		}
		if _, err := compress(t.Context(), io.Discard, bytes.NewReader(raw), 4000, o, 100, level); err != io.ErrUnexpectedEOF {
			t.Errorf("a source that is shorter: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := compress(ctx, io.Discard, bytes.NewReader(raw), 3000, o, 100, level); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
		z := archive(t, raw, 1, 100)
		a, err := Open(bytes.NewReader(z), int64(len(z)), "a.zst")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Decompress(t.Context(), failing{full}, o); err != full {
			t.Errorf("a failed write: %v", err)
		}
		if err := a.Decompress(ctx, make(buffer, 3000), o); err != context.Canceled {
			t.Errorf("cancelled: %v", err)
		}
	}
	if err := CheckSize(MaxFrames * FrameBytes); err != nil {
		t.Error(err)
	}
	if err := CheckSize(MaxFrames*FrameBytes + 1); err == nil {
		t.Error("a file that needs too many frames is taken")
	}
}

func FuzzArchive(f *testing.F) {
	f.Add([]byte{})
	for _, n := range []int{0, 10, 700} {
		f.Add(archive(f, content(n), 1, 256))
	}
	f.Fuzz(func(t *testing.T, z []byte) {
		a, err := Open(bytes.NewReader(z), int64(len(z)), "a.zst")
		if err != nil || a.Size() > 1<<20 {
			return
		}
		raw := make(buffer, a.Size())
		if err := a.Decompress(t.Context(), raw, Options{Threads: 1}); err != nil {
			return
		}
		// What one reader takes, the plain decoder restores to the same bytes.
		d, err := zstd.NewReader(bytes.NewReader(z), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if got, err := io.ReadAll(d); len(raw) > 0 && (err != nil || !bytes.Equal(got, raw)) {
			t.Errorf("%d bytes, plain %d (%v)", len(raw), len(got), err)
		}
	})
}
