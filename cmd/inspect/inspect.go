// Package inspect is the command `gq inspect`: what a .gqf file or a checkpoint holds.
package inspect

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
)

// Command gives `gq inspect`.
func Command() *cli.Command {
	return &cli.Command{
		Name:      "inspect",
		Usage:     "show what a .gqf file or a safetensors checkpoint holds",
		ArgsUsage: "FILE|DIR",
		Description: "Only directories and metadata are read, but for --tensor. Nothing is checked beyond that:\n" +
			"gq verify does.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "tensor", Usage: "show one tensor of a .gqf file, by any of its `NAME`s: packed header, scales, codes, first weights"},
			&cli.IntFlag{Name: "slice", Usage: "with --tensor: `NUMBER` of an expert of a fused tensor, from 0"},
			&cli.BoolFlag{Name: "json", Usage: "print all of it as JSON"},
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq inspect wants one file or directory, got %d", c.NArg())
	}
	if c.IsSet("slice") && !c.IsSet("tensor") {
		return cmdline.Usagef("--slice belongs to --tensor")
	}
	path := c.Args().First()
	ours, err := isGQF(path)
	if err != nil {
		return err
	}
	if ours {
		return inspectGQF(c, c.App.Writer, path)
	}
	return inspectCheckpoint(c, c.App.Writer, path)
}

// isGQF tells the two kinds of input apart: by name, else by the first bytes, so that
// a damaged .gqf file is called that.
func isGQF(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.IsDir() {
		return false, err
	}
	if strings.HasSuffix(path, ".gqf") {
		return true, nil
	}
	var first [4]byte
	if _, err := io.ReadFull(f, first[:]); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return string(first[1:]) == "GQF", nil
}

func inspectGQF(c *cli.Context, w io.Writer, path string) error {
	f, err := gqf.Open(path, gqf.Options{})
	if err != nil {
		return err
	}
	defer f.Close()
	if name := c.String("tensor"); c.IsSet("tensor") {
		r, err := gqf.InspectTensor(f, name, c.Int("slice"))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return cmdline.PrintJSON(w, r)
		}
		return printTensor(w, r)
	}
	r, err := gqf.Inspect(f)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(w, r)
	}
	return printFile(w, r)
}

func inspectCheckpoint(c *cli.Context, w io.Writer, path string) error {
	if c.IsSet("tensor") {
		return cmdline.Usagef("--tensor shows tensors of .gqf files; %s is a checkpoint", path)
	}
	ck, err := safetensors.Open(path, safetensors.Options{})
	if err != nil {
		return err
	}
	defer ck.Close()
	r := safetensors.Inspect(ck)
	if c.Bool("json") {
		return cmdline.PrintJSON(w, r)
	}
	return printCheckpoint(w, r)
}
