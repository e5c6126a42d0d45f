package llamacpp

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// TokenizerOptions are the options of Tokenizer.
type TokenizerOptions struct {
	// Pre is tokenizer.ggml.pre of a byte-level tokenizer. Default: found by the tokenizer's ids of
	// llama.cpp's test text; unknown ids are a *PreError.
	Pre string
}

// Vocabulary is a tokenizer in llama.cpp's form.
type Vocabulary struct {
	Metadata []gguf.Pair
	Notes    []string // differences from the model's tokenizer, for a report
}

// Tokenizer returns the keys of a model's tokenizer. read returns a file of the model by name, or
// fs.ErrNotExist. rows is the number of rows of the embedding; llama.cpp expects a token for each
// row. Without a tokenizer.json the vocabulary is empty.
func Tokenizer(read func(name string) ([]byte, error), rows int, o TokenizerOptions) (*Vocabulary, error) {
	v := &tokenWriter{rows: rows}
	t, err := tokenizer.Read(read)
	if errors.Is(err, fs.ErrNotExist) {
		v.set(keyTokenizerModel, modelNone)
		v.note("there is no tokenizer.json: llama.cpp will run token ids only")
		v.noteUnused(o)
		return &v.Vocabulary, nil
	}
	if err != nil {
		return nil, err
	}
	v.Tokenizer = t
	if err := v.readTokens(); err != nil {
		return nil, err
	}
	switch {
	case t.ByteLevel():
		err = v.byteLevel(o)
	case t.ByteFallback():
		v.noteUnused(o)
		err = v.sentencePiece(read)
	default:
		// llama.cpp looks each byte up, and aborts if a byte is no token (its issue 6717).
		err = unsupported("tokenizer.json is neither byte-level nor of SentencePiece's kind with byte fallback, and llama.cpp aborts at a character that is no token: write a .gqf file, which gq run and gq serve take")
	}
	if err != nil {
		return nil, err
	}
	v.roles()
	return &v.Vocabulary, v.templates(read)
}

type tokenWriter struct {
	Vocabulary
	*tokenizer.Tokenizer
	rows   int
	tokens []string
	types  []int32
}

// noteUnused notes an option that only byte-level tokenizers have.
func (v *tokenWriter) noteUnused(o TokenizerOptions) {
	if o.Pre != "" {
		v.note("the pre-tokenizer %q is not used: only a byte-level tokenizer has one", o.Pre)
	}
}

func (v *tokenWriter) set(key string, value any) {
	v.Metadata = append(v.Metadata, gguf.Pair{Key: key, Value: value})
}

func (v *tokenWriter) note(format string, args ...any) {
	v.Notes = append(v.Notes, fmt.Sprintf(format, args...))
}

// readTokens fills tokens and types for each row of the embedding.
func (v *tokenWriter) readTokens() error {
	if err := v.checkSize(); err != nil {
		return err
	}
	v.tokens, v.types = make([]string, v.rows), make([]int32, v.rows)
	taken := map[string]int32{}
	for i := range v.rows {
		id := int32(i)
		token, kind := v.token(id)
		if _, ok := taken[token]; ok && token != "" {
			// Spaces in place of SentencePiece's character may give another token's text.
			token = v.Token(id)
			if other, ok := taken[token]; ok {
				return fmt.Errorf("the tokens %d and %d are both %q: llama.cpp expects different ones", other, id, token)
			}
		}
		v.tokens[i], v.types[i] = token, kind
		if token != "" {
			taken[token] = id
		}
	}
	for i, token := range v.tokens {
		if token != "" {
			continue
		}
		name := fmt.Sprintf("[PAD%d]", i)
		for _, ok := taken[name]; ok; _, ok = taken[name] {
			name += "_"
		}
		v.tokens[i], v.types[i], taken[name] = name, tokenUnused, int32(i)
	}
	return nil
}

// checkSize refuses a vocabulary that is larger than the embedding. Added tokens without a row are
// left out, such as the token for images in Gemma's text-only models.
func (v *tokenWriter) checkSize() error {
	var without []string
	for id := int32(v.rows); int(id) < v.VocabSize(); id++ {
		token := v.Token(id)
		if token == "" {
			continue
		}
		if _, ok := v.Added(id); !ok {
			return fmt.Errorf("tokenizer.json has token %d, %.40q, but the embedding has %d rows", id, token, v.rows)
		}
		without = append(without, fmt.Sprintf("%.40q", token))
	}
	if len(without) > 0 {
		v.note("added tokens without a row in the embedding are left out: %s", strings.Join(without, ", "))
	}
	return nil
}

