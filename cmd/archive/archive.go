// Package archive is the command `gq archive`: a file compressed for transport, and restored.
package archive

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// Command gives `gq archive`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "archive",
		Usage: "compress a .gqf file, or any other, for transport, and restore it",
		UsageText: `gq archive model.gqf
gq archive --extract model.gqf.zst
gq archive --extract https://example.com/model.gqf.zst
`,
		ArgsUsage: "FILE",
		Description: "The archive is a zstd file: zstd -d restores it, too. Its frames of 4 MiB can be decompressed one\n" +
			"by one, by the seek table at its end. Packed codes hardly shrink, scales and unquantized tensors do:\n" +
			"docs/ARCHIVE.md has figures. A .gqf file's own checksums are checked before it is archived and\n" +
			"before the restored file appears. Exit status: 0 done, 1 a file is damaged or cannot be read.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, DefaultText: "FILE.zst; with --extract, FILE without .zst; of a remote name in the working directory", Usage: "`OUT` to write; it is replaced only when the new one is complete; or s3://BUCKET/KEY"},
			&cli.BoolFlag{Name: "extract", Usage: "restore the file that was archived"},
			cmdline.Threads(),
			cmdline.JSON("the summary"),
			cmdline.Quiet(),
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() != 1 {
		return cmdline.Usagef("gq archive wants one file, got %d", c.NArg())
	}
	job := gq.Archive
	if c.Bool("extract") {
		job = gq.Extract
	}
	r, err := job(c.Context, c.Args().First(), c.String("output"), gq.ArchiveOptions{Threads: c.Int("threads"), Progress: cmdline.Reporter(c)})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return cmdline.PrintJSON(c.App.Writer, r)
	}
	return print(c.App.Writer, r)
}

func print(w io.Writer, r *gq.ArchiveReport) error {
	checked := "checksums of the archive"
	if r.Verified {
		checked += " and of the .gqf file"
	}
	share := 100.0
	if r.ContentBytes > 0 {
		share = 100 * float64(r.ArchiveBytes) / float64(r.ContentBytes)
	}
	_, err := fmt.Fprintf(w, "wrote    %s\ncontent  %s\narchive  %s (%.1f %%), frames: %d\nchecked  %s\n",
		cmdline.Text(r.Output), cmdline.Bytes(r.ContentBytes), cmdline.Bytes(r.ArchiveBytes), share, r.Frames, checked)
	return err
}
