// Package run is the command `gq run`: a text continued by the model in a .gqf file.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/lowbit-go/gq"
	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/model/generate"
)

const maxPrompt = 64 << 20

// Command gives `gq run`.
func Command() *cli.Command {
	d := generate.DefaultSampling
	return &cli.Command{
		Name:  "run",
		Usage: "continue a prompt with the model in a .gqf or .gguf file, and say what that took",
		UsageText: `gq run model.gqf --prompt 'Once upon a time'
gq run model.gqf --prompt-file chapter.txt --temperature 0 --max-tokens 100
gq run model.gqf --chat --system 'Answer in one sentence.'
# a checkpoint runs in float32
gq run Llama-3.2-1B --prompt 'Once upon a time' --seed 7
`,
		ArgsUsage: "FILE|DIR",
		Description: "The text goes to standard output as it comes, without the prompt; speed, memory and cost go to standard\n" +
			"error. A checkpoint's directory instead of a .gqf runs in float32, for comparison. A .gguf file runs where it\n" +
			"lies. Of a quantized checkpoint, codes that a .gqf file holds (GPTQ ...) run through the kernels, other\n" +
			"tensors in float32; a temporary .gqf file beside it is removed at the end.\n\n" +
			"The same file, prompt and options give the same text on every CPU, for any number of threads; another\n" +
			"--seed gives another one. Defaults of sampling are llama.cpp's, and so is the order: penalties,\n" +
			"top-k, top-p, min-p, temperature.\n\n" +
			"--chat talks: each line is a message, and the model's chat template makes the prompt. On a terminal, /help\n" +
			"lists commands and Ctrl-C stops an answer; otherwise messages are the lines of standard input. Names of\n" +
			"special tokens in a message are text. A conversation that the context cannot hold is an error.\n\n" +
			"Without --chat there is no template: write the prompt as the model's template would, tokens such as\n" +
			"<|im_start|> included. A BOS token comes before it where the tokenizer's files ask for one.\n\n" +
			"Of the weights nothing is read before it is used, and no checksum is compared: --verify does that first,\n" +
			"for what the model uses, and gq verify for the whole file.",
		Flags: append(cmdline.Settings("", "lora"), []cli.Flag{
			&cli.StringFlag{Name: "prompt", Aliases: []string{"p"}, Usage: "`TEXT` to continue"},
			&cli.StringFlag{Name: "prompt-file", Usage: "`FILE` with that text, - for standard input; one newline at its end is not part of it"},
			&cli.BoolFlag{Name: "chat", Usage: "talk with the model, with its chat template"},
			&cli.StringFlag{Name: "system", Usage: "instructions, `TEXT`, for the model; with --chat"},
			cmdline.Positive(&cli.IntFlag{Name: "max-tokens", Aliases: []string{"n"}, Value: generate.DefaultMaxTokens, DefaultText: fmt.Sprintf("%d; with --chat %d for an answer", generate.DefaultMaxTokens, gq.ChatMaxTokens), Usage: "generate at most `N` tokens"}),
			cmdline.Positive(&cli.IntFlag{Name: "context", DefaultText: "the prompt and --max-tokens, at most what config.json says; with --chat at most 8192", Usage: "make room for `N` tokens, the prompt's included"}),
			&cli.Float64Flag{Name: "temperature", Value: d.Temperature, Usage: "divide logits by `T`; 0 takes the most likely token, always"},
			&cli.IntFlag{Name: "top-k", Value: d.TopK, Usage: "choose among the `K` likeliest tokens; 0: among all"},
			&cli.Float64Flag{Name: "top-p", Value: d.TopP, Usage: "choose among the likeliest that have probability `P` together; 1: among all"},
			&cli.Float64Flag{Name: "min-p", Value: d.MinP, Usage: "choose among those at least `P` times as likely as the likeliest; 0: among all"},
			&cli.Float64Flag{Name: "repeat-penalty", Value: d.RepeatPenalty, Usage: "make the last 64 tokens less likely by the factor `R` on their logits; 1: do not"},
			&cli.Float64Flag{Name: "presence-penalty", Value: d.PresencePenalty, Usage: "subtract `A`, -2 to 2, from the logits of all tokens of the answer so far"},
			&cli.Float64Flag{Name: "frequency-penalty", Value: d.FrequencyPenalty, Usage: "subtract `A`, -2 to 2, once for each time that a token is in the answer"},
			&cli.Uint64Flag{Name: "seed", Value: d.Seed, Usage: "`NUMBER` that the choices follow from"},
			&cli.StringSliceFlag{Name: "stop", Usage: "end before `STRING`; repeatable"},
			&cli.BoolFlag{Name: "ignore-eos", Usage: "never choose a token that ends the text"},
			&cli.BoolFlag{Name: "no-bos", Usage: "put no BOS token before the prompt"},
			&cli.StringFlag{Name: "activations", Value: forward.Int8.String(), DefaultText: "int8; float32 for a checkpoint", Usage: "`DTYPE` of the inputs of quantized layers: int8, as on the device, or float32"},
			cmdline.Threads(),
			&cli.Float64Flag{Name: "price-per-hour", DefaultText: "no costs", Usage: "`PRICE` of the machine: adds the cost of this text and of a million tokens, in the same currency"},
			&cli.BoolFlag{Name: "verify", Usage: "read the weights first and compare their checksums; a damaged file is not run"},
			&cli.BoolFlag{Name: "tokens", Usage: "print tokens instead of text: a line with number and spelling for each token, the prompt's included"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "list the kernels that ran"},
			&cli.BoolFlag{Name: "json", Usage: "print text, tokens and measurements as JSON when all is done"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print the text alone"},
		}...),
		Action: run,
	}
}

func run(c *cli.Context) error {
	opts, err := options(c)
	if err != nil {
		return err
	}
	switch {
	case c.NArg() == 2 && !c.IsSet("prompt"):
		return cmdline.Usagef("gq run wants one .gqf or .gguf file or directory, got %q too: a text to continue goes behind --prompt", c.Args().Get(1))
	case c.NArg() != 1:
		return cmdline.Usagef("gq run wants one .gqf or .gguf file or directory, got %d arguments", c.NArg())
	}
	path := c.Args().First()
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		if c.IsSet("activations") && opts.Activations != forward.Float32 {
			return cmdline.Usagef("--activations %s: a checkpoint runs in float32", opts.Activations)
		}
		if opts.Verify {
			return cmdline.Usagef("--verify: a checkpoint has no checksums, a .gqf file has")
		}
	}
	if c.Bool("chat") {
		return talk(c, path, opts)
	}
	if c.IsSet("system") {
		return cmdline.Usagef("--system goes with --chat")
	}
	if opts.Prompt, err = prompt(c); err != nil {
		return err
	}
	w := newWriter(c)
	switch {
	case c.Bool("json"):
	case c.Bool("tokens"):
		opts.Token = func(id int32, token string, _ bool) error { return w.print(fmt.Sprintf("%d\t%q\n", id, token)) }
	default:
		opts.Text = w.text
	}
	r, err := gq.Run(c.Context, path, opts)
	if errors.Is(err, errNobody) {
		return nil
	}
	if r == nil || err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return errors.Join(w.finish(r), err)
}

