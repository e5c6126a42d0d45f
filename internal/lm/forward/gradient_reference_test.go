package forward

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/kernels"
)

// reference computes a model's loss in float64, in the plainest way, from parameters that a test
// may change.
type reference struct {
	m         *Model
	loss      *testLoss
	sequences [][]int32
	routing   [][]int32
	params    map[string][]float64 // by tensor; "embedding" are the looked-up rows of all tokens
	longest   int                  // tokens of the longest sequence
	states    [][][][]float64      // before each layer, of each sequence: set by fix
}

func newReference(t testing.TB, m *Model, sequences [][]int32, routing [][]int32) *reference {
	r := &reference{m, newTestLoss(sequences, m.VocabSize()), sequences, routing, map[string][]float64{}, 0, nil}
	wide := func(x []float32) (y []float64) {
		for _, v := range x {
			y = append(y, float64(v))
		}
		return y
	}
	for name, l := range m.linears {
		row := make([]float32, l.op.Cols())
		for n := range l.op.Rows() {
			l.op.(kernels.RowReader).ReadRow(row, n)
			r.params[name] = append(r.params[name], wide(row)...)
		}
	}
	for _, n := range m.Norms() {
		gains, err := m.NormGains(n.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		r.params[n.Tensor] = wide(gains)
	}
	row := make([]float32, m.config.HiddenSize)
	for _, ids := range sequences {
		r.longest = max(r.longest, len(ids))
		for _, id := range ids {
			if err := m.embed.Lookup(row, int(id)); err != nil {
				t.Fatal(err)
			}
			r.params["embedding"] = append(r.params["embedding"], wide(row)...)
		}
	}
	return r
}

// norm normalizes a row, if there is a norm.
func (r *reference) norm(x []float64, n *norm) []float64 {
	if n == nil {
		return x
	}
	y, sum, mean := make([]float64, len(x)), 0.0, 0.0
	if r.m.config.LayerNorm {
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		sum += (v - mean) * (v - mean)
	}
	for i, v := range x {
		v -= mean
		gain := 1.0
		if n.Tensor != "" {
			gain = r.params[n.Tensor][i]
		} else if n.weights != nil {
			gain = float64(n.weights[i])
		}
		if n.PlusOne {
			gain++
		}
		y[i] = v / math.Sqrt(sum/float64(len(x))+n.eps) * gain
		if n.bias != nil {
			y[i] += float64(n.bias[i])
		}
	}
	return y
}

// linear multiplies a row.
func (r *reference) linear(x []float64, list ...*linear) (y []float64) {
	for _, l := range list {
		w := r.params[l.name]
		for n := range len(w) / len(x) {
			sum := dot64(x, w[n*len(x):][:len(x)])
			if l.bias != nil {
				sum += float64(l.bias[n])
			}
			y = append(y, sum)
		}
	}
	return y
}

// dot64 adds in four chains, so that an addition does not wait for the one before.
func dot64(x, w []float64) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4 && len(w) >= 4; x, w = x[4:], w[4:] {
		s0 += x[0] * w[0]
		s1 += x[1] * w[1]
		s2 += x[2] * w[2]
		s3 += x[3] * w[3]
	}
	for k := range x {
		s0 += x[k] * w[k]
	}
	return s0 + s1 + s2 + s3
}

// fix computes the hidden states before each layer, from which total begins.
func (r *reference) fix() {
	r.states = make([][][][]float64, len(r.m.layers)+1)
	token := 0
	for _, ids := range r.sequences {
		x := r.embedded(token, len(ids))
		for i := range r.states {
			if i > 0 {
				r.layer(i-1, token, x)
			}
			var copied [][]float64
			for _, row := range x {
				copied = append(copied, slices.Clone(row))
			}
			r.states[i] = append(r.states[i], copied)
		}
		token += len(ids)
	}
}

// total is the loss of all sequences, if no parameter before a layer has changed since fix; -1 is
// the embedding.
func (r *reference) total(layer int) (sum float64) {
	token := 0
	for i, ids := range r.sequences {
		var x [][]float64
		if layer < 0 {
			x = r.embedded(token, len(ids))
		} else {
			for _, row := range r.states[layer][i] {
				x = append(x, slices.Clone(row))
			}
		}
		for j, l := range r.logits(max(layer, 0), token, x) {
			sum += float64(r.loss.a[i][j])*l + float64(r.loss.b[i][j])*l*l/2
		}
		token += len(ids)
	}
	return sum
}

