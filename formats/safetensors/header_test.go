package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image returns a file with the given header and data bytes.
func image(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range data {
		b = append(b, byte(i))
	}
	return b
}

// writeFile stores b as name in a new directory and returns the path.
func writeFile(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// openImage opens a file made of b.
func openImage(t testing.TB, b []byte, opts Options) (*Checkpoint, error) {
	t.Helper()
	c, err := Open(writeFile(t, "x.safetensors", b), opts)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// one returns the header of a file with a single tensor of 4 bytes with this description.
func one(description string) string { return `{"a":` + description + `}` }

const good = `{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`

// malformed lists files that Open must refuse, with the message and its byte, counted from the
// start of the header.
var malformed = []struct {
	name, header string
	data, at     int
	want         string
}{
	{"empty header", "", 0, 0, "does not begin with '{'"},
	{"null", "null", 0, 0, "does not begin with '{'"},
	{"array", "[]", 0, 0, "does not begin with '{'"},
	{"leading space", " {}", 0, 0, "does not begin with '{'"},
	{"byte order mark", "\ufeff{}", 0, 0, "does not begin with '{'"},
	{"two objects", "{}{}", 0, 2, "is followed by '{'"},
	{"padding with NUL", "{}\x00\x00", 0, 2, "is followed by '\\x00'"},
	{"not closed", "{", 0, 1, "found the end"},
	{"key without value", `{"a"}`, 0, 4, "expected ':'"},
	{"key is a number", `{1:2}`, 0, 1, "expected '\"'"},
	{"trailing comma", `{"a":` + good + `,}`, 4, 54, "expected '\"'"},
	{"no comma", `{"a":` + good + `"b":` + good + `}`, 4, 53, "expected ',' or '}'"},
	{"value is null", one("null"), 0, 5, "expected '{'"},
	{"value is an array", one("[]"), 0, 5, "expected '{'"},
	{"no dtype", one(`{"shape":[1],"data_offsets":[0,4]}`), 4, 1, "needs dtype"},
	{"no shape", one(`{"dtype":"F32","data_offsets":[0,4]}`), 4, 1, "needs dtype"},
	{"no offsets", one(`{"dtype":"F32","shape":[1]}`), 4, 1, "needs dtype"},
	{"empty offsets", one(`{"dtype":"F32","shape":[1],"data_offsets":[]}`), 4, 1, "two data_offsets"},
	{"one offset", one(`{"dtype":"F32","shape":[1],"data_offsets":[0]}`), 4, 1, "two data_offsets"},
	{"three offsets", one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}`), 4, 52, "more than 2"},
	{"dtype twice", one(`{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}`), 4, 20, "has dtype twice"},
	{"shape twice", one(`{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}`), 4, 32, "has shape twice"},
	{"offsets twice", one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4],"data_offsets":[0,4]}`), 4, 53, "has data_offsets twice"},
	{"escaped key twice", one(`{"dtype":"F32","shape":[1],"sh\u0061pe":[1],"data_offsets":[0,4]}`), 4, 32, "has shape twice"},
	{"dtype is a number", one(`{"dtype":1,"shape":[1],"data_offsets":[0,4]}`), 4, 14, "expected '\"' for a dtype"},
	{"shape is a number", one(`{"dtype":"F32","shape":1,"data_offsets":[0,4]}`), 4, 28, "expected '['"},
	{"shape of strings", one(`{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}`), 4, 29, "expected an integer"},
	{"shape with null", one(`{"dtype":"F32","shape":[null],"data_offsets":[0,4]}`), 4, 29, "expected an integer"},
	{"shape with trailing comma", one(`{"dtype":"F32","shape":[1,],"data_offsets":[0,4]}`), 4, 31, "expected an integer"},
	{"shape without comma", one(`{"dtype":"F32","shape":[1 1],"data_offsets":[0,4]}`), 4, 31, "expected ',' or ']'"},
	{"nested shape", one(`{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}`), 4, 29, "expected an integer"},
	{"negative", one(`{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}`), 4, 29, "expected an integer"},
	{"negative zero", one(`{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}`), 4, 48, "expected an integer"},
	{"plus", one(`{"dtype":"F32","shape":[+1],"data_offsets":[0,4]}`), 4, 29, "expected an integer"},
	{"fraction", one(`{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}`), 4, 29, "not written as an integer"},
	{"exponent", one(`{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}`), 4, 29, "not written as an integer"},
	{"leading zero", one(`{"dtype":"F32","shape":[01],"data_offsets":[0,4]}`), 4, 29, "leading zero"},
	{"two zeros", one(`{"dtype":"F32","shape":[1],"data_offsets":[00,4]}`), 4, 48, "leading zero"},
	{"2^63", one(`{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}`), 4, 29, "63 bits"},
	{"2^64+1", one(`{"dtype":"F32","shape":[18446744073709551617],"data_offsets":[0,4]}`), 4, 29, "63 bits"},
	{"product overflows", one(`{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}`), 4, 1, "too large"},
	{"product overflows to 0", one(`{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}`), 0, 1, "too large"},
	{"zero hides overflow", one(`{"dtype":"F32","shape":[0,9223372036854775807,9223372036854775807],"data_offsets":[0,0]}`), 0, 1, "too large"},
	{"bytes overflow", one(`{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}`), 0, 1, "too large"},
	{"overflow of an unknown dtype", one(`{"dtype":"X","shape":[4294967296,4294967296],"data_offsets":[0,4]}`), 4, 1, "too large"},
	{"half a byte", one(`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`), 1, 1, "whole bytes"},
	{"size too small", one(`{"dtype":"F32","shape":[2],"data_offsets":[0,4]}`), 4, 1, "needs 8 bytes"},
	{"size too large", one(`{"dtype":"F32","shape":[],"data_offsets":[0,8]}`), 8, 1, "needs 4 bytes"},
	{"end before begin", one(`{"dtype":"F32","shape":[1],"data_offsets":[4,0]}`), 4, 1, "do not lie"},
	{"end past the file", one(`{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`), 3, 1, "do not lie in the file's 3 bytes"},
	{"offset near 2^63", one(`{"dtype":"F32","shape":[1],"data_offsets":[9223372036854775803,9223372036854775807]}`), 4, 1, "do not lie"},
	{"too many dimensions", one(`{"dtype":"F32","shape":[1` + strings.Repeat(",1", 64) + `],"data_offsets":[0,4]}`), 4, 157, "more than 64 dimensions"},
	{"data left over", one(good), 5, 58, "goes on after"},
	{"data without tensors", "{}", 1, 2, "goes on after"},
	{"hole before", one(`{"dtype":"F32","shape":[1],"data_offsets":[1,5]}`), 5, 1, "1 bytes of data before"},
	{"hole between", `{"a":` + good + `,"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}}`, 6, 54, "1 bytes of data before"},
	{"overlap", `{"a":` + good + `,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}`, 5, 54, `"b" overlap the data of "a"`},
	{"same place", `{"a":` + good + `,"b":` + good + `}`, 4, 54, "overlap"},
	{"empty tensor inside another", `{"a":` + good + `,"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`, 4, 54, "overlap"},
	{"name twice", `{"a":` + good + `,"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}}`, 5, 54, `tensor "a" appears twice`},
	{"name twice, escaped", `{"a":` + good + `,"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}}`, 5, 54, `tensor "a" appears twice`},
	{"control character", "{\"a\n\":" + good + "}", 4, 3, "control character 0x0a"},
	{"control character after an escape", "{\"\\t\t\":" + good + "}", 4, 4, "control character 0x09"},
	{"unknown escape", `{"\x":` + good + `}`, 4, 2, "unknown escape"},
	{"escape cut off", `{"\`, 0, 2, "does not end"},
	{"name cut off", `{"abc`, 0, 1, "does not end"},
	{"name cut off after an escape", `{"\tabc`, 0, 1, "does not end"},
	{"short escape", `{"\u12`, 0, 2, "no character"},
	{"not hexadecimal", `{"\u00g0":` + good + `}`, 4, 2, "no character"},
	{"lone high surrogate", `{"\ud800":` + good + `}`, 4, 2, "no character"},
	{"lone low surrogate", `{"\udc00":` + good + `}`, 4, 2, "no character"},
	{"two high surrogates", `{"\ud800\ud800":` + good + `}`, 4, 2, "no character"},
	{"surrogate and letter", `{"\ud800a":` + good + `}`, 4, 2, "no character"},
	{"invalid UTF-8 in a name", "{\"a\xff\":" + good + "}", 4, 3, "invalid UTF-8"},
	{"encoded surrogate", "{\"\xed\xa0\x80\":" + good + "}", 4, 2, "invalid UTF-8"},
	{"overlong UTF-8", "{\"\xc0\xaf\":" + good + "}", 4, 2, "invalid UTF-8"},
	{"invalid UTF-8 at the end", "{}\xe2\x82", 0, 2, "invalid UTF-8"},
	{"metadata null", `{"__metadata__":null}`, 0, 16, "expected '{'"},
	{"metadata of numbers", `{"__metadata__":{"a":1}}`, 0, 21, "expected '\"'"},
	{"metadata of objects", `{"__metadata__":{"a":{}}}`, 0, 21, "expected '\"'"},
	{"metadata twice", `{"__metadata__":{},"__metadata__":{}}`, 0, 19, "__metadata__ appears twice"},
	{"metadata key twice", `{"__metadata__":{"a":"","a":""}}`, 0, 24, `key "a" of __metadata__ appears twice`},
}

func TestMalformedHeaders(t *testing.T) {
	for _, tt := range malformed {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openImage(t, image(tt.header, tt.data), Options{})
			wantFormatError(t, err, "x.safetensors", int64(8+tt.at), tt.want)
		})
	}
}

