package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/files"
)

// Tokenizer is a parsed tokenizer.json. It is immutable, so several goroutines may use a Tokenizer
// at once.
type Tokenizer struct {
	model       *bpe
	added       []addedToken
	addedIDs    map[string]int32
	byID        map[int32]int32 // from id to index in added
	plainTrie   trie            // added tokens to find in the raw text
	normalTrie  trie            // added tokens to find in the normalized text
	normalizers []normalizer
	pre         []preTokenizer
	post        postProcessor
	decoder     decoder
	size        int
	roles       roles
}

// Options are the options of Encode. The zero value gives the tokens of the text alone.
type Options struct {
	// AddSpecial adds the tokens of tokenizer.json's post-processor around the text: a BOS in most
	// models, none in some. Default: no tokens. tokenizer_config.json does not count; see
	// Tokenizer.AddsBOS.
	AddSpecial bool
	// PlainText treats the names of special tokens in the text as text. Untrusted text needs this.
	// Default: "<|im_end|>" is the special token.
	PlainText bool
	// PlainAt does so for the special tokens at these offsets in bytes, in ascending order: a prompt
	// may mix trusted and untrusted text. See Tokenizer.SpecialTokens.
	PlainAt []int
}

// plain reports whether a special token at the offset is text.
func (o *Options) plain(offset int) bool {
	if o.PlainText {
		return true
	}
	_, found := slices.BinarySearch(o.PlainAt, offset)
	return found
}

// Files are the contents of a model's files. All but Tokenizer are optional (nil).
type Files struct {
	Tokenizer        []byte // tokenizer.json
	Table            []byte // tokenizer.table; counts if tokenizer.json has no vocabulary
	Config           []byte // tokenizer_config.json
	SpecialTokensMap []byte // special_tokens_map.json
	GenerationConfig []byte // generation_config.json
}

const (
	tokenizerFile  = "tokenizer.json"
	configFile     = "tokenizer_config.json"
	specialFile    = "special_tokens_map.json"
	generationFile = "generation_config.json"
)

// Open reads the files in a model's directory.
func Open(dir string) (*Tokenizer, error) {
	return Read(func(name string) ([]byte, error) { return files.Read(filepath.Join(dir, name), files.MaxModelFile) })
}

