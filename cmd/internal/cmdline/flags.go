package cmdline

import (
	"math"

	"github.com/urfave/cli/v2"
)

// Threads is the flag --threads.
func Threads() cli.Flag {
	return &cli.IntFlag{Name: "threads", Category: Advanced, DefaultText: "every CPU", Usage: "`N`: workers; the result does not depend on it"}
}

// JSON is the flag --json. what names the thing that is printed.
func JSON(what string) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print " + what + " as JSON"}
}

// Quiet is the flag --quiet.
func Quiet() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "show no progress"}
}

// Price reads --price-per-hour. 0: it is not given.
func Price(c *cli.Context) (float64, error) {
	p := c.Float64("price-per-hour")
	if c.IsSet("price-per-hour") && !(p > 0 && p <= math.MaxFloat32) {
		return 0, Usagef("--price-per-hour %v is not above 0", p)
	}
	return p, nil
}
