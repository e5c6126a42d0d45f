package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocuments compares the markers of each document with the tables that -w writes there, and
// the default of -tables with all tables that have a document.
func TestDocuments(t *testing.T) {
	want := map[string][]string{}
	var all []string
	for _, m := range (&bench{}).tables() {
		if m.document != "" {
			want[m.document] = append(want[m.document], m.name)
			all = append(all, m.name)
		}
	}
	if *tables != strings.Join(all, ",") {
		t.Errorf("-tables is %s by default, but the tables with a document are %s", *tables, strings.Join(all, ","))
	}
	marker := regexp.MustCompile(`(?m)^<!-- begin (\w+) -->\n(?:\|.*\n|\n)+<!-- end (\w+) -->$`)
	for document, names := range want {
		var found []string
		for _, m := range marker.FindAllStringSubmatch(read(t, document), -1) {
			if m[1] != m[2] {
				t.Errorf("%s: table %s ends as %s", document, m[1], m[2])
			}
			found = append(found, m[1])
		}
		slices.Sort(found)
		slices.Sort(names)
		if !slices.Equal(found, names) {
			t.Errorf("%s has the tables %v, but the program writes %v", document, found, names)
		}
	}
}

// TestStoredFigures compares table gguf of the document with the stored figures.
func TestStoredFigures(t *testing.T) {
	raw, err := os.ReadFile("gguf.json")
	if err != nil {
		t.Fatal(err)
	}
	var stored []figure
	if err := json.Unmarshal(raw, &stored); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(read(t, guide), "<!-- begin gguf -->\n"+ggufTable(stored)+"<!-- end gguf -->") {
		t.Errorf("%s does not have the table of gguf.json: run go run -C tools ./quality -w -tables gguf", guide)
	}
}

// TestStoredCells compares tables mixed, tuned and elsewhere with the stored figures.
func TestStoredCells(t *testing.T) {
	old := *cellsFile
	defer func() { *cellsFile = old }()
	*cellsFile = "trained.json"
	all, err := readCells()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d figures: %v", len(all), err)
	}
	for _, table := range []struct{ document, name, text string }{
		{guide, "mixed", trainedTable(all, "mixed", here)},
		{guide, "tuned", trainedTable(all, "tuned", here)},
		{notebook, "elsewhere", trainedTable(all, "tuned", there)},
	} {
		if !strings.Contains(read(t, table.document), "<!-- begin "+table.name+" -->\n"+table.text+"<!-- end "+table.name+" -->") {
			t.Errorf("%s does not have table %s of trained.json: run go run -C tools ./quality -w -tables mixed,tuned,elsewhere -models ''", table.document, table.name)
		}
	}
}

// read returns the text of a document, by its name in the repository.
func read(t *testing.T, document string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(document)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
