package alloc

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestSampledGradient compares the mean of v v^T with diag(p) - p p^T.
func TestSampledGradient(t *testing.T) {
	logits := []float32{2, -1, .5, 0, 1.5}
	n := len(logits)
	p, sum := make([]float64, n), 0.0
	for i, v := range logits {
		p[i] = math.Exp(float64(v))
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	const times = 20000
	mean := make([]float64, n*n)
	root := make([]float64, n)
	for seed := range times {
		v := slices.Clone(logits)
		sampleRow(v, root, detmath.Source(seed))
		total := 0.0
		for i, a := range v {
			total += float64(a)
			for k, b := range v {
				mean[i*n+k] += float64(a) * float64(b) / times
			}
		}
		if math.Abs(total) > 1e-6 {
			t.Fatalf("the gradient adds up to %g: a change of all logits by the same number changes nothing", total)
		}
	}
	for i := range p {
		for k := range p {
			want := -p[i] * p[k]
			if i == k {
				want += p[i]
			}
			if got := mean[i*n+k]; math.Abs(got-want) > .01 {
				t.Errorf("mean of v[%d] v[%d]: %.4f, not %.4f", i, k, got, want)
			}
		}
	}
}

// TestImportance compares predicted divergences with probes of single tensors.
func TestImportance(t *testing.T) {
	testshared.SlowEmulated(t, "a probe of each tensor")
	dir := testmodels.Books(t, 3)
	j := openJob(t, dir, 2)
	j.Reference = reference(t, dir, testplan.Text(j.Model.VocabSize(), 128, 100, 156).Sequences)
	p, err := j.layOut()
	if err != nil {
		t.Fatal(err)
	}
	j = p.job
	im, err := j.importances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	errors, err := j.errors(t.Context(), p.Decisions, im)
	if err != nil {
		t.Fatal(err)
	}
	var ratios []float64
	for i, d := range p.Decisions {
		layer := j.layer(d)
		g := &group{first: layer, decisions: map[int][]*Decision{layer: {d}}, list: []*Decision{d}}
		measured, err := j.probe(t.Context(), g, im)
		if err != nil {
			t.Fatal(err)
		}
		predicted := .5 * errors[i].Probe / (128 + 100 + 156) // from a sample of rows
		ratio := predicted / measured
		if layer < 0 && math.Abs(ratio-1) > .25 {
			t.Errorf("%s, embedding and lm_head: predicted %.3g, measured %.3g", d.Name, predicted, measured)
		}
		if ratios = append(ratios, ratio); ratio < .25 || ratio > 4 {
			t.Errorf("%s: predicted %.3g, measured %.3g", d.Name, predicted, measured)
		}
	}
	slices.Sort(ratios)
	if median := ratios[len(ratios)/2]; median < .8 || median > 1.25 {
		t.Errorf("predicted over measured: the median is %.2f of %.2f", median, ratios)
	}
}

// TestGroups divides a probe's divergence among the tensors of a kind.
func TestGroups(t *testing.T) {
	j := openJob(t, "../../../internal/lm/forward/testdata/torch/llama3", 1)
	p, err := j.layOut()
	if err != nil {
		t.Fatal(err)
	}
	j = p.job
	groups := j.groupsOf(p.Decisions)
	n := 0
	for _, g := range groups {
		n += len(g.list)
		for _, d := range g.list {
			if Kind(d.Name) != g.name {
				t.Errorf("%s is in group %s", d.Name, g.name)
			}
		}
	}
	if n != len(p.Decisions) || len(groups) != 9 { // seven kinds of linear layers, embedding, lm_head
		t.Errorf("%d groups of %d decisions, which are %d", len(groups), n, len(p.Decisions))
	}
	if first, last := groups[0], groups[len(groups)-1]; !first.list[0].Embedding || last.name != "lm_head.weight" || last.first != 2 {
		t.Errorf("the groups begin with %s and end with %s of layer %d", first.name, last.name, last.first)
	}
	g := &group{list: p.Decisions[1:4]}
	parts := map[*Decision]*tensorErrors{g.list[0]: {Probe: 1}, g.list[1]: {}, g.list[2]: {Probe: 3}}
	g.divide(8, func(d *Decision) *tensorErrors { return parts[d] })
	for i, want := range []float64{2, 0, 6} {
		if got := g.list[i].ProbeKL; got != want {
			t.Errorf("part %d is %g, not %g", i, got, want)
		}
	}
}

func TestKind(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.10.self_attn.q_proj.weight":             "model.layers.*.self_attn.q_proj.weight",
		"model.layers.3.block_sparse_moe.experts.*.w2.weight": "model.layers.*.block_sparse_moe.experts.*.w2.weight",
		"lm_head.weight": "lm_head.weight",
	} {
		if got := Kind(name); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}

// TestBatches keeps the order of sequences, and gives a long sequence a batch of its own.
func TestBatches(t *testing.T) {
	sequences := testplan.Text(100, 600, 400, 24, 1, 2000, 1024, 5).Sequences
	batches := batchesOf(sequences)
	if got := slices.Concat(batches...); len(got) != len(sequences) || !slices.EqualFunc(got, sequences, slices.Equal) {
		t.Errorf("the batches have other sequences: %v", batches)
	}
	var sizes []int
	for _, b := range batches {
		sizes = append(sizes, len(slices.Concat(b...)))
	}
	if want := []int{1024, 1, 2000, 1024, 5}; !slices.Equal(sizes, want) {
		t.Errorf("batches of %v tokens, not %v", sizes, want)
	}
	if o := tapeOptions(sequences); o.MaxTokens != 2000 || o.MaxLength != 2000 {
		t.Errorf("a tape of %+v", o)
	}
}

// TestSample draws rows of large matrices in proportion to their importance.
func TestSample(t *testing.T) {
	const n = 1000
	falling, oneRow := make([]float64, n), make([]float64, n)
	for i := range falling {
		falling[i] = 1 / float64(i+1)
	}
	oneRow[700] = 5
	for name, test := range map[string]struct {
		rows        int
		importances []*importance
		drawn       int // rows that count
		total       float64
	}{
		"small":           {rows: 50, importances: []*importance{{rows: falling[:50], cols: []float64{1}}}, drawn: 50},
		"no importance":   {rows: n, drawn: SampledRows, total: n},
		"one row":         {rows: n, importances: []*importance{{rows: oneRow, cols: []float64{1, 1}}}, drawn: 1, total: 10},
		"two importances": {rows: n, importances: []*importance{{rows: oneRow, cols: []float64{1, 1}}, {rows: oneRow, cols: []float64{.5, 1}}}, drawn: 1, total: 17.5},
		"no gradients":    {rows: n, importances: []*importance{{rows: make([]float64, n), cols: []float64{0}}}},
	} {
		r := rows{weights: &safetensors.Weights{Rows: test.rows}, importances: test.importances}
		drawn, total := 0, 0.0
		for row, count := range r.sample() {
			if count == 0 {
				continue
			}
			drawn++
			weight := 0.0
			for _, im := range test.importances {
				for _, v := range im.cols {
					weight += im.rows[row] * v
				}
			}
			if test.importances == nil {
				weight = 1
			}
			total += count * weight
		}
		if drawn != test.drawn || test.total > 0 && math.Abs(total/test.total-1) > 1e-9 {
			t.Errorf("%s: %d rows with an importance of %g, not %d with %g", name, drawn, total, test.drawn, test.total)
		}
	}
	// Harmonic numbers: row i is drawn with probability min(1, SampledRows/(i+1)/7.485), and counts
	// for its share of the importance.
	r := rows{weights: &safetensors.Weights{Rows: n}, importances: []*importance{{rows: falling, cols: []float64{1}}}}
	first, last := 0, 0
	for row, count := range r.sample() {
		if count > 0 && row < n/2 {
			first++
		} else if count > 0 {
			last++
		}
	}
	if first < 5*last || last == 0 {
		t.Errorf("%d of the first 500 rows and %d of the last", first, last)
	}
}

// TestColumns: the weights of columns of linear layers with the same inputs.
func TestColumns(t *testing.T) {
	im := &importances{linears: map[string]*importance{
		"a": {cols: []float64{1, 0, 3, 4}}, "b": {cols: []float64{3, 0, 1, 4}}, "zero": {cols: make([]float64, 4)},
	}}
	for _, c := range []struct {
		linears []string
		want    []float32
	}{
		{[]string{"a"}, []float32{.5, leastColumn, 1.5, 2}},
		{[]string{"none", "a", "b"}, []float32{1, leastColumn, 1, 2}},
		{[]string{"none"}, nil},
		{[]string{"zero"}, nil},
	} {
		if got := im.columns(c.linears); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, not %v", c.linears, got, c.want)
		}
	}
}

