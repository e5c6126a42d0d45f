package report

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/model/eval"
)

// figurePlot is a plot of the page: inline SVG whose colours are the page's, and its legend.
type figurePlot struct {
	Title, Note string
	SVG         template.HTML
	Legend      []legend
}

type legend struct {
	Series int // number of a colour of the page, from 1
	Name   string
}

const (
	plotWidth  = 6.4 * vg.Inch
	plotHeight = 3 * vg.Inch
	// seriesColours is how many colours the page has for series.
	seriesColours = 9
	// dots is how many of a kind's tensors are drawn at most, evenly chosen by rank.
	dots = 64
)

// The colours that are drawn with stand for those of the page's style sheet, which has them for light and dark.
var (
	foreground = color.RGBA{1, 1, 1, 255}
	gridLines  = color.RGBA{2, 2, 2, 255}
)

func series(i int) color.Color { return color.RGBA{3, 3, uint8(i%seriesColours + 1), 255} }

var placeholder = regexp.MustCompile(`#(010101|020202|0303[0-9A-F]{2})`)

// plots draws what there is to be drawn.
func plots(r *accuracy.Report) (list []figurePlot, err error) {
	kinds := kindsOf(r)
	for _, make := range []func() (*figurePlot, error){
		func() (*figurePlot, error) {
			return byLayer(kinds, "SQNR of weights by layer", "The worst tensor of a kind in each layer.",
				func(s *accuracy.TensorStats) (accuracy.Decibels, bool) { return s.SQNR, true })
		},
		func() (*figurePlot, error) {
			return byLayer(kinds, "SQNR of outputs by layer", "The packed kernel, int8 activations included, against float32.",
				func(s *accuracy.TensorStats) (accuracy.Decibels, bool) {
					if s.Output == nil {
						return 0, false
					}
					return s.Output.SQNR, true
				})
		},
		func() (*figurePlot, error) { return strips(kinds) },
		func() (*figurePlot, error) { return errorsPlot(kinds) },
		func() (*figurePlot, error) { return divergences(r) },
	} {
		p, err := make()
		if err != nil {
			return nil, err
		}
		if p != nil {
			list = append(list, *p)
		}
	}
	return list, nil
}

// newPlot makes an empty plot in the page's style.
func newPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color, grid.Horizontal.Width = 0, gridLines, 0.5
	grid.Vertical.Color = color.Transparent
	p.Add(grid)
	for _, a := range []struct {
		axis  *plot.Axis
		label string
	}{{&p.X, x}, {&p.Y, y}} {
		sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
		a.axis.Label.Text = a.label
		a.axis.Label.TextStyle.Font = font.From(sans, 10)
		a.axis.Label.TextStyle.Color = foreground
		a.axis.Tick.Label.Font = font.From(sans, 9)
		a.axis.Tick.Label.Color = foreground
		a.axis.LineStyle.Color, a.axis.Tick.LineStyle.Color = foreground, foreground
	}
	return p
}

// svg draws a plot. Its colours become those of the page.
func svg(p *plot.Plot) (template.HTML, error) {
	c := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.Crop(draw.New(c), 0, -8, 0, 0)) // labels of ticks may be wider than half of what is between
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	text := b.Bytes()
	i := bytes.Index(text, []byte("<svg"))
	end := i + bytes.IndexByte(text[i:], '>')
	if i < 0 || end < i {
		return "", fmt.Errorf("the plot is no SVG: %.40q", text)
	}
	text = placeholder.ReplaceAllFunc(text[end+1:], func(m []byte) []byte {
		switch string(m) {
		case "#010101":
			return []byte("currentColor")
		case "#020202":
			return []byte("var(--grid)")
		}
		n, _ := strconv.ParseUint(string(m[5:]), 16, 8) // six hexadecimal digits
		return fmt.Appendf(nil, "var(--s%d)", n)
	})
	head := fmt.Sprintf(`<svg viewBox="0 0 %g %g" role="img">`, plotWidth.Points(), plotHeight.Points())
	return template.HTML(head + string(text)), nil
}

// draw finishes a plot.
func finish(p *plot.Plot, f *figurePlot) (*figurePlot, error) {
	var err error
	f.SVG, err = svg(p)
	return f, err
}

