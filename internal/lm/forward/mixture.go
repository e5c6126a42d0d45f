package forward

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/buffer"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/rowmath"
)

// mixture is a feed-forward network of experts, of which each token sees a few.
type mixture struct {
	*arch.ExpertConfig
	router       *linear
	correction   []float32 // of the router's scores, for the choice of experts; or nil
	experts      []*mlp
	shared       *mlp      // the expert of all tokens, or nil
	sharedRouter *linear   // of the shared expert's factor, or nil
	factors      []float32 // of the experts' outputs, or nil
	// Norms of the inputs of router, experts and shared expert, and of the outputs of the latter
	// two, in a mixture without a norm for all inputs; or nil.
	routed, fed, sharedFed, post, sharedPost *norm
	// in projects to the latents that experts read, out from the latents that they write. Without
	// them, experts read and write hidden states.
	in, out *linear
	width   int // of an expert's inputs and outputs
}

// mixture opens a mixture's router and experts. Published checkpoints have a tensor per expert;
// transformers 5 saves fused tensors under mlp.
func (o *opener) mixture() *mixture {
	c, e := &o.config, o.config.Experts
	l := &mixture{ExpertConfig: e, width: c.HiddenSize}
	router, both, last := o.spec(arch.Router, e.Count, c.HiddenSize), o.at+"mlp.experts.gate_up_proj", o.at+"mlp.experts.down_proj"
	_, fused := o.source.shape(both)
	if fused {
		if !c.Facts.Has(arch.GateUpExperts) {
			router.name = o.at + "mlp.gate.weight"
		}
	} else if c.Facts.Has(arch.GateUpExperts) {
		fused, both, last = true, o.name(arch.GateUpExperts), o.name(arch.DownExperts)
		if _, bare := o.source.shape(both); !bare {
			both, last = both+".weight", last+".weight"
		}
	}
	l.router = o.open(router)
	if c.Facts.Has(arch.RouterCorrection) {
		l.correction = o.vector(o.name(arch.RouterCorrection), e.Count)
	}
	if e.Latent > 0 {
		l.width = e.Latent
		l.in, l.out = o.linear(arch.ExpertsIn, l.width, c.HiddenSize), o.linear(arch.ExpertsOut, c.HiddenSize, l.width)
	}
	for i := range e.Count {
		own := func(kind arch.Kind, rows, cols int) linearSpec {
			spec := o.spec(kind, rows, cols)
			spec.name = strings.Replace(spec.name, "*", strconv.Itoa(i), 1)
			return spec
		}
		gateUp := []linearSpec{own(arch.GateExperts, e.Intermediate, l.width), own(arch.UpExperts, e.Intermediate, l.width)}
		down := own(arch.DownExperts, l.width, e.Intermediate)
		if fused {
			slice := linearSpec{slice: i, slices: e.Count, bias: e.Bias, transposed: c.ExpertsTransposed()}
			gateUp, down = []linearSpec{slice}, slice
			gateUp[0].name, gateUp[0].rows, gateUp[0].cols = both, 2*e.Intermediate, c.HiddenSize
			down.name, down.rows, down.cols = last, c.HiddenSize, e.Intermediate
		}
		expert := o.gated(gateUp, down)
		expert.interleaved = e.Interleaved
		l.experts = append(l.experts, expert)
	}
	if c.Facts.Has(arch.ExpertsNorm) { // beside a dense network
		l.fed, l.post, l.sharedPost = o.norm(arch.ExpertsNorm, c.HiddenSize), o.norm(arch.ExpertsPostNorm, c.HiddenSize), o.norm(arch.SharedPostNorm, c.HiddenSize)
		l.factors, l.routed = o.vector(o.name(arch.ExpertScale), e.Count), o.unitNorm(c.HiddenSize)
		l.routed.weights = o.vector(o.name(arch.RouterScale), c.HiddenSize)
		scale(l.routed.weights, 1/math.Sqrt(float64(c.HiddenSize)))
	}
	if e.Shared == 0 {
		return l
	}
	inputs := []linearSpec{o.spec(arch.SharedGate, e.Shared, c.HiddenSize), o.spec(arch.SharedUp, e.Shared, c.HiddenSize)}
	if c.Facts.Has(arch.SharedFused) {
		inputs = []linearSpec{o.spec(arch.SharedFused, 2*e.Shared, c.HiddenSize)}
	}
	l.shared = o.gated(inputs, o.spec(arch.SharedDown, c.HiddenSize, e.Shared))
	if c.Facts.Has(arch.SharedRouter) {
		l.sharedRouter = o.linear(arch.SharedRouter, 1, c.HiddenSize)
	}
	return l
}

