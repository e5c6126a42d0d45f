package cmdline

import (
	"github.com/urfave/cli/v2"
)

// FormatFlags are the flags of commands that write .gguf files and checkpoints.
func FormatFlags(category string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "pre", Category: category, DefaultText: "found by the tokenizer's ids of a test text", Usage: "`NAME` of llama.cpp for the tokenizer's pre-tokenizer, of a .gguf file"},
		&cli.StringFlag{Name: "split", Category: category, DefaultText: "one .gguf file; 5GB for checkpoints", Usage: "greatest `SIZE` of a .gguf file, or of a checkpoint's (2GB): a larger model is divided into shards"},
	}
}

// Split reads the flag --split; 0 if it is not given.
func Split(c *cli.Context) (int64, error) {
	if !c.IsSet("split") {
		return 0, nil
	}
	n, err := ParseBytes(c.String("split"))
	if err != nil {
		return 0, Usagef("--split: %w", err)
	}
	return n, nil
}
