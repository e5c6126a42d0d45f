package llamacpp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
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
	// Tensors are in the order of the file, with rows and columns in the checkpoint's order. Norms of
	// Gemma are less by 1. Otherwise the weights are as stored.
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
	// Transposed: Shape is of the transposed slices.
	Transposed bool
	// Columns is the order of the stored rows' elements.
	Columns Order
	// Elements: the rows of pieces are elements.
	Elements bool
	// Add is added to each element. Norms of Gemma are stored as weight + 1, rounded to float32: the
	// sum with -1 is exact, so the result is the weight if weight + 1 was exact. That holds for 0 and
	// for BF16 weights of at least 2^-16. Smaller weights come back with an error below 2^-24,
	// invisible to a forward pass that adds 1 again.
	Add    float32
	decay  bool      // elements are stored as -e^x
	pieces []Segment // in order of the rows
}

// A Segment is a part of a checkpoint's tensor: rows from First on of Stored.
type Segment struct {
	Part   // From is counted over all slices
	Stored *gguf.Tensor
	First  int
}

func compareFrom(s Segment, row int) int { return cmp.Compare(s.From, row) }

// Plain returns the row of Stored with which the tensor begins, if the rows follow in order.
func (t *CheckpointTensor) Plain() (first int, ok bool) {
	return t.pieces[0].First, len(t.pieces) == 1 && t.pieces[0].Same() && t.Columns.Head == 0 && !t.Transposed
}

// Segment returns the segment with row i, counted over all experts, and the row's number there.
func (t *CheckpointTensor) Segment(i int) (s *Segment, row int) {
	k, found := slices.BinarySearchFunc(t.pieces, i, compareFrom)
	if !found {
		k--
	}
	for ; ; k-- { // the rows of segments with steps alternate
		if row, ok := t.pieces[k].Find(i); ok {
			return &t.pieces[k], row
		}
	}
}

// At returns the tensor and the row that have row i of a tensor that is not Turned.
func (t *CheckpointTensor) At(i int) (stored *gguf.Tensor, row int) {
	s, row := t.Segment(i)
	return s.Stored, s.First + row
}

// Turned reports whether parts are transposed. The parts may then have two types: Stored has the
// quantized type, if any.
func (t *CheckpointTensor) Turned() bool { return t.pieces[0].Turned > 0 }

func (t *CheckpointTensor) Bytes() (n int64) {
	for _, p := range t.pieces {
		if t.Elements { // of a whole tensor
			n += p.Stored.Size
		} else {
			n += int64(p.Height()) * p.Stored.RowBytes()
		}
	}
	return n
}

// Same reports whether elements have the values that are stored.
func (t *CheckpointTensor) Same() bool { return t.Add == 0 && !t.decay && !t.Turned() }

// Restore changes stored elements to the elements of the tensor, but for Add.
func (t *CheckpointTensor) Restore(x []float32) {
	if t.decay {
		for i, v := range x {
			x[i] = float32(detmath.Log(-float64(v)))
		}
	}
}

// ReadCheckpoint is the inverse of [Describe]. Every key of the architecture and every tensor must
// be understood. Errors are a *KeyError with the key, an *arch.UnsupportedError, or name the
// tensor. With table, the vocabulary is in an asset tokenizer.TableFile instead of tokenizer.json.
func ReadCheckpoint(f *gguf.File, table bool) (c *Checkpoint, err error) {
	err = f.Guard(func() error {
		c, err = readCheckpoint(f, table)
		return err
	})
	return c, err
}

