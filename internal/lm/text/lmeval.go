package text

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// This file follows the task wikitext of EleutherAI's lm-evaluation-harness
// (lm_eval/tasks/wikitext, version 2 of the task) and its rolling log-likelihood
// (loglikelihood_rolling in lm_eval/models/huggingface.py, get_rolling_token_windows in
// lm_eval/utils.py).

// DefaultLMEvalWindow is the length of a window with LMEval for a model that does not state its
// context.
const DefaultLMEvalWindow = 2048

// LMEvalWindowOf returns the default length of a window with LMEval: the model's context.
func LMEvalWindowOf(c arch.ForwardConfig) int { return cmp.Or(c.MaxPositions, DefaultLMEvalWindow) }

type page struct {
	size   Size // before detokenization
	tokens int
}

var errNoPrefix = errors.New("the convention lm-eval predicts the first token from BOS or EOS, and the tokenizer has neither: use the convention windows")

// splitPages divides WikiText into pages as the data set wikitext_document_level does: at each line
// that is a heading of the first level, " = Title = ".
func splitPages(text string) (pages []string) {
	// Python reads a file like this.
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	start := 0
	for at := 0; at < len(text); {
		line, _, _ := strings.Cut(text[at:], "\n")
		if isTitle(line) && at > 0 {
			if page := text[start : at-1]; strings.TrimFunc(page, IsSpace) != "" {
				pages = append(pages, page)
			}
			start = at
		}
		at += len(line) + 1
	}
	return append(pages, text[start:])
}

func isTitle(line string) bool {
	line = strings.ReplaceAll(strings.ReplaceAll(line, "= = =", "==="), "= =", "==")
	line = strings.TrimFunc(line, IsSpace)
	return strings.HasPrefix(line, "= ") && strings.HasSuffix(line, " =")
}

// space is Python's \s* in a regular expression of Go.
const space = `[\s\v\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*`

// The steps of wikitext_detokenizer in their order.
var (
	numberSigns = []string{" @-@ ", "-", " @,@ ", ",", " @.@ ", "."}
	punctuation = []string{" : ", ": ", " ; ", "; ", " . ", ". ", " ! ", "! ", " ? ", "? ", " , ", ", "}
	enclosed    = []struct {
		match *regexp.Regexp
		with  string
	}{
		{regexp.MustCompile(`\(` + space + `([^)]*?)` + space + `\)`), "($1)"},
		{regexp.MustCompile(`\[` + space + `([^\]]*?)` + space + `\]`), "[$1]"},
		{regexp.MustCompile(`\{` + space + `([^}]*?)` + space + `\}`), "{$1}"},
		{regexp.MustCompile(`"` + space + `([^"]*?)` + space + `"`), `"$1"`},
		{regexp.MustCompile(`'` + space + `([^']*?)` + space + `'`), `'$1'`},
	}
	miscellaneous = []string{"= = = =", "====", "= = =", "===", "= =", "==", " ° ", "°", " \n", "\n", "\n ", "\n", " N ", " 1 ", " 's", "'s"}
)

// detokenize undoes WikiText's division into words, as wikitext_detokenizer does.
func detokenize(page string) string {
	replace := func(pairs []string) {
		for pair := range slices.Chunk(pairs, 2) {
			page = strings.ReplaceAll(page, pair[0], pair[1])
		}
	}
	page = strings.ReplaceAll(page, "s '", "s'")
	page = slashedQuote.ReplaceAllLiteralString(page, "/'[0-9]/")
	replace(numberSigns)
	replace(punctuation)
	for _, e := range enclosed {
		page = e.match.ReplaceAllString(page, e.with)
	}
	replace(miscellaneous)
	return page
}

// slashedQuote is a slip in wikitext_detokenizer: the slashes are characters of the expression.
var slashedQuote = regexp.MustCompile(`/' [0-9]/`)

func (c *Cutting) cutPages(ctx context.Context, t *tokenizer.Tokenizer, data []byte, o Options) error {
	if t == nil {
		return errors.New("the convention lm-eval is for plain text: token ids have no pages")
	}
	prefix, ok := t.BOS()
	if !ok {
		if prefix, ok = t.EOS(); !ok {
			return errNoPrefix
		}
	}
	if err := checkUTF8(data, 0); err != nil {
		return err
	}
	c.unknown = bytes.Count(data, []byte("<unk>"))
	scored := 0
	for i, text := range splitPages(string(data)) {
		ids, err := t.EncodeContext(ctx, detokenize(text), tokenizer.Options{})
		if err != nil {
			return err
		}
		c.pages = append(c.pages, page{documentSize(text), len(ids)})
		c.append(i, roll(prefix, ids, o.Window))
		if scored += len(ids); o.MaxTokens > 0 && scored >= o.MaxTokens {
			break
		}
	}
	if len(c.Windows) == 0 {
		return errNoText
	}
	c.Windows = limit(c.Windows, o.MaxTokens)
	return nil
}

// roll divides a page's ids into windows in which a model reads up to size tokens and predicts up
// to size tokens. The first window begins with the prefix, the others with the last token of the
// window before. The last window begins earlier, so that the model reads size tokens there too.
func roll(prefix int32, ids []int32, size int) (windows []Window) {
	for done := 0; done < len(ids); {
		n := min(size, len(ids)-done)
		var tokens []int32
		if done == 0 {
			tokens = append([]int32{prefix}, ids[:n]...)
		} else {
			tokens = slices.Clone(ids[max(done+n-size-1, 0) : done+n])
		}
		windows = append(windows, Window{Tokens: tokens, First: len(tokens) - n})
		done += n
	}
	return windows
}
