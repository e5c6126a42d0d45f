// Command speed measures the tables of docs/SPEED.md: gq beside llama.cpp, KleidiAI and TorchAO.
//
//	go run ./docs/speed -w -llama.cpp DIR -tokenizer DIR -kleidiai DIR -torchao DIR -plugin FILE   # all that can be run
//	go run ./docs/speed -rows 'search' -busy                                                       # some rows, printed
//
// Every figure comes from a command that a reader can type; the programs of a table run in turn, and figures are medians.
// Figures stay in docs/speed/figures.json, so rows can be measured singly. Without -rows the tables of -tables are
// measured; with -tables none the document is only written again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/docs/internal/marked"
)

var (
	doc       = flag.String("doc", "docs/SPEED.md", "the `file` that -w writes to")
	figures   = flag.String("figures", "docs/speed/figures.json", "the `file` that keeps the figures")
	write     = flag.Bool("w", false, "keep the figures and put the tables into the document")
	only      = flag.String("tables", "quantizing,inference,kernels,arm,accuracy,start,calibration", "tables to measure")
	named     = flag.String("rows", "", "measure the rows whose names match this regular `expression`, and what they are compared with")
	quick     = flag.Bool("quick", false, "a tiny model, one round: tries the program, measures nothing")
	long      = flag.Bool("long", false, "measure table calibration too, which takes long")
	busy      = flag.Bool("busy", false, "measure although others use the CPUs; such figures are marked")
	rounds    = flag.Int("rounds", 3, "rounds that a median is taken of")
	threads   = flag.Int("threads", runtime.NumCPU(), "threads of all programs")
	scratch   = flag.String("dir", "", "the `directory` for models, some 9 GB, which are kept for the next time (default: a temporary one)")
	llama     = flag.String("llama.cpp", "", "the `directory` of llama-quantize and llama-bench")
	tokenizer = flag.String("tokenizer", "", "a `directory` with a tokenizer.json of at most 128256 entries, such as Llama 3's")
	kleidiai  = flag.String("kleidiai", "", "the `directory` of KleidiAI's sources, which holds kai/")
	torchao   = flag.String("torchao", "", "the `directory` of TorchAO's sources, which holds torchao/csrc/")
	plugin    = flag.String("plugin", "", "the `file` of qemu's plugin that counts instructions, see docs/kernels")
	cc        = flag.String("cc", "aarch64-linux-gnu-gcc", "the C `compiler` for KleidiAI")
	cxx       = flag.String("cxx", "aarch64-linux-gnu-g++", "the C++ `compiler` for TorchAO")
	verbose   = flag.Bool("v", false, "print every run to standard error")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("speed: ")
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	rows, err := regexp.Compile(*named)
	switch {
	case err != nil:
		return fmt.Errorf("-rows: %w", err)
	case *quick && *write:
		return errors.New("-quick measures nothing that -w could write")
	case *rounds < 1 || *threads < 1:
		return errors.New("-rounds and -threads: at least 1")
	case *quick:
		*rounds = 1
	}
	kept, err := load(*figures)
	if err != nil {
		return err
	}
	all, failed := tables(), 0
	if *only != "none" {
		for name := range strings.SplitSeq(*only, ",") {
			if !slices.ContainsFunc(all, func(t table) bool { return t.name == name }) {
				return fmt.Errorf("-tables: there is no table %s", name)
			}
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		if failed, err = measure(ctx, all, rows, kept); err != nil {
			return err
		}
	}
	if *write {
		err = publish(all, kept, *doc)
	} else {
		for _, t := range all {
			fmt.Printf("%s\n\n%s\n", t.name, t.render(kept))
		}
		fmt.Print(kept.runs())
	}
	if err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d commands failed", failed)
	}
	return nil
}

// publish puts the tables into the document.
func publish(all []table, kept *store, doc string) error {
	if err := marked.Replace(doc, "runs", kept.runs()); err != nil {
		return err
	}
	for _, t := range all {
		if err := marked.Replace(doc, t.name, t.render(kept)); err != nil {
			return err
		}
	}
	return nil
}

// measure measures the rows of the tables that the flags select, and returns how many commands failed.
func measure(ctx context.Context, all []table, rows *regexp.Regexp, kept *store) (failed int, err error) {
	if share := idle(); share > reliable && !*busy {
		return 0, fmt.Errorf("other programs take %.0f %% of the CPUs: end them, or measure with -busy, which marks such figures", 100*share)
	}
	b, err := newBench(ctx, kept)
	if err != nil {
		return 0, err
	}
	defer b.close()
	for _, t := range all {
		if !slices.Contains(strings.Split(*only, ","), t.name) {
			continue
		}
		if err := b.measure(t, rows); err != nil {
			return b.failed, fmt.Errorf("table %s: %w", t.name, err)
		}
		if *write {
			if err := kept.save(*figures); err != nil {
				return b.failed, err
			}
		}
	}
	return b.failed, nil
}
