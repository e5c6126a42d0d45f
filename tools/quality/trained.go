package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/internal/lm/text"
)

var cellsFile = flag.String("cells", "tools/quality/trained.json", "the `file` for the figures of tables mixed, tuned and elsewhere; those that it holds are not measured again")

// A cell is what one file of tables mixed, tuned and elsewhere has lost.
type cell struct {
	Model string  `json:"model"`
	Row   string  `json:"row"`
	Bits  string  `json:"bits"` // of all tensors in a file of the same size; midway: bits per weight
	BPW   float64 `json:"bits_per_weight"`
	// The mean KL divergence from the float model in nats per token, and its clustered standard
	// error: on text that calibration has not seen, and on text of another kind.
	KL             float64 `json:"kl"`
	KLError        float64 `json:"kl_error"`
	Elsewhere      float64 `json:"kl_elsewhere"`
	ElsewhereError float64 `json:"kl_elsewhere_error"`
}

// midway is a size below 2 bits in groups of 32, in bits per weight.
const midway = "2.6"

// elsewhereTokens is the number of tokens of text of another kind.
const elsewhereTokens = 8000

// trainedRow is a row of these tables. A mixed row has bits per tensor, for the size that all
// tensors have with the bits of the column in groups of 32, or of midway bits per weight.
type trainedRow struct {
	table, name string
	mixed       bool
	settings    []string
}

// base names the row of TorchAO's symmetric rounding. No table shows it.
const base = "symmetric RTN"

// trainedRows lists the rows; head is the text for calibration of table mixed.
func trainedRows(head string) []trainedRow {
	calibrate, fixed := fmt.Sprintf("calibrate: %q", head), "rules: [{match: model.embed_tokens, bits: 8}]"
	refine := []string{"algorithm: gptq-ft", "refine: true", calibrate}
	return []trainedRow{
		{"", base, false, []string{"mapping: symmetric", "algorithm: rtn"}},
		{"mixed", "search, mixed", true, []string{"algorithm: search", calibrate}},
		{"mixed", "gptq-ft + refine, mixed", true, refine},
		{"mixed", "gptq-ft + refine, mixed, embedding at 8 bits", true, append(slices.Clip(refine), fixed)},
		{"tuned", best, false, []string{"quality: best"}},
		{"tuned", "`--quality max`", false, []string{"quality: max"}},
		{"tuned", best + ", mixed", true, []string{"quality: best"}},
		{"tuned", "`--quality max`, mixed", true, []string{"quality: max"}},
	}
}

// trainedWidths are the columns.
var trainedWidths = []string{"4", "3", "2", midway}

