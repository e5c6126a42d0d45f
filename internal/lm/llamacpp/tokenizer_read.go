package llamacpp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// The types of tokens in tokenizer.ggml.token_type (include/llama.h).
const (
	tokenNormal      = 1
	tokenUnknown     = 2
	tokenControl     = 3
	tokenUserDefined = 4
	tokenUnused      = 5
	tokenByte        = 6
)

// vocabulary has the facts of tokenizer.ggml.*.
type vocabulary struct {
	*keyReader
	spm      bool // a sentencepiece model; else byte-level BPE
	merged   bool // a sentencepiece model with merges in place of scores
	tokens   []string
	index    *tokenIndex // of the tokens that are not absent
	types    []int64
	scores   []float32
	bos, eos int // -1 for none
	unk, pad int
	addBOS   bool
	addEOS   bool
	prefix   bool // a space is put before the text (sentencepiece)
	pre      *pretokenizer
}

// readVocabulary reads the keys of a tokenizer. It returns nil without an error if the file has no
// tokenizer.
func readVocabulary(k *keyReader) *vocabulary {
	model := k.text(keyTokenizerModel)
	v := &vocabulary{keyReader: k, spm: model == modelSPM || model == modelMerged, merged: model == modelMerged}
	switch model {
	case "", "no_vocab", modelNone:
		return nil
	case modelSPM, modelMerged, modelBPE:
	default:
		k.fail(keyTokenizerModel, "is %.40q: this program turns round llama and gemma4 (sentencepiece's BPE) and gpt2 (byte-level BPE) only", model)
		return nil
	}
	v.tokens = k.strings(keyTokens)
	if k.err == nil && len(v.tokens) == 0 {
		k.fail(keyTokens, "is missing or empty")
	}
	v.types = k.integers(keyTokenTypes, len(v.tokens))
	v.scores = k.floats(keyScores)
	for _, list := range []struct {
		key string
		n   int
	}{{keyTokenTypes, len(v.types)}, {keyScores, len(v.scores)}} {
		if k.has(list.key) && list.n != len(v.tokens) {
			k.fail(list.key, "has %d elements for %d tokens", list.n, len(v.tokens))
		}
	}
	if k.err != nil { // what follows relies on equal lengths
		return nil
	}
	v.readRoles()
	v.checkTokens()
	return v
}

// readRoles reads the special tokens, and the tokens that precede and follow a text, with
// llama.cpp's defaults.
func (v *vocabulary) readRoles() {
	bos, eos, unk := 11, 11, -1
	if v.spm {
		bos, eos, unk = 1, 2, 0
		v.addBOS = true
		v.prefix = v.boolean(keySpacePrefix, true)
		if v.scores == nil && !v.merged {
			v.fail(keyScores, "is missing: the tokens of a sentencepiece model merge by their scores")
		}
	} else {
		name := v.text(keyPre)
		if v.pre = findPretokenizer(name); v.pre == nil {
			v.fail(keyPre, "is %.40q: this program does not know how that pretokenizer divides a text into words", name)
			return
		}
		v.addBOS = v.pre.bos
	}
	v.bos, v.eos = v.role(keyBOS, bos), v.role(keyEOS, eos)
	v.unk, v.pad = v.role(keyUnknown, unk), v.role(keyPadding, -1)
	v.addBOS = (v.boolean(keyAddBOS, v.addBOS) || v.merged) && v.bos >= 0 // as llama.cpp does
	v.addEOS = v.boolean(keyAddEOS, false) && v.eos >= 0
}

// role reads the id of a special token. llama.cpp keeps its default for an id outside of the
// vocabulary, and has none if the default is outside too.
func (v *vocabulary) role(key string, absent int) int {
	if absent >= len(v.tokens) {
		absent = -1
	}
	id, ok := v.file.Int(v.name(key))
	if !v.has(key) || ok && id >= int64(len(v.tokens)) { // 2^32-1 is none
		return absent
	}
	return v.count(key, 0)
}

func (v *vocabulary) tokenType(id int) int64 {
	if v.types == nil {
		return tokenNormal
	}
	return v.types[id]
}

