package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/logits"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
)

// Saved is a file of reference logits: what a checkpoint's model predicts on a text.
type Saved struct {
	Name string // for reports and errors
	*logits.File
}

// ReferenceError says that saved reference logits do not suit the file or the text.
type ReferenceError struct{ Reference, Msg string }

func (e *ReferenceError) Error() string { return e.Reference + ": " + e.Msg }

func (s *Saved) errorf(format string, args ...any) error {
	return &ReferenceError{s.Name, fmt.Sprintf(format, args...)}
}

// SaveOptions are the options of SaveLogits. Text must be set.
type SaveOptions struct {
	Text    *TextSource
	Threads int    // Default: GOMAXPROCS
	Version string // the program's
	// Stage is called when scoring begins, as Job.Stage. Default: none.
	Stage func(name, unit string, total int64) (add func(n int64), end func())
}

// SaveLogits runs the model of the checkpoint in dir on a text and writes its predictions to w.
func SaveLogits(ctx context.Context, w io.Writer, dir string, o SaveOptions) (*logits.Header, error) {
	j := &Job{Settings: accuracy.Settings{Threads: o.Threads}, Source: dir}
	if err := j.runnable(); err != nil {
		return nil, err
	}
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	s := &scored{}
	defer s.close()
	if s.float, err = forward.OpenCheckpoint(dir, forward.Options{Threads: cpu.Threads(o.Threads)}); err != nil {
		return nil, err
	}
	if s.tokenizer, err = tokenizer.Open(dir); err != nil && !(o.Text.Tokens && errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	info, err := s.cut(ctx, o.Text)
	if err != nil {
		return nil, err
	}
	h := &logits.Header{
		Program: o.Version, Model: dir, Vocab: s.float.VocabSize(),
		Text: logits.Text{
			Name: info.Name, Source: info.Source, SHA256: info.SHA256, Convention: string(info.Convention), Window: info.Window,
			Stride: info.Stride, MaxTokens: o.Text.Options.MaxTokens,
		},
	}
	for name, to := range map[string]*string{"config.json": &h.Config, tokenizerName: &h.Tokenizer} {
		data, err := files.Read(filepath.Join(dir, name), files.MaxModelFile)
		switch {
		case err == nil:
			*to = hash(data)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if h.Tensors, err = SumTensors(ctx, ck); err != nil {
		return nil, err
	}
	add, end := func(int64) {}, func() {}
	if o.Stage != nil {
		add, end = o.Stage("scoring", "tokens", int64(info.Tokens))
	}
	defer end()
	return eval.SaveLogits(ctx, w, *h, s.float, s.texts[0].windows, s.texts[0].sizes, func(n int) { add(int64(n)) })
}

const tokenizerName = "tokenizer.json"

// SumTensors computes the CRC32C of each tensor's bytes, the checksum of .gqf files.
func SumTensors(ctx context.Context, ck *safetensors.Checkpoint) (map[string]uint32, error) {
	sums := map[string]uint32{}
	for _, t := range ck.Tensors() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := ck.Bytes(t)
		if err != nil {
			return nil, err
		}
		if err := ck.Guard(func() error { sums[t.Name] = crc32c.Checksum(b); return nil }); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// savedOf returns the saved predictions of text i. Without its own, a single text has Job.Saved.
func (j *Job) savedOf(i int) *Saved {
	if j.Saved != nil || i >= len(j.Texts) {
		return j.Saved
	}
	return j.Texts[i].Saved
}

// allSaved reports whether there is a text, and saved predictions of each.
func (j *Job) allSaved() bool {
	return j.Saved != nil || len(j.Texts) > 0 && !slices.ContainsFunc(j.Texts, func(t *TextSource) bool { return t.Saved == nil })
}

// checkSaved finds out before any work whether the saved predictions are of the checkpoint that the
// file was made from. r.Recorded counts the tensors with compared checksums.
func (j *Job) checkSaved(f *gqf.File, r *accuracy.Report) error {
	if j.Saved != nil && len(j.Texts) > 1 {
		return j.Saved.errorf("it has the predictions of one text: name that text alone, not %d texts", len(j.Texts))
	}
	for i := range max(len(j.Texts), 1) {
		s := j.savedOf(i)
		if s == nil {
			continue
		}
		if err := (text.Options{Convention: text.Convention(s.Text.Convention), Window: s.Text.Window, Stride: s.Text.Stride}).Check(); err != nil {
			return s.errorf("its header has %v", err)
		}
		if j.Source == "" && len(j.Choices) > 0 {
			return s.errorf("it has no answers to questions: name the checkpoint too")
		}
		compared, note, err := s.madeOf(f, r.File)
		if err != nil {
			return err
		}
		r.Recorded = max(r.Recorded, compared)
		if note != "" && !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
	return nil
}

// madeOf compares the checksums of the tensors of the saved predictions' checkpoint with the
// checksums that the file called name records. note says why no tensor could be compared.
func (s *Saved) madeOf(f *gqf.File, name string) (compared int, note string, err error) {
	if f.HasAsset(gqf.FoldName) {
		return 0, "the checkpoint was folded before it was quantized: its tensors cannot be compared with the checksums of " + s.Name, nil
	}
	for n := range f.AllNames() {
		sum, ok := s.Tensors[n.Name]
		if !n.InCheckpoint || n.SourceCRC == 0 || !ok {
			continue
		}
		if sum != n.SourceCRC {
			return 0, "", s.errorf("it has predictions of %s, whose tensor %q has other bytes than the checkpoint that %s was made of", s.Model, n.Name, name)
		}
		compared++
	}
	if compared == 0 {
		note = fmt.Sprintf("it records no checksums of its checkpoint's tensors: whether that is the checkpoint of %s is not known", s.Name)
	}
	return compared, note, nil
}

func (j *Job) savedText(s *scored, f *gqf.File, r *accuracy.Report) error {
	saved := j.Saved
	if err := saved.sameVocabulary(s, r); err != nil {
		return err
	}
	if err := j.savedTokenizer(f, r); err != nil {
		return err
	}
	t := saved.Text
	windows, sizes := eval.Windows(saved.File)
	r.Text = &accuracy.TextInfo{
		Name: t.Name, Source: t.Source, SHA256: t.SHA256, Convention: text.Convention(t.Convention), Window: t.Window, Stride: t.Stride,
		Reference: saved.Name,
	}
	s.add(r.Text, windows, sizes)
	return nil
}

// sameVocabulary refuses predictions over another vocabulary than the quantized model's.
func (s *Saved) sameVocabulary(of *scored, r *accuracy.Report) error {
	if v := of.quantized.VocabSize(); v != s.Vocab {
		return s.errorf("its predictions are of %d tokens, the vocabulary of %s has %d", s.Vocab, r.File, v)
	}
	return nil
}

// sameText refuses predictions of another text than info's text, cut into windows.
func (s *Saved) sameText(info *accuracy.TextInfo, windows []text.Window) error {
	same := func(a text.Window, b logits.Window) bool {
		return a.First == b.First && slices.Equal(a.Tokens, b.Tokens)
	}
	switch t := s.Text; {
	case info.SHA256 != t.SHA256:
		return s.errorf("it is of the text %s with SHA-256 %.16s..., %s has %.16s...", t.Name, t.SHA256, info.Name, info.SHA256)
	case string(info.Convention) != t.Convention || info.Window != t.Window || info.Stride != t.Stride:
		return s.errorf("it is of %s, the text is cut into %s: use the same convention, window and stride",
			cutOf(t.Convention, t.Window, t.Stride), cutOf(string(info.Convention), info.Window, info.Stride))
	case !slices.EqualFunc(windows, s.Windows, same):
		return s.errorf("the text gives %d windows with %d scored tokens, it has %d with %d, or other tokens: is the tokenizer another, or max-tokens (%d there)?",
			len(windows), info.Tokens, len(s.Windows), s.Scored, t.MaxTokens)
	}
	info.Reference = s.Name
	return nil
}

func cutOf(convention string, window, stride int) string {
	s := fmt.Sprintf("%s of %d tokens", convention, window)
	if stride != 0 {
		s += fmt.Sprintf(", one every %d", stride)
	}
	return s
}

// savedTokenizer refuses a file with another tokenizer: tokens cannot be compared without the text.
func (j *Job) savedTokenizer(f *gqf.File, r *accuracy.Report) error {
	if j.Imported != nil || j.Saved.Tokenizer == "" || !f.HasAsset(tokenizerName) {
		return nil
	}
	own, err := f.Asset(tokenizerName)
	if err != nil {
		return err
	}
	if h := hash(own); h != j.Saved.Tokenizer {
		return j.Saved.errorf("its tokenizer.json has SHA-256 %.16s..., the one in %s %.16s...", j.Saved.Tokenizer, r.File, h)
	}
	return nil
}
