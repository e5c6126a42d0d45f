package forward

import "math"

// ids returns a token among the tokens of all sequences.
func (r *reference) ids(token int) int32 {
	for _, ids := range r.sequences {
		if token < len(ids) {
			return ids[token]
		}
		token -= len(ids)
	}
	panic("no such token")
}

func sizeOf(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v / float64(len(x))
	}
	return math.Sqrt(sum)
}

// resized returns y with the size of x.
func resized(y, x []float64) []float64 {
	factor := sizeOf(x) / math.Max(sizeOf(y), math.Sqrt(1e-5))
	for i := range y {
		y[i] *= factor
	}
	return y
}

// beginSide returns the side of a token at the first layer.
func (r *reference) beginSide(x []float64, id int32) []float64 {
	d := &r.m.side
	row := make([]float64, d.width)
	if d.streams != nil {
		for i, l := range d.streams.projections {
			copy(row[i*len(x):], resized(r.linear(x, l), x))
		}
	}
	if p := d.perLayer; p != nil {
		table := make([]float32, d.layers*d.perInputs)
		if int(id) >= p.vocab {
			id = 0
		}
		if err := p.table.Lookup(table, int(id)); err != nil {
			panic(err)
		}
		all := r.linear(x, p.project)
		for i := range all {
			all[i] /= math.Sqrt(float64(len(x)))
		}
		for at := 0; at < len(all); at += d.perInputs {
			for i, v := range r.norm(all[at:][:d.perInputs], p.norm) {
				row[d.inputs+at+i] = (v + float64(table[at+i])*math.Sqrt(float64(d.perInputs))) / math.Sqrt2
			}
		}
	}
	return row
}

// endSide returns the single stream behind the last layer.
func (r *reference) endSide(row []float64) []float64 {
	d, h := &r.m.side, r.m.config.HiddenSize
	if d.streams == nil {
		return row[:h]
	}
	sum := append([]float64(nil), row[:h]...)
	for i, l := range d.streams.outputs {
		for j, v := range resized(r.linear(row[(i+1)*h:][:h], l), row[:h]) {
			sum[j] += v
		}
	}
	for j := range sum {
		sum[j] /= float64(len(d.streams.outputs) + 1)
	}
	return sum
}

// coefficients returns the products of a matrix with the modes of a token.
func (r *reference) coefficients(a *altUp, matrix []float32, x []float64) []float64 {
	normed, modes := r.norm(x, a.by), make([]float64, a.streams)
	for i := range modes {
		for j, v := range normed {
			modes[i] += float64(a.router[i*len(x)+j]) * v / float64(len(x))
		}
		modes[i] = math.Tanh(modes[i])
	}
	out := make([]float64, len(matrix)/a.streams)
	for i := range out {
		for j, v := range modes {
			out[i] += float64(matrix[i*a.streams+j]) * v
		}
	}
	return out
}

func (r *reference) predict(p *prediction, x, row []float64) []float64 {
	h, n := len(x), p.streams
	coefs := r.coefficients(p.altUp, p.matrix, x)
	out := append([]float64(nil), row[:n*h]...)
	for i := range n {
		for j := range n {
			for k := range h {
				out[i*h+k] += coefs[i*n+j] * row[j*h+k]
			}
		}
	}
	copy(row[h:], out[h:])
	copy(row[n*h:], out[:h])
	return out[:h]
}

func (r *reference) correct(p *correction, x, row []float64) []float64 {
	h, n := len(x), p.streams
	coefs := r.coefficients(p.altUp, p.matrix, x)
	predicted := append([]float64(nil), row[n*h:][:h]...)
	first, fed := append([]float64(nil), predicted...), make([]float64, h)
	for k, v := range predicted {
		for i := range n {
			to := &first[k]
			if i > 0 {
				to = &row[i*h+k]
			}
			*to += (1 + coefs[i]) * (x[k] - v)
		}
		fed[k] = first[k]
		if p.scale != nil {
			fed[k] *= float64(p.scale[k])
		}
	}
	for k, v := range r.norm(r.ownInput(p.own, fed, row), p.post) {
		for i := 1; i < n; i++ {
			row[i*h+k] += v
		}
	}
	return first
}

func (r *reference) ownInput(p *ownInput, x, row []float64) []float64 {
	gate := r.linear(x, p.gate)
	for i, g := range gate {
		g *= 0.5 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g)))
		gate[i] = g * row[r.m.config.HiddenSize+p.at+i]
	}
	return r.linear(gate, p.project)
}

// cut zeroes the gates that are less than a number of standard deviations above their mean.
func cut(gates []float64, deviations float64) {
	mean, square := 0.0, 0.0
	for _, v := range gates {
		mean += v / float64(len(gates))
	}
	for _, v := range gates {
		square += (v - mean) * (v - mean) / float64(len(gates))
	}
	for i, v := range gates {
		gates[i] = max(0, v-mean-deviations*math.Sqrt(square))
	}
}

// whole computes the outputs of a part of these for a sequence.
func (r *reference) whole(of part, x, rows [][]float64) (out [][]float64) {
	for p, row := range x {
		var y []float64
		switch l := of.(type) {
		case *prediction:
			y = r.predict(l, row, rows[p])
		case *correction:
			y = r.correct(l, row, rows[p])
		case *ownInput:
			y = r.ownInput(l, row, rows[p])
		case *laurel:
			y = r.norm(r.linear(r.linear(row, l.left), l.right), l.by)
			for j, v := range row {
				y[j] += v
			}
		}
		out = append(out, y)
	}
	return out
}
