package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// megabyte returns 1 MB of the texts in the shared directory.
func megabyte(tb testing.TB) string {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(testshared.Dir(tb), "text", "*"))
	if err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for _, name := range names {
		if st, err := os.Stat(name); err != nil || st.IsDir() {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		b.Write(data[:min(len(data), 1<<18)])
	}
	if b.Len() == 0 {
		tb.Fatal("no texts")
	}
	return strings.ToValidUTF8(strings.Repeat(b.String(), 1<<20/b.Len()+1)[:1<<20], "")
}

func BenchmarkEncode(b *testing.B) {
	texts := []struct{ name, text string }{
		{"text", megabyte(b)},
		{"word", strings.Repeat("a", 1<<20)},
		{"random-word", randomLetters(1 << 20)},
		{"spaces", strings.Repeat(" ", 1<<20)},
		{"cjk", strings.Repeat("日本語のテキスト、中文文本 한국어 ", 1<<20/52)},
	}
	for _, name := range modelNames() {
		b.Run(name, func(b *testing.B) {
			tok := openModel(b, name)
			for _, c := range texts {
				b.Run(c.name, func(b *testing.B) {
					b.SetBytes(int64(len(c.text)))
					for b.Loop() {
						if _, err := tok.Encode(c.text, Options{}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		})
	}
}

// randomLetters returns n lower-case letters without any space.
func randomLetters(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = 'a' + byte(x>>24)%26
	}
	return string(b)
}

func BenchmarkDecode(b *testing.B) {
	text := megabyte(b)
	for _, name := range modelNames() {
		b.Run(name, func(b *testing.B) {
			tok := openModel(b, name)
			ids, err := tok.Encode(text, Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Decode(ids, true)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, name := range modelNames() {
		b.Run(name, func(b *testing.B) {
			dir := testshared.Tokenizer(b, name)
			for b.Loop() {
				if _, err := Open(dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
