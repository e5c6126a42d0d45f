package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// A Layout says in which file of a checkpoint, and where in it, each tensor is to be written.
type Layout struct {
	Shards []Shard
	Places []Place // of the tensors, in the order of the specs

	specs []TensorSpec
}

// A Shard is one file to be written.
type Shard struct {
	Name   string // model.safetensors, or model-00001-of-00003.safetensors and so on
	Header []byte // the first bytes of the file
	Size   int64  // of the file
}

// A Place is where a tensor's data lie.
type Place struct {
	Shard  int   // index in Layout.Shards
	Offset int64 // in the file
	Size   int64
}

// NewLayout places tensors. They go into files in the order given. Within a file tensors with wider
// elements come first, so that all are aligned; otherwise the order stays. opts.Beside has no
// effect.
func NewLayout(tensors []TensorSpec, opts WriteOptions) (*Layout, error) {
	l := &Layout{specs: tensors, Places: make([]Place, len(tensors))}
	if err := l.distribute(opts.MaxShardBytes); err != nil {
		return nil, err
	}
	metadata := map[string]string{"format": "pt"}
	for k, v := range opts.Metadata {
		metadata[k] = v
	}
	return l, l.place(metadata)
}

// name returns the name of tensor i.
func (l *Layout) name(i int) string { return l.specs[i].Name }

// distribute checks the specs and distributes them over shards.
func (l *Layout) distribute(maxShardBytes int64) error {
	if maxShardBytes < 0 {
		return fmt.Errorf("safetensors: shards of at most %d bytes", maxShardBytes)
	}
	seen := make(map[string]bool, len(l.specs))
	l.Shards = []Shard{{}}
	for i, spec := range l.specs {
		size, ok := dataSize(spec.Dtype, spec.Shape)
		if negative := slices.ContainsFunc(spec.Shape, func(d int64) bool { return d < 0 }); negative || !ok || spec.Dtype.Bits() == 0 {
			return fmt.Errorf("safetensors: tensor %s cannot be of dtype %s and shape %v", quote(spec.Name), spec.Dtype, spec.Shape)
		}
		if spec.Name == "" || spec.Name == "__metadata__" || seen[spec.Name] {
			return fmt.Errorf("safetensors: tensor name %s is empty, reserved or repeated", quote(spec.Name))
		}
		seen[spec.Name] = true
		last := &l.Shards[len(l.Shards)-1]
		if maxShardBytes > 0 && last.Size > 0 && size > maxShardBytes-last.Size {
			l.Shards = append(l.Shards, Shard{})
			last = &l.Shards[len(l.Shards)-1]
		}
		if last.Size+size < 0 {
			return errors.New("safetensors: the tensors together exceed 2^63 bytes")
		}
		last.Size += size
		l.Places[i] = Place{Shard: len(l.Shards) - 1, Size: size}
	}
	for i := range l.Shards {
		l.Shards[i].Name = SingleName
		if len(l.Shards) > 1 {
			l.Shards[i].Name = fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(l.Shards), fileSuffix)
		}
	}
	return nil
}

// place sets the offset of each tensor in its file and makes the headers.
func (l *Layout) place(metadata map[string]string) error {
	members := make([][]int, len(l.Shards))
	for i, p := range l.Places {
		members[p.Shard] = append(members[p.Shard], i)
	}
	for i, list := range members {
		slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(l.specs[b].Dtype.Bits(), l.specs[a].Dtype.Bits()) })
		header, err := l.makeHeader(list, metadata)
		if err != nil {
			return err
		}
		l.Shards[i].Header = header
		l.Shards[i].Size += int64(len(header))
		for _, t := range list {
			l.Places[t].Offset += int64(len(header))
		}
	}
	return nil
}
