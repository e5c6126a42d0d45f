package llamacpp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
)

// Checkpoint is the model of a GGUF file in the form of a Hugging Face checkpoint.
type Checkpoint struct {
	// Assets are config.json and, if the file has a tokenizer, tokenizer.json,
	// tokenizer_config.json and generation_config.json. The last is CardFile, if the file has facts
	// for it.
	Assets []Asset
	// Tensors are in the order of the file. Rows of q and k are in the checkpoint's order, and norms
	// of Gemma are less by 1. Otherwise the weights are as stored.
	Tensors []CheckpointTensor
}

// Asset is a small file of a checkpoint.
type Asset struct {
	Name string
	Data []byte
}

// CheckpointTensor is a tensor of a checkpoint, and its place in a GGUF file. The rows of a vector
// are its elements.
type CheckpointTensor struct {
	Name   string
	Shape  []int64
	Stored *gguf.Tensor
	// First is the first of Rows rows of Stored, counted over all its slices.
	First, Rows int
	// Add is added to each element. Norms of Gemma are stored as weight + 1, rounded to float32: the
	// sum with -1 is exact, so the result is the weight if weight + 1 was exact. That holds for 0 and
	// for BF16 weights of at least 2^-16. Smaller weights come back with an error below 2^-24,
	// invisible to a forward pass that adds 1 again.
	Add   float32
	decay bool // elements are stored as -e^x
	// Split is set if two tensors hold the rows of the heads' keys and values.
	Split *Split

	pieces  []fusedRows // of fused experts, in order; nil: the rows are rows of Stored
	headDim int
}

// fusedRows is a range of rows of fused experts: rows from first on of stored.
type fusedRows struct {
	at     int // the first row of the checkpoint's tensor, counted over all experts
	stored *gguf.Tensor
	first  int
}

// Fused reports whether the tensor holds experts that are parts of several tensors of the file.
func (t *CheckpointTensor) Fused() bool { return t.pieces != nil }

// At returns the tensor and the row that have row i, counted over all experts.
func (t *CheckpointTensor) At(i int) (stored *gguf.Tensor, row int) {
	if t.pieces == nil {
		return t.Stored, t.Row(i)
	}
	k, found := slices.BinarySearchFunc(t.pieces, i, func(p fusedRows, i int) int { return cmp.Compare(p.at, i) })
	if !found {
		k--
	}
	return t.pieces[k].stored, t.pieces[k].first + i - t.pieces[k].at
}

// Split has the keys and values of latents as llama.cpp's converter stores them, Stored being Keys.
// Its rows are those of the heads: of each, Nope rows of keys, and then Value rows of values.
type Split struct {
	// Keys has a matrix of each head, [columns][Nope], and Values one of [Value][columns].
	Keys, Values *gguf.Tensor
	Nope, Value  int
}

// splitOf finds the tensors of a Split in place of the tensor name, or returns nil.
func splitOf(f *gguf.File, name string, c *arch.ForwardConfig) *Split {
	layer, ok := strings.CutSuffix(name, "attn_kv_b.weight")
	a := c.Latent
	if !ok || a == nil {
		return nil
	}
	s := &Split{f.Tensor(layer + "attn_k_b.weight"), f.Tensor(layer + "attn_v_b.weight"), a.Nope, a.Value}
	heads := int64(c.Heads)
	if s.Keys == nil || s.Values == nil || !slices.Equal(trim(s.Keys.Dims), trim([]int64{int64(a.Nope), int64(a.KeyRank), heads})) ||
		!slices.Equal(trim(s.Values.Dims), trim([]int64{int64(a.KeyRank), int64(a.Value), heads})) {
		return nil
	}
	return s
}

// Row returns the row of Stored that has row i of the tensor.
func (t *CheckpointTensor) Row(i int) int {
	p := Part{HeadDim: t.headDim}
	return t.First + p.PartRow(i)
}

func (t *CheckpointTensor) Bytes() int64 {
	switch {
	case len(t.Shape) == 1:
		return t.Stored.Size
	case t.Split != nil:
		return t.Split.Keys.Size + t.Split.Values.Size
	}
	return int64(t.Rows) * t.Stored.RowBytes()
}

// Same reports whether elements have the values that are stored.
func (t *CheckpointTensor) Same() bool { return t.Add == 0 && !t.decay && t.Split == nil }

