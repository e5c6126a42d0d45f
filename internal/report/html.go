package report

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
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

func HTML(w io.Writer, r *accuracy.Report) error {
	data := struct {
		R        *accuracy.Report
		Headline [][2]string
		Timing   string
		Met      string
		Failed   string
		Failures []string
		MoreBad  int
		Blame    []string
		Try      []htmlTry
		Plots    []*figurePlot
		First    []htmlTable
		Tables   []htmlTable
	}{R: r, Headline: headline(r), Timing: timing(r), Plots: plots(r)}
	if g := r.Gate; g != nil {
		data.Met = checked(g)
	}
	if g := r.Gate; g != nil && !g.Passed {
		data.Failed, data.Blame, data.Try = failed(g), blame(g), htmlTries(g)
		for i, f := range g.Failures {
			if i == 2*listed {
				data.MoreBad = len(g.Failures) - i
				break
			}
			data.Failures = append(data.Failures, f.String())
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

func htmlTries(g *accuracy.GateResult) (list []htmlTry) {
	for _, t := range g.Try {
		h := htmlTry{Why: t.Why}
		for word := range strings.FieldsSeq(t.Flags) {
			h.Words = append(h.Words, htmlWord{word, strings.HasPrefix(word, "--")})
		}
		list = append(list, h)
	}
	return list
}
