package accuracy

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDocs checks the documentation against the code: its gates can be read, it lists all figures,
// and its table of limits is the default gate's.
func TestDocs(t *testing.T) {
	for _, name := range []string{"../docs/ACCURACY.md", "../docs/CI.md"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		gates := 0
		for _, m := range regexp.MustCompile("(?sm)^ *```yaml\n( *version: 1\n.*?)^ *```").FindAllSubmatch(b, -1) {
			if _, err := ParseGate(name, m[1]); err != nil {
				t.Error(err)
			}
			gates++
		}
		if gates == 0 {
			t.Errorf("%s has no gate", name)
		}
	}
	b, err := os.ReadFile("../docs/ACCURACY.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, m := range modelMetrics {
		if !strings.Contains(text, "`"+m.name+"`") {
			t.Errorf("%s is not in ACCURACY.md", m.name)
		}
	}
	for _, m := range tensorMetrics {
		if !strings.Contains(text, "`"+m.name+"`") {
			t.Errorf("%s is not in ACCURACY.md", m.name)
		}
	}
	rows := regexp.MustCompile(`(?m)^  \| (?:group|rows of) ([0-9,]+) \| (.*) \|$`).FindAllStringSubmatch(text, -1)
	for _, row := range rows {
		group, err := strconv.ParseInt(strings.ReplaceAll(row[1], ",", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for bits := 8; bits > 0; bits-- {
			want = append(want, strings.TrimSuffix(fmt.Sprintf("%.2f", defaultSQNR(bits, group)), ".00"))
		}
		if s := strings.Join(want, " | "); s != row[2] {
			t.Errorf("group %d: ACCURACY.md has\n%s, the default gate\n%s", group, row[2], s)
		}
	}
	if len(rows) < 5 {
		t.Error("ACCURACY.md has no table of limits")
	}
	limits := regexp.MustCompile(`(?m)^  \| nats at most \| (.*) \|$`).FindStringSubmatch(text)
	if want := fmt.Sprintf("%v | %v | %v | %v | %v | %v", defaultKL[8], defaultKL[7], defaultKL[6], defaultKL[5], defaultKL[4], defaultKL[3]); limits == nil || limits[1] != want {
		t.Errorf("limits of the divergence: %q, want %s", limits, want)
	}
}