// TestCalibratedErrors: predictions for a calibrated algorithm spare the columns with large inputs,
// so they have smaller errors, weighted by the inputs, than rows of search.
func TestCalibratedErrors(t *testing.T) {
	testshared.SlowEmulated(t, "TestSameChoiceEverywhere has a hash of the choice")
	j := openJob(t, "../../../internal/lm/forward/testdata/torch/llama3", 1)
	found := map[gqf.Algorithm][]*tensorErrors{}
	im, err := j.importances(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range im.linears {
		i.cols[len(i.cols)/2] *= 1e4 // an outlier
	}
	for _, a := range []gqf.Algorithm{gqf.AlgorithmSearch, gqf.AlgorithmGPTQFT} {
		j.Options.Recipe.Algorithm = a
		p, err := j.layOut()
		if err != nil {
			t.Fatal(err)
		}
		if found[a], err = p.job.errors(t.Context(), p.Decisions, im); err != nil {
			t.Fatal(err)
		}
		for i, d := range p.Decisions {
			if weighs := d.probeScheme().Algorithm == gqf.AlgorithmImatrix; weighs != (a != gqf.AlgorithmSearch && !d.Embedding && d.Name != "lm_head.weight") {
				t.Errorf("%s: %s has the probe %s", a, d.Name, d.probeScheme())
			} else if was := found[gqf.AlgorithmSearch][i].Probe; weighs && !(found[a][i].Probe < .5*was) {
				t.Errorf("%s: an error of %g, %g by search", d.Name, found[a][i].Probe, was)
			}
		}
	}
}
