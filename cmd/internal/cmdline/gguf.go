package cmdline

import (
	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq/quantizer/conversion"
)

// GGUFFlags are the flags of commands that write .gguf files.
func GGUFFlags(category string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "pre", Category: category, DefaultText: "found by the tokenizer's ids of a test text", Usage: "`NAME` of llama.cpp for the tokenizer's pre-tokenizer, of a .gguf file"},
		&cli.StringFlag{Name: "split", Category: category, Usage: "greatest `SIZE` of a .gguf file (2GB): a larger model is divided into shards, named as llama.cpp does it"},
	}
}

// GGUFOptions reads the flags.
func GGUFOptions(c *cli.Context) (o conversion.GGUFOptions, err error) {
	o.Pre = c.String("pre")
	if c.IsSet("split") {
		if o.Split, err = ParseBytes(c.String("split")); err != nil {
			return o, Usagef("--split: %w", err)
		}
	}
	return o, nil
}
