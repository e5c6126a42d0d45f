package conversion

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/splitmix"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/arch"
)

// ReadBack says how a .gguf file was compared with its source before it appeared.
type ReadBack struct {
	Tokens int `json:"tokens"`
	// Difference is the largest difference between logits of the source and of the file, as
	// llama.cpp computes them, as a part of the position's largest logit. It leaves out positions that
	// Rerouted counts.
	Difference float64 `json:"logits_difference"`
	// Rerouted counts the positions whose logits differ by more, because a router of a mixture of
	// experts chose between two that are equal but for rounding, there or at an earlier position.
	Rerouted int `json:"rerouted,omitempty"`
}

// Tokens and limits of the comparison. The first position says little: it attends to itself alone.
const (
	readBackTokens = 8
	// maxDifference is a part of the largest logit. Both models have the same weights and compute in
	// float32; only sums of queries and keys have another order. Random models of every architecture
	// and the trained ones differ by 2e-6 at most; with rows of q and k in the wrong order, or norms
	// without 1, by 0.3 and more.
	maxDifference = 1e-3
	// minCorrelation is between a row of the checkpoint and its codes: 0.8 at 1 bit, and within 4 /
	// sqrt(columns) of 0 for the codes of another row.
	minCorrelation = 0.25
	sampledRows    = 16 // of a matrix
)

// readBackLayers is the number of layers that compute: two, or as many as have all kinds of layers
// (windows, ropes). Rows of all layers are compared.
func readBackLayers(config []byte) (int, error) {
	c, err := arch.ParseForward(config)
	if err != nil {
		return 0, err
	}
	seen := map[arch.LayerConfig]bool{}
	n := 2
	for i, l := range c.Layers {
		if !seen[l] {
			seen[l] = true
			n = max(n, i+1)
		}
	}
	return n, nil
}

// readBack opens the complete temporaries of a .gguf file, whose paths are to be paths, and compares
// a few tokens' logits with the source's. The file computes as llama.cpp does: see
// [model.OpenGGUF]. The source is the .gqf file, or the checkpoint with the file's codes.
func (o *ggufOutput) readBack(temps *temporaries, paths []string, c *CalibratedCodes) (*ReadBack, error) {
	f, err := gguf.OpenAt(paths[0], func(path string) string {
		if i := slices.Index(paths, path); i >= 0 {
			return temps.files[i].Temp()
		}
		return path
	})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Guard(func() error { return o.compareAll(f, c) }); err != nil {
		return nil, err
	}
	layers, err := readBackLayers(o.config)
	if err != nil {
		return nil, err
	}
	opts := model.Options{Threads: o.Plan.opts.Threads, Activations: model.Float32, Log: func(kernels.Choice) {}, Layers: layers}
	want, err := o.reference(f, opts, c)
	if err != nil {
		return nil, err
	}
	defer want.Close()
	got, err := model.OpenGGUF(f, opts)
	if err != nil {
		return nil, err
	}
	defer got.Close()
	return compareLogits(want, got)
}

// compareLogits runs both models on the same tokens. With experts, a router may choose between two
// that are equal but for rounding, which changes the logits of this position and of later ones: some
// positions may then differ.
func compareLogits(want, got *model.Model) (*ReadBack, error) {
	c := want.Config()
	tokens := make([]int32, readBackTokens)
	random := splitmix.Source(1)
	for i := range tokens {
		tokens[i] = int32(random.Next() % uint64(c.VocabSize))
	}
	var logits [2][]float32
	for i, m := range []*model.Model{want, got} {
		if m.VocabSize() != c.VocabSize {
			return nil, fmt.Errorf("the model has %d logits, %d were expected", m.VocabSize(), c.VocabSize)
		}
		logits[i] = make([]float32, len(tokens)*c.VocabSize)
		if err := m.NewSession(len(tokens)).Forward(tokens, logits[i], true); err != nil {
			return nil, err
		}
	}
	return judge(logits[0], logits[1], c.VocabSize, c.Experts != nil)
}

// judge compares the logits of all positions. Of a mixture of experts half of them may differ.
func judge(want, got []float32, vocab int, experts bool) (*ReadBack, error) {
	r := &ReadBack{Tokens: len(want) / vocab}
	worst := 0.0 // of all positions; NaN stays
	for t := range r.Tokens {
		d := difference(want[t*vocab:][:vocab], got[t*vocab:][:vocab])
		if worst = max(worst, d); d <= maxDifference {
			r.Difference = max(r.Difference, d)
		} else {
			r.Rerouted++
		}
	}
	if r.Rerouted > 0 && (!experts || r.Rerouted > r.Tokens/2) {
		return nil, fmt.Errorf("its logits on %d tokens differ from the source's by up to %.2g of the largest, %g at most was expected: this is a defect of gq, please report it with the model's name",
			r.Tokens, worst, maxDifference)
	}
	return r, nil
}

