package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// foldedSource is the folded checkpoint that a file was quantized from. The file's tensors are
// compared with the folded checkpoint instead of the checkpoint that the user names.
type foldedSource struct {
	ck  *safetensors.Checkpoint
	tmp string // to be removed
}

// folded opens or makes the folded checkpoint of a file, or returns nil for unfolded sources.
func (j *Job) folded(ctx context.Context, ck *safetensors.Checkpoint, f *gqf.File, r *accuracy.Report) (_ *foldedSource, err error) {
	if !f.HasAsset(gqf.FoldName) {
		return nil, nil
	}
	raw, err := f.Asset(gqf.FoldName)
	if err != nil {
		return nil, err
	}
	record, err := fold.ParseRecord(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.File, err)
	}
	r.Fold = record.String()
	s := &foldedSource{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	dir := j.Folded
	if dir == "" {
		if s.tmp, err = os.MkdirTemp("", "gq-fold"); err != nil {
			return nil, err
		}
		size := int64(0)
		for _, t := range ck.Tensors() {
			size += t.Size
		}
		add, end := j.stage(r, "fold", "folding", "bytes", size*int64(len(record.Steps)))
		defer end()
		dir = filepath.Join(s.tmp, "checkpoint")
		if err := fold.Apply(ctx, ck.Dir(), dir, record, fold.Options{Threads: j.Threads, Progress: add}); err != nil {
			return nil, fmt.Errorf("%s was folded before it was quantized (%s): %w", r.File, r.Fold, err)
		}
	}
	if s.ck, err = safetensors.Open(dir, safetensors.Options{}); err != nil {
		return nil, err
	}
	return s, nil
}

// model opens the folded model: the file's weights are multiplied with its activations.
func (s *foldedSource) model(threads int) (*forward.Model, error) {
	return forward.OpenCheckpoint(s.ck.Dir(), forward.Options{Threads: threads})
}

func (s *foldedSource) close() {
	if s.ck != nil {
		s.ck.Close()
	}
	if s.tmp != "" {
		os.RemoveAll(s.tmp)
	}
}
