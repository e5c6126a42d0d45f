// Package serve is the command `gq serve`: an OpenAI-style endpoint and a page to chat on.
package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/serve"
	"github.com/urfave/cli/v2"
)

// Categories of flags.
const (
	models = "Models"
	limits = "Limits"
)

// Command gives `gq serve`.
func Command() *cli.Command {
	d := serve.Limits{}.WithDefaults()
	return &cli.Command{
		Name:  "serve",
		Usage: "answer HTTP requests in OpenAI's way with one or more models, and show a page to chat on",
		UsageText: `gq serve model.gqf
# a quantized file beside its checkpoint, to compare their answers on the page
gq serve model.gqf Llama-3.2-1B --alias 4bit --alias float
gq serve model.gqf --host 0.0.0.0 --api-key-file key.txt
`,
		ArgsUsage: "FILE|DIR [FILE|DIR ...]",
		Description: "The page is at http://127.0.0.1:8080/, the API at /v1/chat/completions, /v1/completions and /v1/models.\n" +
			"/metrics has counts for Prometheus, /health says whether the server takes requests. docs/SERVE.md\n" +
			"describes them. Logs go to standard error; prompts are not in them.\n\n" +
			"An answer is the text that gq run gives for the same file, prompt, options and seed, whatever else is\n" +
			"served at the same time. Requests run together, at most --parallel of each model; more wait in a queue,\n" +
			"and when it is full get status 429.\n\n" +
			"Without an API key the server listens on the loopback interface only. TLS is a proxy's work.\n\n" +
			"SIGTERM or Ctrl-C ends the server: running answers are finished for at most --drain, new requests get\n" +
			"status 503. A second signal ends it at once.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "listen on this IP `ADDRESS`; any but the loopback interface's needs --api-key-file"},
			&cli.IntFlag{Name: "port", Value: 8080, Usage: "listen on this `PORT`; 0: on a free one"},
			&cli.StringFlag{Name: "api-key-file", DefaultText: "no key is needed", Usage: "`FILE` with the key that clients must send"},
			&cli.BoolFlag{Name: "json", Usage: "print URL and models as a line of JSON when the server is ready, and logs as JSON"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "log failures only, no requests"},
			&cli.BoolFlag{Name: "log-prompts", Usage: "log prompts and answers"},
			&cli.Float64Flag{Name: "price-per-hour", DefaultText: "the page asks", Usage: "`PRICE` of the machine, for costs on the page"},

			&cli.StringSliceFlag{Name: "alias", Category: models, DefaultText: "file names without their endings", Usage: "`NAME` of a model for clients; give one for each file, in their order"},
			cmdline.Settings(models, "lora")[0],
			cmdline.Positive(&cli.IntFlag{Name: "context", Category: models, DefaultText: "what config.json says, at most 8192", Usage: "make room for `N` tokens per sequence, the prompt's included"}),
			cmdline.Positive(&cli.IntFlag{Name: "parallel", Category: models, Value: 4, Usage: "compute `N` sequences of a model together"}),
			&cli.IntFlag{Name: "queue", Category: models, DefaultText: "4 times --parallel", Usage: "let `N` sequences of a model wait"},
			&cli.StringFlag{Name: "activations", Category: models, Value: forward.Int8.String(), DefaultText: "int8; float32 for a checkpoint", Usage: "`DTYPE` of the inputs of quantized layers: int8, as on the device, or float32"},
			&cli.BoolFlag{Name: "verify", Category: models, Usage: "compare the checksums of all weights first; a damaged file is not served"},
			cmdline.Threads(),

			&cli.StringFlag{Name: "max-body", Category: limits, Value: mebibytes(d.Body), Usage: "largest `SIZE` of a request"},
			&cli.StringFlag{Name: "max-prompt", Category: limits, Value: mebibytes(d.Prompt), Usage: "largest `SIZE` of a prompt or conversation"},
			cmdline.Positive(&cli.IntFlag{Name: "max-choices", Category: limits, Value: d.Choices, Usage: "most answers `N` of a request: prompts times n"}),
			cmdline.Positive(&cli.IntFlag{Name: "max-connections", Category: limits, Value: d.Connections, Usage: "most connections `N` at a time"}),
			&cli.DurationFlag{Name: "max-time", Category: limits, Value: d.Request, Usage: "longest `TIME` from the end of a request's body to the end of its answer"},
			&cli.DurationFlag{Name: "receive-timeout", Category: limits, Value: d.Receive, Usage: "`TIME` for a client to send a header, and then a body"},
			&cli.DurationFlag{Name: "send-timeout", Category: limits, Value: d.Send, Usage: "`TIME` for a client to take an event or an answer"},
			&cli.DurationFlag{Name: "drain", Category: limits, Value: d.Drain, Usage: "`TIME` for running answers after SIGTERM"},
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	o, err := options(c)
	if err != nil {
		return err
	}
	o.Ready = func(r gq.ServeReport) error {
		if err := printReady(c, r); err != nil {
			return err
		}
		_, err := cmdline.Flush(c.App.Writer) // for a program that waits for it
		return err
	}
	return gq.Serve(c.Context, o)
}

func options(c *cli.Context) (o gq.ServeOptions, err error) {
	o = gq.ServeOptions{
		Host: c.String("host"), Port: c.Int("port"), Context: c.Int("context"), Parallel: c.Int("parallel"),
		Lora: c.StringSlice("lora"), Threads: c.Int("threads"), Verify: c.Bool("verify"), LogPrompts: c.Bool("log-prompts"), Progress: cmdline.Reporter(c),
	}
	if c.NArg() == 0 {
		return o, cmdline.Usagef("gq serve wants at least one .gqf or .gguf file or directory")
	}
	aliases := c.StringSlice("alias")
	if n := len(aliases); n != 0 && n != c.NArg() {
		return o, cmdline.Usagef("--alias: %d names for %d models: give one for each, in their order", n, c.NArg())
	}
	for i, path := range c.Args().Slice() {
		m := gq.ServeModel{Path: path}
		if len(aliases) > 0 {
			m.ID = aliases[i]
		}
		o.Models = append(o.Models, m)
	}
	var ok bool
	if o.Activations, ok = forward.ParseActivations(c.String("activations")); !ok {
		return o, cmdline.Usagef("--activations: %q is none of int8, float32 and onnx", c.String("activations"))
	}
	if o.PricePerHour, err = cmdline.Price(c); err != nil {
		return o, err
	}
	if n := c.Int("queue"); c.IsSet("queue") {
		if n < 0 || n > math.MaxInt32 {
			return o, cmdline.Usagef("--queue %d is not 0 or more", n)
		}
		if o.Queue = n; n == 0 {
			o.Queue = -1 // 0 stands for the default
		}
	}
	if o.Limits, err = readLimits(c); err != nil {
		return o, err
	}
	if name := c.String("api-key-file"); name != "" {
		key, err := files.Read(name, maxKeyFile)
		if err != nil {
			return o, err
		}
		if o.APIKey = bytes.TrimSpace(key); len(o.APIKey) == 0 { // nil would mean that no key is needed
			return o, cmdline.Usagef("--api-key-file: %s holds no key", name)
		}
	} else if c.IsSet("api-key-file") {
		return o, cmdline.Usagef("--api-key-file names no file")
	}
	o.Log = logger(c)
	return o, nil
}

// maxKeyFile is the size of the largest API key.
const maxKeyFile = 4 << 10

// mebibytes writes a default for cmdline.ParseBytes.
func mebibytes(n int64) string { return fmt.Sprintf("%dMiB", n>>20) }

func readLimits(c *cli.Context) (l serve.Limits, err error) {
	l = serve.Limits{Choices: c.Int("max-choices"), Connections: c.Int("max-connections")}
	for name, into := range map[string]*time.Duration{"max-time": &l.Request, "receive-timeout": &l.Receive, "send-timeout": &l.Send, "drain": &l.Drain} {
		if *into = c.Duration(name); *into <= 0 {
			return l, cmdline.Usagef("--%s %v is not above 0", name, *into)
		}
	}
	for name, into := range map[string]*int64{"max-body": &l.Body, "max-prompt": &l.Prompt} {
		if *into, err = cmdline.ParseBytes(c.String(name)); err != nil {
			return l, cmdline.Usagef("--%s: %w", name, err)
		}
		if *into < 1 { // 0 stands for the default
			return l, cmdline.Usagef("--%s %s is not 1 byte or more", name, c.String(name))
		}
	}
	return l, nil
}

func logger(c *cli.Context) *slog.Logger {
	o := &slog.HandlerOptions{}
	if c.Bool("quiet") {
		o.Level = slog.LevelError
	}
	if c.Bool("json") {
		return slog.New(slog.NewJSONHandler(c.App.ErrWriter, o))
	}
	return slog.New(slog.NewTextHandler(c.App.ErrWriter, o))
}

// printReady prints the models and the address, with --json in one line for a program.
func printReady(c *cli.Context, r gq.ServeReport) error {
	w := c.App.Writer
	if c.Bool("json") {
		return json.NewEncoder(w).Encode(r)
	}
	err := cmdline.Table(w, []string{"MODEL", "SCHEME", "SIZE>", "BITS/WEIGHT>", "ACTIVATIONS", "CONTEXT>", "PARALLEL>", "KEYS AND VALUES>", "CHAT TEMPLATE"}, func(line func(...any)) {
		for _, m := range r.Models {
			template := m.Template
			if template == "plain" {
				template = "plain: the model has none"
			}
			line(cmdline.Text(m.ID), m.Scheme, cmdline.Bytes(m.Bytes), fmt.Sprintf("%.2f", m.Bits), m.Activations, m.Context, m.Parallel, cmdline.Bytes(m.Memory), template)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\n%s\n", r.URL)
	return err
}
