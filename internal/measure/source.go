package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/crc32c"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/fold"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/packing"
)

// MismatchError says that a .gqf was not made from this checkpoint.
type MismatchError struct {
	Checkpoint string // its directory or a file
	Tensor     string
	Msg        string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s does not belong to this .gqf: tensor %q %s", e.Checkpoint, e.Tensor, e.Msg)
}

// source is the checkpoint's tensor for a tensor of the file.
type source struct {
	ck      *safetensors.Checkpoint
	src     safetensors.Tensor
	weights *safetensors.Weights // nil for a tensor that is unquantized in the file
	crc     uint32               // checksum of the bytes according to the file, or 0
}

// sources finds the checkpoint's tensors by the names in the file.
type sources struct {
	ck        *safetensors.Checkpoint
	f         *gqf.File
	fold      map[int]gqf.Name // by tensor: its scales
	block     [2]int           // of FP8 scales
	embedding int              // index of the embedding in the file; -1: none
	long      func(name string) string
}

func newSources(ck *safetensors.Checkpoint, f *gqf.File) (*sources, error) {
	s := &sources{ck: ck, f: f, fold: map[int]gqf.Name{}, embedding: embeddingOf(f)}
	_, s.long = namesOf(ck)
	for n := range f.AllNames() {
		if n.Absorbed {
			s.fold[n.Tensor] = n
		}
	}
	if len(s.fold) == 0 {
		return s, nil
	}
	config, err := assets.ReadConfig(ck)
	if err != nil || config == nil {
		return s, err
	}
	c, err := arch.ParseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(ck.Dir(), assets.ConfigName), err)
	}
	s.block = c.WeightBlockSize
	return s, nil
}

// embeddingOf is the index of the embedding in a file; -1: none.
func embeddingOf(f *gqf.File) int {
	for i := range f.Len() {
		if f.Tensor(i).Role == gqf.RoleEmbedding {
			return i
		}
	}
	return -1
}

// name finds the name of a tensor in the checkpoint, or its canonical name.
func (s *sources) name(t gqf.Tensor) (found gqf.Name, ok bool) {
	for _, name := range t.Names() {
		if n, _ := s.f.FindName(name); n.InCheckpoint {
			if found, ok = n, true; name == t.Name {
				break
			}
		}
	}
	return found, ok
}

// find finds the weights of a tensor and checks their shape.
func (s *sources) find(t gqf.Tensor) (source, error) {
	if err := t.Usable(); err != nil {
		return source{}, err
	}
	name, ok := s.name(t)
	src, found := s.lookUp(name.Name)
	if !found && t.Role == gqf.RoleHead && s.embedding >= 0 {
		// The checkpoint's lm_head is the embedding. The file's lm_head is separate: by a rule, or
		// in the graph that the codes were taken from.
		name, ok = s.name(s.f.Tensor(s.embedding))
		src, found = s.lookUp(name.Name)
	}
	switch {
	case !ok:
		return source{}, &MismatchError{s.ck.Dir(), t.Name, "is under no name of a checkpoint's tensor"}
	case !found:
		return source{}, &MismatchError{s.ck.Dir(), name.Name, "is not in it"}
	}
	file := s.ck.Files()[src.File].Name
	if !slices.Equal(src.Shape, t.Shape) {
		return source{}, &MismatchError{file, name.Name, fmt.Sprintf("has shape %v there and %v in the .gqf", src.Shape, t.Shape)}
	}
	of := source{ck: s.ck, src: src, crc: name.SourceCRC}
	first, _ := t.Payload(0, 0, gqf.KindWeights)
	if first.Header.Layout == packing.LayoutPlain {
		return of, nil
	}
	if !src.Dtype.IsFloat() {
		return source{}, &MismatchError{file, name.Name, "is of dtype " + src.DtypeName + " there, which holds no weights"}
	}
	var err error
	of.weights, err = s.ck.Weights(src, safetensors.WeightsOptions{Block: s.block, Transposed: t.Transposed})
	if err != nil {
		return source{}, err
	}
	if fold := s.fold[t.Index].Name; fold != "" && of.weights.Scale == nil {
		return source{}, &MismatchError{file, name.Name, fmt.Sprintf("has no scales %q there", fold)}
	}
	return of, nil
}

// lookUp finds a tensor of the checkpoint by its name in the file.
func (s *sources) lookUp(name string) (t safetensors.Tensor, ok bool) {
	if t, ok = s.ck.Lookup(name); !ok {
		t, ok = s.ck.Lookup(s.long(name))
	}
	return t, ok
}

// scalesChanged reports whether a tensor has other FP8 scales in the checkpoint than in the file's
// record, or scales that cannot be read.
func (s *sources) scalesChanged(tensor int) (changed bool) {
	name := s.fold[tensor]
	if scales, ok := s.lookUp(name.Name); ok && name.SourceCRC != 0 {
		b, err := s.ck.Bytes(scales)
		return err != nil || s.ck.Guard(func() error { changed = crc32c.Checksum(b) != name.SourceCRC; return nil }) != nil || changed
	}
	return false
}

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
		add, end := j.stage(r, "fold", "folding", "bytes", ck.DataBytes()*int64(len(record.Steps)))
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

func (s *foldedSource) close() {
	if s == nil {
		return
	}
	if s.ck != nil {
		s.ck.Close()
	}
	if s.tmp != "" {
		os.RemoveAll(s.tmp)
	}
}
