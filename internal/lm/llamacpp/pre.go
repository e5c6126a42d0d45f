package llamacpp

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/suggest"
)

// preText is the text by which llama.cpp's converter identifies a pre-tokenizer. Another text would
// have other hashes.
const preText = "\n \n\n \n\n\n \t \t\t \t\n  \n   \n    \n     \n\U0001f680 (normal) \U0001f636" +
	"\u200d\U0001f32b\ufe0f (multiple emojis concatenated) ✅ \U0001f999\U0001f999 3 33 33" +
	"3 3333 33333 333333 3333333 33333333 3.3 3..3 3...3 \u1780\u17b6\u1793\u17cb\u178f" +
	"\u17c2\u1796\u17b7\u179f\u17c1\u179f\u17a2\u17b6\u1785\U0001f601 ?我想在apple工作1314151天" +
	"～ ------======= нещо на Български ''''''```````\"\"\"\"......!!!!!!?????? I've been " +
	"'told he's there, 'RE you sure? 'M not sure I'll make it, 'D you like some tea? We'V" +
	"e a'lL"

// PreError reports a byte-level tokenizer with an unknown pre-tokenizer.
type PreError struct {
	Hash string   // of the ids of llama.cpp's test text
	Near []string // names of pre-tokenizers that divide the text alike, best first
	Same bool     // the first of Near divides the text in exactly the same way
}

func (e *PreError) Error() string {
	near := "pre-tokenizers that divide llama.cpp's test text most alike are "
	if e.Same {
		near = "pre-tokenizers that divide llama.cpp's test text in the same way are "
	}
	return fmt.Sprintf("llama.cpp's name for the pre-tokenizer of tokenizer.json is unknown (hash %s): give it with --pre; %s%s", e.Hash, near, strings.Join(e.Near, ", "))
}

// preName returns the value of tokenizer.ggml.pre. given is the user's choice, or "".
func preName(t *tokenizer.Tokenizer, given string) (string, error) {
	if given != "" {
		if names := preNames(); !slices.Contains(names, given) {
			return "", fmt.Errorf("llama.cpp has no pre-tokenizer named %q%s", given, suggest.DidYouMean(given, names))
		}
		return given, nil
	}
	ids, err := t.Encode(preText, tokenizer.Options{})
	if err != nil {
		return "", err
	}
	first, name := "", ""
	for _, with := range surrounded(t, ids) {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(strings.Fields(fmt.Sprint(with)), ", "))))
		first = cmp.Or(first, hash)
		// Two names may differ only in whether a word that is a token is built by merges.
		found, ok := preHashes()[hash]
		if p := findPretokenizer(found); ok && (name == "" || (p != nil && p.wholeWords) == t.IgnoreMerges()) {
			name = found
		}
	}
	if name != "" {
		return name, nil
	}
	near, same := nearNames(t)
	return "", &PreError{Hash: first, Near: near, Same: same}
}

// surrounded returns the ids with the tokens that the tokenizer puts around a text, without any,
// and with BOS. A fine-tuned model may add other tokens around a text than the model with the known
// hash; the pre-tokenizer is the same.
func surrounded(t *tokenizer.Tokenizer, ids []int32) [][]int32 {
	before, after := around(t)
	list := [][]int32{slices.Concat(before, ids, after), ids}
	if bos, ok := t.BOS(); ok {
		list = append(list, append([]int32{bos}, ids...))
	}
	return list
}

// around returns the tokens that the tokenizer puts around a text.
func around(t *tokenizer.Tokenizer) (before, after []int32) {
	const text = "a"
	plain, err := t.Encode(text, tokenizer.Options{})
	all, err2 := t.Encode(text, tokenizer.Options{AddSpecial: true})
	if err != nil || err2 != nil || len(plain) == 0 {
		return nil, nil
	}
	for i := 0; i+len(plain) <= len(all); i++ {
		if slices.Equal(all[i:i+len(plain)], plain) {
			before, after = all[:i], all[i+len(plain):]
			break
		}
	}
	if bos, ok := t.BOS(); ok && t.AddsBOS() {
		before = append([]int32{bos}, before...)
	}
	if eos, ok := t.EOS(); ok && t.AddsEOS() {
		after = append(slices.Clone(after), eos)
	}
	return before, after
}

// nearNames returns the names of the three pre-tokenizers that divide preText most like t, or of
// all that divide preText in the same way.
func nearNames(t *tokenizer.Tokenizer) (names []string, same bool) {
	mine := cuts(t)
	type near struct {
		names []string
		far   int
	}
	var list []near
	for _, p := range pretokenizers {
		v := &vocabulary{pre: &p}
		raw, err := encode(object{
			"model":         object{"type": "BPE", "vocab": object{}, "merges": []string{}},
			"pre_tokenizer": v.preTokenizer(), "normalizer": v.normalizer(), "decoder": v.decoder(),
		})
		if err != nil {
			continue
		}
		other, err := tokenizer.ParseFiles(tokenizer.Files{Tokenizer: raw})
		if err != nil {
			continue
		}
		theirs := cuts(other)
		far := len(theirs) + len(mine)
		for at := range theirs {
			if mine[at] {
				far -= 2
			}
		}
		list = append(list, near{p.names, far})
	}
	slices.SortStableFunc(list, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	same = list[0].far == 0
	for i, n := range list {
		if same && n.far == 0 {
			names = append(names, n.names...)
		} else if !same && i < 3 {
			names = append(names, n.names[0])
		}
	}
	return names, same
}

// cuts returns the places where the pre-tokenizers of t divide preText.
func cuts(t *tokenizer.Tokenizer) map[int]bool {
	words, err := t.Words(preText)
	if err != nil {
		return nil
	}
	set, at := map[int]bool{}, 0
	for _, w := range words {
		set[at] = true
		at += len(w)
	}
	return set
}
