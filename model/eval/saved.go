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
// text; SaveLogits sets the vocabulary and the counts. progress is called with the number of tokens
// scored since the last call.
func SaveLogits(ctx context.Context, w io.Writer, h logits.Header, float *model.Model, windows []text.Window, progress func(n int)) error {
	longest := 0
	list := make([]logits.Window, len(windows))
	for i, win := range windows {
		longest = max(longest, len(win.Tokens))
		list[i] = logits.Window(win)
	}
	h.Vocab = float.VocabSize()
	out, err := logits.NewWriter(w, h, list)
	if err != nil {
		return err
	}
	s := newScorer([]*model.Model{float}, longest)
	for i, win := range windows {
		s.reset()
		if err := s.context(win); err != nil {
			return err
		}
		for at := win.First - 1; at < len(win.Tokens)-1; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(s.chunk, len(win.Tokens)-1-at)
			if err := s.forward(i, win, at, n); err != nil {
				return err
			}
			for row := range n {
				if err := out.Add(s.logits[0][row*h.Vocab:][:h.Vocab]); err != nil {
					return fmt.Errorf("the model: %w", err)
				}
			}
			at += n
		}
		if progress != nil {
			progress(win.Scored())
		}
	}
	return out.Close()
}

// Windows returns the windows of saved predictions.
func Windows(f *logits.File) []text.Window {
	list := make([]text.Window, len(f.Windows))
	for i, w := range f.Windows {
		list[i] = text.Window(w)
	}
	return list
}