// embedded returns the hidden states before the first layer of n tokens; the first token has this
// index among the tokens of all sequences.
func (r *reference) embedded(token, n int) (x [][]float64) {
	c := &r.m.config
	x = make([][]float64, n)
	for p := range x {
		for _, v := range r.params["embedding"][(token+p)*c.HiddenSize:][:c.HiddenSize] {
			x[p] = append(x[p], v*float64(float32(c.EmbeddingScale)))
		}
		x[p] = append(x[p], r.beginSide(x[p], r.ids(token+p))...)
	}
	return x
}

// logits runs a sequence from a layer on; its first token has this index.
func (r *reference) logits(layer, token int, x [][]float64) (logits []float64) {
	c := &r.m.config
	for i := layer; i < len(r.m.layers); i++ {
		r.layer(i, token, x)
	}
	for p := range x {
		for _, v := range r.linear(r.norm(r.endSide(x[p]), r.m.norm), r.m.head) {
			v *= float64(float32(c.LogitScale))
			if c.LogitSoftcap != 0 {
				v = c.LogitSoftcap * math.Tanh(v/c.LogitSoftcap)
			}
			logits = append(logits, v)
		}
	}
	return logits
}

// layer runs a sequence, whose first token has this index, through a layer, in place.
func (r *reference) layer(i, token int, x [][]float64) {
	var inputs [][]float64
	for _, b := range r.m.layers[i].blocks {
		if !b.beside {
			inputs = nil
			for _, row := range x {
				inputs = append(inputs, slices.Clone(r.norm(row[:r.m.config.HiddenSize], b.norm)))
			}
		}
		for p, y := range r.part(b.part, i, token, inputs, x) {
			if b.post != nil {
				y = r.norm(y, b.post)
			}
			for j, v := range y {
				if b.replace {
					x[p][j] = 0
				}
				x[p][j] = (x[p][j] + v*float64(float32(b.scale))) * b.times
			}
		}
	}
}

// part computes the outputs of a part for a sequence. rows are the values between layers.
func (r *reference) part(p part, i, token int, x, rows [][]float64) (out [][]float64) {
	switch l := p.(type) {
	case *prediction, *correction, *ownInput, *laurel:
		return r.whole(l, x, rows)
	case *attention:
		return r.attention(l, x, rows)
	case *recurrence:
		for _, y := range r.mix(l, x) {
			out = append(out, r.linear(y, l.out))
		}
	case *mlp:
		for _, row := range x {
			out = append(out, r.mlp(l, row))
		}
	case *mixture:
		for p, row := range x {
			out = append(out, r.mixture(l, row, r.routing[i][(token+p)*l.PerToken:][:l.PerToken]))
		}
	}
	return out
}