// measureTrained measures the selected cells that have no figures yet, and returns all figures.
func (b *bench) measureTrained(table string) ([]cell, error) {
	all, err := readCells()
	if err != nil {
		return nil, err
	}
	for _, m := range b.models {
		for _, row := range trainedRows(m.head) {
			for _, bits := range trainedWidths {
				switch {
				case row.table != table && row.table != "", row.table != "" && !b.rows.MatchString(row.name):
					continue
				case !listed(*widths, bits), bits == midway && (!row.mixed || table != "tuned"), findCell(all, m.name, row.name, bits) != nil:
					continue
				}
				c, err := b.measureCell(m, row, bits)
				if err != nil {
					return nil, err
				}
				if all, err = storeCell(c); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

func (b *bench) measureCell(m subject, row trainedRow, bits string) (c cell, err error) {
	c = cell{Model: m.name, Row: row.name, Bits: bits}
	settings, budget := append([]string{"bits: " + bits}, row.settings...), gq.Budget{}
	if row.mixed {
		settings = row.settings
		if budget.BitsPerWeight, err = strconv.ParseFloat(bits, 64); bits != midway {
			var same *gq.QuantizeReport
			if same, _, err = b.quantize(m, b.file(), gq.Budget{}, "bits: "+bits); err == nil {
				budget.BitsPerWeight = same.BitsPerWeight
			}
		}
		if err != nil {
			return c, err
		}
	}
	r, _, err := b.quantize(m, b.file(), budget, settings...)
	if err != nil {
		return c, err
	}
	c.BPW = r.BitsPerWeight
	home, err := b.compare(m, weights, evaluated)
	if err != nil {
		return c, err
	}
	m.tail, m.cut = m.elsewhere, text.Options{Window: 256}
	away, err := b.compare(m, weights, elsewhereTokens)
	if err != nil {
		return c, err
	}
	kl, other := home.Model.KL, away.Model.KL
	c.KL, c.KLError, c.Elsewhere, c.ElsewhereError = kl.Mean, float64(kl.StdErr), other.Mean, float64(other.StdErr)
	if *verbose {
		log.Printf("%s, %s, %s: KL %.5f ± %.5f, elsewhere %.5f", m.name, row.name, bits, c.KL, c.KLError, c.Elsewhere)
	}
	return c, nil
}

func readCells() (all []cell, err error) {
	raw, err := os.ReadFile(*cellsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", *cellsFile, err)
	}
	return all, nil
}

// storeCell adds a figure to those that the file holds now: other models may be measured beside.
func storeCell(c cell) ([]cell, error) {
	all, err := readCells()
	if err != nil {
		return nil, err
	}
	all = append(all, c)
	slices.SortStableFunc(all, func(x, y cell) int {
		return cmp.Or(cmp.Compare(x.Model, y.Model), cmp.Compare(x.Row, y.Row), cmp.Compare(y.Bits, x.Bits))
	})
	var list bytes.Buffer // a line a figure
	for i, c := range all {
		raw, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&list, "%s%s", map[bool]string{true: "[\n", false: ",\n"}[i == 0], raw)
	}
	list.WriteString("\n]\n")
	temp := *cellsFile + "." + strconv.Itoa(os.Getpid())
	if err := os.WriteFile(temp, list.Bytes(), 0o666); err != nil {
		return nil, err
	}
	return all, os.Rename(temp, *cellsFile)
}

func findCell(all []cell, model, row, bits string) *cell {
	i := slices.IndexFunc(all, func(c cell) bool { return c.Model == model && c.Row == row && c.Bits == bits })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// trainedTable is the table of stored figures: ratios to the row base on the same text, and of
// midway, where that row has no file, KL divergences. The last column is the largest standard error
// of a row.
func trainedTable(all []cell, table string, value func(c *cell) (kl, stdErr float64)) string {
	columns := []string{"4", "3", "2"}
	var rows []trainedRow
	for _, row := range trainedRows("") {
		if row.table == table {
			rows = append(rows, row)
		}
	}
	var models []string // with a figure in the table
	for _, s := range subjects {
		if slices.ContainsFunc(all, func(c cell) bool {
			return c.Model == s.name && slices.ContainsFunc(rows, func(r trainedRow) bool { return r.name == c.Row })
		}) {
			models = append(models, s.name)
		}
	}
	t := strings.Builder{}
	t.WriteString("| | 4 bit | 3 bit | 2 bit |")
	if table == "tuned" {
		columns = trainedWidths
		t.WriteString(" KL at " + midway + " bits per weight |")
	}
	t.WriteString(" error |\n|---|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&t, "| %s |", row.name)
		most := 0.0
		for _, bits := range columns {
			var figures []string
			any := false
			for _, model := range models {
				c, rtn := findCell(all, model, row.name, bits), findCell(all, model, base, bits)
				if c == nil {
					figures = append(figures, "-")
					continue
				}
				any = true
				v, stdErr := value(c)
				most = max(most, stdErr/v)
				form := "%.3f"
				if rtn == nil {
					form = "%.4f"
				} else {
					of, _ := value(rtn)
					v /= of
				}
				figures = append(figures, strings.TrimPrefix(fmt.Sprintf(form, v), "0"))
			}
			if !any {
				figures = figures[:1]
			}
			fmt.Fprintf(&t, " %s |", strings.Join(figures, " / "))
		}
		fmt.Fprintf(&t, " %.0f %% |\n", 100*most)
	}
	return t.String()
}

func here(c *cell) (kl, stdErr float64)  { return c.KL, c.KLError }
func there(c *cell) (kl, stdErr float64) { return c.Elsewhere, c.ElsewhereError }

func (b *bench) trained(table string) (string, error) {
	all, err := b.measureTrained(table)
	return trainedTable(all, table, here), err
}

func (b *bench) mixed() (string, error) { return b.trained("mixed") }
func (b *bench) tuned() (string, error) { return b.trained("tuned") }

// elsewhere is table tuned on text of another kind.
func (b *bench) elsewhere() (string, error) {
	all, err := readCells()
	return trainedTable(all, "tuned", there), err
}
