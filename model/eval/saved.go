package eval

import (
	"context"
	"fmt"
	"io"

	"github.com/lowbit-go/gq/formats/logits"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/text"
)

// SaveLogits writes the float model's predictions of the windows to w. h describes the model and the
// text; SaveLogits sets its vocabulary and its counts, and returns it. sizes are the sizes of the
// windows' texts, or nil. progress is called with the number of tokens scored since the last call.
func SaveLogits(ctx context.Context, w io.Writer, h logits.Header, float *model.Model, windows []text.Window, sizes []text.Size, progress func(n int)) (*logits.Header, error) {
	list := make([]logits.Window, len(windows))
	for i, win := range windows {
		list[i] = logits.Window{Tokens: win.Tokens, First: win.First}
		if sizes != nil {
			list[i].Bytes, list[i].Words = sizes[i].Bytes, sizes[i].Words
		}
	}
	h.Vocab = float.VocabSize()
	out, err := logits.NewWriter(w, h, list)
	if err != nil {
		return nil, err
	}
	s := newScorer([]*model.Model{float}, longest(windows))
	for i, win := range windows {
		err := s.predict(ctx, i, win, func(_, row int) error {
			if err := out.Add(s.logits[0][row*h.Vocab:][:h.Vocab]); err != nil {
				return fmt.Errorf("the model: %w", err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		progress(win.Scored())
	}
	return out.Header(), out.Close()
}

// Windows returns the windows of saved predictions, and the sizes of their texts, or nil if the
// sizes are not known.
func Windows(f *logits.File) (windows []text.Window, sizes []text.Size) {
	known := false
	for _, w := range f.Windows {
		windows = append(windows, text.Window{Tokens: w.Tokens, First: w.First})
		sizes = append(sizes, text.Size{Bytes: w.Bytes, Words: w.Words})
		known = known || w.Bytes > 0
	}
	if !known {
		sizes = nil
	}
	return windows, sizes
}
