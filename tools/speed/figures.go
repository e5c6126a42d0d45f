package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// A figure holds the measurements of a row, or the reason why there are none.
type figure struct {
	Table   string             `json:"table"`
	Row     string             `json:"row"`
	Missing string             `json:"missing,omitempty"` // why it could not be run
	Values  map[string]float64 `json:"values,omitempty"`  // medians by column
	// Medians of the ratios within a round; 0: none.
	Ratios  []float64 `json:"ratios,omitempty"`
	Samples []float64 `json:"samples,omitempty"` // of the first column
	// Greatest part of the CPUs' time that others took.
	Others  float64  `json:"others,omitempty"`
	Machine *machine `json:"machine,omitempty"`
}

// machine is where and when figures were measured.
type machine struct {
	Date    string `json:"date"`
	CPU     string `json:"cpu"`
	Threads int    `json:"threads"`
	Version string `json:"version"` // of gq
}

// store has the last figure of every row.
type store struct{ Figures []figure }

func load(file string) (*store, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return &store{}, nil
	}
	if err != nil {
		return nil, err
	}
	s := &store{}
	if err := json.Unmarshal(raw, &s.Figures); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func (s *store) save(file string) error {
	raw, err := json.MarshalIndent(s.Figures, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(raw, '\n'), 0o666)
}

func (s *store) find(table, row string) *figure {
	i := slices.IndexFunc(s.Figures, func(f figure) bool { return f.Table == table && f.Row == row })
	if i < 0 {
		return nil
	}
	return &s.Figures[i]
}

// put replaces the figure of a row. A row that could not be run keeps the figure of an earlier
// time.
func (s *store) put(f figure) {
	switch old := s.find(f.Table, f.Row); {
	case old == nil:
		s.Figures = append(s.Figures, f)
	case f.Missing == "" || old.Missing != "":
		*old = f
	}
}

// machines lists where the figures were measured, in the order of the figures.
func (s *store) machines() (list []machine) {
	for _, f := range s.Figures {
		if f.Machine != nil && !slices.Contains(list, *f.Machine) {
			list = append(list, *f.Machine)
		}
	}
	return list
}

// runs is the table of the machines.
func (s *store) runs() string {
	list := s.machines()
	if len(list) == 0 {
		return "Nothing has been measured yet.\n"
	}
	var t strings.Builder
	t.WriteString("| run | date | CPU | threads | gq | other programs |\n|---|---|---|---|---|---|\n")
	for i, m := range list {
		var others float64
		for _, f := range s.Figures {
			if f.Machine != nil && *f.Machine == m {
				others = max(others, f.Others)
			}
		}
		state := "idle: at most"
		if others > reliable {
			state = "**not idle**: up to"
		}
		fmt.Fprintf(&t, "| %d | %s | %s | %d | %s | %s %.0f %% of the CPUs |\n", i+1, m.Date, m.CPU, m.Threads, m.Version, state, 100*others)
	}
	return t.String()
}
