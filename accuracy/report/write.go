package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/lowbit-go/gq/accuracy"
)

// Extensions lists the file name extensions that Write supports.
func Extensions() []string { return []string{".html", ".md", ".xml", ".json", ".txt"} }

// Write writes a report in the format of a file name extension.
func Write(w io.Writer, extension string, r *accuracy.Report) error {
	switch extension {
	case ".html":
		return HTML(w, r)
	case ".md":
		return Markdown(w, r)
	case ".xml":
		return JUnit(w, r)
	case ".json":
		return JSON(w, r)
	case ".txt":
		return Text(w, r, TextOptions{Verbose: true})
	}
	return fmt.Errorf("no report is written as %q", extension)
}

// JSON writes a report with the keys of docs/accuracy-report.schema.json. accuracy.ReadReport reads
// it.
func JSON(w io.Writer, r *accuracy.Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
