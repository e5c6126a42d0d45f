package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// Limits for printed metadata; --json has all of it.
const (
	maxValue = 100 // characters of a value
	maxKeys  = 40  // of an object within another: id2label may have thousands
	maxItems = 40  // of a list of objects
	maxDepth = 4   // of objects in objects
)

// printJSON prints a shortened JSON document of the file: a line for each value, nested values
// below their key, long values cut.
func printJSON(w io.Writer, title string, raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		fmt.Fprintf(w, "  %s\n", short(raw))
		return
	}
	printObject(w, 1, object)
}

// printObject prints the keys of an object in order, indented by depth.
func printObject(w io.Writer, depth int, object map[string]json.RawMessage) {
	indent, width := strings.Repeat("  ", depth), 0
	for k := range object {
		width = max(width, min(len(cmdline.Text(k)), maxKeys))
	}
	for _, k := range slices.Sorted(maps.Keys(object)) {
		name, raw := cmdline.Text(k), object[k]
		var inner map[string]json.RawMessage
		var list []map[string]json.RawMessage
		switch {
		case depth == maxDepth:
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, short(raw))
		case json.Unmarshal(raw, &inner) == nil && 0 < len(inner) && len(inner) <= maxKeys:
			fmt.Fprintf(w, "%s%s\n", indent, name)
			printObject(w, depth+1, inner)
		case json.Unmarshal(raw, &list) == nil && 0 < len(list) && len(list) <= maxItems:
			for i, item := range list {
				fmt.Fprintf(w, "%s%s %d\n", indent, name, i+1)
				printObject(w, depth+1, item)
			}
		default:
			fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, name, short(raw))
		}
	}
}

// printStrings prints a map in order of its keys.
func printStrings(w io.Writer, title string, m map[string]string) {
	fmt.Fprintf(w, "\n%s\n", title)
	width := 0
	for k := range m {
		width = max(width, min(len(cmdline.Text(k)), maxKeys))
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(w, "  %-*s  %s\n", width, cmdline.Text(k), cut(cmdline.Text(m[k])))
	}
}

// short returns a JSON value in one line, without the quotes of a string.
func short(raw json.RawMessage) string {
	var s string
	if bytes.HasPrefix(raw, []byte{'"'}) && json.Unmarshal(raw, &s) == nil {
		return cut(cmdline.Text(s))
	}
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // raw is valid JSON: a parser returned it
	return cut(cmdline.Text(b.String()))
}

// cut shortens a long line.
func cut(s string) string {
	if r := []rune(s); len(r) > maxValue {
		return strings.TrimRight(string(r[:maxValue-4]), " ") + " ..."
	}
	return s
}
