// Package report writes an accuracy.Report for people and for other programs: [Text] for a
// terminal, [Markdown] for a pull request, [JUnit] for a CI server, [HTML] for a browser and
// [JSON].
//
//	if err := report.Write(w, "accuracy.html", r); err != nil { ... } // by the name's extension
//
// All formats but JSON share the tables of tables.go. plots.go makes the plots of the HTML page and
// html.go draws them. A program that only measures imports accuracy, and links no templates.
package report