// attention computes the outputs of the attention of a sequence.
func (r *reference) attention(l *attention, x, rows [][]float64) (out [][]float64) {
	c := &r.m.config
	d := l.HeadDim
	var q, k, v [][][]float64 // [position][head][dim]
	var gates [][]float64
	for p := range x {
		if l.latent != nil {
			heads := r.latentHeads(l, x[p], p)
			q, k, v = append(q, heads[0]), append(k, heads[1]), append(v, heads[2])
			continue
		}
		all := r.linear(x[p], l.qkv...)
		if c.AttentionGate { // each head's gates follow its queries
			both := all[:2*c.Heads*d]
			var queries, own []float64
			for ; len(both) > 0; both = both[2*d:] {
				queries, own = append(queries, both[:d]...), append(own, both[d:2*d]...)
			}
			all, gates = append(queries, all[2*c.Heads*d:]...), append(gates, own)
		}
		if c.QKNorm == arch.WholeNorms {
			copy(all, r.norm(all[:c.Heads*d], l.qNorm))
			copy(all[c.Heads*d:], r.norm(all[c.Heads*d:][:l.KVHeads*d], l.kNorm))
		}
		if l.KeyValues {
			all = append(all, all[c.Heads*d:]...)
		}
		var heads [][]float64
		for h := range len(all) / d {
			head, by := all[h*d:][:d], l.qNorm
			if h >= c.Heads {
				by = l.kNorm
			}
			if h >= c.Heads+l.KVHeads && l.values != nil {
				head = r.norm(head, l.values)
			}
			if h < c.Heads+l.KVHeads {
				if c.QKNorm == arch.HeadNorms {
					head = r.norm(head, by)
				}
				if l.Rope >= 0 {
					r.rotate(head, l.Rope, p)
				}
				if c.QKNorm == arch.RotatedNorms || c.QKNorm == arch.UnitNorms && l.Rope >= 0 {
					head = r.norm(head, by)
				}
			}
			heads = append(heads, head)
		}
		if l.borrow >= 0 {
			for at := range 2 * l.KVHeads {
				heads = append(heads, rows[p][c.HiddenSize+l.borrow+at*d:][:d])
			}
		}
		q, k, v = append(q, heads[:c.Heads]), append(k, heads[c.Heads:c.Heads+l.KVHeads]), append(v, heads[c.Heads+l.KVHeads:])
		for at, head := range heads[c.Heads:] {
			if l.lend >= 0 {
				copy(rows[p][c.HiddenSize+l.lend+at*d:], head)
			}
		}
	}
	for p := range x {
		var y []float64
		for h := range c.Heads {
			kv, first := h/(c.Heads/l.KVHeads), 0
			if l.Window > 0 {
				first = max(0, p+1-l.Window)
			}
			if l.Chunk > 0 {
				first = p / l.Chunk * l.Chunk
			}
			temperature := 1.0
			if c.Temperature != 0 && l.Rope < 0 {
				temperature += c.Temperature * math.Log1p(math.Floor(float64(p+1)/float64(c.TemperatureStep)))
			}
			o, sum := make([]float64, len(v[p][kv])), 0.0
			for at := first; at <= p; at++ {
				score := 0.0
				for j := range d {
					score += q[p][h][j] * c.AttentionScale * temperature * k[at][kv][j]
				}
				if c.AttentionSoftcap != 0 {
					score = c.AttentionSoftcap * math.Tanh(score/c.AttentionSoftcap)
				}
				e := math.Exp(score)
				sum += e
				for j := range o {
					o[j] += e * v[at][kv][j]
				}
			}
			if l.sinks != nil {
				sum += math.Exp(float64(l.sinks[h]))
			}
			for _, s := range o {
				y = append(y, s/sum)
			}
		}
		if c.AttentionGate {
			for j, g := range gates[p] {
				y[j] /= 1 + math.Exp(-g)
			}
		}
		out = append(out, r.linear(y, l.out))
	}
	return out
}

// latentHeads computes the queries, keys and values of a token from latents.
func (r *reference) latentHeads(l *attention, x []float64, p int) (heads [3][][]float64) {
	c, a := &r.m.config, r.m.config.Latent
	latent := x
	if l.latent.queryDown != nil {
		latent = r.norm(r.linear(x, l.latent.queryDown), l.latent.queryNorm)
	}
	queries, down := r.linear(latent, l.latent.query), r.linear(x, l.latent.keyDown)
	both := r.linear(r.norm(down[:a.KeyRank], l.latent.keyNorm), l.latent.keyValue)
	for h := range c.Heads {
		q, own := queries[h*c.HeadDim:][:c.HeadDim], both[h*(a.Nope+a.Value):][:a.Nope+a.Value]
		k := append(slices.Clone(own[:a.Nope]), down[a.KeyRank:]...)
		if l.Rope >= 0 {
			r.rotate(q[a.Nope:], l.Rope, p)
			r.rotate(k[a.Nope:], l.Rope, p)
		}
		heads[0], heads[1], heads[2] = append(heads[0], q), append(heads[1], k), append(heads[2], own[a.Nope:])
	}
	return heads
}