// byLayer draws a figure of each kind over the layers.
func byLayer(kinds []*kind, title, note string, get func(*accuracy.TensorStats) (accuracy.Decibels, bool)) (*figurePlot, error) {
	p := newPlot("layer", "dB")
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
		var points plotter.XYs
		for layer, v := range worst {
			points = append(points, plotter.XY{X: float64(layer), Y: v})
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		if points == nil {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = series(i), 1.4
		dots.Color, dots.Radius, dots.Shape = series(i), 2.2, draw.CircleGlyph{}
		if i >= seriesColours {
			line.Dashes = []vg.Length{4, 2}
		}
		p.Add(line, dots)
		f.Legend = append(f.Legend, legend{i%seriesColours + 1, k.name})
	}
	if f.Legend == nil {
		return nil, nil
	}
	p.X.Tick.Marker = wholeTicks{}
	pad(p)
	return finish(p, f)
}

// pad gives room around points, and axes that are not of no length.
func pad(p *plot.Plot) {
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		room := 0.06 * (a.Max - a.Min)
		if room == 0 {
			room = 0.5
		}
		a.Min, a.Max = a.Min-room, a.Max+room
	}
}

// wholeTicks marks whole numbers.
type wholeTicks struct{}

func (wholeTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := 1
	for (high-low)/float64(step) > 12 {
		switch {
		case step%9 == 2:
			step = step / 2 * 5
		default:
			step *= 2
		}
	}
	for v := int(math.Ceil(low/float64(step))) * step; float64(v) <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: float64(v), Label: strconv.Itoa(v)})
	}
	return ticks
}

// strips draws the tensors of each kind as dots above its name.
func strips(kinds []*kind) (*figurePlot, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	p := newPlot("", "dB")
	f := &figurePlot{Title: "SQNR by kind of tensor", Note: fmt.Sprintf("Each dot is a tensor; of more than %d of a kind, as many evenly chosen by rank.", dots)}
	var names []string
	weights, outputs := plotter.XYs{}, plotter.XYs{}
	for i, k := range kinds {
		names = append(names, k.name)
		var w, o []float64
		for _, s := range k.tensors {
			w = append(w, float64(s.SQNR))
			if s.Output != nil {
				o = append(o, float64(s.Output.SQNR))
			}
		}
		for _, v := range ranked(w) {
			weights = append(weights, plotter.XY{X: float64(i) - 0.12, Y: v})
		}
		for _, v := range ranked(o) {
			outputs = append(outputs, plotter.XY{X: float64(i) + 0.12, Y: v})
		}
	}
	for i, set := range []struct {
		points plotter.XYs
		name   string
	}{{weights, "weights"}, {outputs, "outputs"}} {
		if len(set.points) == 0 {
			continue
		}
		s, err := plotter.NewScatter(set.points)
		if err != nil {
			return nil, err
		}
		s.Color, s.Radius, s.Shape = series(i), 2.2, draw.CircleGlyph{}
		p.Add(s)
		f.Legend = append(f.Legend, legend{i + 1, set.name})
	}
	if f.Legend == nil {
		return nil, nil
	}
	ticks := make(plot.ConstantTicks, len(names))
	for i, name := range names {
		ticks[i] = plot.Tick{Value: float64(i), Label: name}
	}
	p.X.Tick.Marker = ticks
	if len(strings.Join(names, "")) > 60 {
		p.X.Tick.Label.Rotation = math.Pi / 7
		p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YTop
	}
	pad(p)
	p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	return finish(p, f)
}

// ranked sorts numbers and picks at most dots of them, both ends among them; what is infinite is left out.
func ranked(v []float64) []float64 {
	v = slices.DeleteFunc(v, func(x float64) bool { return math.IsInf(x, 0) })
	slices.Sort(v)
	if len(v) <= dots {
		return v
	}
	picked := make([]float64, dots)
	for i := range picked {
		picked[i] = v[i*(len(v)-1)/(dots-1)]
	}
	return picked
}

