// Package payloads reads the flags that name packed weights, for commands that measure or list
// kernels.
package payloads

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
)

// Flags are the flags that Query reads. layouts and groups describe the defaults.
func Flags(layouts, groups string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "layout", DefaultText: layouts, Usage: "`LIST` of layouts of packed weights, each with a tile if need be: lowbit,qsi8cxp:4x4x1"},
		&cli.StringFlag{Name: "bits", DefaultText: "all of the layout", Usage: "`LIST` of bits of a code: 1,2,4"},
		&cli.StringFlag{Name: "group", Aliases: []string{"groups"}, DefaultText: groups, Usage: "`LIST` of groups: 32,128,channel"},
		&cli.BoolFlag{Name: "zeros", Usage: "weights with zero points"},
		&cli.BoolFlag{Name: "fractions", Usage: "weights with fractional zero points"},
	}
}

// Query reads the flags.
func Query(c *cli.Context) (q kernels.Query, err error) {
	q.Zeros, q.Fractions = c.Bool("zeros"), c.Bool("fractions")
	if q.Layouts, err = cmdline.List(c, "layout", parseLayout); err != nil {
		return q, err
	}
	if q.Bits, err = Ints(c, "bits", 1, 8); err != nil {
		return q, err
	}
	q.Groups, err = cmdline.List(c, "group", parseGroup)
	return q, err
}

// Ints reads the flag name, a list of numbers from least to most; nil if it was not given.
func Ints(c *cli.Context, name string, least, most int) ([]int, error) {
	return cmdline.List(c, name, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%q is not a number from %d to %d", s, least, most)
		}
		return n, nil
	})
}

func parseLayout(s string) (kernels.LayoutTile, error) {
	if t, ok := gguf.ParseType(s); ok && t.GroupWeights() > 0 {
		return kernels.LayoutTile{Layout: packing.LayoutBlocks, Type: t}, nil
	}
	name, tile, tiled := strings.Cut(s, ":")
	l, ok := packing.ParseLayout(name)
	if !ok {
		var names []string
		for _, l := range packing.Layouts {
			names = append(names, l.String())
		}
		return kernels.LayoutTile{}, fmt.Errorf("unknown layout %q: use %s, each alone or with a tile (lowbit:4x8x2), or a type of ggml such as Q4_K", s, strings.Join(names, ", "))
	}
	f := kernels.LayoutTile{Layout: l}
	if tiled {
		var err error
		if f.Tile, err = packing.ParseTile(tile); err != nil {
			return kernels.LayoutTile{}, err
		}
	}
	return f, nil
}

func parseGroup(s string) (uint64, error) {
	if s == "channel" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 || n%16 != 0 {
		return 0, fmt.Errorf("%q: use a multiple of 16, or channel", s)
	}
	return n, nil
}