func (r *reference) rotate(x []float64, rope, p int) {
	config := &r.m.config.Ropes[rope]
	freqs := config.Frequencies(r.longest)
	for i, f := range freqs {
		a, lo, hi := float64(float32(p)*f), i, i+len(freqs)
		if config.Neighbours {
			lo, hi = 2*i, 2*i+1
		}
		cos, sin := math.Cos(a)*config.AttentionFactor, math.Sin(a)*config.AttentionFactor
		x[lo], x[hi] = x[lo]*cos-x[hi]*sin, x[hi]*cos+x[lo]*sin
	}
}

func (r *reference) mlp(f *mlp, x []float64) []float64 {
	both := r.linear(x, f.gateUp...)
	if f.plain {
		for i, v := range both {
			both[i] = max(0, v) * max(0, v)
		}
		return r.linear(both, f.down)
	}
	n := len(both) / 2
	if f.interleaved {
		apart := make([]float64, 2*n)
		for i := range n {
			apart[i], apart[n+i] = both[2*i], both[2*i+1]
		}
		both = apart
	}
	if f.sparse {
		cut(both[:n], f.cutoff)
	}
	for i, g := range both[:n] {
		if c := &r.m.config; c.Activation == arch.ClampedSilu {
			g = min(g, c.GateLimit)
			g /= 1 + math.Exp(-c.GateSlope*g)
			both[n+i] = 1 + max(-c.GateLimit, min(both[n+i], c.GateLimit))
		} else if r.m.config.Activation == "silu" {
			g /= 1 + math.Exp(-r.m.config.GateSlope*g)
		} else {
			g *= 0.5 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g)))
		}
		both[i] = g * both[n+i]
	}
	return r.linear(both[:n], f.down)
}

func (r *reference) mixture(l *mixture, x []float64, chosen []int32) []float64 {
	e, y := r.m.config.Experts, make([]float64, len(x))
	all, chosenSum := 0.0, 0.0
	p, sharedFed := r.linear(r.norm(x, l.routed), l.router), r.norm(x, l.sharedFed)
	x = r.norm(x, l.fed)
	if e.Sparse {
		for j, w := range sparseWeights(p, chosen, 2*e.Jitter) {
			for k, v := range r.mlp(l.experts[chosen[j]], x) {
				y[k] += v * w
			}
		}
		return y
	}
	for i, v := range p {
		p[i] = math.Exp(v)
		all += p[i]
	}
	if e.Sigmoid {
		for i, v := range p {
			p[i] = v / (1 + v)
		}
		all = 1
	}
	for _, i := range chosen {
		chosenSum += p[i]
	}
	if e.Normalize {
		all = chosenSum
	}
	read := x
	if l.in != nil {
		read = r.linear(x, l.in)
	}
	y = make([]float64, len(read))
	for _, i := range chosen {
		weight, in, out := p[i]/all*e.Scale, 1.0, 1.0
		if e.ScaleInputs {
			in = weight
		} else {
			out = weight
		}
		scaled := slices.Clone(read)
		for j := range scaled {
			scaled[j] *= in
		}
		for j, v := range r.mlp(l.experts[i], scaled) {
			if l.factors != nil {
				v *= float64(l.factors[i])
			}
			y[j] += v * out
		}
	}
	if l.out != nil {
		y = r.linear(y, l.out)
	}
	y = r.norm(y, l.post)
	if l.shared != nil {
		gate := 1.0
		if l.sharedRouter != nil {
			gate = 1 / (1 + math.Exp(-r.linear(x, l.sharedRouter)[0]))
		}
		for j, v := range r.norm(r.mlp(l.shared, sharedFed), l.sharedPost) {
			y[j] += v * gate
		}
	}
	return y
}

// sparseWeights are the weights of two experts: each has the softmax among the logits that are near
// its own, the second without the first.
func sparseWeights(logits []float64, chosen []int32, limit float64) [2]float64 {
	share := func(expert, without int32) float64 {
		top, sum := logits[expert], 0.0
		for i, v := range logits {
			if int32(i) != without && (top-v)/max(math.Abs(v), top) <= limit {
				sum += math.Exp(v)
			}
		}
		return math.Exp(top) / sum
	}
	return [2]float64{share(chosen[0], -1), share(chosen[1], chosen[0])}
}
