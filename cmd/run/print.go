package run

import (
	"fmt"
	"io"
	"time"

	"github.com/lowbit-go/gq/cmd/internal/cmdline"
	"github.com/lowbit-go/gq/model/generate"
)

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
	fmt.Fprintf(w, "first    token after %s\n", seconds(r.FirstTokenSeconds))
	fmt.Fprintf(w, "text     %d tokens", len(r.IDs))
	if r.DecodeTokensPerSecond > 0 {
		fmt.Fprintf(w, " at %.1f tokens/s", r.DecodeTokensPerSecond)
	}
	fmt.Fprintf(w, "; %s\n", ended(r))
	fmt.Fprintf(w, "time     %s, %s of it to open\n", seconds(r.TotalSeconds), seconds(r.OpenSeconds))
	if m := r.Memory; m.Source == "linux" {
		fmt.Fprintf(w, "memory   %s private (RssAnon), %s of mapped files (RssFile)\n", cmdline.Bytes(m.Private), cmdline.Bytes(m.File))
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
	d := time.Duration(s * 1e9)
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", s*1e3)
	default:
		return fmt.Sprintf("%.2f s", s)
	}
}

// ended says why the text ended.
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