// options reads all flags except the prompt flags.
func options(c *cli.Context) (o gq.RunOptions, err error) {
	o.Options = generate.Options{
		NoBOS: c.Bool("no-bos"), IgnoreEOS: c.Bool("ignore-eos"), Stop: c.StringSlice("stop"),
		MaxTokens: c.Int("max-tokens"), Context: c.Int("context"),
		Sampling: generate.Sampling{
			Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
			RepeatPenalty: c.Float64("repeat-penalty"), PresencePenalty: c.Float64("presence-penalty"), FrequencyPenalty: c.Float64("frequency-penalty"),
			Seed: c.Uint64("seed"),
		},
	}
	o.Lora = c.StringSlice("lora")
	o.Threads, o.Verify, o.Progress = c.Int("threads"), c.Bool("verify"), cmdline.Reporter(c)
	var ok bool
	if o.Activations, ok = forward.ParseActivations(c.String("activations")); !ok {
		return o, cmdline.Usagef("--activations: %q is none of int8, float32 and onnx", c.String("activations"))
	}
	if err := o.Sampling.CheckGiven(); err != nil {
		return o, cmdline.Usagef("--%w", err)
	}
	if o.PricePerHour, err = cmdline.Price(c); err != nil {
		return o, err
	}
	for _, s := range o.Stop {
		if s == "" || !utf8.ValidString(s) {
			return o, cmdline.Usagef("--stop %q is no text", s)
		}
	}
	return o, nil
}

func prompt(c *cli.Context) (string, error) {
	name, text := c.String("prompt-file"), c.String("prompt")
	switch {
	case c.IsSet("prompt") && c.IsSet("prompt-file"):
		return "", cmdline.Usagef("--prompt and --prompt-file: give one of them")
	case !c.IsSet("prompt") && !c.IsSet("prompt-file"):
		return "", cmdline.Usagef("what text? give one with --prompt or --prompt-file, or talk with the model: --chat")
	case c.IsSet("prompt"):
		name = "--prompt"
	default:
		var err error
		if text, err = readPrompt(c, name); err != nil {
			return "", err
		}
		if name == "-" {
			name = "standard input"
		}
	}
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("%s is not UTF-8", name)
	}
	return text, nil
}

