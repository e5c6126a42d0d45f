package accuracy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/model/tokenizer"
	"github.com/lowbit-go/gq/packing"
)

// Imported describes a GGUF file or a quantized checkpoint for which Job.File, a .gqf file made from it,
// stands.
type Imported struct {
	Bytes int64 // of all files
	// Tensors are the tensors by their names in a checkpoint.
	Tensors map[string]ImportedTensor
}

// ImportedTensor is a tensor as the GGUF file or the quantized checkpoint stores it.
type ImportedTensor struct {
	Type      string // of ggml, or the scheme in a checkpoint, or a dtype
	Quantized bool
	Bits      int // of a code
	Group     int // weights that share a scale; 0: the row
	Bytes     int64
}

// describe makes the figures of a tensor say how its file stores it. The .gqf file has a quantized
// tensor whose codes it cannot hold in float32.
func (im *Imported) describe(s *TensorStats) {
	t, ok := im.Tensors[s.Name]
	if !ok {
		return
	}
	s.Bytes, s.BPW = t.Bytes, packing.BitsPerWeight(t.Bytes, s.Rows*s.Cols)
	if !s.Unquantized {
		return
	}
	if t.Quantized {
		s.Unquantized, s.Equal, s.Difference = false, false, ""
		s.Layout, s.Mapping, s.Algorithm = t.Type, gqf.MappingOther.String(), gqf.AlgorithmOther.String()
		s.Bits, s.Group = t.Bits, t.Group
		s.NoOutput = "computed in float32"
		return
	}
	// The same numbers in another dtype. A norm that was stored as weight + 1 was rounded then.
	if s.SQNR == Exact || s.Role == gqf.RoleNorm.String() && s.SQNR > leastDecibels && s.MaxError <= 0x1p-24 {
		s.Equal, s.Tuned, s.Difference = true, false, ""
	}
}

// notes say how the tokenizer and the tensors of an imported file differ from the checkpoint's.
func (j *Job) notes(ck *safetensors.Checkpoint, f *gqf.File) ([]string, error) {
	notes, err := missingTensors(ck, f)
	if err != nil {
		return nil, err
	}
	if !isDir(j.Source) {
		return notes, nil
	}
	ours, err := tokenizer.Open(j.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return notes, nil
	}
	if err != nil {
		return append(notes, fmt.Sprintf("the tokenizers cannot be compared: %v", err)), nil
	}
	theirs, err := tokenizer.Read(f.Asset)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return append(notes, "the file holds no tokenizer, the checkpoint does"), nil
	case err != nil:
		return append(notes, fmt.Sprintf("the file's tokenizer cannot be read: %v", err)), nil
	}
	return append(notes, tokenizerNotes(ours, theirs, j.sample())...), nil
}

// missingTensors lists tensors of the checkpoint that the file lacks.
func missingTensors(ck *safetensors.Checkpoint, f *gqf.File) ([]string, error) {
	names := newPrefixes(ck)
	var missing []string
	for _, t := range ck.Tensors() {
		name := names.short(t.Name)
		have, ok := f.Lookup(name)
		switch {
		case arch.Ignorable(t.Name):
		case !ok:
			if weight, scale := arch.ScaleOf(t.Name); scale {
				if _, ok := f.Lookup(names.short(weight)); ok {
					continue
				}
			}
			missing = append(missing, t.Name)
		case have.Name != name: // the lm_head, which is the embedding in the file
			same, err := sameTensor(ck, t, names.long(have.Name))
			if err != nil {
				return nil, err
			}
			if !same {
				missing = append(missing, t.Name)
			}
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	more := ""
	if len(missing) > 1 {
		more = fmt.Sprintf(" and %d more", len(missing)-1)
	}
	return []string{fmt.Sprintf("the checkpoint has tensor %q%s, which the file does not", missing[0], more)}, nil
}

func sameTensor(ck *safetensors.Checkpoint, a safetensors.Tensor, name string) (same bool, err error) {
	b, ok := ck.Lookup(name)
	if !ok || a.Dtype != b.Dtype || !slices.Equal(a.Shape, b.Shape) {
		return false, nil
	}
	x, err := ck.Bytes(a)
	if err != nil {
		return false, err
	}
	y, err := ck.Bytes(b)
	if err != nil {
		return false, err
	}
	err = ck.Guard(func() error { same = bytes.Equal(x, y); return nil })
	return same, err
}

// prefixes translate names between a checkpoint and a model that is not part of a multimodal one.
type prefixes struct{ body, head string }

func newPrefixes(ck *safetensors.Checkpoint) prefixes {
	body, head, err := arch.Prefix(func(name string) bool { _, ok := ck.Lookup(name); return ok })
	if err != nil {
		return prefixes{plainBody, plainHead}
	}
	return prefixes{body, head}
}

const (
	plainBody = "model."
	plainHead = "lm_head.weight"
)

// short returns the name in the file, long the name in the checkpoint.
func (p prefixes) short(name string) string {
	if name == p.head {
		return plainHead
	}
	if rest, ok := strings.CutPrefix(name, p.body); ok {
		return plainBody + rest
	}
	return name
}

func (p prefixes) long(name string) string {
	if name == plainHead {
		return p.head
	}
	if rest, ok := strings.CutPrefix(name, plainBody); ok {
		return p.body + rest
	}
	return name
}

// sampleBytes is how much of the text the two tokenizers encode.
const sampleBytes = 1 << 16

// sample is the beginning of the first text that is not token ids.
func (j *Job) sample() string {
	for _, t := range j.Texts {
		if !t.Tokens {
			return strings.ToValidUTF8(string(t.Data[:min(len(t.Data), sampleBytes)]), "")
		}
	}
	return ""
}

// tokenizerNotes compares the tokens, the special tokens and the ids of a text.
func tokenizerNotes(ours, theirs *tokenizer.Tokenizer, text string) (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	first, count := int32(-1), 0
	for id := range int32(max(ours.VocabSize(), theirs.VocabSize())) {
		a, b := spacesMarked(ours.Token(id)), spacesMarked(theirs.Token(id))
		if a != "" && a != b {
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

// spacesMarked writes spaces as SentencePiece does: llama.cpp has plain ones in tokens that it finds
// in the text itself.
func spacesMarked(token string) string { return strings.ReplaceAll(token, " ", "\u2581") }