// wantFormatError checks that err is a FormatError in the named file at byte at, with
// a message that contains text.
func wantFormatError(t *testing.T, err error, file string, at int64, text string) {
	t.Helper()
	var fe *FormatError
	if !errors.As(err, &fe) {
		t.Fatalf("error is %T (%v), want a *FormatError", err, err)
	}
	if filepath.Base(fe.File) != file || fe.Offset != at || !strings.Contains(err.Error(), text) {
		t.Errorf("error is\n  %v\nwant file %s, byte %d and %q", err, file, at, text)
	}
}

func TestHeaderLength(t *testing.T) {
	huge := image("{}", 0)
	binary.LittleEndian.PutUint64(huge, 1<<63)
	for _, tt := range []struct {
		name string
		file []byte
		opts Options
		at   int64
		want string
	}{
		{"empty file", nil, Options{}, 0, "has 0 bytes"},
		{"seven bytes", make([]byte, 7), Options{}, 0, "has 7 bytes"},
		{"cut in the header", image(one(good), 4)[:20], Options{}, 0, "only 12 follow"},
		{"2^63", huge, Options{}, 0, "exceeds the limit of 100000000"},
		{"text", []byte("It was a dark night"), Options{}, 0, `begins with "It was a", not a safetensors file`},
		{"limit", image(one(good), 4), Options{MaxHeaderBytes: 53}, 0, "54 bytes exceeds the limit of 53"},
		{"tensors", image(`{"a":`+good+`,"b":`+good+`}`, 4), Options{MaxTensors: 1}, 62, "more than 1 tensors"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := openImage(t, tt.file, tt.opts)
			wantFormatError(t, err, "x.safetensors", tt.at, tt.want)
		})
	}
	if _, err := openImage(t, image(one(good), 4), Options{MaxHeaderBytes: 54, MaxTensors: 1}); err != nil {
		t.Errorf("at the limits: %v", err)
	}
	if _, err := openImage(t, image(one(good), 4), Options{MaxTensors: -1}); err == nil {
		t.Error("a negative limit was accepted")
	}
}

