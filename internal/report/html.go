package report

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/detmath"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// tensorsInPage limits the tensors that the page lists: more make browsers slow.
const tensorsInPage = 2000

type htmlTable struct {
	Title, Note string
	Heads       []htmlCell
	Rows        [][]htmlCell
	More        int
}

type htmlCell struct {
	Text   string
	Number bool
	Bad    bool
}

// HTML writes a report as a page that needs no other file.
func HTML(w io.Writer, r *accuracy.Report) error {
	data := struct {
		R        *accuracy.Report
		Headline [][2]string
		Timing   string
		Met      string
		Failed   string
		Failures []string
		Blame    []string
		Try      []htmlTry
		Plots    []*figurePlot
		First    []htmlTable
		Tables   []htmlTable
	}{R: r, Headline: headline(r), Timing: timing(r), Plots: plots(r)}
	if g := r.Gate; g != nil {
		data.Met, data.Failed, data.Failures, data.Blame = checked(g), failed(g), failures(g, 2*listed), blame(g)
		for _, t := range g.Try {
			h := htmlTry{Why: t.Why}
			for word := range strings.FieldsSeq(t.Flags) {
				h.Words = append(h.Words, htmlWord{word, strings.HasPrefix(word, "--")})
			}
			data.Try = append(data.Try, h)
		}
	}
	for _, t := range withRows(append(models(r), byKind(r))...) {
		data.First = append(data.First, t.html())
	}
	tables := append([]*table{conditions(r), unquantized(r)}, positions(r)...)
	tables = append(tables, worstTokens(r, 1<<30)...)
	tables = append(tables, tensors(byLoss(r), "Tensors, those that lost most first", 0), parity(r))
	for _, t := range withRows(tables...) {
		data.Tables = append(data.Tables, t.html())
	}
	return page.Execute(w, data)
}

func (t *table) html() htmlTable {
	h := htmlTable{Title: t.title, Note: t.note}
	number := make([]bool, len(t.heads))
	for i, s := range t.heads {
		s, number[i] = strings.CutSuffix(s, ">")
		h.Heads = append(h.Heads, htmlCell{Text: s, Number: number[i]})
	}
	for n, row := range t.rows {
		if n == tensorsInPage {
			h.More = len(t.rows) - n
			break
		}
		cells := make([]htmlCell, len(row))
		for i, s := range row {
			cells[i] = htmlCell{s, number[i], strings.HasPrefix(s, "NOT MET") || strings.HasPrefix(s, "DIFFERENT")}
		}
		h.Rows = append(h.Rows, cells)
	}
	return h
}

// htmlTry is a change to try. The page does not break flags, as separate words, at hyphens.
type htmlTry struct {
	Words []htmlWord
	Why   string
}

type htmlWord struct {
	Text string
	Flag bool
}

// A chart is a plot in its own units. Its drawing is in the units of the SVG's viewBox.
type chart struct {
	x, y   axis
	curves []curve
	dots   []curve // points that no line joins
	names  []named
}

type axis struct {
	label    string
	min, max float64
	ticks    []tick
}

type tick struct {
	at   float64
	text string // may be empty
}

type point struct{ x, y float64 }

type curve struct {
	points []point
	series int
	dashed bool
}

// Sizes of a drawing, for text of at most 14 units; page.html repeats the width and the height. A
// page of 375 pixels shows the whole drawing.
const (
	chartWidth  = 400
	chartHeight = 230
	chartTop    = 22 // the y axis's label is above the plot
	chartBottom = 42
	chartRight  = 14
	letterWidth = 8
)

// drawing is the data for an SVG in page.html. Coordinates are text, to avoid exponents.
type drawing struct {
	LabelX         string
	XLabel, YLabel string
	Grid, Axes     []segment
	Labels         []caption
	Curves         []polyline
	Dots           []circle
}

type segment struct{ X1, Y1, X2, Y2 string }

type caption struct{ X, Y, Anchor, Text string }

type polyline struct {
	Points string
	Series int
	Dashed bool
}

type circle struct {
	X, Y   string
	Series int
}

// color is the number of a series' colour in the page, from 1; dashed when all colours are in use.
func color(series int) (n int, dashed bool) { return series%seriesColours + 1, series >= seriesColours }

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

