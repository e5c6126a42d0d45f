// Command speed measures the tables of docs/SPEED.md: gq beside llama.cpp, KleidiAI and TorchAO. It
// writes the commands of the tables to tools/speed/COMMANDS.md.
//
//	# all that can be run; some rows, printed
//	go run -C tools ./speed -w -llama.cpp DIR -tokenizer DIR -kleidiai DIR -torchao DIR -plugin FILE
//	go run -C tools ./speed -rows 'search' -busy
//
// Every figure comes from a command that a reader can type; the programs of a table run in turn,
// and figures are medians. Figures stay in tools/speed/figures.json, so rows can be measured
// singly. Without -rows the tables of -tables are measured; with -tables none the document is only
// written again.
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

	"github.com/lowbit-go/gq/tools/internal/repository"
)

var (
	doc       = flag.String("doc", "docs/SPEED.md", "the `file` that -w writes to")
	commands  = flag.String("commands", "tools/speed/COMMANDS.md", "the `file` that -w writes the commands of all tables to")
	figures   = flag.String("figures", "tools/speed/figures.json", "the `file` that keeps the figures")
	write     = flag.Bool("w", false, "keep the figures, put the tables into the document and write the commands")
	only      = flag.String("tables", "quantizing,inference,arm,accuracy,start,calibration", "tables to measure")
	named     = flag.String("rows", "", "measure the rows whose names match this regular `expression`, and what they are compared with")
	quick     = flag.Bool("quick", false, "a tiny model, one round: tries the program, measures nothing")
	long      = flag.Bool("long", false, "measure table calibration too, which takes long")
	busy      = flag.Bool("busy", false, "measure although others use the CPUs; such figures are marked")
	rounds    = flag.Int("rounds", 3, "rounds that a median is taken of")
	threads   = flag.Int("threads", runtime.GOMAXPROCS(0), "threads of all programs")
	scratch   = flag.String("dir", "", "the `directory` for models, some 9 GB, which are kept for the next time (default: a temporary one)")
	llama     = flag.String("llama.cpp", "", "the `directory` of llama-quantize and llama-bench")
	tokenizer = flag.String("tokenizer", "", "a `directory` with a tokenizer.json of at most 128256 entries, such as Llama 3's")
	kleidiai  = flag.String("kleidiai", "", "the `directory` of KleidiAI's sources, which holds kai/")
	torchao   = flag.String("torchao", "", "the `directory` of TorchAO's sources, which holds torchao/csrc/")
	plugin    = flag.String("plugin", "", "the `file` of qemu's plugin that counts instructions, see tools/kernels")
	cc        = flag.String("cc", "aarch64-linux-gnu-gcc", "the C `compiler` for KleidiAI")
	cxx       = flag.String("cxx", "aarch64-linux-gnu-g++", "the C++ `compiler` for TorchAO")
	verbose   = flag.Bool("v", false, "print every run to standard error")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("speed: ")
	flag.Parse()
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
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
		err = publish(all, kept, *doc, *commands)
	} else {
		for _, t := range all {
			fmt.Printf("%s\n\n%s\n%s\n", t.name, t.render(kept), t.commands())
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

// publish puts the tables into the document, and writes the file of their commands.
func publish(all []table, kept *store, doc, commands string) error {
	if err := repository.Replace(doc, "runs", kept.runs()); err != nil {
		return err
	}
	for _, t := range all {
		if err := repository.Replace(doc, t.name, t.render(kept)); err != nil {
			return err
		}
	}
	return os.WriteFile(commands, []byte(commandsFile(all)), 0o666)
}

// measure measures the rows of the tables that the flags select, and returns how many commands
// failed.
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