// Restore changes stored elements to the elements of the tensor, but for Add.
func (t *CheckpointTensor) Restore(x []float32) {
	if t.decay {
		for i, v := range x {
			x[i] = float32(detmath.Log(-float64(v)))
		}
	}
}

// Permuted reports whether the rows are in another order in Stored.
func (t *CheckpointTensor) Permuted() bool { return t.headDim != 0 }

// ReadCheckpoint is the inverse of [Describe]. Every key of the architecture and every tensor must
// be understood. Errors are a *KeyError with the key, an *arch.UnsupportedError, or name the
// tensor.
func ReadCheckpoint(f *gguf.File) (c *Checkpoint, err error) {
	err = f.Guard(func() error {
		c, err = readCheckpoint(f)
		return err
	})
	return c, err
}

func readCheckpoint(f *gguf.File) (*Checkpoint, error) {
	r, err := newConfigReader(f)
	if err != nil {
		return nil, err
	}
	config, err := r.read()
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{}
	if err := c.addTokenizer(r, config); err != nil {
		return nil, err
	}
	data, err := encode(config)
	if err != nil {
		return nil, err
	}
	c.Assets = slices.Insert(c.Assets, 0, Asset{"config.json", data})
	forward, err := arch.ParseForward(data)
	if err != nil {
		return nil, fmt.Errorf("the metadata give a config.json that is wrong: %w", err)
	}
	if c.Tensors, err = invert(f, &r.family, forward); err != nil {
		return nil, err
	}
	card, err := readCard(f)
	if card != nil {
		c.Assets = append(c.Assets, Asset{CardFile, card})
	}
	return c, err
}

// addTokenizer adds the files of the tokenizer, and its special tokens to config.json.
func (c *Checkpoint) addTokenizer(r *configReader, config object) error {
	v := readVocabulary(&r.keyReader)
	if r.err != nil {
		return r.err
	}
	if v == nil {
		return nil
	}
	if err := CheckTokens(r.file); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		make func() ([]byte, error)
	}{{"tokenizer.json", v.tokenizerJSON}, {"tokenizer_config.json", v.tokenizerConfig}, {"generation_config.json", v.generationConfig}} {
		data, err := part.make()
		if err != nil {
			return err
		}
		c.Assets = append(c.Assets, Asset{part.name, data})
	}
	for key, id := range map[string]int{"bos_token_id": v.bos, "eos_token_id": v.eos} {
		if id >= 0 {
			config[key] = id
		}
	}
	return nil
}

// CheckTokens returns a *KeyError if a GGUF file has more tokens than rows of the embedding. It
// reads no token.
func CheckTokens(f *gguf.File) error {
	tokens, _ := f.Array(keyTokens)
	if t := f.Tensor(Embedding); t != nil && int64(tokens.Len) > t.Rows() {
		return &KeyError{keyTokens, fmt.Sprintf("has %d tokens, but tensor %q has %d rows", tokens.Len, Embedding, t.Rows())}
	}
	return nil
}