func (c *chart) draw() *drawing {
	left := 8.0
	for _, t := range c.y.ticks {
		left = max(left, 8+float64(letterWidth*float64(len([]rune(t.text)))))
	}
	const right, bottom = float64(chartWidth - chartRight), float64(chartHeight - chartBottom)
	x := func(v float64) float64 { return left + float64((v-c.x.min)/(c.x.max-c.x.min)*(right-left)) }
	y := func(v float64) float64 { return bottom - float64((v-c.y.min)/(c.y.max-c.y.min)*(bottom-chartTop)) }
	line := func(x1, y1, x2, y2 float64) segment {
		return segment{coordinate(x1), coordinate(y1), coordinate(x2), coordinate(y2)}
	}
	d := &drawing{XLabel: c.x.label, YLabel: c.y.label, LabelX: coordinate((left + right) / 2)}
	for _, t := range c.y.ticks {
		d.Grid = append(d.Grid, line(left, y(t.at), right, y(t.at)))
		d.Labels = append(d.Labels, caption{coordinate(left - 5), coordinate(y(t.at) + 4), "end", t.text})
	}
	for _, t := range c.x.ticks {
		d.Axes = append(d.Axes, line(x(t.at), bottom, x(t.at), bottom+4))
		if t.text != "" {
			d.Labels = append(d.Labels, caption{coordinate(x(t.at)), coordinate(bottom + 17), "middle", t.text})
		}
	}
	d.Axes = append(d.Axes, line(left, bottom, right, bottom))
	for _, s := range c.curves {
		var text []byte
		for _, p := range s.points {
			text = append(text, coordinate(x(p.x))+","+coordinate(y(p.y))+" "...)
		}
		n, dashed := color(s.series)
		d.Curves = append(d.Curves, polyline{string(text), n, dashed || s.dashed})
	}
	for _, s := range c.dots {
		for _, p := range s.points {
			n, _ := color(s.series)
			d.Dots = append(d.Dots, circle{coordinate(x(p.x)), coordinate(y(p.y)), n})
		}
	}
	var names []named
	for _, p := range c.names {
		name := p.name
		if r := []rune(name); len(r) > 18 { // a third of a plot's width
			name = string(r[:17]) + "…"
		}
		names = append(names, named{point{x(p.x), y(p.y)}, name})
	}
	d.Labels = append(d.Labels, placeNames(names, left, right)...)
	return d
}

// fit makes the axes cover all points with some room on each side.
func (c *chart) fit() {
	c.x.min, c.x.max, c.y.min, c.y.max = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, list := range [][]curve{c.curves, c.dots} {
		for _, s := range list {
			for _, p := range s.points {
				c.x.min, c.x.max = min(c.x.min, p.x), max(c.x.max, p.x)
				c.y.min, c.y.max = min(c.y.min, p.y), max(c.y.max, p.y)
			}
		}
	}
	for _, a := range []*axis{&c.x, &c.y} {
		room := 0.06 * (a.max - a.min)
		room = cmp.Or(room, 0.5)
		a.min, a.max = a.min-room, a.max+room
	}
}

// mark gives an axis up to n ticks at 1, 2 or 5 times powers of ten; with whole only at integers.
func (a *axis) mark(n int, whole bool) {
	if !(a.max > a.min) {
		return
	}
	exponent := int(math.Floor(detmath.Log10((a.max - a.min) / float64(n))))
	if whole {
		exponent = max(exponent, 0)
	}
	for i := 0; ; i++ {
		step := []float64{1, 2, 5}[i%3]
		e := exponent + i/3
		decimals := max(-e, 0)
		if e >= 0 {
			step = float64(step * math.Pow10(e))
		} else {
			step /= math.Pow10(-e) // the nearest number to 0.2; 0.1 times 2 is not
		}
		first, last := math.Ceil(a.min/step-1e-9), math.Floor(a.max/step+1e-9)
		if last-first >= float64(n) {
			continue
		}
		for k := first; k <= last; k++ {
			v := float64(k * step)
			a.ticks = append(a.ticks, tick{v, strconv.FormatFloat(v+0, 'f', decimals, 64)}) // + 0: no "-0"
		}
		return
	}
}