// inputs returns m rows of x behind a norm, or x without one.
func (l *mixture) inputs(s *Session, by *norm, b *[]float32, x []float32, m int) []float32 {
	if by == nil {
		return x
	}
	normed := buffer.Grow(b, m*s.m.config.HiddenSize)
	s.norm(normed, x, by, m)
	return normed
}

func (l *mixture) last() *linear { return nil }

// sharedMemory returns the memory of the shared expert, that of the experts in a Session.
func (r *record) sharedMemory() *gatedRecord {
	if r.kept {
		return &r.shared
	}
	return &r.gatedRecord
}

// keep returns a buffer of a Tape. A Session has one for all inputs behind norms.
func (r *record) keep(b *[]float32) *[]float32 {
	if r.kept {
		return b
	}
	return &r.fed
}

func (l *mixture) memory(s *Session, r *record, m int) []size {
	h, rows := m*s.m.config.HiddenSize, m
	if r.kept {
		rows = m * l.PerToken
	}
	list := append(l.experts[0].sizes(s, &r.gatedRecord, rows), size{&r.down, rows * l.width}, size{&r.rows, rows * l.width}, size{&r.routerLogits, m * l.Count})
	if l.in != nil {
		list = append(list, size{&r.latents, m * l.width}, size{&r.sums, m * l.width})
	}
	if l.fed != nil {
		list = append(list, size{&r.fed, h})
	}
	if l.shared != nil {
		list = append(append(list, l.shared.sizes(s, r.sharedMemory(), m)...), size{&r.sharedDown, h}, size{&r.sharedLogits, m}, size{&r.sharedGates, m})
	}
	if !r.kept {
		return list
	}
	if l.in != nil || l.post != nil {
		list = append(list, size{&r.projected, h})
	}
	if l.fed != nil {
		list = append(list, size{&r.routed, h}, size{&r.added, h}, size{&s.back, h})
	}
	return append(list, size{&r.router, m * l.Count})
}

type choice struct {
	token, expert int
	weight        float32
}

// run adds each token's outputs in order of expert.
func (l *mixture) run(s *Session, r *record, dst, x []float32, m int) {
	h, w := s.m.config.HiddenSize, l.width
	l.route(s, r, x, m)
	y, read := dst, l.inputs(s, l.fed, &r.fed, x, m)
	if r.kept && dst != nil && (l.out != nil || l.post != nil) {
		y = buffer.Grow(&r.projected, m*h)
	}
	sums := y
	if l.in != nil {
		read, sums = buffer.Grow(&r.latents, m*w), buffer.Grow(&r.sums, m*w)
		s.multiply(read, x, m, l.in)
	}
	if sums != nil {
		clear(sums[:m*w])
	}
	for i := range l.experts {
		l.expert(s, r, i, sums, read)
	}
	if dst != nil && l.out != nil {
		s.multiply(y, sums, m, l.out)
	}
	if dst != nil && l.post != nil {
		s.norm(dst, y, l.post, m)
	} else {
		copy(dst, y)
	}
	if l.shared != nil {
		l.runShared(s, r, dst, x, m)
	}
}

// expert runs an expert, and adds the outputs to sums, if not nil.
func (l *mixture) expert(s *Session, r *record, i int, sums, read []float32) {
	at, n, w := r.first[i], r.first[i+1]-r.first[i], l.width
	if n == 0 {
		return
	}
	own := r.order[at:][:n]
	if !r.kept {
		at = 0
	}
	rows, out := buffer.Grow(&r.rows, (at+n)*w)[at*w:], buffer.Grow(&r.down, (at+n)*w)[at*w:]
	for j, c := range own {
		row, ch := rows[j*w:][:w], r.chosen[c]
		if copy(row, read[ch.token*w:]); l.ScaleInputs {
			scale(row, float64(ch.weight))
		}
	}
	s.expert = own
	l.experts[i].rows(s, &r.gatedRecord, out, rows, at, n)
	if s.expert = nil; sums == nil {
		return
	}
	for j, c := range own {
		ch := r.chosen[c]
		weight := float32(ch.weight * l.factor(ch))
		if l.ScaleInputs {
			weight = 1
		}
		addTimes(sums[ch.token*w:][:w], out[j*w:][:w], weight)
	}
}

