package cmdline

import "github.com/urfave/cli/v2"

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
