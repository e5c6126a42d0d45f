package main

import (
	"fmt"
	"strings"
)

// render returns the table and the rows that could not be run.
func (t table) render(kept *store) string {
	var s strings.Builder
	s.WriteString("| |")
	for _, c := range t.columns {
		fmt.Fprintf(&s, " %s |", c.heading)
	}
	for _, r := range t.ratios {
		fmt.Fprintf(&s, " %s |", r)
	}
	s.WriteString(" run |\n" + strings.Repeat("|---", len(t.columns)+len(t.ratios)+2) + "|\n")
	var missing strings.Builder
	machines := kept.machines()
	for _, r := range t.rows {
		fmt.Fprintf(&s, "| %s |", r.name)
		f := kept.find(t.name, r.name)
		if f == nil || f.Missing != "" {
			s.WriteString(" not measured |" + strings.Repeat(" |", len(t.columns)+len(t.ratios)) + "\n")
			if f != nil {
				fmt.Fprintf(&missing, "- %s: %s\n", r.name, f.Missing)
			}
			continue
		}
		for i, c := range t.columns {
			if v, ok := f.Values[c.key]; ok {
				fmt.Fprintf(&s, " "+c.format, v)
			}
			if i == 0 {
				s.WriteString(f.spread(c.format))
			}
			s.WriteString(" |")
		}
		for i := range t.ratios {
			s.WriteString(f.ratio(i))
		}
		for i, m := range machines {
			if m == *f.Machine {
				fmt.Fprintf(&s, " %d |\n", i+1)
			}
		}
	}
	if missing.Len() > 0 {
		s.WriteString("\nNot run:\n\n" + missing.String())
	}
	return s.String()
}

// spread is the range of the samples, with a mark if others disturbed them.
func (f *figure) spread(format string) (s string) {
	if len(f.Samples) > 1 {
		least, most := f.Samples[0], f.Samples[0]
		for _, v := range f.Samples {
			least, most = min(least, v), max(most, v)
		}
		s = fmt.Sprintf(" ("+format+" to "+format+")", least, most)
	}
	if f.Others > reliable {
		s += " **unreliable**"
	}
	return s
}

func (f *figure) ratio(i int) string {
	if i >= len(f.Ratios) || f.Ratios[i] == 0 {
		return " |"
	}
	return fmt.Sprintf(" %.2f |", f.Ratios[i])
}

// commandsFile is the text of tools/speed/COMMANDS.md.
func commandsFile(all []table) string {
	var s strings.Builder
	s.WriteString(`# Commands of the tables of docs/SPEED.md

` + "`go run -C tools ./speed -w`" + ` writes this file. The commands run in the directory of the model, and the commands of
table arm run in the repository. $THREADS is the number of threads. The flags of tools/speed set the other variables.
`)
	for _, t := range all {
		fmt.Fprintf(&s, "\n## %s\n\n%s", t.name, t.commands())
	}
	return s.String()
}

// commands lists the commands of the table. The commands that make its files come first.
func (t table) commands() string {
	var s strings.Builder
	done := map[string]bool{}
	var file func(name string)
	file = func(name string) {
		if done[name] {
			return
		}
		done[name] = true
		for _, n := range made[name].files {
			file(n)
		}
		fmt.Fprintf(&s, "    %s\n", made[name].line)
	}
	for _, r := range t.rows {
		for _, n := range r.files {
			file(n)
		}
	}
	for _, r := range t.rows {
		fmt.Fprintf(&s, "\n    # %s\n    %s\n", r.name, r.command)
	}
	return strings.TrimPrefix(s.String(), "\n")
}