// runShared runs the shared expert, and adds the outputs to dst, if not nil.
func (l *mixture) runShared(s *Session, r *record, dst, x []float32, m int) {
	h := s.m.config.HiddenSize
	shared, gates := buffer.Grow(&r.sharedDown, m*h), buffer.Grow(&r.sharedGates, m)
	l.shared.rows(s, r.sharedMemory(), shared, l.inputs(s, l.sharedFed, r.keep(&r.added), x, m), 0, m)
	if l.sharedRouter != nil {
		logits := buffer.Grow(&r.sharedLogits, m)
		s.multiply(logits, x, m, l.sharedRouter)
		copy(gates, logits)
		sigmoid(gates)
	}
	if dst == nil {
		return
	}
	if l.sharedPost != nil {
		normed := shared
		if r.kept {
			normed = buffer.Grow(&s.back, m*h)
		}
		s.norm(normed, shared, l.sharedPost, m)
		shared = normed
	}
	for t, gate := range gates {
		if l.sharedRouter == nil {
			gate = 1
		}
		addTimes(dst[t*h:][:h], shared[t*h:], gate)
	}
}

// route chooses the experts of m rows.
func (l *mixture) route(s *Session, r *record, x []float32, m int) {
	e, forced := l.ExpertConfig, r.forced
	if forced != nil && len(forced) != m*e.PerToken {
		fail(fmt.Errorf("model: %d choices of experts for %d tokens, want %d for each", len(forced), m, e.PerToken))
	}
	all := buffer.Grow(&r.routerLogits, m*e.Count)
	s.multiply(all, l.inputs(s, l.routed, r.keep(&r.routed), x, m), m, l.router)
	if r.kept {
		all = append(r.router[:0], all...)
		r.router = all
	}
	r.chosen = r.chosen[:0]
	for token := range m {
		scores := all[token*e.Count:][:e.Count]
		switch { // the scores of a sparse mixer are the logits
		case e.Sigmoid:
			sigmoid(scores)
		case !e.Sparse:
			s.m.math.Softmax(scores)
		}
		if forced == nil {
			r.chosen = choose(e, l.correction, r.chosen, scores, token)
			continue
		}
		from := len(r.chosen)
		for _, i := range forced[token*e.PerToken:][:e.PerToken] {
			if i < 0 || int(i) >= e.Count {
				fail(fmt.Errorf("model: expert %d of %d", i, e.Count))
			}
			r.chosen = append(r.chosen, choice{token, int(i), scores[i]})
		}
		weigh(e, r.chosen[from:], scores)
	}
	r.sort(e.Count)
}

// factor returns the factor of an expert's outputs.
func (l *mixture) factor(ch choice) float32 {
	if l.factors == nil {
		return 1
	}
	return l.factors[ch.expert]
}

func sigmoid(x []float32) {
	for i, v := range x {
		x[i] = logistic(v)
	}
}

// choose appends the experts of a token, given the router's scores. On ties the first experts are
// chosen.
func choose(e *arch.ExpertConfig, correction []float32, dst []choice, scores []float32, token int) []choice {
	by := scores
	if correction != nil {
		by = slices.Clone(scores)
		addTo(by, correction)
	}
	from, groups := len(dst), bestGroups(e, by)
	for range e.PerToken {
		best := -1
		for i, p := range by {
			taken := slices.ContainsFunc(dst[from:], func(ch choice) bool { return ch.expert == i })
			if groups != nil && !slices.Contains(groups, i*e.Groups/e.Count) {
				taken = true
			}
			if !taken && (best < 0 || p > by[best]) {
				best = i
			}
		}
		dst = append(dst, choice{token, best, scores[best]})
	}
	weigh(e, dst[from:], scores)
	return dst
}

// bestGroups returns the groups among which a token's experts are chosen, or nil for all.
func bestGroups(e *arch.ExpertConfig, scores []float32) (groups []int) {
	if e.Groups < 2 {
		return nil
	}
	size := e.Count / e.Groups
	sums := make([]float32, e.Groups)
	for g := range sums {
		own := slices.Sorted(slices.Values(scores[g*size:][:size]))
		if sums[g] = own[size-1]; !e.GroupBest {
			sums[g] += own[size-2]
		}
	}
	for range e.GroupsPerToken {
		best := -1
		for g, sum := range sums {
			if !slices.Contains(groups, g) && (best < 0 || sum > sums[best]) {
				best = g
			}
		}
		groups = append(groups, best)
	}
	return groups
}

