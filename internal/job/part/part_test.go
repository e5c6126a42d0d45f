package part

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/crc32c"
)

// dataStart and fileSize are of a .gqf file with three blocks.
const (
	dataStart = 1 << 16
	fileSize  = dataStart + 5*gqf.BlockSize/2
)

var testExtents = []Extent{{dataStart + 64, 100}, {dataStart + 4000, gqf.BlockSize}, {dataStart + 2*gqf.BlockSize, 7}}

// testRecord is a record that fits testExtents and data.
func testRecord(data []byte) *Record {
	r := &Record{
		Maker: "test", Extents: testExtents,
		Tensors: []Tensor{
			{TensorSums{Index: 1, First: 3, Units: 2, Of: 9, CRC: 5, Bytes: 100, SmallScales: 1, Exact: 2, Groups: 3}, []UnitError{{0.5, 2}, {0.25, 1}}},
			{TensorSums{Index: 4, Units: 1, Of: 1}, []UnitError{{}}},
		},
		Absorbed: []NameSum{{7, 8}}, Hashes: []FileHash{{2, [32]byte{1, 2}}}, Report: []byte("{}"),
	}
	r.Sums = make([]uint32, 3)
	at := int64(0)
	for _, e := range testExtents {
		gqf.SumBlocks(e.Off-dataStart, fileSize-dataStart, data[at:][:e.Len], func(s gqf.BlockSum) { r.Sums[s.Block] ^= s.Register })
		at += e.Len
	}
	return r
}

// memory is a file in memory.
func stream(s string) Stream {
	return Stream{int64(len(s)), func(w io.Writer) error { _, err := io.WriteString(w, s); return err }}
}

type memory []byte

func (m memory) WriteAt(p []byte, off int64) (int, error) { return copy(m[off:], p), nil }

