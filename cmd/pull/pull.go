// Package pull is the command `gq pull`: a model from where it is published into the cache.
package pull

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
)

// Command gives `gq pull`.
func Command() *cli.Command {
	return &cli.Command{
		Name:  "pull",
		Usage: "download a model into the cache, from the Hugging Face Hub, a web server or an object store",
		UsageText: `gq pull meta-llama/Llama-3.2-1B
gq pull Qwen/Qwen3-0.6B --revision refs/pr/1
gq pull https://example.org/models/tiny/
# what is in the cache, and how to remove some of it
gq pull --list
gq pull --prune
gq pull --prune meta-llama/Llama-3.2-1B
`,
		ArgsUsage: "NAME",
		Description: "NAME is org/model or hf://org/model[@revision][/file] for the Hugging Face Hub, https://HOST/DIRECTORY\n" +
			"for a web server, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX. All commands take these names where they\n" +
			"take a checkpoint or a file, but org/model without hf://.\n\n" +
			"The weights in safetensors, config.json, the tokenizer, the chat template and the model card are\n" +
			"fetched. A repository of the hub goes into its own cache, which Python's library shares (HF_HOME,\n" +
			"HF_HUB_CACHE); HF_TOKEN or the token of hf auth login opens gated models, HF_ENDPOINT names another\n" +
			"hub, and with HF_HUB_OFFLINE=1 only the cache is used. A download that was ended goes on where it\n" +
			"was. docs/REMOTE.md has the details.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "revision", DefaultText: "main", Usage: "`NAME` of the branch, tag or commit of a repository"},
			&cli.BoolFlag{Name: "list", Usage: "list the models in the caches"},
			&cli.BoolFlag{Name: "prune", Usage: "remove revisions that no branch or tag leads to any more and downloads that were ended; with NAMEs, all of these models"},
			cmdline.JSON(),
			cmdline.Quiet(),
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	list, prune := c.Bool("list"), c.Bool("prune")
	switch {
	case list && prune:
		return cmdline.Usagef("--list and --prune: give one of them")
	case (list || prune) && c.IsSet("revision"):
		return cmdline.Usagef("--revision goes with a download")
	case list && c.NArg() > 0:
		return cmdline.Usagef("gq pull --list wants no name, got %d", c.NArg())
	case list:
		r, err := gq.ListCache()
		return cmdline.Show(c, r, err, printList)
	case prune:
		return runPrune(c)
	case c.NArg() != 1:
		return cmdline.Usagef("gq pull wants one name of a model, got %d", c.NArg())
	}
	r, err := gq.Pull(c.Context, c.Args().First(), gq.PullOptions{Revision: c.String("revision"), Progress: cmdline.Reporter(c)})
	return cmdline.Show(c, r, err, func(w io.Writer, r *gq.PullReport) error {
		fetched := ""
		if r.FetchedBytes < r.Bytes {
			fetched = fmt.Sprintf(", %s of them fetched now", cmdline.Bytes(r.FetchedBytes))
		}
		_, err := fmt.Fprintf(w, "%s: %d files, %s%s\n%s\n", cmdline.Text(r.Name), len(r.Files), cmdline.Bytes(r.Bytes), fetched, cmdline.Text(r.Path))
		return err
	})
}

func runPrune(c *cli.Context) error {
	r, err := gq.PruneCache(c.Args().Slice()...)
	return cmdline.Show(c, r, err, func(w io.Writer, r *gq.PruneReport) error {
		for _, name := range r.InUse {
			if _, err := fmt.Fprintf(w, "%s: a running job uses it: nothing of it was removed\n", cmdline.Text(name)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "%s removed\n", cmdline.Bytes(r.RemovedBytes))
		return err
	})
}

func printList(w io.Writer, r *gq.CacheReport) error {
	if len(r.Models)+len(r.Sources) == 0 {
		_, err := fmt.Fprintf(w, "%s has no model\n", cmdline.Text(r.Dir))
		return err
	}
	return cmdline.Table(w, []string{"MODEL", "REVISION", "COMMIT", "FILES>", "SIZE>"}, func(line func(...any)) {
		for _, m := range r.Models {
			for _, v := range m.Revisions {
				line(cmdline.Text(m.Repo), cmdline.Text(strings.Join(v.Refs, ", ")), v.Commit[:12], v.Files, cmdline.Bytes(v.Bytes))
			}
			if m.Incomplete > 0 {
				line(cmdline.Text(m.Repo), "not finished", "", "", cmdline.Bytes(m.Incomplete))
			}
		}
		for _, s := range r.Sources {
			line(cmdline.Text(s.Location), "", "", "", cmdline.Bytes(s.Bytes))
		}
	})
}
