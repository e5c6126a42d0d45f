// Package report writes an accuracy.Report for people and for other programs: [Text] for a terminal, [Markdown] for a
// pull request, [JUnit] for a CI server, [HTML] for a browser and [JSON].
//
//	if err := report.Write(w, "accuracy.html", r); err != nil { ... } // by the name's extension
//
// All but JSON are made of the same tables (tables.go). The plots of the HTML page are in plots.go and drawn by chart.go.
// It is a package of its own so that a program that only measures does not link templates.
package report