// absent reports whether a token is a filler of llama.cpp's converter for an id that the tokenizer
// does not have.
func (v *vocabulary) absent(id int) bool {
	return v.tokens[id] == "" || v.tokenType(id) == tokenUnused && v.tokens[id] == fmt.Sprintf("[PAD%d]", id)
}

// added reports whether a token is found in the raw text, before any normalization, and whether the
// token is special.
func (v *vocabulary) added(id int) (found, special bool) {
	switch v.tokenType(id) {
	case tokenControl, tokenUnknown:
		return true, true
	case tokenUserDefined:
		return true, false
	}
	return false, false
}

// maxToken bounds tokens that merge: all their divisions in two are looked up. The longest known
// token is a run of 128 spaces.
const maxToken = 512

// checkTokens refuses vocabularies that no tokenizer.json can have.
func (v *vocabulary) checkTokens() {
	v.index = newTokenIndex(v.tokens)
	for id, t := range v.tokens {
		if v.absent(id) {
			continue
		}
		hash := v.index.hash(t)
		s := v.index.find(hash, t, "")
		if s.id != 0 {
			v.fail(keyTokens, "has %.40q twice, with ids %d and %d", t, s.id-1, id)
			return
		}
		*s = tokenSlot{hash, int32(id) + 1}
		if added, _ := v.added(id); !added && v.spm && len(t) > maxToken {
			v.fail(keyTokens, "has a token of %d bytes with id %d: at most %d were expected", len(t), id, maxToken)
			return
		}
	}
}

// tokenizerFiles returns tokenizer.json. With table, the vocabulary and the merges are in
// tokenizer.TableFile instead, a second file.
func (v *vocabulary) tokenizerFiles(table bool) ([]Asset, error) {
	var merges [][3]int32
	if v.spm && !v.merged {
		merges = v.spmMerges()
	} else {
		merges = v.listedMerges()
	}
	if v.err != nil {
		return nil, v.err
	}
	size := 1 << 16 // about the length of the text
	for _, t := range v.tokens {
		size += len(t) + 12
	}
	for _, m := range merges {
		size += len(v.tokens[m[2]]) + 8
	}
	w := &jsonWriter{data: make([]byte, 0, size)}
	w.open('{')
	w.member("version").value("1.0")
	w.member("truncation").value(nil)
	w.member("padding").value(nil)
	w.member("added_tokens").value(v.addedTokens())
	w.member("normalizer").value(v.normalizer())
	w.member("pre_tokenizer").value(v.preTokenizer())
	w.member("post_processor").value(v.postProcessor())
	w.member("decoder").value(v.decoder())
	w.member("model").open('{')
	w.member("type").value("BPE")
	w.member("dropout").value(nil)
	var unk any
	if v.spm && v.unk >= 0 {
		unk = v.tokens[v.unk]
	}
	w.member("unk_token").value(unk)
	w.member("continuing_subword_prefix").value(nil)
	w.member("end_of_word_suffix").value(nil)
	w.member("fuse_unk").value(v.spm)
	w.member("byte_fallback").value(v.spm)
	w.member("ignore_merges").value(v.pre != nil && v.pre.wholeWords)
	if !table {
		v.writeVocabulary(w, merges)
	}
	w.close('}')
	w.close('}')
	list := []Asset{{"tokenizer.json", w.data}}
	if table {
		t := tokenizer.Table{Tokens: slices.Clone(v.tokens), Merges: merges}
		for id := range t.Tokens {
			if v.absent(id) {
				t.Tokens[id] = ""
			}
		}
		list = append(list, Asset{tokenizer.TableFile, t.Encode()})
	}
	return list, w.err
}

func (v *vocabulary) writeVocabulary(w *jsonWriter, merges [][3]int32) {
	w.member("vocab").open('{')
	for id, t := range v.tokens {
		if !v.absent(id) {
			w.member(t).integer(id)
		}
	}
	w.close('}')
	w.member("merges").open('[')
	for _, m := range merges {
		w.open('[')
		w.text(v.tokens[m[0]])
		w.text(v.tokens[m[1]])
		w.close(']')
	}
	w.close(']')
}

// An object is a JSON object that is small enough to be made at once.
type object = map[string]any