// difference is the largest difference between logits, as a part of the largest finite one; NaN if
// only one side has numbers. Models whose logits are no numbers on both sides are equal.
func difference(want, got []float32) float64 {
	worst, largest := 0.0, 0.0
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.Float32bits(w) == math.Float32bits(got[i]) || w != w && got[i] != got[i] {
			d = 0
		}
		if math.IsNaN(d) {
			return d
		}
		worst = max(worst, d)
		if floats.Finite(w) {
			largest = max(largest, math.Abs(float64(w)))
		}
	}
	if largest == 0 {
		return worst
	}
	return worst / largest
}

// reference opens the source, with the codes that the file holds.
func (o *ggufOutput) reference(f *gguf.File, opts model.Options, c *CalibratedCodes) (*model.Model, error) {
	switch in := o.in.(type) {
	case *fileInput:
		return model.OpenGQF(in.gqf, opts)
	case checkpointInput:
		m, err := model.OpenCheckpoint(in.ck.Dir(), opts)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(o.setCodes(m, f), o.setGains(m, c)); err != nil {
			m.Close()
			return nil, err
		}
		return m, nil
	}
	return nil, &arch.UnsupportedError{Msg: fmt.Sprintf("%s is neither a checkpoint nor a .gqf file", o.from.root())}
}

// setCodes replaces the quantized linear layers and the quantized embedding of a checkpoint's model
// by the file's codes.
func (o *ggufOutput) setCodes(m *model.Model, f *gguf.File) error {
	var embedding, lmHead *entry
	for _, it := range o.items {
		switch e := it.common(); e.role {
		case gqf.RoleEmbedding:
			embedding = e
		case gqf.RoleHead:
			lmHead = e
		}
	}
	for _, it := range o.items {
		q, ok := it.(*quantized)
		if !ok {
			continue
		}
		names := linears(m, &q.entry, embedding, lmHead)
		for slice, regions := range o.regions[q.index] {
			rows, err := o.storedRows(f, regions)
			if err != nil {
				return err
			}
			for _, name := range names {
				if q.slices > 1 {
					name = fmt.Sprintf("%s[%d]", name, slice)
				}
				if err := setRows(m, name, int(q.rows), int(q.cols), rows); err != nil {
					return err
				}
			}
			if q.role == gqf.RoleEmbedding {
				m.SetEmbedding(embeddingRows{f, rows})
			}
		}
	}
	return nil
}

// setGains replaces gains of norms by tuned ones.
func (o *ggufOutput) setGains(m *model.Model, c *CalibratedCodes) error {
	norms := map[string]bool{}
	for _, n := range m.Norms() {
		norms[n.Tensor] = true
	}
	for _, it := range o.items {
		e := it.common()
		own := c.vector(e)
		if own == nil || !norms[e.src.Name] { // of a layer that does not run here
			continue
		}
		gains := make([]float32, e.src.Numel())
		safetensors.Widen(gains, own, e.src.Dtype)
		if _, err := m.SetNorm(e.src.Name, gains); err != nil {
			return err
		}
	}
	return nil
}

// linears are the names that a checkpoint's model may have for the linear layer of an item. The
// file and the checkpoint may differ in whether the embedding is the lm_head too. embedding and
// lmHead are nil if the file has none.
func linears(m *model.Model, e, embedding, lmHead *entry) []string {
	switch {
	case e == embedding && lmHead != nil:
		return nil
	case e == lmHead && embedding != nil && m.Linear(e.name()) == nil:
		return []string{embedding.name()}
	}
	return e.names()
}

// embeddingRows is an embedding whose rows are read from the file.
type embeddingRows struct {
	file *gguf.File
	read func(dst []float32, row int)
}

func (e embeddingRows) Lookup(dst []float32, row int) error {
	return e.file.Guard(func() error { e.read(dst, row); return nil })
}

// setRows replaces a linear layer, if the tensor is one: an embedding is only if it is tied.
func setRows(m *model.Model, name string, rows, cols int, read func(dst []float32, row int)) error {
	if m.Linear(name) == nil {
		return nil
	}
	op, err := kernels.NewRows(rows, cols, read, nil, kernels.Options{Log: func(kernels.Choice) {}})
	if err == nil {
		_, err = m.SetLinear(name, op, false)
	}
	return err
}

// storedRows returns a function that decodes row n of a slice, whose places are regions, from the
// file.
func (o *ggufOutput) storedRows(f *gguf.File, regions []region) (func(dst []float32, row int), error) {
	tensors := make([]*gguf.Tensor, len(regions))
	for i, r := range regions {
		if tensors[i] = f.Tensor(o.model.Tensors[r.tensor].Name); tensors[i] == nil {
			return nil, fmt.Errorf("tensor %q is missing", o.model.Tensors[r.tensor].Name)
		}
	}
	return func(dst []float32, row int) {
		for i, r := range regions {
			if row < r.From || row >= r.From+r.Rows {
				continue
			}
			size := int64(tensors[i].Type.Size(int64(len(dst))))
			at := (r.row + int64(r.PartRow(row-r.From))) * size
			if err := tensors[i].Type.Decode(dst, f.Data(tensors[i])[at:at+size]); err != nil {
				panic(err) // a type that this program wrote, in whole blocks
			}
			return
		}
	}, nil
}

