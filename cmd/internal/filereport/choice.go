package filereport

import (
	"fmt"
	"strings"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// plannedChoice describes a choice of bits that a plan has not made.
func plannedChoice(c *gq.PlannedChoice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "choice: %d tensors of %d to %d bits, in groups of %s\n", len(c.Tensors), c.MinBits, c.MaxBits, groups(c.Groups))
	fmt.Fprintf(&b, "  limits: %.3f to %.3f bits per weight, a file of %s to %s\n", c.LeastBitsPerWeight, c.MostBitsPerWeight, cmdline.Bytes(c.LeastOutputBytes), cmdline.Bytes(c.MostOutputBytes))
	fmt.Fprintf(&b, "  work: %d tokens of text are read once, once forward and backward, and once for each of %d probes", c.Tokens, c.Probes)
	if c.Files > 0 {
		fmt.Fprintf(&b, ";\n    then up to %d files are made, and run on a text to compare them", c.Files)
	}
	b.WriteString("\n  not made: a dry run chooses only with --save-recipe or --calibrate-out, as slowly as the job\n")
	return b.String()
}

// groups lists group sizes.
func groups(list []int) string {
	var names []string
	for _, g := range list {
		if g == 0 {
			names = append(names, "a channel")
		} else {
			names = append(names, fmt.Sprint(g))
		}
	}
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}
