// Command kernels measures single kernels: the tables of tools/kernels/TABLES.md, the summary of
// them in docs/SPEED.md, and the costs in kernels/cost.go.
//
//	# the tables of this machine, 4 minutes if idle; the summary alone, from the tables
//	go run -C tools ./kernels -tables -w
//	go run -C tools ./kernels -w
//	# kernels/cost.go for this machine, 2 minutes; for arm64
//	go run -C tools ./kernels -costs time
//	go run -C tools ./kernels -costs instructions -plugin insncount.so
//	# instructions of whole products on arm64
//	go run -C tools ./kernels -plugin insncount.so '^dotprod/lowbit,.*,32/1$'
//
// Instructions are counted without an Arm machine: benchmarks of package kernels run under
// qemu-aarch64 with a plugin that counts them. The argument selects whole products,
// BenchmarkForward, by CPU/layout,tile,bits,scales,zero points,group/m. A figure is of executed
// instructions per multiply-accumulate: the difference between two runs of many and of few
// iterations, so that it holds everything in Forward and nothing that happens once. Only gq's own
// code is counted, because the work of Go's runtime differs from run to run.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"

	"github.com/lowbit-go/gq/tools/internal/repository"
)

var (
	plugin = flag.String("plugin", "insncount.so", "the `file` of the plugin: it prints \"insns N\" when the program ends")
	cpu    = flag.String("cpu", "max", "the CPU that qemu-aarch64 emulates")
	few    = flag.Int("few", 1, "iterations of the shorter run")
	many   = flag.Int("many", 3, "iterations of the longer run")
	tables = flag.Bool("tables", false, "measure this machine and print its tables")
	write  = flag.Bool("w", false, "with -tables: put the tables into "+tablesFile+"; put the summary of that file into "+summaryFile)
	costs  = flag.String("costs", "", "print the costs of kernels/cost.go: by `time` on this machine, or by instructions of arm64")
	rounds = flag.Int("rounds", 20, "runs of the benchmarks of -costs time; the least time counts")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kernels: ")
	flag.Parse()
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case *tables || *write:
		if *tables {
			err = makeTables(ctx, *write)
		}
		if err == nil && *write {
			err = summarize(tablesFile, summaryFile)
		}
	case *costs != "":
		err = printCosts(*costs)
	default:
		err = printCounts(flag.Arg(0))
	}
	if err != nil {
		log.Fatal(err)
	}
}