func readCheckpoint(f *gguf.File, table bool) (*Checkpoint, error) {
	r, err := newConfigReader(f)
	if err != nil {
		return nil, err
	}
	config, err := r.read()
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{}
	if err := c.addTokenizer(r, config, table); err != nil {
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
func (c *Checkpoint) addTokenizer(r *configReader, config object, table bool) error {
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
	list, err := v.tokenizerFiles(table)
	if err != nil {
		return err
	}
	c.Assets = append(c.Assets, list...)
	for _, part := range []struct {
		name string
		make func() ([]byte, error)
	}{{"tokenizer_config.json", v.tokenizerConfig}, {"generation_config.json", v.generationConfig}} {
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
	one := *fam.LlamaCpp
	has := func(name string) bool {
		return slices.ContainsFunc(f.Tensors, func(t *gguf.Tensor) bool { return strings.HasSuffix(t.Name, name) })
	}
	one.SplitLatents, one.SplitInputs = has(".attn_k_b.weight"), has(".attn_gate.weight")
	form := family{&one, fam.layer, fam.outer, fam.final}
	if err := layersThere(f, &form, config); err != nil {
		return nil, err
	}
	d := &describer{family: form, config: config, sources: map[string]Source{}, used: map[string]bool{}, invent: true}
	d.sources[embedding] = Source{Name: embedding, Shape: shape}
	if !config.Tied {
		d.sources[head] = Source{Name: head, Shape: shape}
	}
	if err := d.tensors(); err != nil {
		return nil, err
	}
	known := map[string]bool{ropeFreqs: true, ropeLong: true, ropeShort: true}
	var list []CheckpointTensor
	index := map[string]int{} // in list
	for _, t := range d.list {
		known[t.Name] = true
		stored := f.Tensor(t.Name)
		if stored == nil {
			return nil, missing(t.Name)
		}
		if !slices.Equal(trim(stored.Dims), trim(t.Shape)) {
			return nil, fmt.Errorf("tensor %q has the dimensions %v: the metadata give it %v", t.Name, stored.Dims, t.Shape)
		}
		first := 0
		for _, p := range t.Parts {
			i, ok := index[p.Source]
			if !ok {
				i, index[p.Source] = len(list), len(list)
				shape := d.sources[p.Source].Shape
				list = append(list, CheckpointTensor{Name: p.Source, Shape: shape, Stored: stored, Columns: p.Columns, Elements: p.Elements || len(shape) == 1, Add: -p.Add, decay: p.Decay})
			}
			if err := list[i].add(p, stored, first); err != nil {
				return nil, err
			}
			first += p.Height()
		}
	}
	for i := range list {
		if t := &list[i]; len(t.Shape) == 3 && t.Shape[1] > 1 && config.ExpertsTransposed() {
			t.Shape, t.Transposed = []int64{t.Shape[0], t.Shape[2], t.Shape[1]}, true
		}
	}
	for _, t := range f.Tensors {
		if !known[t.Name] && !predicts(f, t.Name, len(config.Layers)) {
			return nil, fmt.Errorf("tensor %q has no place in the model that the metadata describe (%s)", t.Name, fam.Name)
		}
	}
	return list, nil
}

// predicts reports whether a tensor is in a layer behind the last, to predict further tokens.
func predicts(f *gguf.File, name string, layers int) bool {
	architecture, _ := f.Text(gguf.KeyArchitecture)
	more, _ := f.Int(strings.Replace(keyPredictors, "ARCH", architecture, 1))
	number, _, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	n, err := strconv.Atoi(number)
	return err == nil && n >= layers && n < layers+int(more)
}

func (t *CheckpointTensor) add(p Part, stored *gguf.Tensor, first int) error {
	p.From += p.Slice * int(t.Shape[max(0, len(t.Shape)-2)])
	i, there := slices.BinarySearchFunc(t.pieces, p.From, compareFrom)
	if there { // a copy: a layer that borrows keys, or a token without a row
		return nil
	}
	if t.Stored.Type != stored.Type && len(t.pieces) > 0 && !t.Turned() {
		return fmt.Errorf("tensor %q has type %s and %q type %s: one type was expected for both", t.Stored.Name, t.Stored.Type, stored.Name, stored.Type)
	}
	if stored.Type.BlockWeights() > 1 {
		t.Stored = stored
	}
	t.pieces = slices.Insert(t.pieces, i, Segment{p, stored, first})
	return nil
}

// bare are kinds of tensors that have other suffixes than .weight in .gguf files, or none.
var bare = []arch.Kind{arch.RouterCorrection, arch.DeltaDecay, arch.DeltaBias, arch.MambaDecay, arch.MambaSkip, arch.MambaBias, arch.StreamScale, arch.RouterScale, arch.ExpertScale}

// layersThere checks that the layers have their matrices and norms, and as many experts and heads
// as the metadata say. A checkpoint has tensors for each expert, and a head has parts, so the list
// of tensors is made only for a file of that size.
func layersThere(f *gguf.File, fam *family, config *arch.ForwardConfig) error {
	for i := range config.Layers {
		for _, n := range fam.layer {
			if !config.Layers[i].Uses(n.Kind) || config.NameOf(n.Kind) == "" || n.GGUF == "" || strings.Contains(n.GGUF, " ") || slices.Contains(bare, n.Kind) {
				continue
			}
			theirs, rows := n.GGUF, 0
			if n.Kind == arch.KeyValueUp && fam.SplitLatents {
				theirs, rows = "attn_k_b", config.Heads*config.Latent.KeyRank
			} else if n.Kind == arch.DeltaQKVZ && fam.SplitInputs {
				theirs, rows = "attn_gate", config.DeltaNet.Inner()
			}
			name := fmt.Sprintf("blk.%d.%s%s", i, theirs, fam.suffix(n.Kind))
			t := f.Tensor(name)
			if t == nil {
				return missing(name)
			}
			if rows > 0 && t.Rows() != int64(rows) {
				return fmt.Errorf("tensor %q has the dimensions %v: the metadata give it %d rows", name, t.Dims, rows)
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
