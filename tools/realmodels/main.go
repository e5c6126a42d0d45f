// Command realmodels makes float checkpoints of two trained models that the Python package index
// carries, and answers for gq when judge.py compares gq with other programs on them.
//
//	go run -C tools ./realmodels checkpoints /tmp/real
//	go run -C tools ./realmodels answer /tmp/real/gemma3-270m
//
// README.md says what the checkpoints are; RECORD.md has what was measured on them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/lowbit-go/gq/tools/internal/repository"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("realmodels: ")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: realmodels checkpoints CACHE | realmodels answer CHECKPOINT|FILE")
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), flag.Arg(1)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, job, path string) error {
	switch job {
	case "checkpoints":
		if err := repository.Enter(); err != nil {
			return err
		}
		for _, s := range sources {
			if err := s.checkpoint(ctx, path); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		return nil
	case "answer":
		return answer(ctx, path, os.Stdin, os.Stdout)
	}
	return errors.New("want checkpoints or answer")
}
