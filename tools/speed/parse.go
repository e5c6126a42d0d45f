package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// parseNumbers takes numbers out of a JSON object: keys are paths, parted by dots, and values are
// columns.
func parseNumbers(out []byte, columns map[string]string) (map[string]float64, error) {
	var object map[string]any
	if err := json.Unmarshal(out, &object); err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for path, column := range columns {
		var v any = object
		for key := range strings.SplitSeq(path, ".") {
			m, _ := v.(map[string]any)
			v = m[key]
		}
		number, ok := v.(float64)
		if !ok {
			return nil, fmt.Errorf("the JSON has no number %s", path)
		}
		values[column] = number
	}
	return values, nil
}

// parseLlamaBench reads the tokens per second of the only test that llama-bench -o json reports.
func parseLlamaBench(out []byte) (map[string]float64, error) {
	var tests []struct {
		Rate float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &tests); err != nil {
		return nil, fmt.Errorf("llama-bench: %w", err)
	}
	if len(tests) != 1 || tests[0].Rate <= 0 {
		return nil, fmt.Errorf("llama-bench reports %d tests instead of one with avg_ts", len(tests))
	}
	return map[string]float64{rateColumn: tests[0].Rate}, nil
}

var counts = regexp.MustCompile(`(?m)^insns ([0-9]+)$`)

// parseCounts divides the instructions that the longer of two runs executes more, for two more
// products of m rows.
func parseCounts(out []byte, m int) (map[string]float64, error) {
	found := counts.FindAllSubmatch(out, -1)
	if len(found) != 2 {
		return nil, fmt.Errorf("%d counts instead of 2 in %q", len(found), out)
	}
	var n [2]float64
	for i, f := range found {
		var err error
		if n[i], err = strconv.ParseFloat(string(f[1]), 64); err != nil {
			return nil, err
		}
	}
	return map[string]float64{instructions: (n[1] - n[0]) / 2 / (2048 * 2048) / float64(m)}, nil
}

// parseCounted reads the last cell of the one row that tools/kernels prints below its heading.
func parseCounted(out []byte) (map[string]float64, error) {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 3 {
		return nil, fmt.Errorf("tools/kernels counts %d products instead of one", len(lines)-2)
	}
	cells := strings.Split(strings.Trim(lines[2], "| "), "|")
	v, err := strconv.ParseFloat(strings.TrimSpace(cells[len(cells)-1]), 64)
	if err != nil {
		return nil, err
	}
	return map[string]float64{instructions: v}, nil
}
