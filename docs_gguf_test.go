package gq

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/rounding"
)

// TestGGUFDocument holds the table of types in docs/GGUF.md to the code.
func TestGGUFDocument(t *testing.T) {
	doc, err := os.ReadFile("docs/GGUF.md")
	if err != nil {
		t.Fatal(err)
	}
	types := 0
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		names := strings.Split(cells[0], ", ")
		if _, ok := gguf.ParseType(names[0]); !ok || len(cells) != 5 {
			continue
		}
		bits := strings.Split(cells[2], ", ")
		if len(bits) != len(names) {
			t.Errorf("%q: %d types, %d bits per weight", line, len(names), len(bits))
			continue
		}
		for i, name := range names {
			types++
			kind, _ := gguf.ParseType(name)
			want := fmt.Sprint(kind.BlockWeights(), kind.Bits(), written(kind))
			if got := fmt.Sprint(cells[1], " ", bits[i], cells[4]); got != want || !kind.Decodable() {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	if types != 27 {
		t.Errorf("the table has %d types, want 27", types)
	}
}

// written says which scheme gq writes as a type.
func written(kind gguf.TensorType) string {
	s, ok := rounding.GGUFScheme(kind, rounding.Scheme{Mapping: gqf.MappingFullRange})
	switch {
	case !ok:
		return ""
	case s.Bits == 1 && s.Type == 0:
		return "1 bit"
	case s.Bits == 1:
		return "1 bit, mapping " + s.Mapping.String()
	case s.Mapping == gqf.MappingFullRange || s.Mapping == gqf.MappingKQuant && (s.Bits == 3 || s.Bits == 6):
		return strconv.Itoa(s.Bits) + " bits"
	}
	return fmt.Sprintf("%d bits, mapping %s", s.Bits, s.Mapping)
}