// testFile is a part file.
func testFile(t testing.TB) []byte {
	t.Helper()
	data := make([]byte, DataBytes(testExtents))
	for i := range data {
		data[i] = byte(i * 7)
	}
	r := testRecord(data)
	size, err := r.PartSize(stream("{}"), stream("tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	b := make(memory, size)
	w := NewWriter(b, Header{Plan: [32]byte{1, 2, 3}, Index: 0, Of: 2, FileSize: fileSize, DataStart: dataStart}, testExtents)
	at := int64(0)
	for _, e := range testExtents {
		if _, err := w.WriteAt(data[at:][:e.Len], e.Off); err != nil {
			t.Fatal(err)
		}
		at += e.Len
	}
	err = w.Finish(r, stream("{}"), stream("tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func open(b []byte) (*File, *Record, error) {
	f, err := Open("p", bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, nil, err
	}
	r, err := f.Record()
	return f, r, err
}

// TestRoundTrip writes a part and reads it: records and data are the same.
func TestRoundTrip(t *testing.T) {
	b := testFile(t)
	f, r, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	if f.Size() != int64(len(b)) || f.Index != 0 || f.Of != 2 || f.FileSize != fileSize || f.Plan != [32]byte{1, 2, 3} {
		t.Errorf("header %+v", f.Header)
	}
	if r.Maker != "test" || !slices.Equal(r.Extents, testExtents) || string(r.Report) != "{}" || string(r.Template) != "tmpl" ||
		len(r.Tensors) != 2 || r.Tensors[0].Errors[1].Noise != 0.25 || r.Tensors[1].Index != 4 || r.Absorbed[0].CRC != 8 || r.Hashes[0].SHA256[1] != 2 {
		t.Errorf("record %+v", r)
	}
	pieces := 0
	if err := r.CheckData(f.Find(r.Extents), func(p []byte, off int64) error { pieces++; return nil }); err != nil || pieces != 3 {
		t.Errorf("%d pieces, %v", pieces, err)
	}
	b[headerSize+100] ^= 1
	err = r.CheckData(f.Find(r.Extents), nil)
	if d, ok := errors.AsType[*DamageError](err); !ok || d.From != dataStart || d.To != dataStart+gqf.BlockSize {
		t.Errorf("damaged data: %v", err)
	}
	if f.Find(r.Extents)(make([]byte, 2), dataStart+163) == nil || f.Find(r.Extents)(make([]byte, 1), dataStart) == nil {
		t.Error("bytes outside the extents are read")
	}
}

// resum corrects the checksums of a changed part file, as an attacker would.
func resum(b []byte) []byte {
	if at := headerSize + int(le.Uint64(b[72:])); at >= headerSize && at <= len(b) {
		le.PutUint32(b[88:], crc32c.Checksum(b[at:]))
	}
	le.PutUint32(b[crcOff:], crc32c.Checksum(b[:crcOff]))
	return b
}

// TestMalformed gives errors with positions for files whose checksums are right.
func TestMalformed(t *testing.T) {
	valid := testFile(t)
	record := headerSize + int(DataBytes(testExtents))
	extents := record + 4 + len("test") + 4
	tensors := extents + 3*16 + 4 + 3*4 + 4
	for _, c := range []struct {
		name, want string
		change     func(b []byte) []byte
	}{
		{"empty", "does not begin as", func(b []byte) []byte { return nil }},
		{"another file", "does not begin as", func(b []byte) []byte { b[3] = 'F'; return b }},
		{"short header", "byte 90: the file ends here", func(b []byte) []byte { return b[:90] }},
		{"version", "byte 8: version 1", func(b []byte) []byte { b[8] = 1; return resum(b) }},
		{"checksum", "byte 124: checksum", func(b []byte) []byte { b[60] ^= 1; return b }},
		{"flags", "byte 12: flags", func(b []byte) []byte { b[12] = 4; return resum(b) }},
		{"index", "byte 48: part 2 of 2", func(b []byte) []byte { b[48] = 2; return resum(b) }},
		{"too many", "byte 48: part 0 of", func(b []byte) []byte { b[54] = 2; return resum(b) }},
		{"data start", "byte 56: a .gqf file", func(b []byte) []byte { b[70] = 1; return resum(b) }},
		{"huge file", "byte 56: a .gqf file", func(b []byte) []byte { b[63] = 0x80; return resum(b) }},
		{"huge record", "byte 80: a record", func(b []byte) []byte { b[84] = 1; return resum(b) }},
		{"huge data", "it is truncated or damaged", func(b []byte) []byte { b[79] = 0x7f; return resum(b) }},
		{"truncated", "it is truncated or damaged", func(b []byte) []byte { return b[:len(b)-1] }},
		{"longer", "it is truncated or damaged", func(b []byte) []byte { return append(b, 0) }},
		{"record checksum", "checksum of the record", func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
		{"maker", "bytes of a version, the record has", func(b []byte) []byte { b[record+3] = 1; return resum(b) }},
		{"extents", "extents, the record has", func(b []byte) []byte { b[extents-1] = 1; return resum(b) }},
		{"extent", "extent 0 has", func(b []byte) []byte { b[extents+7] = 0x80; return resum(b) }},
		{"extent before the data", "extent 0 has", func(b []byte) []byte { b[extents+2] = 0; return resum(b) }},
		{"extent past the end", "extent 2 has", func(b []byte) []byte { b[extents+45] = 1; return resum(b) }},
		{"empty extent", "extent 0 has", func(b []byte) []byte { b[extents+8] = 0; return resum(b) }},
		{"overlapping extents", "extent 1 has", func(b []byte) []byte { b[extents+9] = 0x80; return resum(b) }},
		{"extents of other data", "extents of", func(b []byte) []byte { b[extents+40]++; return resum(b) }},
		{"tensors", "tensors, the record has", func(b []byte) []byte { b[tensors-1] = 1; return resum(b) }},
		{"tensor order", "after tensor 4", func(b []byte) []byte { b[tensors] = 4; return resum(b) }},
		{"units", "units from", func(b []byte) []byte { b[tensors+12] = 1; return resum(b) }},
		{"unit errors", "errors of 3 units", func(b []byte) []byte { b[tensors+8] = 3; return resum(b) }},
		{"reserved of a tensor", "reserved bytes of tensor record 0", func(b []byte) []byte { b[tensors+20] = 3; return resum(b) }},
		{"counts", "more than 2^62", func(b []byte) []byte { b[tensors+31] = 0x80; return resum(b) }},
		{"template of another part", "part 0 alone", func(b []byte) []byte { b[48] = 1; return resum(b) }},
		{"bytes behind", "1 bytes behind the template", func(b []byte) []byte { b[len(b)-4-8]--; return resum(b) }},
	} {
		b := c.change(bytes.Clone(valid))
		_, _, err := open(b)
		if _, ok := errors.AsType[*FormatError](err); !ok || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestHugeExtents: the checksums of a .gqf file of 2^62 bytes are counted, not listed.
func TestHugeExtents(t *testing.T) {
	r := testRecord(make([]byte, DataBytes(testExtents)))
	r.Header = Header{dataLen: 1<<62 - dataStart, Of: 1, FileSize: 1 << 62, DataStart: dataStart}
	r.Template, r.Extents = []byte{1}, []Extent{{dataStart, 1<<62 - dataStart}}
	if err := r.check(); err == nil || !strings.Contains(err.Error(), "3 checksums of") {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gqf")
	for _, name := range []string{"m.gqf", "m.gqf.part-0-of-2", "m.gqf.part-1-of-3", "m.gqf.part-01-of-3", "m.gqf.part-3-of-3", "m.gqf.part-1-of-999999", "x.gqf.part-1-of-2", "m.gqf.part-1-of-2.tmp", ".m.gqf.part-1-of-2"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	got, err := List(path)
	if err != nil || len(got) != 2 || !slices.Equal(got[2], []bool{true, false}) || !slices.Equal(got[3], []bool{false, true, false}) {
		t.Errorf("%v, %v", got, err)
	}
	if Path(path, 1, 3) != path+".part-1-of-3" {
		t.Error(Path(path, 1, 3))
	}
}

// FuzzRecord: no file makes the reader panic or take much memory, and a file that is read is
// written with the same bytes.
func FuzzRecord(f *testing.F) {
	b := testFile(f)
	f.Add(b[:headerSize], b[len(b)-400:])
	f.Fuzz(func(t *testing.T, header, rest []byte) {
		b := append(bytes.Clone(header), rest...)
		if len(b) < headerSize {
			return
		}
		data := min(le.Uint64(b[72:]), uint64(len(rest)))
		le.PutUint64(b[72:], data)
		le.PutUint64(b[80:], uint64(len(b)-headerSize)-data)
		resum(b)
		file, r, err := open(b)
		if err != nil {
			return
		}
		_ = r.CheckData(file.Find(r.Extents), nil)
		var again bytes.Buffer
		if err := r.encode(&again, stream(string(r.Report)), stream(string(r.Template))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.Bytes(), b[headerSize+data:]) {
			t.Error("the record is written with other bytes")
		}
	})
}
