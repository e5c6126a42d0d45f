package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/detmath"
)

//go:embed sweep.html
var sweepPageText string

var sweepPage = template.Must(template.Must(page.Clone()).New("sweep").Parse(sweepPageText))

// sweepHTML writes the report of a sweep as a page that needs no other file.
func sweepHTML(w io.Writer, r *accuracy.SweepReport) error {
	data := struct {
		R        *accuracy.SweepReport
		Headline [][2]string
		Plots    []*figurePlot
		First    []htmlTable
		Recipes  []*accuracy.SweepFile
	}{R: r, Headline: sweepHeadline(r), Recipes: bySize(r)}
	if len(r.Files) > 0 {
		for i := range r.Files[0].Texts {
			if p := sizePlot(r, i); p != nil {
				data.Plots = append(data.Plots, p)
			}
		}
	}
	for _, t := range sweepTables(r) {
		data.First = append(data.First, t.html())
	}
	return sweepPage.Execute(w, data)
}

// sizePlot draws the mean KL divergence on text i over the size of the files; nil without figures.
func sizePlot(r *accuracy.SweepReport, i int) *figurePlot {
	c := &chart{x: axis{label: "file size, MB"}, y: axis{label: "mean KL divergence, nats"}}
	f := &figurePlot{Title: "Size and loss", Note: "The line joins the files that no other file beats."}
	if len(r.Files[0].Texts) > 1 {
		f.Title += " on " + text(r.Files[0].Texts[i].Text.Label())
	}
	front, beaten := curve{series: 0}, curve{series: 1}
	for _, file := range bySize(r) {
		m := file.Texts[i].Model
		if m == nil || !(m.KL.Mean > 0) {
			continue // exact predictions have no place on a logarithmic axis
		}
		p := point{float64(file.FileBytes) / 1e6, detmath.Log10(m.KL.Mean)}
		c.names = append(c.names, named{p, file.Name})
		if file.Pareto {
			front.points = append(front.points, p)
		} else {
			beaten.points = append(beaten.points, p)
		}
	}
	if c.names == nil {
		return nil
	}
	if front.points != nil {
		c.dots = append(c.dots, front)
		c.curves = append(c.curves, front)
		f.name(0, "no file beats it")
	}
	if beaten.points != nil {
		c.dots = append(c.dots, beaten)
		f.name(1, "another file is smaller and no worse, or better and no larger")
	}
	c.fit()
	c.x.mark(ticks, false)
	c.y.markPowers(ticks)
	f.drawing = c.draw()
	return f
}

// markPowers gives an axis of decimal logarithms at most n ticks, at 1, 2 and 5 times powers of ten,
// or at powers of ten alone.
func (a *axis) markPowers(n int) {
	for _, steps := range [][]int{{1, 2, 5}, {1}} {
		a.ticks = nil
		for e := int(math.Floor(a.min)); e <= int(math.Ceil(a.max)); e++ {
			for _, s := range steps {
				at := float64(e) + detmath.Log10(float64(s))
				if at < a.min || at > a.max {
					continue
				}
				label := power("10", strconv.Itoa(e))
				if len(steps) > 1 {
					v, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", s, e), 64) // digits and an exponent
					label = strconv.FormatFloat(v, 'g', -1, 64)
				}
				a.ticks = append(a.ticks, tick{at, label})
			}
		}
		if len(a.ticks) <= n {
			return
		}
	}
}

// named is a point with a name beside it.
type named struct {
	point
	name string
}

// Sizes of names in a drawing.
const (
	nameGap    = 6  // between a point and its name
	nameHeight = 12 // of a line
)

// placeNames puts names beside their points in a drawing from left to right: behind a point, or before it
// in the right half. A name that would cover another one moves down.
func placeNames(points []named, left, right float64) (list []caption) {
	type box struct{ from, to, y float64 }
	var placed []box
	slices.SortStableFunc(points, func(a, b named) int {
		switch {
		case a.y < b.y:
			return -1
		case a.y > b.y:
			return 1
		}
		return 0
	})
	for _, p := range points {
		width := float64(letterWidth * float64(len([]rune(p.name))))
		c := caption{Anchor: "start", Text: p.name}
		b := box{from: p.x + nameGap, y: p.y - 3} // above the line, which falls to the right
		if p.x > (left+right)/2 {
			c.Anchor, b.from, b.y = "end", p.x-nameGap-width, p.y+4
		}
		b.to = b.from + width
		for _, other := range placed { // from the top down
			if b.from < other.to && other.from < b.to && math.Abs(b.y-other.y) < nameHeight {
				b.y = other.y + nameHeight
			}
		}
		placed = append(placed, b)
		x := b.from
		if c.Anchor == "end" {
			x = b.to
		}
		c.X, c.Y = coordinate(x), coordinate(b.y)
		list = append(list, c)
	}
	return list
}
