package fold

import (
	"fmt"
	"path/filepath"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// source is an open checkpoint with its config.
type source struct {
	*safetensors.Checkpoint
	config []byte // nil without config.json
	block  [2]int // of FP8 weights with a scale
	tied   bool   // config.json ties lm_head to the embedding
}

func openSource(dir string) (*source, error) {
	ck, err := safetensors.Open(dir, safetensors.Options{})
	if err != nil {
		return nil, err
	}
	s := &source{Checkpoint: ck}
	if s.config, err = assets.ReadConfig(ck); err == nil && s.config != nil {
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

func (s *source) weights(name string) (*safetensors.Weights, error) {
	t, ok := s.Lookup(name)
	if !ok {
		return nil, &MismatchError{s.Dir(), fmt.Sprintf("tensor %q is missing", name)}
	}
	return s.Weights(t, safetensors.WeightsOptions{Block: s.block})
}