// compareAll compares sampled rows of all tensors with the source's.
func (o *ggufOutput) compareAll(f *gguf.File, c *CalibratedCodes) error {
	for _, it := range o.items {
		n, rows, cols := sizes(it)
		for slice := range n {
			regions := o.regions[it.common().index][slice]
			stored, err := o.storedRows(f, regions)
			if err != nil {
				return err
			}
			source, exact, err := o.sourceRows(it, slice, c)
			if err != nil {
				return err
			}
			add := float32(0)
			if exact { // an unquantized tensor has one region, or regions of experts, without a sum
				add = regions[0].Add
			}
			if err := compareRows(it.common().name(), rows, cols, exact, add, source, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizes returns the number of an item's slices, and the shape of each.
func sizes(it item) (n, rows, cols int) {
	switch it := it.(type) {
	case *quantized:
		return it.slices, int(it.rows), int(it.cols)
	case *unquantized:
		return it.slices, int(it.rows), int(it.cols)
	}
	return 0, 0, 0
}

// sourceRows returns a function that reads a row of a slice of the source. exact: the file has the
// same weights, not codes of them.
func (o *ggufOutput) sourceRows(it item, slice int, c *CalibratedCodes) (read func(dst []float32, row int) error, exact bool, err error) {
	if u, ok := it.(*unquantized); ok {
		read, err := c.reader(o.from, u)
		return func(dst []float32, row int) error {
			return o.from.guard(func() error { read(dst, slice, int64(row), 1); return nil })
		}, true, err
	}
	q := it.(*quantized)
	switch in := o.in.(type) {
	case *fileInput:
		rows, err := in.gqf.Tensor(q.index).Rows(0, slice)
		return func(dst []float32, row int) error {
			return in.guard(func() error { rows.Dequantize(dst, row); return nil })
		}, true, err
	case checkpointInput:
		w, err := in.ck.Weights(*q.src, safetensors.WeightsOptions{Block: in.scaleBlock, Transposed: q.transposed})
		return func(dst []float32, row int) error { return w.Read(dst, slice*int(q.rows)+row, 1) }, false, err
	}
	return nil, false, &arch.UnsupportedError{Msg: fmt.Sprintf("%s is neither a checkpoint nor a .gqf file", o.from.root())}
}

// compareRows compares sampled rows of a matrix: codes of other rows do not correlate with the
// source's, and unquantized rows are equal but for add.
func compareRows(name string, rows, cols int, exact bool, add float32, source func(dst []float32, row int) error, stored func(dst []float32, row int)) error {
	n := min(rows, sampledRows)
	want, got := make([]float32, cols), make([]float32, cols)
	wrong, seen := 0, 0
	for i := range n {
		row := i * (rows - 1) / max(1, n-1)
		if err := source(want, row); err != nil {
			return err
		}
		stored(got, row)
		if exact {
			for j := range want {
				want[j] += add
			}
		}
		alike, ok := similar(want, got, exact)
		if ok {
			seen++
		}
		if ok && !alike {
			wrong++
		}
	}
	if 4*wrong > seen || exact && wrong > 0 {
		return fmt.Errorf("%d of %d rows of tensor %q are not what the source has: this is a defect of gq, please report it with the model's name", wrong, seen, name)
	}
	return nil
}

// similar reports whether a row is the source's; ok is false if a row of zeros has no direction.
func similar(want, got []float32, exact bool) (alike, ok bool) {
	if !exact {
		r, ok := correlation(want, got)
		return r >= minCorrelation, ok
	}
	for i, w := range want {
		if w != got[i] && (w == w || got[i] == got[i]) { // NaN may have other bits
			return false, true
		}
	}
	return true, true
}

// correlation is the cosine between two rows; ok is false if one is zero.
func correlation(a, b []float32) (r float64, ok bool) {
	var ab, aa, bb float64
	for i, x := range a {
		y := float64(b[i])
		ab += float64(float64(x) * y)
		aa += float64(float64(x) * float64(x))
		bb += float64(y * y)
	}
	if aa == 0 || bb == 0 {
		return 0, false
	}
	return ab / math.Sqrt(aa*bb), true
}

// notRun returns the reason why a file cannot be read back, or "" for a failure.
func notRun(err error) string {
	if u, ok := errors.AsType[*arch.UnsupportedError](err); ok {
		return u.Msg
	}
	return ""
}