func TestMetadataLimit(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"__metadata__":{`)
	for i := range maxMetadata + 1 {
		fmt.Fprintf(&b, `"%d":"",`, i)
	}
	_, err := openImage(t, image(strings.TrimSuffix(b.String(), ",")+"}}", 0), Options{})
	var fe *FormatError
	if !errors.As(err, &fe) || !strings.Contains(err.Error(), "more than 65536 entries") {
		t.Errorf("error is %v", err)
	}
}

func TestWellFormedHeaders(t *testing.T) {
	for _, tt := range []struct {
		name, header string
		data         int
		want         []Tensor
	}{
		{"nothing", "{}", 0, nil},
		{"padding", "{} \t\r\n  ", 0, nil},
		{"scalar", one(`{"dtype":"F32","shape":[],"data_offsets":[0,4]}`), 4,
			[]Tensor{{Name: "a", DtypeName: "F32", Shape: []int64{}, Offset: 0, Size: 4}}},
		{"white space and order of fields", "{ \"a\" :\n\t{ \"data_offsets\" : [ 0 , 4 ] ,\r\"shape\":[ 1 , 1 ] , \"dtype\" : \"F32\" } } ", 4,
			[]Tensor{{Name: "a", DtypeName: "F32", Shape: []int64{1, 1}, Size: 4}}},
		{"escapes in a name", `{"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é":` + good + `}`, 4,
			[]Tensor{{Name: "\"\\/\b\f\n\r\té😀é", DtypeName: "F32", Shape: []int64{1}, Size: 4}}},
		{"empty name and a NUL", `{"":` + good + `,"\u0000":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}}`, 5,
			[]Tensor{{Name: "", DtypeName: "F32", Shape: []int64{1}, Size: 4}, {Name: "\x00", DtypeName: "U8", Shape: []int64{1}, Offset: 4, Size: 1}}},
		{"names and data in other orders", `{"b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]},"a":{"dtype":"I8","shape":[1],"data_offsets":[6,7]},"c":` + good + `}`, 7,
			[]Tensor{
				{Name: "a", DtypeName: "I8", Shape: []int64{1}, Offset: 6, Size: 1},
				{Name: "b", DtypeName: "U8", Shape: []int64{2}, Offset: 4, Size: 2},
				{Name: "c", DtypeName: "F32", Shape: []int64{1}, Size: 4},
			}},
		{"empty tensors", `{"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]},"b":` + good + `,"c":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]}}`, 4,
			[]Tensor{
				{Name: "a", DtypeName: "F32", Shape: []int64{0, 9223372036854775807}},
				{Name: "b", DtypeName: "F32", Shape: []int64{1}, Size: 4},
				{Name: "c", DtypeName: "F32", Shape: []int64{3, 0}, Offset: 4},
			}},
		{"unknown dtype", `{"a":{"dtype":"F7","shape":[5],"data_offsets":[0,9]},"b":{"dtype":"F4","shape":[3,2],"data_offsets":[9,12]}}`, 12,
			[]Tensor{
				{Name: "a", DtypeName: "F7", Shape: []int64{5}, Size: 9},
				{Name: "b", DtypeName: "F4", Shape: []int64{3, 2}, Offset: 9, Size: 3},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := openImage(t, image(tt.header, tt.data), Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []Tensor
			for _, ts := range c.Tensors() {
				if (ts.Dtype == 0) != (ts.DtypeName == "F7") || ts.Dtype != 0 && ts.Dtype.String() != ts.DtypeName {
					t.Errorf("dtype %v for %s", ts.Dtype, ts.DtypeName)
				}
				if cap(ts.Shape) != len(ts.Shape) {
					t.Errorf("shape of %q has capacity %d", ts.Name, cap(ts.Shape))
				}
				ts.Dtype, ts.at, ts.Offset = 0, 0, ts.Offset-int64(8+len(tt.header))
				got = append(got, ts)
			}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(Tensor{})); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	c, err := openImage(t, image(`{"__metadata__":{"format":"pt","a\n":"\u00e9"},"a":`+good+`}`, 4), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"format": "pt", "a\n": "é"}, c.Files()[0].Metadata); d != "" {
		t.Error(d)
	}
	c, err = openImage(t, image(one(good), 4), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Files()[0].Metadata != nil {
		t.Error("metadata without __metadata__")
	}
}

// TestUnknownField: a key that the format does not have may change the meaning of the data.
func TestUnknownField(t *testing.T) {
	_, err := openImage(t, image(one(`{"dtype":"F32","shape":[1],"strides":[1],"data_offsets":[0,4]}`), 4), Options{})
	var ue *UnsupportedError
	if !errors.As(err, &ue) || ue.Tensor != "a" || ue.Offset != 8+32 || !strings.Contains(err.Error(), `"strides"`) {
		t.Errorf("error is %v", err)
	}
}

// TestLongNames: the reader returns long names whole, and error messages shorten them.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", nameChunk)
	names := []string{long + "1", strings.Repeat("y", nameChunk/4), strings.Repeat("z", nameChunk/4-1), "a", long + "2"}
	var h []string
	for i, n := range names {
		h = append(h, fmt.Sprintf(`"%s":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, n, i, i+1))
	}
	c, err := openImage(t, image("{"+strings.Join(h, ",")+"}", len(h)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ts := range c.Tensors() {
		got = append(got, ts.Name)
	}
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Error("names differ")
	}
	_, err = openImage(t, image("{"+h[0]+","+h[0]+"}", 1), Options{})
	if err == nil || len(err.Error()) > 1000 {
		t.Errorf("message of %d bytes", len(err.Error()))
	}
}
