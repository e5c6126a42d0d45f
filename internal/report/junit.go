package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/lowbit-go/gq/accuracy"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",cdata"`
}

// JUnit writes a report as JUnit XML: the gate's conditions as testcases, or else "measured".
func JUnit(w io.Writer, r *accuracy.Report) error {
	seconds := 0.0
	if r.Run != nil {
		for _, s := range r.Run.Seconds {
			seconds += s
		}
	}
	suite := junitSuite{Name: "gq accuracy " + r.File, Time: fmt.Sprintf("%.3f", seconds)}
	for _, l := range headline(r) {
		suite.Properties = append(suite.Properties, junitProperty{l[0], l[1]})
	}
	if g := r.Gate; g != nil && !g.ModelRun {
		suite.Properties = append(suite.Properties, junitProperty{"model", "not run"})
	}
	if r.Gate == nil {
		suite.Cases = []junitCase{{Class: "gq.accuracy", Name: "measured", Time: "0", Out: "no gate was given"}}
	} else {
		for i := range r.Gate.Conditions {
			suite.Cases = append(suite.Cases, junitCondition(r.Gate, i))
			if suite.Cases[i].Failure != nil {
				suite.Failures++
			}
		}
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	all := junitSuites{Name: "gq accuracy", Tests: suite.Tests, Failures: suite.Failures, Time: suite.Time, Suites: []junitSuite{suite}}
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitCondition(g *accuracy.GateResult, i int) junitCase {
	c := &g.Conditions[i]
	tc := junitCase{Class: "gq.accuracy." + strings.ReplaceAll(g.Gate, ".", "_"), Name: c.String(), Time: "0"}
	if c.Passed() {
		tc.Out = count(c.Checked, "figure") + " checked"
		if c.Checked > 0 && c.Kind != accuracy.Same {
			tc.Out += fmt.Sprintf(", nearest to the limit: %s %s", figure(float64(c.Worst)), c.Tensor)
		}
		if c.Note != "" {
			tc.Out += "; " + c.Note
		}
		tc.Out = strings.TrimSpace(tc.Out)
		return tc
	}
	var lines []string
	for _, f := range g.Failures {
		if f.Condition == i {
			lines = append(lines, text(f.String()))
		}
	}
	message := lines[0]
	if len(lines) > 1 {
		message += fmt.Sprintf(" (and %d more)", len(lines)-1)
	}
	if b := blame(g); b != nil && c.OfModel() {
		lines = append(append(lines, "to blame, worst first:"), b...)
	}
	if t := tries(g); t != nil && c.OfAccuracy() {
		lines = append(append(lines, "to try with gq quantize:"), t...)
	}
	tc.Failure = &junitFailure{Message: message, Type: string(c.Kind), Text: "\n" + strings.Join(lines, "\n") + "\n"}
	return tc
}