// weigh turns the scores of a token's experts into weights: it divides the scores by their sum, if
// the model does, and scales the weights.
func weigh(e *arch.ExpertConfig, chosen []choice, scores []float32) {
	if e.Sparse {
		for i, ch := range chosen {
			chosen[i].weight = float32(sparseShares(e, chosen[:i+1], scores)[ch.expert])
		}
	}
	if e.Normalize {
		sum := float32(0)
		for _, ch := range chosen {
			sum += ch.weight
		}
		for i := range chosen {
			chosen[i].weight /= sum
		}
	}
	if e.Scale != 1 {
		for i := range chosen {
			chosen[i].weight *= float32(e.Scale)
		}
	}
}

// sparseShares returns the softmax of a sparse mixer for the last of the chosen experts, by expert:
// 0 for the experts chosen before, and for logits that are too far below.
func sparseShares(e *arch.ExpertConfig, chosen []choice, logits []float32) []float64 {
	shares, sum := make([]float64, len(logits)), 0.0
	before, top := chosen[:len(chosen)-1], logits[chosen[len(chosen)-1].expert]
	for i, v := range logits {
		far := (top-v)/max(float32(math.Abs(float64(v))), top) > float32(2*e.Jitter)
		if far || slices.ContainsFunc(before, func(ch choice) bool { return ch.expert == i }) {
			continue
		}
		shares[i] = detmath.Exp(float64(v) - float64(top))
		sum += shares[i]
	}
	for i := range shares {
		shares[i] /= sum
	}
	return shares
}

// rmsNorm writes x / sqrt(mean(x^2) + eps) * weights.
func rmsNorm(dst, x, weights []float32, eps float64) {
	inverse := rmsInverse(x, eps)
	for i, v := range x {
		dst[i] = float32(float32(v*inverse) * weights[i])
	}
}

// moments returns the mean of x, and 1 / sqrt(variance(x) + eps).
func moments(x []float32, eps float64) (mean, inverse float32) {
	mean, square := variance(x)
	return mean, float32(1 / math.Sqrt(square+eps))
}

// variance returns the mean and the variance of x, summed in 8 lanes.
func variance(x []float32) (mean float32, square float64) {
	var lanes [8]float64
	for i, v := range x {
		lanes[i&7] += float64(v)
	}
	mean = float32(sum8(&lanes) / float64(len(x)))
	lanes = [8]float64{}
	for i, v := range x {
		d := float64(v - mean)
		lanes[i&7] += float64(d * d)
	}
	return mean, sum8(&lanes) / float64(len(x))
}

// rmsInverse returns 1 / sqrt(mean(x^2) + eps).
func rmsInverse(x []float32, eps float64) float32 { return float32(1 / math.Sqrt(meanSquare(x)+eps)) }

// meanSquare returns mean(x^2). Squares are exact in float64 and summed in 8 lanes.
func meanSquare(x []float32) float64 {
	var lanes [8]float64
	n := len(x) &^ 7
	for i := 0; i < n; i += 8 {
		row := (*[8]float32)(x[i:])
		for j, v := range row {
			lanes[j] += float64(float64(v) * float64(v))
		}
	}
	for i, v := range x[n:] {
		lanes[i] += float64(float64(v) * float64(v))
	}
	return sum8(&lanes) / float64(len(x))
}

// sum8 adds lanes in a fixed tree.
func sum8(l *[8]float64) float64 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// activate replaces gate by f(gate) * up with the activation function f of the feed-forward
// network.
func (m *Model) activate(gate, up []float32) {
	switch m.config.Activation {
	case "silu":
		m.math.Gate(gate, up, rowmath.SiluLinear*m.config.GateSlope, rowmath.SiluCubic)
	case arch.SquaredRelu:
		for i, v := range gate {
			v = max(0, v)
			gate[i] = float32(v * v)
		}
	case arch.ClampedSilu:
		m.clampedSilu(gate, up)
	case "gelu_pytorch_tanh":
		m.math.Gate(gate, up, rowmath.GeluLinear, rowmath.GeluCubic)
	}
}

func scale(x []float32, factor float64) {
	if f := float32(factor); f != 1 {
		for i, v := range x {
			x[i] = float32(v * f)
		}
	}
}

// softcap replaces each x by c tanh(x/c).
func softcap(x []float32, c float32) {
	for i, v := range x {
		x[i] = float32(c * detmath.Tanh32(v/c))
	}
}
