package accuracy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// model adds the conditions on figures of the model. Limits of g.Model hold on every text, except
// where g.Texts has another limit for the figure and the text.
func (res *GateResult) model(g *Gate, r, earlier *Report) error {
	texts := r.Scored()
	for _, m := range modelMetrics { // in this order, so that the output does not depend on the map's
		all, ok := g.Model[m.name]
		if !m.needsText || len(texts) == 0 {
			if ok {
				res.figure(g, m, all, r, earlier, nil, nil)
			}
			for _, rule := range g.Texts { // no text was scored
				if l, ok := rule.Limits[m.name]; ok {
					res.limit(Condition{Of: "model", Text: rule.Match}, m.metric, l, []figure{{missing: m.missing(g, r, nil)}})
				}
			}
			continue
		}
		for _, t := range texts {
			limits, section := limitsLabel(g.Texts, t.Text.Label(), m.name), "texts."+t.Text.Label()
			if len(limits) == 0 && ok {
				limits, section = []Limit{all}, "model"
			}
			for _, l := range limits {
				before, err := t.earlier(r, earlier, l)
				if err != nil {
					return &GateError{g.Name, section + "." + m.name, err.Error()}
				}
				res.figure(g, m, l, r, earlier, t, before)
			}
		}
	}
	return nil
}

// missing says why a report does not have the figure, on text t if that is not nil.
func (m *modelMetric) missing(g *Gate, r *Report, t *TextReport) string {
	if !m.needsText {
		return "was not measured"
	}
	why := "it takes a text"
	if t != nil && t.Model != nil {
		why = "the size of the text is unknown without a tokenizer"
	}
	why = "was not measured: " + cmp.Or(r.NoModel, why)
	if g.Name == DefaultGateName {
		why += "; hold the file to its tensors alone (--tensors-only), or use a checkpoint that can be run"
	}
	return why
}

// figure adds the conditions that a limit puts on a figure of the model. before has the figures of
// the same text in the earlier report.
func (res *GateResult) figure(g *Gate, m modelMetric, l Limit, r, earlier *Report, t, before *TextReport) {
	var f figure
	var ok bool
	if f.value, ok = m.get(r, t); !ok {
		f.missing = m.missing(g, r, t)
	}
	if ok && m.stdErr != nil {
		f.stdErr = m.stdErr(t.Model)
	}
	if earlier != nil {
		f.before, f.had = m.get(earlier, before)
	}
	of := Condition{Of: "model"}
	if t != nil && len(r.Texts) > 0 {
		of.Text = t.Text.Label()
	}
	res.limit(of, m.metric, l, []figure{f})
}

// earlier finds the text in the earlier report, if the limit compares with that report. Reports
// that scored other texts, or in another way, are an error.
func (t *TextReport) earlier(r, earlier *Report, l Limit) (*TextReport, error) {
	if earlier == nil || l.Worse == nil {
		return nil, nil
	}
	texts := earlier.Scored()
	for _, b := range texts {
		if b.Text.SHA256 == t.Text.SHA256 {
			return b, comparable(t.Text, b.Text, r, earlier)
		}
	}
	switch {
	case len(texts) == 0: // the missing figure is reported
		return nil, nil
	case len(texts) == 1 && len(r.Texts) == 0:
		return nil, comparable(t.Text, texts[0].Text, r, earlier)
	}
	return nil, fmt.Errorf("the earlier report did not score the text %s (SHA-256 %.12s): score the same texts", t.Text.Name, t.Text.SHA256)
}

// comparable fails if two reports did not score the same text in the same way.
func comparable(a, b *TextInfo, r, earlier *Report) error {
	switch {
	case a.SHA256 != b.SHA256:
		return fmt.Errorf("the earlier report scored another text (%s, SHA-256 %.12s): score the same text", b.Name, b.SHA256)
	case a.Convention != b.Convention || a.Window != b.Window || a.Stride != b.Stride || a.Tokens != b.Tokens:
		return fmt.Errorf("the earlier report cuts the text otherwise: %s", b.Cut())
	case r.Activations != earlier.Activations:
		return fmt.Errorf("the earlier report has %s activations: use the same", earlier.Activations)
	}
	return nil
}

// Comparable fails if the gate asks for another measurement than r's, or if the earlier report has
// other texts or questions. r needs no figures yet.
func (g *Gate) Comparable(r, earlier *Report) error {
	if err := g.pinned(r); err != nil || earlier == nil {
		return err
	}
	res := &GateResult{} // without figures yet
	if err := res.model(g, r, earlier); err != nil {
		return err
	}
	return res.choices(g, r, earlier)
}

// CheckLabels finds rules of texts, and of files of questions, that match none of these names.
func (g *Gate) CheckLabels(texts, choices []string) error {
	if err := matchLabels("texts", g.Texts, texts); err != nil {
		return err.in(g.Name)
	}
	if err := matchLabels("choices", g.Choices, choices); err != nil {
		return err.in(g.Name)
	}
	return nil
}

// pinned fails if figures of the model are not measured as the gate says.
func (g *Gate) pinned(r *Report) error {
	pins := [][3]string{{"activations", g.Activations, r.Activations}}
	for _, t := range r.Scored() {
		window := strings.TrimPrefix(strconv.Itoa(g.Window), "0")
		pins = append(pins, [3]string{"convention", string(g.Convention), string(t.Text.Convention)}, [3]string{"window", window, strconv.Itoa(t.Text.Window)})
	}
	for _, p := range pins {
		if key, want, is := p[0], p[1], p[2]; want != "" && want != is {
			return &GateError{g.Name, key, fmt.Sprintf("is %s, but the measurement has %s: leave out --%s or --reference, or use %[1]s there too", want, is, key)}
		}
	}
	return nil
}