func (v *vocabulary) addedTokens() []object {
	list := []object{}
	for id, t := range v.tokens {
		if found, special := v.added(id); found && t != "" {
			list = append(list, object{"id": id, "content": t, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": special})
		}
	}
	return list
}

// spaces is what sentencepiece has for a space.
const spaces = "\u2581"

func (v *vocabulary) normalizer() any {
	switch {
	case v.spm:
		steps := []object{{"type": "Replace", "pattern": object{"String": " "}, "content": spaces}}
		if v.prefix {
			steps = slices.Insert(steps, 0, object{"type": "Prepend", "prepend": spaces})
		}
		return object{"type": "Sequence", "normalizers": steps}
	case v.pre.nfc:
		return object{"type": "NFC"}
	}
	return nil
}

func (v *vocabulary) preTokenizer() any {
	if v.spm {
		return nil
	}
	steps := []object{}
	for _, p := range v.pre.patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	steps = append(steps, object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})
	return object{"type": "Sequence", "pretokenizers": steps}
}

// postProcessor puts BOS and EOS around a text.
func (v *vocabulary) postProcessor() any {
	text := object{"Sequence": object{"id": "A", "type_id": 0}}
	single, special := []object{text}, object{}
	add := func(id int) object {
		t := v.tokens[id]
		special[t] = object{"id": t, "ids": []int{id}, "tokens": []string{t}}
		return object{"SpecialToken": object{"id": t, "type_id": 0}}
	}
	if v.addBOS {
		single = slices.Insert(single, 0, add(v.bos))
	}
	if v.addEOS {
		single = append(single, add(v.eos))
	}
	return object{"type": "TemplateProcessing", "single": single, "pair": append(slices.Clone(single), object{"Sequence": object{"id": "B", "type_id": 1}}), "special_tokens": special}
}

func (v *vocabulary) decoder() any {
	if !v.spm {
		return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	}
	steps := []object{{"type": "Replace", "pattern": object{"String": spaces}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}}
	if v.prefix {
		steps = append(steps, object{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return object{"type": "Sequence", "decoders": steps}
}

const maxMerges = maxElements

// joins reports whether t is a+b.
func joins(t, a, b string) bool {
	return len(t) == len(a)+len(b) && t[:len(a)] == a && t[len(a):] == b
}

// listedMerges reads merges: two tokens separated by a space. Converters write added tokens of a
// sentencepiece model with spaces; merges of them never apply, because a text is divided at them
// first.
func (v *vocabulary) listedMerges() [][3]int32 {
	list := v.strings(keyMerges)
	if v.err == nil && !v.has(keyMerges) {
		v.fail(keyMerges, "is missing")
	}
	added := map[string]bool{}
	for id, t := range v.tokens {
		if v.merged && v.types[id] == tokenUserDefined {
			added[strings.ReplaceAll(t, " ", spaces)] = true
		}
	}
	return v.inParts(len(list), func(from, to int) ([][3]int32, error) { return v.listedPart(list[from:to], from, added) })
}

// listedPart is listedMerges for merges from number first on, without merges of added tokens.
func (v *vocabulary) listedPart(list []string, first int, added map[string]bool) ([][3]int32, error) {
	x, merges := v.index, make([][3]int32, 0, len(list))
	c := -1 // the token that the pair before makes
	for i, m := range list {
		at := -1
		if m != "" {
			at = strings.IndexByte(m[1:], ' ') // a token may begin with a space
		}
		if at < 0 {
			return nil, v.error(keyMerges, "has %.40q as element %d: two tokens with a space between them were expected", m, first+i)
		}
		a, b := m[:at+1], m[at+2:]
		if len(added) > 0 && (added[a] || added[b] || added[a+b]) {
			continue
		}
		left, right := x.hash(a), x.hash(b)
		l, hasLeft := x.id(left, a, "")
		r, hasRight := x.id(right, b, "")
		// Merges are usually in the order of the merged tokens.
		if c++; c >= len(v.tokens) || v.absent(c) || !joins(v.tokens[c], a, b) {
			c, _ = x.id(x.joined(left, right, len(b)), a, b)
		}
		if c < 0 || !hasLeft || !hasRight {
			return nil, v.error(keyMerges, "has %.40q as element %d, but not all of its tokens and what they make are in %s", m, first+i, keyTokens)
		}
		merges = append(merges, [3]int32{int32(l), int32(r), int32(c)})
	}
	return merges, nil
}