// invert lists the checkpoint's tensors: Describe would store these as the tensors of the file.
func invert(f *gguf.File, fam *family, config *arch.ForwardConfig) ([]CheckpointTensor, error) {
	embedding, head := config.Facts.Prefix.Embedding, config.Facts.Prefix.Head
	shape := []int64{int64(config.VocabSize), int64(config.HiddenSize)}
	if err := layersThere(f, fam, config); err != nil {
		return nil, err
	}
	d := &describer{family: *fam, config: config, sources: map[string]Source{}, used: map[string]bool{}, invent: true}
	d.sources[embedding] = Source{Name: embedding, Shape: shape}
	if !config.Tied {
		d.sources[head] = Source{Name: head, Shape: shape}
	}
	if err := d.tensors(); err != nil {
		return nil, err
	}
	known := map[string]bool{ropeFreqs: true, ropeLong: true, ropeShort: true}
	var list []CheckpointTensor
	fused := map[string]int{} // index in list
	seen := map[string]bool{} // a source may have copies
	for _, t := range d.list {
		known[t.Name] = true
		stored := f.Tensor(t.Name)
		if stored != nil && len(t.Parts) == 1 && seen[t.Parts[0].Source] && t.Parts[0].From == 0 {
			continue
		}
		seen[t.Parts[0].Source] = true
		if split := splitOf(f, t.Name, config); stored == nil && split != nil {
			known[split.Keys.Name], known[split.Values.Name] = true, true
			source := t.Parts[0].Source
			list = append(list, CheckpointTensor{Name: source, Shape: d.sources[source].Shape, Stored: split.Keys, Rows: t.Parts[0].Rows, Split: split})
			continue
		}
		if stored == nil {
			return nil, missing(t.Name)
		}
		if !slices.Equal(trim(stored.Dims), trim(t.Shape)) {
			return nil, fmt.Errorf("tensor %q has the dimensions %v: the metadata give it %v", t.Name, stored.Dims, t.Shape)
		}
		first := 0
		for i, p := range t.Parts {
			// Tokens without a row have row 0.
			if i > 0 && p.From == 0 && p.Slice == 0 && p.Source == t.Parts[0].Source {
				break
			}
			shape := d.sources[p.Source].Shape
			if t := (Tensor{Shape: shape}); len(shape) > 1 && int64(p.Rows) < t.Elements()/shape[len(shape)-1] {
				if err := fuse(&list, fused, p, shape, stored, first); err != nil {
					return nil, err
				}
			} else {
				list = append(list, CheckpointTensor{Name: p.Source, Shape: shape, Stored: stored, First: first, Rows: p.Rows, Add: -p.Add, headDim: p.HeadDim, decay: p.Decay})
			}
			first += p.Rows
		}
	}
	for _, t := range f.Tensors {
		if !known[t.Name] {
			return nil, fmt.Errorf("tensor %q has no place in the model that the metadata describe (%s)", t.Name, fam.Name)
		}
	}
	return list, nil
}

func fuse(list *[]CheckpointTensor, index map[string]int, p Part, shape []int64, stored *gguf.Tensor, first int) error {
	i, ok := index[p.Source]
	if !ok {
		i = len(*list)
		index[p.Source] = i
		whole := Tensor{Shape: shape}
		*list = append(*list, CheckpointTensor{Name: p.Source, Shape: shape, Stored: stored, Rows: int(whole.Elements() / shape[len(shape)-1])})
	}
	t := &(*list)[i]
	if t.Stored.Type != stored.Type {
		return fmt.Errorf("tensor %q has type %s and %q type %s: one type was expected for both", t.Stored.Name, t.Stored.Type, stored.Name, stored.Type)
	}
	t.pieces = append(t.pieces, fusedRows{p.Slice*int(shape[1]) + p.From, stored, first})
	slices.SortFunc(t.pieces, func(a, b fusedRows) int { return cmp.Compare(a.at, b.at) })
	return nil
}

// bare are kinds of tensors that have other suffixes than .weight in .gguf files, or none.
var bare = []arch.Kind{arch.RouterCorrection, arch.DeltaDecay, arch.DeltaBias, arch.MambaDecay, arch.MambaSkip, arch.MambaBias, arch.StreamScale, arch.RouterScale, arch.ExpertScale}

// layersThere checks that the layers have their matrices and norms, and as many experts as the
// metadata say. A checkpoint has tensors for each expert, so the list of tensors is made only for a
// file of that size.
func layersThere(f *gguf.File, fam *family, config *arch.ForwardConfig) error {
	for i := range config.Layers {
		for _, n := range fam.layer {
			if !config.Layers[i].Uses(n.Kind) || config.NameOf(n.Kind) == "" || n.GGUF == "" || strings.Contains(n.GGUF, " ") || slices.Contains(bare, n.Kind) {
				continue
			}
			name := fmt.Sprintf("blk.%d.%s%s", i, n.GGUF, fam.suffix(n.Kind))
			t := f.Tensor(name)
			if t == nil && splitOf(f, name, config) != nil {
				continue
			}
			if t == nil {
				return missing(name)
			}
			if e := config.Experts; n.Kind >= arch.GateExperts && n.Kind <= arch.DownExperts && (len(t.Dims) < 3 || t.Dims[2] != int64(e.Count)) && e.Count > 1 {
				return fmt.Errorf("tensor %q has the dimensions %v: the metadata give it %d experts", name, t.Dims, e.Count)
			}
		}
	}
	return nil
}

func missing(name string) error {
	return fmt.Errorf("tensor %q is missing: the model that the metadata describe has one", name)
}

// trim cuts off dimensions of 1 at the end: GGUF files may or may not have these.
func trim(dims []int64) []int64 {
	for len(dims) > 1 && dims[len(dims)-1] == 1 {
		dims = dims[:len(dims)-1]
	}
	return dims
}
