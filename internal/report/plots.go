package report

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

type figurePlot struct {
	Title, Note string
	*drawing
	Legend []legend
}

type legend struct {
	Series int // number of a colour of the page, from 1
	Name   string
}

const (
	seriesColours = 9
	// ticks limits the ticks of an axis.
	ticks = 8
)

func plots(r *accuracy.Report) []*figurePlot {
	kinds := kindsOf(r)
	all := []*figurePlot{
		byLayer(kinds, "SQNR of weights by layer", "The worst tensor of a kind in each layer.",
			func(s *accuracy.TensorStats) (accuracy.Decibels, bool) { return s.SQNR, true }),
		byLayer(kinds, "SQNR of outputs by layer", "The packed kernel, int8 activations included, against float32.",
			func(s *accuracy.TensorStats) (accuracy.Decibels, bool) {
				if s.Output == nil {
					return 0, false
				}
				return s.Output.SQNR, true
			}),
		errorsPlot(kinds),
	}
	for _, t := range r.Scored() {
		all = append(all, divergences(t, onText(r, "KL divergence of a token", t)))
	}
	return drawn(all...)
}

func drawn(plots ...*figurePlot) []*figurePlot {
	return slices.DeleteFunc(plots, func(p *figurePlot) bool { return p.drawing == nil })
}

func (f *figurePlot) draw(c *chart) *figurePlot {
	if f.Legend != nil {
		f.drawing = c.draw()
	}
	return f
}

func (f *figurePlot) name(series int, name string) {
	n, _ := color(series)
	f.Legend = append(f.Legend, legend{n, name})
}

// sorted lists the points of a function in ascending order.
func sorted(values map[int]float64) (points []point) {
	for _, x := range slices.Sorted(maps.Keys(values)) {
		points = append(points, point{float64(x), values[x]})
	}
	return points
}

func byLayer(kinds []*kind, title, note string, get func(*accuracy.TensorStats) (accuracy.Decibels, bool)) *figurePlot {
	c := &chart{x: axis{label: "layer"}, y: axis{label: "dB"}}
	f := &figurePlot{Title: title, Note: note}
	for i, k := range kinds {
		worst := map[int]float64{}
		for _, s := range k.tensors {
			v, ok := get(s)
			layer := placeOf(s.Name).layer
			if !ok || layer < 0 || math.IsInf(float64(v), 0) {
				continue
			}
			if old, ok := worst[layer]; !ok || float64(v) < old {
				worst[layer] = float64(v)
			}
		}
		if len(worst) == 0 {
			continue
		}
		all := curve{points: sorted(worst), series: i}
		c.curves, c.dots = append(c.curves, all), append(c.dots, all)
		f.name(i, k.name)
	}
	c.fit()
	c.x.mark(ticks, true)
	c.y.mark(ticks, false)
	return f.draw(c)
}

func errorsPlot(kinds []*kind) *figurePlot {
	c := &chart{x: axis{label: "error of a weight"}, y: axis{label: "% of weights"}}
	f := &figurePlot{Title: "Errors of weights", Note: "Share of the weights of a kind whose error is from 2ⁿ up to twice that. The rest has a smaller error, or none."}
	for i, k := range kinds {
		shares := map[int]float64{}
		total := int64(0)
		for _, s := range k.tensors {
			total += s.Rows * s.Cols
			for j, n := range s.Errors.Counts {
				shares[s.Errors.First+j] += float64(n)
			}
		}
		for e, n := range shares {
			if shares[e] = 100 * n / float64(total); shares[e] < 0.05 { // invisible
				delete(shares, e)
			}
		}
		if len(shares) == 0 {
			continue
		}
		c.curves = append(c.curves, curve{points: sorted(shares), series: i})
		f.name(i, k.name)
	}
	c.fit()
	c.y.min = 0
	c.x.mark(ticks, true)
	c.y.mark(ticks, false)
	for i := range c.x.ticks {
		c.x.ticks[i].text = power("2", c.x.ticks[i].text)
	}
	return f.draw(c)
}

var superscript = strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")

func power(base, exponent string) string { return base + superscript.Replace(exponent) }

func divergences(r *accuracy.TextReport, title string) *figurePlot {
	c := &chart{x: axis{label: "KL divergence, nats"}, y: axis{label: "% of tokens"}}
	f := &figurePlot{Title: title, Note: "From float to quantized, of the next token's distribution. Upright lines: the mean and the 99th percentile."}
	if r.Model == nil {
		return f
	}
	list := []*eval.Comparison{r.Model}
	names := []string{"quantized"}
	if r.Baseline != nil {
		list, names = append(list, &r.Baseline.Comparison), append(names, "baseline")
	}
	first, last := math.MaxInt, -1 // the bins with counts
	for _, m := range list {
		for i, n := range m.KLHistogram.Counts {
			if n > 0 {
				first, last = min(first, i), max(last, i)
			}
		}
	}
	if last < 0 {
		return f
	}
	top := 0.0
	for i, m := range list {
		total := int64(0)
		for _, n := range m.KLHistogram.Counts {
			total += n
		}
		// Bin b is drawn from b to b+1: the edges 1, 2, 5, 10 are nearly even on a logarithmic axis.
		points := []point{{float64(first), 0}}
		for b := first; b <= last; b++ {
			share := 100 * float64(m.KLHistogram.Counts[b]) / float64(total)
			top = max(top, share)
			points = append(points, point{float64(b), share}, point{float64(b + 1), share})
		}
		c.curves = append(c.curves, curve{points: append(points, point{float64(last + 1), 0}), series: i})
		f.name(i, names[i])
	}
	edges := r.Model.KLHistogram.Edges
	for i, m := range list {
		for _, v := range []float64{m.KL.Mean, m.KL.P99} {
			x := position(edges, v)
			c.curves = append(c.curves, curve{points: []point{{x, 0}, {x, top}}, series: i, dashed: true})
		}
	}
	c.x.min, c.x.max = float64(first)-0.3, float64(last)+1.3
	c.y.min, c.y.max = 0, 1.06*top
	for i, v := range edges {
		x := float64(i + 1) // the lower end of bin i+1
		if x < c.x.min || x > c.x.max {
			continue
		}
		t := tick{at: x}
		if l := detmath.Log10(v); math.Abs(l-math.Round(l)) < 1e-9 {
			t.text = power("10", strconv.Itoa(int(math.Round(l))))
		}
		c.x.ticks = append(c.x.ticks, t)
	}
	c.y.mark(ticks, false)
	return f.draw(c)
}

// position maps a number to the axis of bins.
func position(edges []float64, v float64) float64 {
	i, _ := slices.BinarySearch(edges, v)
	if i == 0 || i == len(edges) || v <= 0 {
		return float64(i)
	}
	return float64(i) + detmath.Log(v/edges[i-1])/detmath.Log(edges[i]/edges[i-1])
}
