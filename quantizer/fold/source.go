package fold

import (
	"fmt"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// source is a checkpoint whose weights are read.
type source struct {
	*safetensors.Checkpoint
	config []byte // nil: it has none
	block  [2]int // of FP8 weights with one scale
	tied   bool   // config.json says that the head is the table
}

func openSource(dir string) (*source, error) {
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	s := &source{Checkpoint: ck}
	if s.config, err = quantizer.ReadConfig(ck); err == nil && s.config != nil {
		var facts *arch.Config
		if facts, err = arch.ParseConfig(s.config); err == nil {
			s.block, s.tied = facts.WeightBlockSize, facts.TieWordEmbeddings
		} else {
			err = fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
		}
	}
	if err != nil {
		ck.Close()
		return nil, err
	}
	return s, nil
}

// scales are those of an FP8 tensor; nil if it has none.
func (s *source) scales(t safetensors.Tensor) (*safetensors.BlockScale, error) {
	if t.Dtype != packing.F8E4M3 && t.Dtype != packing.F8E5M2 {
		return nil, nil
	}
	return s.BlockScales(t.Name, s.block)
}

// reader reads rows of a tensor. It may be used by several goroutines.
func (s *source) reader(name string) (read func(dst []float32, row int) error, err error) {
	t, ok := s.Lookup(name)
	if !ok {
		return nil, &MismatchError{s.Dir(), fmt.Sprintf("tensor %q is missing", name)}
	}
	scale, err := s.scales(t)
	if err != nil {
		return nil, err
	}
	if scale == nil {
		return func(dst []float32, row int) error { return s.ReadRows(dst, t, row, 1) }, nil
	}
	return func(dst []float32, row int) error { return s.ReadScaledRows(dst, t, scale, row, 1) }, nil
}