// Read reads a model's files by name, for example from the assets of a .gqf file. read must return
// fs.ErrNotExist for a missing file; Read returns that error if tokenizer.json is missing.
func Read(read func(name string) ([]byte, error)) (*Tokenizer, error) {
	var f Files
	for _, part := range []struct {
		name string
		data *[]byte
	}{{tokenizerFile, &f.Tokenizer}, {TableFile, &f.Table}, {configFile, &f.Config}, {specialFile, &f.SpecialTokensMap}, {generationFile, &f.GenerationConfig}} {
		data, err := read(part.name)
		if err != nil && (part.name == tokenizerFile || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		*part.data = data
	}
	return ParseFiles(f)
}

// ParseFiles parses a model's files and does not retain the contents. Errors are of type
// *FormatError or *UnsupportedError.
func ParseFiles(files Files) (*Tokenizer, error) {
	root, err := parseDocument(tokenizerFile, files.Tokenizer)
	if err != nil {
		return nil, err
	}
	f := root.fields()
	if v := f.optionalStr("version"); v != "" && v != "1.0" {
		f.fail(f.m["version"].unsupported("version %q is not supported", v))
	}
	t := &Tokenizer{
		model:       component(f, "model", func(n node) (*bpe, error) { return readModel(n, files.Table) }),
		normalizers: component(f, "normalizer", readNormalizers),
		pre:         component(f, "pre_tokenizer", readPreTokenizers),
		post:        component(f, "post_processor", readPostProcessor),
		decoder:     component(f, "decoder", readDecoder),
		added:       component(f, "added_tokens", readAdded),
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := t.indexAdded(f.m["added_tokens"]); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(t.post.before, t.post.after) {
		if int(id) >= t.size {
			return nil, f.m["post_processor"].malformed("id %d in a vocabulary of %d ids", id, t.size)
		}
	}
	t.roles, err = t.readRoles(files)
	return t, err
}

// indexAdded indexes the added tokens by name and id and fills the tries.
func (t *Tokenizer) indexAdded(list node) error {
	t.addedIDs, t.byID = map[string]int32{}, map[int32]int32{}
	t.size = len(t.model.tokens)
	w := t.newWork()
	for i, a := range t.added {
		if id, ok := t.model.id(a.Content); ok && id != a.ID {
			return list.malformed("token %.40q has id %d, in the vocabulary %d", a.Content, a.ID, id)
		}
		if id, ok := t.addedIDs[a.Content]; ok && id != a.ID {
			return list.malformed("token %.40q has the ids %d and %d", a.Content, id, a.ID)
		}
		if j, ok := t.byID[a.ID]; ok && t.added[j].Content != a.Content {
			return list.malformed("the tokens %.40q and %.40q have the same id %d", t.added[j].Content, a.Content, a.ID)
		}
		if int(a.ID) < len(t.model.tokens) && t.model.tokens[a.ID] != "" && t.model.tokens[a.ID] != a.Content {
			return list.malformed("token %.40q has id %d, which is %.40q in the vocabulary", a.Content, a.ID, t.model.tokens[a.ID])
		}
		if int(a.ID) > maxTokenID(t.model.vocab.used+len(t.added)) {
			return list.malformed("id %d in a vocabulary of %d tokens", a.ID, t.model.vocab.used+len(t.added))
		}
		t.addedIDs[a.Content], t.byID[a.ID] = a.ID, int32(i)
		t.size = max(t.size, int(a.ID)+1)
		if !a.Normalized {
			t.plainTrie.add(a.Content, int32(i))
			continue
		}
		form, err := t.normalize(a.Content, w)
		if err != nil {
			return list.malformed("token %.40q: %v", a.Content, err)
		}
		if t.added[i].form = form; len(form) > maxAdded {
			return list.unsupported("an added token of %d bytes when normalized, more than %d", len(form), maxAdded)
		}
		if form != "" {
			t.normalTrie.add(form, int32(i))
		}
	}
	return nil
}

func (t *Tokenizer) newWork() *work {
	return &work{matchers: make([]matcher, max(1, len(t.pre)))}
}

func (t *Tokenizer) normalize(text string, w *work) (string, error) {
	var err error
	limit := growth(len(text))
	for _, n := range t.normalizers {
		if text, err = n(text, &w.matchers[0]); err != nil {
			return "", err
		}
		if len(text) > limit {
			return "", errGrowth
		}
	}
	return text, nil
}

// growth bounds the length of a text of n bytes on its way to the model. A stage of published files
// at most doubles the length, and NFKC makes a text at most 11 times as long. Stages of a hostile
// file could double the length dozens of times.
func growth(n int) int { return 16*n + 4096 }

var errGrowth = errors.New(tokenizerFile + ": normalizers and pre-tokenizers make the text more than 16 times as long")

// Encode returns the tokens of text. Bytes that are not UTF-8 count as U+FFFD. Encode fails if a
// regular expression of tokenizer.json takes too many steps for this text, or if tokenizer.json
// names a token for unknown characters that does not exist.
func (t *Tokenizer) Encode(text string, o Options) ([]int32, error) {
	return t.EncodeContext(context.Background(), text, o)
}

// EncodeContext is Encode, but returns ctx.Err() soon after ctx is done: a text of 50 MB takes
// seconds.
func (t *Tokenizer) EncodeContext(ctx context.Context, text string, o Options) ([]int32, error) {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	w := t.newWork()
	w.ctx = ctx
	ids := make([]int32, 0, len(text)/3+8)
	if o.AddSpecial {
		ids = append(ids, t.post.before...)
	}
	word := t.stages(w, len(text), func(piece string, _ bool) (err error) {
		ids, err = t.model.encode(ids, piece, w)
		return err
	})
	err := t.cut(&t.plainTrie, text, o.plain, func(part string, token int32, start int) error {
		if token >= 0 {
			ids = append(ids, t.added[token].ID)
			return nil
		}
		normal, err := t.normalize(part, w)
		if err != nil {
			return err
		}
		// Where the normalizers change the text, its offsets are no longer known.
		plain := func(at int) bool { return o.PlainText || normal == part && o.plain(start+at) }
		return t.cut(&t.normalTrie, normal, plain, func(part string, token int32, at int) error {
			if token >= 0 {
				ids = append(ids, t.added[token].ID)
				return nil
			}
			return word(part, start == 0 && at == 0)
		})
	})
	if err != nil {
		return nil, err
	}
	if o.AddSpecial {
		ids = append(ids, t.post.after...)
	}
	return ids, nil
}

// stages returns a function that passes a part of a text of n bytes through the pre-tokenizers.
// last gets the words.
func (t *Tokenizer) stages(w *work, n int, last emit) emit {
	emits := make([]emit, len(t.pre)+1)
	limit := growth(growth(n))
	for stage := range emits {
		passed := 0
		emits[stage] = func(piece string, first bool) error {
			if passed += len(piece); passed > limit {
				return errGrowth
			}
			if stage < len(t.pre) {
				return t.pre[stage].split(piece, first, &w.matchers[stage], emits[stage+1])
			}
			return last(piece, first)
		}
	}
	return emits[0]
}

// VocabSize returns the largest id plus 1.
func (t *Tokenizer) VocabSize() int { return t.size }

// Fits returns an error if a token has an id of rows or more, the size of a model's embedding.
// Special tokens may have such ids: Gemma 3 has a token for images, and its models without images
// have no row for that.
func (t *Tokenizer) Fits(rows int) error {
	for id := int32(rows); int(id) < t.size; id++ {
		if a, added := t.Added(id); t.Token(id) != "" && !(added && a.Special) {
			return fmt.Errorf("%s: token %.40q has id %d, the model's embedding has %d rows: use the tokenizer that belongs to the model", tokenizerFile, t.Token(id), id, rows)
		}
	}
	return nil
}

// Token returns the token with this id in the spelling of tokenizer.json ("Ġthe", "▁the"), or ""
// for an unused id.
func (t *Tokenizer) Token(id int32) string {
	if i, ok := t.byID[id]; ok {
		return t.added[i].Content
	}
	if id < 0 || int(id) >= len(t.model.tokens) {
		return ""
	}
	return t.model.tokens[id]
}

// ID returns the id of the token that tokenizer.json writes as token.
func (t *Tokenizer) ID(token string) (id int32, ok bool) {
	if id, ok = t.addedIDs[token]; !ok {
		id, ok = t.model.id(token)
	}
	return id, ok
}
