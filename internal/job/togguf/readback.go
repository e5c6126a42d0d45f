package togguf

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/floats"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
)

// Tokens and limits of the comparison. The first position says little: it attends to itself alone.
const (
	ReadBackTokens = 8
	// maxDifference is a part of the largest logit. Both models have the same weights and compute in
	// float32; only sums of queries and keys have another order. Random models of every architecture
	// and the trained ones differ by 2e-6 at most; with rows of q and k in the wrong order, or norms
	// without 1, by 0.3 and more.
	maxDifference = 1e-3
	// minCorrelation is between a row of the checkpoint and its codes: 0.8 at 1 bit, and within 4 /
	// sqrt(columns) of 0 for the codes of another row.
	minCorrelation = 0.25
	SampledRows    = 16 // of a matrix
)

// ReadBackLayers is the number of layers that compute: two, or as many as have all kinds of layers
// (windows, ropes). Rows of all layers are compared.
func ReadBackLayers(config []byte) (int, error) {
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

// readBack opens the complete temporaries of a .gguf file for paths, and compares
// a few tokens' logits with the source's. The file computes as llama.cpp does: see
// [forward.OpenGGUF]. The source is the .gqf file, or the checkpoint with the file's codes.
func (o *Output) readBack(paths []string, w *write.Written) (*write.ReadBack, error) {
	c := w.Codes
	f, err := gguf.OpenAt(paths[0], func(path string) string {
		if i := slices.Index(paths, path); i >= 0 {
			return w.Temp(i)
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
	layers, err := ReadBackLayers(o.Config)
	if err != nil {
		return nil, err
	}
	opts := forward.Options{Threads: o.Threads, Activations: forward.Float32, Log: func(kernels.Choice) {}, Layers: layers, LlamaCpp: true}
	want, err := o.reference(f, opts, c)
	if err != nil {
		return nil, err
	}
	defer want.Close()
	got, err := forward.OpenGGUF(f, opts)
	if err != nil {
		return nil, err
	}
	defer got.Close()
	return compareLogits(want, got)
}

// compareLogits runs both models on the same tokens. With experts, a router may choose between two
// that are equal but for rounding, which changes the logits of this position and of later ones:
// some positions may then differ.
func compareLogits(want, got *forward.Model) (*write.ReadBack, error) {
	c := want.Config()
	tokens := make([]int32, ReadBackTokens)
	random := detmath.Source(1)
	for i := range tokens {
		tokens[i] = int32(random.Next() % uint64(c.VocabSize))
	}
	var logits [2][]float32
	for i, m := range []*forward.Model{want, got} {
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
func judge(want, got []float32, vocab int, experts bool) (*write.ReadBack, error) {
	r := &write.ReadBack{Tokens: len(want) / vocab}
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
func (o *Output) reference(f *gguf.File, opts forward.Options, c *plan.Codes) (m *forward.Model, err error) {
	if m, err = o.from.OpenModel(opts); err != nil {
		return nil, err
	}
	if err := errors.Join(o.setCodes(m, f), o.setGains(m, c)); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// setCodes replaces the linear layers and the embedding of the source's model by the file's rows,
// where these are F16 instead of F32, or codes of a checkpoint's weights.
func (o *Output) setCodes(m *forward.Model, f *gguf.File) error {
	var embedding, lmHead *plan.Entry
	for _, it := range o.Items {
		switch e := it.Common(); {
		case m.IsEmbedding(e.Name()):
			embedding = e
		case e.Role == gqf.RoleHead:
			lmHead = e
		}
	}
	weights := o.from.Facts().Weights
	for _, it := range o.Items {
		e := it.Common()
		_, codes := it.(*plan.Quantized)
		if !e.Unfit && (!codes || !weights) {
			continue
		}
		n, rows, cols := sizes(it)
		names := linears(m, e, embedding, lmHead)
		for slice, regions := range o.Regions[e.Index] {
			read, err := o.storedRows(f, regions)
			if err != nil {
				return err
			}
			read = o.Factors[e.Src.Name].Divided(read)
			for _, name := range names {
				if n > 1 {
					name = fmt.Sprintf("%s[%d]", name, slice)
				}
				if err := setRows(m, name, rows, cols, read); err != nil {
					return err
				}
			}
			if table := m.Table(e.Name()); table != nil {
				*table = embeddingRows{f, read}
			}
		}
	}
	return nil
}

func (o *Output) setGains(m *forward.Model, c *plan.Codes) error {
	norms := map[string]bool{}
	for _, n := range m.Norms() {
		norms[n.Tensor] = true
	}
	for _, it := range o.Items {
		e := it.Common()
		own := c.Vector(e)
		if own == nil || !norms[e.Src.Name] { // of a layer that does not run here
			continue
		}
		gains := make([]float32, e.Src.Numel())
		safetensors.Widen(gains, own, e.Src.Dtype)
		if _, err := m.SetNorm(e.Src.Name, gains); err != nil {
			return err
		}
	}
	return nil
}

// linears are the names that a checkpoint's model may have for the linear layer of an item. The
// file and the checkpoint may differ in whether the embedding is the lm_head too. embedding and
// lmHead are nil if the file has none.
func linears(m *forward.Model, e, embedding, lmHead *plan.Entry) []string {
	switch {
	case e == embedding && lmHead != nil:
		return nil
	case e == lmHead && embedding != nil && m.Linear(e.Name()) == nil:
		return []string{embedding.Name()}
	}
	return e.Names()
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
func setRows(m *forward.Model, name string, rows, cols int, read func(dst []float32, row int)) error {
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
func (o *Output) storedRows(f *gguf.File, regions []Region) (func(dst []float32, row int), error) {
	tensors := make([]*gguf.Tensor, len(regions))
	for i, r := range regions {
		if tensors[i] = f.Tensor(o.Model.Tensors[r.Tensor].Name); tensors[i] == nil {
			return nil, fmt.Errorf("tensor %q is missing", o.Model.Tensors[r.Tensor].Name)
		}
	}
	return func(dst []float32, row int) {
		for i, r := range regions {
			own, ok := r.Find(row)
			if !ok {
				continue
			}
			if r.Turned > 0 {
				size := int(tensors[i].Type.Size(1))
				for c := range dst {
					at := ((int(r.row)+c)*r.Rows + own) * size
					if err := tensors[i].Type.Decode(dst[c:c+1], f.Data(tensors[i])[at:at+size]); err != nil {
						panic(err)
					}
				}
				return
			}
			size := int64(tensors[i].Type.Size(int64(len(dst))))
			at := (r.row + int64(own)) * size
			if err := tensors[i].Type.Decode(dst, f.Data(tensors[i])[at:at+size]); err != nil {
				panic(err) // a type that this program wrote, in whole blocks
			}
			if r.Columns.Head != 0 {
				for c, v := range slices.Clone(dst) {
					dst[r.Columns.At(c)] = v
				}
			}
			return
		}
	}, nil
}

func (o *Output) compareAll(f *gguf.File, c *plan.Codes) error {
	for _, it := range o.Items {
		n, rows, cols := sizes(it)
		for slice := range n {
			regions := o.Regions[it.Common().Index][slice]
			stored, err := o.storedRows(f, regions)
			if err != nil {
				return err
			}
			source, exact, err := o.sourceRows(it, slice, c)
			if err != nil {
				return err
			}
			if exact {
				read := source
				source = func(dst []float32, row int) error {
					err := read(dst, row)
					for i := range regions {
						if _, ok := regions[i].Find(row); ok {
							regions[i].Store(dst)
							break // the others are copies
						}
					}
					return err
				}
			}
			if err := CompareRows(it.Common().Name(), rows, cols, exact, source, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizes returns the number of an item's slices, and the shape of each.
func sizes(it plan.Item) (n, rows, cols int) {
	switch it := it.(type) {
	case *plan.Quantized:
		return it.Slices, int(it.Rows), int(it.Cols)
	case *plan.Unquantized:
		return it.Slices, int(it.Rows), int(it.Cols)
	}
	return 0, 0, 0
}

// sourceRows returns a function that reads a row of a slice of the source. exact: the file has the
// same weights, not codes of them.
func (o *Output) sourceRows(it plan.Item, slice int, c *plan.Codes) (read func(dst []float32, row int) error, exact bool, err error) {
	var rows func(dst []float32, slice int, row, n int64)
	u, exact := it.(*plan.Unquantized)
	if exact {
		rows, err = write.SourceRows(o.from, c, u)
	} else {
		rows, err = o.from.Rows(it)
	}
	rounded := exact && u.Unfit && o.typeOf(u) == gguf.F16
	return func(dst []float32, row int) error {
		err := o.from.Guard(func() error { rows(dst, slice, int64(row), 1); return nil })
		if rounded {
			for i, v := range dst {
				dst[i] = floats.RoundF16(v)
			}
		}
		return err
	}, exact || !o.from.Facts().Weights, err
}

// CompareRows compares sampled rows of a matrix: codes of other rows do not correlate with the
// source's, and unquantized rows are equal.
func CompareRows(name string, rows, cols int, exact bool, source func(dst []float32, row int) error, stored func(dst []float32, row int)) error {
	n := min(rows, SampledRows)
	want, got := make([]float32, cols), make([]float32, cols)
	wrong, seen := 0, 0
	for i := range n {
		row := i * (rows - 1) / max(1, n-1)
		if err := source(want, row); err != nil {
			return err
		}
		stored(got, row)
		if alike, ok := similar(want, got, exact); ok {
			seen++
			if !alike {
				wrong++
			}
		}
	}
	if 4*wrong > seen || exact && wrong > 0 {
		return fmt.Errorf("%d of %d rows of tensor %q are not what the source has: this is a defect of gq, please report it with the model's name", wrong, seen, name)
	}
	return nil
}

// similar reports whether a row is the source's: the same, or codes that correlate. NaN may have
// other bits. ok is false if a row of zeros has no direction.
func similar(want, got []float32, exact bool) (alike, ok bool) {
	if exact {
		return slices.EqualFunc(want, got, func(w, g float32) bool { return w == g || w != w && g != g }), true
	}
	var ab, aa, bb float64
	for i, x := range want {
		y := float64(got[i])
		ab += float64(float64(x) * y)
		aa += float64(float64(x) * float64(x))
		bb += float64(y * y)
	}
	return ab/math.Sqrt(aa*bb) >= minCorrelation, aa != 0 && bb != 0
}

// Check reads the file back. A model that this program cannot run is a warning.
func (o *Output) Check(t write.Target, w *write.Written) (err error) {
	w.ReadBack, err = o.readBack(write.Paths(t.Files(w.Path)), w)
	if u, ok := errors.AsType[*arch.UnsupportedError](err); ok {
		w.Notes = append(w.Notes, fmt.Sprintf("the .gguf file was not compared with %s: %s", o.root, u.Msg))
		return nil
	}
	return err
}
