package logits

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/detmath"
)

// sample returns a file of two windows over a vocabulary of 37 tokens, and its predictions.
func sample(t testing.TB) ([]byte, [][]float32) {
	t.Helper()
	windows := []Window{{[]int32{1, 5, 6, 36, 8}, 2, 9, 3}, {[]int32{1, 2}, 1, 0, 0}}
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Model: "m", Vocab: 37, Tensors: map[string]uint32{"a": 7}}, windows)
	if err != nil {
		t.Fatal(err)
	}
	r := detmath.Source(3)
	rows := make([][]float32, 4)
	for i := range rows {
		rows[i] = make([]float32, 37)
		for k := range rows[i] {
			rows[i][k] = float32(30*r.Float() - 12)
		}
	}
	clear(rows[2]) // all equal
	rows[3][0], rows[3][1] = -math.MaxFloat32, math.MaxFloat32
	for _, row := range rows {
		if err := w.Add(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), rows
}

func read(b []byte) (*File, error) { return Read(bytes.NewReader(b), int64(len(b))) }

// TestRoundTrip checks each logit against half a step of its code.
func TestRoundTrip(t *testing.T) {
	b, rows := sample(t)
	f, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if f.Scored != 4 || f.Tokens != 7 || len(f.Windows) != 2 || f.Windows[0].Tokens[3] != 36 || f.Windows[0].First != 2 || f.Windows[0].Bytes != 9 || f.Windows[0].Words != 3 || f.Tensors["a"] != 7 {
		t.Fatalf("header %+v, windows %v", f.Header, f.Windows)
	}
	n := 0
	for w, win := range f.Windows {
		for row := 0; row < len(win.Tokens)-win.First; row++ {
			dst := make([]float32, f.Vocab)
			got, err := f.Logits(dst, w, row)
			if err != nil || got != 1 {
				t.Fatalf("window %d, row %d: %d rows, %v", w, row, got, err)
			}
			checkRow(t, rows[n], dst)
			n++
		}
	}
}

func checkRow(t *testing.T, want, got []float32) {
	t.Helper()
	least, most := want[0], want[0]
	for _, v := range want {
		least, most = min(least, v), max(most, v)
	}
	r := math.Min(float64(most)-float64(least), math.MaxFloat32)
	for k, v := range want {
		d := math.Min(float64(most)-float64(v), r)
		// The error of a square whose root is off by half a step, and of float32.
		limit := math.Sqrt(d*r)/math.MaxUint16*1.001 + r/math.MaxUint16/math.MaxUint16 + r*1e-7
		if diff := math.Abs(d + float64(got[k])); diff > limit {
			t.Errorf("logit %d is %v below the largest, decoded %v: off by %g, at most %g", k, d, got[k], diff, limit)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	var b bytes.Buffer
	windows := []Window{{Tokens: []int32{1, 2}, First: 1}}
	if _, err := NewWriter(&b, Header{Vocab: 1}, windows); err == nil {
		t.Error("a vocabulary of one token is accepted")
	}
	if _, err := NewWriter(&b, Header{Vocab: 5}, []Window{{Tokens: []int32{1, 2}, First: 2}}); err == nil {
		t.Error("a window without predictions is accepted")
	}
	w, err := NewWriter(&b, Header{Vocab: 2}, windows)
	if err != nil {
		t.Fatal(err)
	}
	if w.Close() == nil {
		t.Error("a file without its predictions is complete")
	}
	if w.Add([]float32{1, float32(math.NaN())}) == nil {
		t.Error("NaN is accepted")
	}
	if err := w.Add([]float32{1, 2}); err != nil {
		t.Error(err)
	}
	if w.Add([]float32{1, 2}) == nil {
		t.Error("a prediction after the last one is accepted")
	}
}

// TestDamage flips each byte and cuts the file at each byte: Read or Logits gives a *FormatError.
func TestDamage(t *testing.T) {
	good, _ := sample(t)
	check := func(b []byte, what string, at int) {
		f, err := read(b)
		for w := 0; err == nil && w < len(f.Windows); w++ {
			_, err = f.Logits(make([]float32, f.Vocab*8), w, 0)
		}
		var format *FormatError
		if !errors.As(err, &format) {
			t.Fatalf("%s at byte %d: %v", what, at, err)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		check(b, "flipped", i)
		check(good[:i], "cut", i)
	}
	check(append(bytes.Clone(good), 0), "longer", len(good))
}

// header returns good with another header of the same meaning but for one key.
func header(good []byte, from, to string) []byte {
	n := binary.LittleEndian.Uint32(good[len(magic)+4:])
	h := strings.Replace(string(good[frontSize:][:n]), from, to, 1)
	b := binary.LittleEndian.AppendUint32(bytes.Clone(good[:len(magic)+4]), uint32(len(h)))
	b = binary.LittleEndian.AppendUint32(b, crc32c.Checksum([]byte(h)))
	return append(append(b, h...), good[frontSize+int(n):]...)
}

// TestHostileHeader has headers with right checksums and wrong counts.
func TestHostileHeader(t *testing.T) {
	good, _ := sample(t)
	if _, err := read(header(good, `"model":"m"`, `"model":"n"`)); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{
		`"vocab":0`, `"vocab":4194305`, `"vocab":36`, `"vocab":99999999999999999999`, `"vocab":"x"`,
	} {
		if _, err := read(header(good, `"vocab":37`, to)); err == nil {
			t.Errorf("%s is accepted", to)
		}
	}
	for _, to := range []string{`"tokens":8`, `"tokens":6`, `"tokens":16777216`, `"tokens":-1`} {
		if _, err := read(header(good, `"tokens":7`, to)); err == nil {
			t.Errorf("%s is accepted", to)
		}
	}
	for _, to := range []string{`"windows":3`, `"windows":1`, `"windows":0`} {
		if _, err := read(header(good, `"windows":2`, to)); err == nil {
			t.Errorf("%s is accepted", to)
		}
	}
	if _, err := read(header(good, `"scored":4`, `"scored":5`)); err == nil {
		t.Error("another number of predictions is accepted")
	}
}

func FuzzRead(f *testing.F) {
	good, _ := sample(f)
	f.Add(good)
	f.Add(header(good, `"vocab":37`, `"vocab":38`))
	f.Add(good[:frontSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := read(b)
		if err != nil {
			return
		}
		dst := make([]float32, file.Vocab)
		for w := range file.Windows {
			if _, err := file.Logits(dst, w, 0); err != nil {
				var format *FormatError
				if !errors.As(err, &format) {
					t.Fatal(err)
				}
				return
			}
		}
	})
}
