package accuracy

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/cmd/internal/measure"
)

// saveFlags are the flags that go with --save-reference.
var saveFlags = []string{"save-reference", "text", "tokens", "convention", "window", "stride", "max-tokens", "threads", "json", "quiet"}

// save runs the checkpoint on a text and saves its predictions.
func save(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if !slices.Contains(saveFlags, name) && c.IsSet(name) {
			return cmdline.Usagef("--%s does not go with --save-reference, which runs the checkpoint alone", name)
		}
	}
	switch o, err := measure.Options(c); {
	case err != nil:
		return err
	case c.NArg() != 1:
		return cmdline.Usagef("--save-reference wants a checkpoint and nothing else, got %d arguments", c.NArg())
	case len(o.Texts) != 1:
		return cmdline.Usagef("--save-reference wants one --text or --tokens, got %d", len(o.Texts))
	default:
		r, err := gq.SaveReference(c.Context, c.Args().First(), c.String("save-reference"), gq.ReferenceOptions{
			Text: o.Texts[0], Windows: o.Windows, Version: o.Version, Threads: o.Threads, Progress: o.Progress,
		})
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return cmdline.PrintJSON(c.App.Writer, r)
		}
		_, err = fmt.Fprintf(c.App.Writer, "wrote    %s\ntext     %s, %d tokens scored\nsize     %s, %.2f bytes per logit\n",
			cmdline.Text(r.File), cmdline.Text(r.Text.Name), r.Scored, cmdline.Bytes(r.Bytes), float64(r.Bytes)/float64(r.Scored)/float64(r.Vocab))
		return err
	}
}
