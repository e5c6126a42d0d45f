package cmdline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

func TestShape(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want string
	}{
		{nil, "scalar"},
		{[]int64{7}, "7"},
		{[]int64{3, 0, 1 << 40}, "3x0x1099511627776"},
	} {
		if got := Shape(c.dims); got != c.want {
			t.Errorf("Shape(%v) = %q, want %q", c.dims, got, c.want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"model.layers.0.weight", "model.layers.0.weight"},
		{"größe 1", "größe 1"},
		{"it's \"so\"", "it's \"so\""},
		{"", `""`},
		{`"`, `"\""`},
		{"a\x1b[31mb", `"a\x1b[31mb"`},
		{"two\nlines", `"two\nlines"`},
		{"\xff", `"\xff"`},
		{"left\u202eright", `"left\u202eright"`},
	} {
		if got := Text(c.text); got != c.want {
			t.Errorf("Text(%q) = %s, want %s", c.text, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	heads := []string{"NAME", "EMPTY", "N>", "NOTE"}
	lines := func(line func(cells ...any)) {
		line("a", "", 5, "")
		line("größer", "", 12345, "last")
		line("short")
	}
	var b bytes.Buffer
	if err := Table(&b, heads, lines); err != nil {
		t.Fatal(err)
	}
	want := "NAME        N  NOTE\na           5\ngrößer  12345  last\nshort\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	full := errors.New("full")
	if err := Table(failWriter{full}, heads, lines); err != full {
		t.Errorf("error %v, want %v", err, full)
	}
}

type failWriter struct{ err error }

func (w failWriter) Write([]byte) (int, error) { return 0, w.err }

// TestPrintJSON compares with encoding/json.
func TestPrintJSON(t *testing.T) {
	type item struct {
		Name  string  `json:"name"`
		Shape []int64 `json:"shape"`
		More  []item  `json:"more,omitempty"`
	}
	type Base struct {
		File  string `json:"file"`
		Empty []item `json:"empty"`
	}
	type report struct {
		OK bool `json:"ok"`
		*Base
		Raw    json.RawMessage   `json:"raw"`
		Items  []item            `json:"items"`
		Nil    []item            `json:"nil"`
		None   []item            `json:"none,omitempty"`
		Zero   int               `json:"zero,omitempty"`
		Map    map[string]string `json:"map"`
		Ptr    *item             `json:"ptr"`
		Hidden int               `json:"-"`
		secret int
	}
	full := report{
		OK: true, Base: &Base{File: "a<b>&c", Empty: []item{}}, Raw: json.RawMessage(`7`),
		Items: []item{{"one", []int64{1, 2}, nil}, {"two", []int64{}, []item{{Name: "three"}}}},
		None:  []item{}, Map: map[string]string{"k": "v"}, Ptr: &item{Name: "p"}, Hidden: 1, secret: 2,
	}
	for _, v := range []any{&full, &report{Base: &Base{}}, &item{}, []int{1, 2}, "a<b", nil, map[string]int{"a": 1}} {
		var got, want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		if err := errors.Join(PrintJSON(&got, v), e.Encode(v)); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("got\n%swant\n%s", got.String(), want.String())
		}
	}
	if err := PrintJSON(&bytes.Buffer{}, func() {}); err == nil {
		t.Error("a function is JSON")
	}
	full.Raw = json.RawMessage(" " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n")
	var deep bytes.Buffer // indented, this list has 50 MB
	if err := PrintJSON(&deep, &full); err != nil || deep.Len() > 11000 || !json.Valid(deep.Bytes()) {
		t.Errorf("%d bytes, %v", deep.Len(), err)
	}
	broken := errors.New("full")
	if err := PrintJSON(failWriter{broken}, &full); err != broken {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestPipeWriter(t *testing.T) {
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	p := &pipeWriter{w: w}
	for range 2 {
		if n, err := fmt.Fprint(p, "text"); n != 4 || err != nil {
			t.Errorf("a closed pipe: %d, %v", n, err)
		}
	}
	full := errors.New("full")
	if _, err := fmt.Fprint(&pipeWriter{w: failWriter{full}}, "text"); err != full {
		t.Errorf("error %v, want %v", err, full)
	}
}
