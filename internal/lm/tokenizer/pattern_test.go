package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// tokenizerPatterns are the expressions of published tokenizers, and others that reach the rest of
// the machine. They omit \w, which .NET and therefore regexp2 define differently.
var tokenizerPatterns = map[string]string{
	"gpt2":      gpt2Pattern,
	"llama3":    `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen2":     `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen3.5":   `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"o200k":     `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"tekken":    `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"deepseek1": `\p{N}{1,3}`,
	"deepseek2": `[一-龥぀-ゟ゠-ヿ]+`,
	"deepseek3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
	"empty":     `\s*`,
	"group":     `(?:ab|a|\p{L}\p{M}*)+(?!\p{L})`,
	"counts":    `(?:a|bc){2,3}x?|.{2,4}|a{3}`,
	"lazy":      `a+?b|\S*?1|(?:x|y)??z`,
	"atomic":    `(?>a+|b)c?`,
	"behind":    `(?<=a)b|(?<!\s)\p{Lu}`,
	"look":      `(?=\p{Lu})\S\D|[^\S\n]\d`,
	"alone":     `(a|b)*?c|(?!x)\S`,
	"fold":      `(?i:the|[x-z]1)|(?i)h`,
	"negated":   `\P{L}+|[^\P{Ll}]`,
	"ends":      `\Aa|b\z`,
}

// oracleSpans returns the matches of expr in text by package regexp2, in bytes, with Oniguruma's
// rules for empty matches.
func oracleSpans(t testing.TB, expr, text string) [][2]int {
	re, err := regexp2.Compile(expr, regexp2.None)
	if err != nil {
		t.Fatal(err)
	}
	offsets := []int{} // byte offsets of the runes
	for i := range text {
		offsets = append(offsets, i)
	}
	offsets = append(offsets, len(text))
	runes := []rune(text)
	var spans [][2]int
	last := -1
	for at := 0; at <= len(runes); {
		m, err := re.FindRunesMatchStartingAt(runes, at)
		if err != nil {
			t.Fatal(err)
		}
		if m == nil {
			break
		}
		if m.Length == 0 && m.Index == last {
			at = m.Index + 1
			continue
		}
		at, last = m.Index+m.Length, m.Index+m.Length
		spans = append(spans, [2]int{offsets[m.Index], offsets[last]})
	}
	return spans
}

func ourSpans(t testing.TB, p *pattern, text string) [][2]int {
	var m matcher
	m.reset(p, text)
	var spans [][2]int
	for {
		start, end, err := m.find()
		if err != nil {
			t.Fatal(err)
		}
		if start < 0 {
			return spans
		}
		spans = append(spans, [2]int{start, end})
	}
}

func compileOrFail(t testing.TB, expr string) *pattern {
	t.Helper()
	p, err := compilePattern(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return p
}

// snippets are the parts of random texts. They omit the long s: ignoring case, Oniguruma treats it
// as an s, and regexp2 does not.
var snippets = strings.Split("'s|'S|'LL|'ve|n't|'|a|aa|b|ab|bc|c|x1|z|A|AB|Ab|The|THE|the|hello|É|é|e\u0301|ñ|ß|ǅ|ʰ|ª|日|本語|カ|한|字|1|12|345|6789|½|٣|Ⅷ| |  |   |\n|\r\n|\n\n|\t|\u00a0|\u3000|\u0085|\u2028|\u200b|.|,|!?|/|//|-|_|$|+|=|“|”|—|😀|👍🏽|\x00|\x7f|\ufeff|\u0302|\U000e0100|\ue000|\u0378", "|")

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(snippets[r.IntN(len(snippets))])
	}
	return b.String()
}

func TestPatternsAgainstRegexp2(t *testing.T) {
	texts := 300
	if testing.Short() {
		texts = 30
	}
	for name, expr := range tokenizerPatterns {
		t.Run(name, func(t *testing.T) {
			p := compileOrFail(t, expr)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range texts {
				comparePatterns(t, p, expr, randomText(r, 1+i%40))
			}
		})
	}
}

func comparePatterns(t *testing.T, p *pattern, expr, text string) {
	t.Helper()
	got, want := ourSpans(t, p, text), oracleSpans(t, expr, text)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s in %q:\n got %v\nwant %v", expr, text, got, want)
	}
}

func FuzzPatterns(f *testing.F) {
	compiled := map[string]*pattern{}
	for name, expr := range tokenizerPatterns {
		compiled[name] = compileOrFail(f, expr)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomText(r, 20))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\u017f\u212a\u0130") || len(text) > 500 {
			return // these fold to ASCII, see snippets; regexp2 is slow on the rest
		}
		for name, p := range compiled {
			comparePatterns(t, p, tokenizerPatterns[name], text)
		}
	})
}