// errorsPlot draws how large the errors of weights are, by kind.
func errorsPlot(kinds []*kind) (*figurePlot, error) {
	p := newPlot("error of a weight, octave", "% of weights")
	f := &figurePlot{Title: "Errors of weights", Note: "Share of the weights of a kind whose error is from 2ⁿ up to twice that. The rest has a smaller error, or none."}
	for i, k := range kinds {
		counts := map[int]int64{}
		total := int64(0)
		for _, s := range k.tensors {
			total += s.Rows * s.Cols
			for j, n := range s.Errors.Counts {
				counts[s.Errors.First+j] += n
			}
		}
		var points plotter.XYs
		for e, n := range counts {
			if share := 100 * float64(n) / float64(total); share >= 0.05 { // what can be seen
				points = append(points, plotter.XY{X: float64(e), Y: share})
			}
		}
		if points == nil {
			continue
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = series(i), 1.4
		if i >= seriesColours {
			line.Dashes = []vg.Length{4, 2}
		}
		p.Add(line)
		f.Legend = append(f.Legend, legend{i%seriesColours + 1, k.name})
	}
	if f.Legend == nil {
		return nil, nil
	}
	p.X.Tick.Marker = powerTicks{}
	pad(p)
	p.Y.Min = 0
	return finish(p, f)
}

// powerTicks marks powers of two.
type powerTicks struct{}

var superscript = strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")

func (powerTicks) Ticks(low, high float64) []plot.Tick {
	ticks := wholeTicks{}.Ticks(low, high)
	for i := range ticks {
		ticks[i].Label = "2" + superscript.Replace(ticks[i].Label)
	}
	return ticks
}

// divergences draws the histogram of KL divergences.
func divergences(r *accuracy.Report) (*figurePlot, error) {
	if r.Model == nil {
		return nil, nil
	}
	p := newPlot("KL divergence, nats", "% of tokens")
	f := &figurePlot{Title: "KL divergence of a token", Note: "From float to quantized, of the next token's distribution. Upright lines: the mean and the 99th percentile."}
	list := []*eval.Comparison{r.Model}
	names := []string{"quantized"}
	if r.Baseline != nil {
		list, names = append(list, &r.Baseline.Comparison), append(names, "baseline")
	}
	first, last := math.MaxInt, -1 // bins with anything in them
	for _, c := range list {
		for i, n := range c.KLHistogram.Counts {
			if n > 0 {
				first, last = min(first, i), max(last, i)
			}
		}
	}
	if last < 0 {
		return nil, nil
	}
	edges := r.Model.KLHistogram.Edges
	top := 0.0
	for i, c := range list {
		total := int64(0)
		for _, n := range c.KLHistogram.Counts {
			total += n
		}
		// Bin b is drawn from b to b+1: edges are 1, 2, 5, 10, which is nearly even on a logarithmic axis.
		points := plotter.XYs{{X: float64(first), Y: 0}}
		for b := first; b <= last; b++ {
			share := 100 * float64(c.KLHistogram.Counts[b]) / float64(total)
			top = max(top, share)
			points = append(points, plotter.XY{X: float64(b), Y: share}, plotter.XY{X: float64(b + 1), Y: share})
		}
		points = append(points, plotter.XY{X: float64(last + 1), Y: 0})
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = series(i), 1.4
		p.Add(line)
		f.Legend = append(f.Legend, legend{i + 1, names[i]})
	}
	for i, c := range list {
		for _, v := range []float64{c.KL.Mean, c.KL.P99} {
			x := position(edges, v)
			mark, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: top}})
			if err != nil {
				return nil, err
			}
			mark.Color, mark.Width, mark.Dashes = series(i), 1, []vg.Length{3, 3}
			p.Add(mark)
		}
	}
	p.X.Tick.Marker = edgeTicks(edges)
	p.Y.Min, p.Y.Max = 0, 1.06*top
	p.X.Min, p.X.Max = float64(first)-0.3, float64(last)+1.3
	return finish(p, f)
}

// position is where a number is on the axis of bins.
func position(edges []float64, v float64) float64 {
	i, _ := slices.BinarySearch(edges, v)
	if i == 0 || i == len(edges) || v <= 0 {
		return float64(i)
	}
	return float64(i) + math.Log(v/edges[i-1])/math.Log(edges[i]/edges[i-1])
}

// edgeTicks marks the powers of ten among edges.
type edgeTicks []float64

func (e edgeTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	for i, v := range e {
		x := float64(i + 1) // the lower end of bin i+1
		if x < low || x > high {
			continue
		}
		t := plot.Tick{Value: x}
		if l := math.Log10(v); math.Abs(l-math.Round(l)) < 1e-9 {
			t.Label = strconv.FormatFloat(v, 'g', -1, 64)
		}
		ticks = append(ticks, t)
	}
	return ticks
}
