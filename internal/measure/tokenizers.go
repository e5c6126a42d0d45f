package measure

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// tokenizerFiles are the files that decide which ids a text has.
var tokenizerFiles = []string{tokenizerName, "tokenizer_config.json", "special_tokens_map.json", "generation_config.json"}

// compareTokenizers notes how the file's tokenizer differs from the checkpoint's.
func (j *Job) compareTokenizers(f *gqf.File, r *accuracy.Report) {
	if !isDir(j.Source) || j.sameTokenizerFiles(f) {
		return
	}
	ours, err := tokenizer.Open(j.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("the tokenizers cannot be compared: %v", err))
		return
	}
	theirs, err := tokenizer.Read(f.Asset)
	var notes []string
	switch {
	case errors.Is(err, fs.ErrNotExist):
		notes = []string{"the file holds no tokenizer, the checkpoint does"}
		if len(j.Texts) == 0 && len(j.Choices) == 0 {
			r.Notes = append(r.Notes, notes...)
			return
		}
	case err != nil:
		notes = []string{fmt.Sprintf("the file's tokenizer cannot be read: %v", err)}
	default:
		ids := max(ours.VocabSize(), theirs.VocabSize())
		if i := embeddingOf(f); i >= 0 { // a .gguf file has no tokens beyond
			ids = min(ids, int(f.Tensor(i).Shape[0]))
		}
		notes = tokenizerNotes(ours, theirs, int32(ids), j.sample()+hardText)
	}
	r.Notes = append(r.Notes, notes...)
	r.TokenizerDiffers = strings.Join(notes, "; ")
}

// sameTokenizerFiles reports whether the file has the checkpoint's tokenizer byte for byte.
func (j *Job) sameTokenizerFiles(f *gqf.File) bool {
	return !slices.ContainsFunc(tokenizerFiles, func(name string) bool {
		ours, errOurs := files.Read(filepath.Join(j.Source, name), files.MaxModelFile)
		theirs, errTheirs := f.Asset(name)
		return (errOurs == nil) != (errTheirs == nil) || !bytes.Equal(ours, theirs)
	})
}

// sampleBytes is how much of the text the two tokenizers encode.
const sampleBytes = 1 << 16

// hardText follows the sample. Tokenizers divide its digits, letters and spaces differently.
const hardText = "\nWe'll  see: 1234567 x\u00b2 + 3.14,\t\u00c9cole na\u00efve\r\n\n  if (a_b != CamelCase) { return; }   \u6771\u4eac\u306b \u041f\u0440\u0438\u0432\u0435\u0442 \U0001f600!!! "

// sample is the beginning of the first text that is not token ids.
func (j *Job) sample() string {
	for _, t := range j.Texts {
		if !t.Tokens {
			return strings.ToValidUTF8(string(t.Data[:min(len(t.Data), sampleBytes)]), "")
		}
	}
	return ""
}

// tokenizerNotes compares the first ids, the special tokens, the merges and the ids of a text.
func tokenizerNotes(ours, theirs *tokenizer.Tokenizer, ids int32, text string) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	first, count := int32(-1), 0
	for id := range ids {
		a, b := spacesMarked(ours.Token(id)), spacesMarked(theirs.Token(id))
		if unused := a == "" && strings.HasPrefix(b, "[PAD"); a != b && !unused {
			if count++; first < 0 {
				first = id
			}
		}
	}
	if count > 0 {
		note("%d tokens differ from the checkpoint's, first id %d: %.40q, not %.40q", count, first, theirs.Token(first), ours.Token(first))
	}
	for _, role := range []struct {
		name string
		of   func(*tokenizer.Tokenizer) (int32, bool)
	}{{"BOS", (*tokenizer.Tokenizer).BOS}, {"EOS", (*tokenizer.Tokenizer).EOS}} {
		a, okA := role.of(ours)
		b, okB := role.of(theirs)
		if okA && okB && a != b {
			note("the file's %s is token %d, the checkpoint's %d", role.name, b, a)
		}
	}
	if a, b := beginsWithBOS(ours), beginsWithBOS(theirs); a != b {
		note("texts begin with a BOS: %t by the file's tokenizer, %t by the checkpoint's", b, a)
	}
	if otherMerges(ours, theirs, ids) {
		note("the file's tokenizer has other merges than the checkpoint's")
	}
	a, errA := ours.Encode(text, tokenizer.Options{})
	b, errB := theirs.Encode(text, tokenizer.Options{})
	if errA != nil || errB != nil || slices.Equal(a, b) {
		return notes
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	note("the file's tokenizer divides the text in another way, from token %d on: figures use the checkpoint's", at)
	return notes
}

func beginsWithBOS(t *tokenizer.Tokenizer) bool {
	_, ok, err := t.FirstBOS()
	return ok && err == nil
}

// otherMerges reports whether two tokenizers merge other tokens, or in another order. A .gguf file
// has scores of SentencePiece's tokens, and all pairs that make a token follow from these, token by
// token: there the order of the tokens is compared.
func otherMerges(ours, theirs *tokenizer.Tokenizer, ids int32) bool {
	if slices.Equal(merges(ours), merges(theirs)) {
		return false
	}
	made := map[int32]bool{}
	want, _ := mergedTokens(ours, func(id int32) bool {
		_, a := ours.Added(id)
		_, b := theirs.Added(id)
		made[id] = id < ids && !a && !b
		return made[id]
	})
	have, scored := mergedTokens(theirs, func(id int32) bool { return made[id] })
	return ours.ByteLevel() || theirs.ByteLevel() || !scored || !slices.Equal(want, have)
}

// mergedTokens lists the tokens that merges make, best first; scored: with adjacent merges.
func mergedTokens(t *tokenizer.Tokenizer, keep func(id int32) bool) (list []int32, scored bool) {
	scored = true
	seen := map[int32]bool{}
	for a, b := range t.Merges() {
		switch id, _ := t.Merged(a, b); {
		case !keep(id):
		case !seen[id]:
			list, seen[id] = append(list, id), true
		default:
			scored = scored && id == list[len(list)-1]
		}
	}
	return list, scored
}

func merges(t *tokenizer.Tokenizer) (list [][2]int32) {
	for a, b := range t.Merges() {
		list = append(list, [2]int32{a, b})
	}
	return list
}

// spacesMarked writes SentencePiece's spaces; tokens that llama.cpp finds in text have plain ones.
func spacesMarked(token string) string { return strings.ReplaceAll(token, " ", "\u2581") }