func readPrompt(c *cli.Context, name string) (string, error) {
	var b []byte
	var err error
	if name == "-" {
		b, err = files.ReadStream(c.Context, c.App.Reader, "standard input", maxPrompt)
	} else {
		b, err = files.ReadContext(c.Context, name, maxPrompt)
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
}

var errNobody = errors.New("standard output is closed")

type writer struct {
	c        *cli.Context
	w        io.Writer
	terminal bool
	last     byte // of the text
}

func newWriter(c *cli.Context) *writer {
	return &writer{c: c, w: c.App.Writer, terminal: term.IsTerminal(int(os.Stdout.Fd())), last: '\n'}
}

func (w *writer) text(s string) error {
	w.last = s[len(s)-1]
	if w.terminal {
		s = strings.Map(printable, s)
	}
	return w.print(s)
}

// printable keeps a model from sending control sequences to a terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return utf8.RuneError
	}
	return r
}

func (w *writer) print(s string) error {
	if _, err := io.WriteString(w.w, s); err != nil {
		return err
	}
	read, err := cmdline.Flush(w.w)
	if err == nil && !read {
		err = errNobody
	}
	return err
}

// finish prints the rest when the text is complete.
func (w *writer) finish(r *generate.Result) error {
	if w.c.Bool("json") {
		return cmdline.PrintJSON(w.w, r)
	}
	if err := w.newline(); err != nil && err != errNobody {
		return err
	}
	if w.c.Bool("quiet") {
		return nil
	}
	e := w.c.App.ErrWriter
	fmt.Fprintln(e)
	printSummary(e, r)
	if !w.c.Bool("verbose") {
		return nil
	}
	fmt.Fprintln(e)
	return cmdline.Table(e, []string{"KERNEL", "WEIGHTS", "LINEARS>", "ROWS>"}, func(line func(...any)) {
		for _, k := range r.Kernels {
			line(k.Kernel, k.Weights, k.Linears, k.Rows)
		}
	})
}

// newline ends the last line of the text.
func (w *writer) newline() error {
	if w.last == '\n' {
		return nil
	}
	return w.print("\n")
}

func printSummary(w io.Writer, r *generate.Result) {
	fmt.Fprintf(w, "model    %s, %s, %d threads\n", r.Architecture, r.Executed, r.Threads)
	fmt.Fprintf(w, "prompt   %d tokens at %.1f tokens/s\n", len(r.PromptIDs), r.PrefillTokensPerSecond)
	fmt.Fprintf(w, "first    token after %s\n", seconds(r.OpenSeconds+r.FirstTokenSeconds))
	fmt.Fprintf(w, "text     %d tokens", len(r.IDs))
	if r.DecodeTokensPerSecond > 0 {
		fmt.Fprintf(w, " at %.1f tokens/s", r.DecodeTokensPerSecond)
	}
	fmt.Fprintf(w, "; %s\n", ended(r))
	fmt.Fprintf(w, "time     %s, %s of it to open\n", seconds(r.TotalSeconds), seconds(r.OpenSeconds))
	if m := r.Memory; m.Source == "linux" {
		fmt.Fprintf(w, "memory   %s private (RssAnon), %s of mapped files (RssFile, RssShmem)\n", cmdline.Bytes(m.Private), cmdline.Bytes(m.File))
	} else {
		fmt.Fprintf(w, "memory   %s by Go's runtime, mapped files not included\n", cmdline.Bytes(m.Private))
	}
	if r.Warning != "" {
		fmt.Fprintf(w, "gq: warning: %s\n", r.Warning)
	}
	if c := r.Cost; c != nil {
		fmt.Fprintf(w, "cost     prompt %.3g, text %.3g; a million tokens in %.3g, out %.3g (at %v an hour)\n", c.Prompt, c.Output, c.MillionInput, c.MillionOutput, c.PricePerHour)
	}
}

// seconds formats a time, from microseconds to hours, with three digits.
func seconds(s float64) string {
	if time.Duration(s*1e9) < time.Second {
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}

func ended(r *generate.Result) string {
	switch r.Stopped {
	case generate.EndOfText:
		return "the model ended it"
	case generate.StopString:
		return fmt.Sprintf("ended by %q", r.StopString)
	case generate.MaxTokens:
		return "ended by --max-tokens"
	case generate.ContextFull:
		return fmt.Sprintf("ended by the context of %d tokens", r.Context)
	}
	return string(r.Stopped)
}