// token returns a token in llama.cpp's form, "" for an unused id.
func (v *tokenWriter) token(id int32) (string, int32) {
	token := v.Token(id)
	if unknown, ok := v.Unknown(); ok && id == unknown && !v.ByteLevel() {
		return token, tokenUnknown
	}
	if a, ok := v.Added(id); ok {
		if a.Special || looksSpecial(token) {
			return token, tokenControl
		}
		return strings.ReplaceAll(token, spaces, " "), tokenUserDefined
	}
	if v.ByteFallback() && byteToken.MatchString(token) {
		return token, tokenByte
	}
	return token, tokenNormal
}

var byteToken = regexp.MustCompile(`^<0x[0-9A-F]{2}>$`)

// looksSpecial reports whether an added token is a control token in spite of its entry in
// tokenizer.json (conversion/base.py, does_token_look_special).
func looksSpecial(token string) bool {
	within := func(start, end string) bool { return strings.HasPrefix(token, start) && strings.HasSuffix(token, end) }
	return slices.Contains([]string{"<pad>", "<mask>", "<2mass>", "[@BOS@]"}, token) ||
		within("<|", "|>") || within("<｜", "｜>") || within("<unused", ">")
}

// byteLevel writes a tokenizer of GPT-2's kind.
func (v *tokenWriter) byteLevel(o TokenizerOptions) error {
	pre, err := preName(v.Tokenizer, o.Pre)
	if err != nil {
		return err
	}
	v.set(keyTokenizerModel, modelBPE)
	v.set(keyPre, pre)
	v.set(keyTokens, v.tokens)
	v.set(keyTokenTypes, v.types)
	var merges []string
	for a, b := range v.Merges() {
		merges = append(merges, v.Token(a)+" "+v.Token(b))
	}
	v.set(keyMerges, merges)
	if words, err := v.Words("a"); err == nil && len(words) > 0 && words[0] != "a" {
		v.set(keySpacePrefix, true)
	}
	return nil
}

// roles writes the ids of the special tokens, and which tokens precede and follow a text.
func (v *tokenWriter) roles() {
	id := func(key string, id int32, ok bool) {
		if ok && int(id) < v.rows {
			v.set(key, uint32(id))
		}
	}
	bos, hasBOS := v.BOS()
	eos, hasEOS := v.EOS()
	id(keyBOS, bos, hasBOS)
	id(keyEOS, eos, hasEOS)
	v.otherEnds(eos)
	unknown, ok := v.Unknown()
	if !ok {
		unknown, ok = v.Role("unk_token")
	}
	id(keyUnknown, unknown, ok)
	for _, r := range []struct{ key, name string }{
		{keySeparator, "sep_token"}, {keyPadding, "pad_token"}, {keyMask, "mask_token"},
	} {
		token, ok := v.Role(r.name)
		id(r.key, token, ok)
	}
	before, after := around(v.Tokenizer)
	addBOS := hasBOS && slices.Equal(before, []int32{bos})
	addEOS := hasEOS && slices.Equal(after, []int32{eos})
	if !addBOS && len(before) > 0 || !addEOS && len(after) > 0 {
		v.note("tokenizer.json puts the tokens %d before and %d behind a text, llama.cpp can add only BOS and EOS", before, after)
	}
	v.set(keyAddBOS, addBOS)
	v.set(keyAddEOS, addEOS)
}

// otherEnds writes tokens other than EOS at which generation stops (generation_config.json), if
// llama.cpp would not find these by their text.
func (v *tokenWriter) otherEnds(eos int32) {
	keys := []string{keyEOT, keyEOM}
	for _, id := range v.EOSIDs() {
		switch {
		case id == eos || int(id) >= v.rows || slices.Contains(ends, v.tokens[id]):
		case len(keys) == 0:
			v.note("generation_config.json stops at token %d, %q, too, but llama.cpp has no key for it", id, v.tokens[id])
		default:
			v.set(keys[0], uint32(id))
			keys = keys[1:]
		}
	}
}

// templates writes the chat templates. The template "default" has no name there.
func (v *tokenWriter) templates(read func(name string) ([]byte, error)) error {
	sources, _, err := chat.Sources(read)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range sources {
		name := strings.Map(plainRune, t.Name)
		switch {
		case name == "" || slices.Contains(names, name):
		case name == "default":
			v.set(keyTemplate, t.Text)
		default:
			v.set(keyTemplate+"."+name, t.Text)
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		v.set(keyTemplates, names)
	}
	return nil
}

// plainRune replaces characters that the key of a template cannot have.
func plainRune(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return '_'
}
