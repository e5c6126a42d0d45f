package fold

import (
	"fmt"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// source is a checkpoint whose weights are read.
type source struct {
	*safetensors.Checkpoint
	config []byte // nil: it has none
	block  [2]int // of FP8 weights with one scale
	tied   bool   // config.json ties lm_head to the embedding
}

func openSource(dir string) (*source, error) {
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	s := &source{Checkpoint: ck}
	if s.config, err = conversion.ReadConfig(ck); err == nil && s.config != nil {
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

// weights opens a tensor. A missing tensor is an error.
func (s *source) weights(name string) (*safetensors.Weights, error) {
	t, ok := s.Lookup(name)
	if !ok {
		return nil, &MismatchError{s.Dir(), fmt.Sprintf("tensor %q is missing", name)}
	}
	return s.Weights(t, safetensors.WeightsOptions{Block: s.block})
}