// FuzzCompile checks that no expression causes a panic of the parser or the machine.
func FuzzCompile(f *testing.F) {
	for _, expr := range tokenizerPatterns {
		f.Add(expr, "a b'S 12")
	}
	f.Add(`[\w&&[^\d]]|[[a-c]x]`, "ab1")
	f.Add(`(?<!a|b)c{,3}+`, "accc")
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(text) > 200 {
			return
		}
		p, err := compilePattern(expr)
		if err != nil {
			return
		}
		var m matcher
		m.reset(p, text)
		for {
			start, end, err := m.find()
			if err != nil || start < 0 {
				return
			}
			if start > end || end > len(text) {
				t.Fatalf("%q in %q: match %d to %d", expr, text, start, end)
			}
		}
	})
}

// TestOniguruma tests differences from regexp2's dialect. The spans agree with the tokenizers
// library 0.23.2.
func TestOniguruma(t *testing.T) {
	for _, c := range []struct{ expr, text, want string }{
		{`(?i:'s)`, "it'ſ'S", "['ſ 'S]"},
		{`[^\s&&[^\n]]+`, "a \nb", "[a \nb]"},
		{`[[a-c][^\S]x]+`, "abz x", "[ab  x]"},
		{`\p{Han}++|\W`, "漢字½-", "[漢字 -]"},
		{`[^\W_]`, "½_a", "[a]"},
		{`\p{^L}{,2}x`, "12x", "[12x]"},
		{`\h\H`, "fg", "[fg]"},
		{`^.|$`, "xy\nz", "[x  z]"},
		{`a(?i)b|c`, "aBaC", "[aB aC]"},
		{`a{,2}`, "aaa", "[aa a]"},
		{`a{2}+`, "aaaaa", "[aaaa]"},
		{`{a}]`, "{a}]", "[{a}]]"},
		{`\x{65E5}\u672c\x41`, "日本A", "[日本A]"},
		{`(?#note)a`, "a", "[a]"},
	} {
		p := compileOrFail(t, c.expr)
		var parts []string
		for _, s := range ourSpans(t, p, c.text) {
			parts = append(parts, c.text[s[0]:s[1]])
		}
		if got := fmt.Sprint(parts); got != c.want {
			t.Errorf("%s in %q: %s, want %s", c.expr, c.text, got, c.want)
		}
	}
}

func TestPatternErrors(t *testing.T) {
	for _, c := range []struct {
		expr, msg   string
		unsupported bool
	}{
		{`(a`, "missing parenthesis", false},
		{`a)`, "unmatched parenthesis", false},
		{`*a`, "nothing to repeat", false},
		{`[a`, "class without end", false},
		{`\`, "unexpected end", false},
		{`[z-a]`, "a range whose end is before its beginning", false},
		{`\x{zz}`, "malformed hexadecimal number", false},
		{`a{1,100001}`, "a number of repeats above 100000", false},
		{strings.Repeat("(", 60), "groups nest deeper than 50", false},
		{`(a)\1`, `\1 is not supported`, true},
		{`(?<n>a)`, "a group that begins with (?<n>", true},
		{`(?<=ab)c`, "a look-behind of other than one character", true},
		{`[[:alpha:]]`, "a POSIX bracket expression", true},
		{`\p{Klingon}`, `the property "Klingon"`, true},
		{`\G`, `\G is not supported`, true},
		{`\b+`, "a quantifier on an assertion", true},
		{`(a*)*`, "a repeated group that may match nothing", true},
		{`((((a{100}){100}){100}){100})`, "the expression expands to more than", true},
		{`a{2}?`, "? after a quantifier in braces", true},
		{`\xff`, "a byte that is not a character", true},
	} {
		_, err := compilePattern(c.expr)
		var e *patternError
		if !errors.As(err, &e) || !strings.Contains(e.msg, c.msg) || e.unsupported != c.unsupported {
			t.Errorf("%s: %v, want %q (unsupported %v)", c.expr, err, c.msg, c.unsupported)
		}
	}
}

// TestBacktracking has an expression that would take 2^n steps.
func TestBacktracking(t *testing.T) {
	p := compileOrFail(t, `(?:a|a|aa)+x`)
	var m matcher
	m.reset(p, strings.Repeat("a", 1000))
	if _, _, err := m.find(); err == nil || !strings.Contains(err.Error(), "steps a byte") {
		t.Errorf("got error %v", err)
	}
}
