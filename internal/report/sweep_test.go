package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/lm/eval"
)

// sweepReport has a file for each mean KL divergence, each one MB larger.
func sweepReport(divergences ...float64) *accuracy.SweepReport {
	r := &accuracy.SweepReport{Schema: accuracy.SweepSchema, Source: "model"}
	for i, kl := range divergences {
		m := &eval.Comparison{}
		m.KL.Mean = kl
		text := accuracy.TextReport{Text: &accuracy.TextInfo{Name: "t.txt"}, Model: m}
		r.Files = append(r.Files, &accuracy.SweepFile{Name: fmt.Sprintf("<r%d>", i), FileBytes: int64(i+1) * 1e6, Texts: []accuracy.TextReport{text}})
	}
	r.MarkPareto()
	return r
}

// TestWriteSweep writes reports with unusual figures: none, one file, no divergence, a model that
// was not run.
func TestWriteSweep(t *testing.T) {
	unmeasured := sweepReport(1)
	unmeasured.Files[0].Texts[0].Model = nil
	for name, r := range map[string]*accuracy.SweepReport{
		"none": {}, "one": sweepReport(.1), "exact": sweepReport(0), "several": sweepReport(.1, .02, .3, 0, 1e-9), "unmeasured": unmeasured,
	} {
		for _, ext := range SweepExtensions() {
			var b bytes.Buffer
			if err := WriteSweep(&b, ext, r); err != nil {
				t.Errorf("%s as %s: %v", name, ext, err)
			}
			if s := b.String(); strings.Contains(s, "NaN") || ext == ".html" && strings.Contains(s, "<r0>") {
				t.Errorf("%s as %s:\n%s", name, ext, s)
			}
		}
	}
	if err := WriteSweep(&bytes.Buffer{}, ".xml", sweepReport(.1)); err == nil {
		t.Error("an unknown extension is accepted")
	}
}

func TestMarkPowers(t *testing.T) {
	for _, c := range []struct {
		min, max float64
		want     string
	}{
		{-2.1, -0.9, "0.01 0.02 0.05 0.1"},
		{-0.2, 0.8, "1 2 5"},
		{-5.5, 0.5, "10⁻⁵ 10⁻⁴ 10⁻³ 10⁻² 10⁻¹ 10⁰"},
	} {
		a := axis{min: c.min, max: c.max}
		a.markPowers(ticks)
		var got []string
		for _, t := range a.ticks {
			got = append(got, t.text)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v to %v: %s, want %s", c.min, c.max, s, c.want)
		}
	}
}

// TestPlaceNames checks that names of one place do not cover each other.
func TestPlaceNames(t *testing.T) {
	list := placeNames([]named{{point{20, 50}, "a"}, {point{20, 52}, "b"}, {point{390, 50}, "right"}}, 10, 400)
	if len(list) != 3 || list[0].Y == list[1].Y {
		t.Errorf("%+v", list)
	}
	seen := map[string]caption{}
	for _, c := range list {
		seen[c.Text] = c
	}
	if seen["a"].Y != "47.0" || seen["b"].Y != "59.0" || seen["right"].Anchor != "end" || seen["right"].X != "384.0" {
		t.Errorf("%+v", seen)
	}
}
