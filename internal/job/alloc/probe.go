package alloc

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/kernels"
)

type group struct {
	name      string
	first     int                 // layer of the first decision, see Job.layer
	decisions map[int][]*Decision // by layer
	list      []*Decision
}

var layerNumber = regexp.MustCompile(`\.\d+\.`)

// Kind is the name of a tensor without the number of its layer.
func Kind(tensor string) string {
	if at := layerNumber.FindStringIndex(tensor); at != nil {
		return tensor[:at[0]] + ".*." + tensor[at[1]:]
	}
	return tensor
}

// groupsOf lists the groups of decisions in order of their first layers. A group has all decisions
// of a kind with equal schemes in probes.
func (j *Job) groupsOf(list []*Decision) (groups []*group) {
	byKey := map[string]*group{}
	for _, d := range list {
		layer := j.layer(d)
		key := fmt.Sprintf("%s %+v", Kind(d.Name), d.probeScheme())
		g := byKey[key]
		if g == nil || layer < 0 {
			g = &group{name: Kind(d.Name), first: layer, decisions: map[int][]*Decision{}}
			byKey[key] = g
			groups = append(groups, g)
		}
		g.first = min(g.first, layer)
		g.decisions[layer], g.list = append(g.decisions[layer], d), append(g.list, d)
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(a.first, b.first) })
	return groups
}

// replaced lists the model's linear layers in each slice of a tensor of the checkpoint.
func (d *Decision) replaced(w *safetensors.Weights, tensor string) [][]string {
	if w.Slices == 1 {
		return [][]string{append([]string{tensor}, d.heads...)}
	}
	list := make([][]string, w.Slices)
	for i := range list {
		list[i] = []string{fmt.Sprintf("%s[%d]", tensor, i)}
	}
	return list
}

// probe measures the model with only the group's tensors rounded, layer by layer.
func (j *Job) probe(ctx context.Context, g *group, im *importances) (float64, error) {
	change := func(layer int) (undo func(), err error) {
		var undos []func()
		undo = func() {
			for _, f := range undos {
				f()
			}
		}
		for _, d := range g.decisions[layer] {
			if err := j.replace(ctx, d, im, &undos); err != nil {
				return undo, err
			}
		}
		if layer >= 0 {
			j.progress(1)
		}
		return undo, nil
	}
	if g.first < 0 {
		undo, err := change(g.first)
		defer undo()
		if err != nil {
			return 0, err
		}
		defer j.progress(j.probeSteps(g))
		return j.Reference.KL(ctx, j.Model)
	}
	return j.Reference.KLFrom(ctx, j.Model, g.first, change)
}

// divide gives each decision its part of a probe's divergence, in proportion to the predicted
// divergences.
func (g *group) divide(kl float64, errors func(*Decision) *tensorErrors) {
	sum := 0.0
	for _, d := range g.list {
		sum += errors(d).Probe
	}
	for _, d := range g.list {
		d.ProbeKL = kl / float64(len(g.list))
		if sum > 0 {
			d.ProbeKL = float64(kl * (errors(d).Probe / sum))
		}
	}
}

// layersOf has the decoder layer of each tensor of a linear layer.
func layersOf(m *forward.Model) map[string]int {
	layers := map[string]int{}
	for layer := range m.Config().Layers {
		for _, stage := range m.Stages(layer) {
			for _, group := range stage {
				for _, name := range group.Linears {
					name, _, _ := strings.Cut(name, "[") // of fused experts
					layers[name] = layer
				}
			}
		}
	}
	return layers
}

// layer is the first layer that the decision affects; -1: embedding, or another linear layer before
// the first layer; number of layers: lm_head.
func (j *Job) layer(d *Decision) int {
	if d.Embedding {
		return -1
	}
	if layer, ok := j.layers[d.Tensors[0]]; ok {
		return layer
	}
	return j.Model.LayerOf(d.Tensors[0])
}

// replace puts a decision's tensors, rounded for its probe, into the model, and adds to undos what
// puts the others back.
func (j *Job) replace(ctx context.Context, d *Decision, im *importances, undos *[]func()) error {
	s := d.probeScheme()
	for _, name := range d.Tensors {
		w, err := j.weights(name)
		if err != nil {
			return err
		}
		slices := d.replaced(w, name)
		columns := make([][]float32, len(slices))
		for i, linears := range slices {
			if s.Algorithm.Calibrated() {
				columns[i] = im.columns(linears)
			}
		}
		r, err := round(ctx, w, s, columns, cpu.Threads(j.Options.Threads))
		if err != nil {
			return err
		}
		if d.Embedding {
			*undos = append(*undos, j.Model.SetEmbedding(roundedEmbedding{r}))
		}
		for i, linears := range slices {
			read := func(dst []float32, row int) { r.DequantizeRow(dst, i*w.Rows+row) }
			for _, linear := range linears {
				if j.Model.Linear(linear) == nil { // an untied embedding, or lm_head under another name
					continue
				}
				op, err := kernels.NewRows(w.Rows, w.Cols, read, nil, kernels.Options{Log: func(kernels.Choice) {}})
				if err != nil {
					return err
				}
				back, err := j.Model.SetLinear(linear, op, false)
				if err != nil {
					return err
				}
				*undos = append(*undos, back)
			}
		}
	}
	return nil
}

func (j *Job) errorSteps(list []*Decision) int { return len(j.Reference.Sequences()) + len(list) }

// probeSteps is the number of steps of a probe: the layers that run again, and the lm_head.
func (j *Job) probeSteps(g *group) int { return len(j.Model.Config().Layers) + 1 - max(g.first, 0) }
