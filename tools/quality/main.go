// Command quality measures the tables of docs/QUALITY.md and tools/quality/TABLES.md with gq
// itself, on the models and texts of ../shared:
//
//	go run -C tools ./quality -w                # all tables, into both documents
//	go run -C tools ./quality -v -tables ratios # a table, to standard output, with the recipes
//
// Two tables compare .gguf files with files of llama.cpp. llama.cpp's programs measure them, see
// gguf.go:
//
//	go run -C tools ./quality -w -tables gguf -llama.cpp llama.cpp/build/bin
//	go run -C tools ./quality -tables ggufspeed -llama.cpp llama.cpp/build/bin
//
// Of the trained models that tools/realmodels makes, gguf is the only table:
//
//	go run -C tools ./quality -w -tables gguf -llama.cpp DIR -real /tmp/real -models SmolLM2,Gemma
//
// Each figure is of one gq.Quantize and one gq.Measure. Calibration reads the beginning of a text,
// and evaluation reads the rest. Table bits needs no calibration and reads the whole text.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/tools/internal/repository"
)

// calibration and evaluated are numbers of tokens.
const (
	calibration = 8192
	evaluated   = 16000
)

var (
	shared  = flag.String("shared", "../shared", "the `directory` of models and texts")
	real    = flag.String("real", "", "the `directory` of the checkpoints of tools/realmodels, for -models SmolLM2,Gemma")
	work    = flag.String("work", "", "a `directory` for temporary files; those of table gguf are kept there, and used again")
	write   = flag.Bool("w", false, "put the tables into the documents")
	verbose = flag.Bool("v", false, "print the recipes to standard error, with the seconds that each took")
	only    = flag.String("models", "stories260K,books1.3M,books3.7M", "models")
	tables  = flag.String("tables", "ratios,mixed,tuned,gguf,executed,groups,outliers,spread,onebit,elsewhere,costs,bits", "tables")
	named   = flag.String("rows", "", "the rows of tables of ratios, the types of table gguf, and the jobs of table costs, whose names match this regular `expression`")
	widths  = flag.String("bits", "8,6,5,4,3,2.6,2,1", "bits of a code in table bits; of these, table outliers takes 4 and 8, and the others take 4, 3 and 2; 2.6 are bits per weight in table tuned")
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("quality: ")
	flag.Parse()
	memlimit.Set(212 << 20) // as the command gq
	if err := repository.Enter(); err != nil {
		log.Fatal(err)
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if _, err := os.Stat(filepath.Join(*shared, "models")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s/models is not there: the models and texts that the tables are measured on lie beside the repository; -shared says where", *shared)
	}
	rows, err := regexp.Compile(*named)
	if err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	tmp := *work
	if tmp != "" {
		err = os.MkdirAll(tmp, 0o777)
	} else if tmp, err = os.MkdirTemp("", "quality"); err == nil {
		defer os.RemoveAll(tmp)
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{ctx: ctx, tmp: tmp, rows: rows, base: map[string]float64{}}
	for _, m := range subjects {
		if !listed(*only, m.name) {
			continue
		}
		if err := m.split(tmp); err != nil {
			return err
		}
		b.models = append(b.models, m)
	}
	for _, t := range b.tables() {
		if !listed(*tables, t.name) {
			continue
		}
		text, err := t.make()
		if err != nil {
			return err
		}
		if !*write || t.document == "" {
			fmt.Printf("%s\n\n%s\n", t.name, text)
		} else if err := repository.Replace(t.document, t.name, text); err != nil {
			return err
		}
	}
	return nil
}

// The documents that -w writes to. Users read the guide; the notebook has every other table.
const (
	guide    = "docs/QUALITY.md"
	notebook = "tools/quality/TABLES.md"
)

// table is a table that the program can measure. A table without a document is only printed.
type table struct {
	name, document string
	make           func() (string, error)
}

func (b *bench) tables() []table {
	return []table{
		{"ratios", guide, b.ratios},
		{"mixed", guide, b.mixed},
		{"tuned", guide, b.tuned},
		{"gguf", guide, b.gguf},
		{"executed", notebook, b.executed},
		{"groups", notebook, b.groups},
		{"outliers", notebook, b.outliers},
		{"spread", notebook, b.spread},
		{"onebit", notebook, b.oneBit},
		{"elsewhere", notebook, b.elsewhere},
		{"costs", notebook, b.costs},
		{"bits", notebook, b.bits},
		{"ggufspeed", "", b.ggufSpeed},
	}
}

func listed(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }

// subject is a model and its text.
type subject struct {
	name, dir, file string
	cut             text.Options
	elsewhere       string // a file of text of another kind
	head, tail      string // files: what calibration may read, and the rest
	// real marks a trained model of tools/realmodels. Its tail begins with novels, half of the
	// windows that table gguf reads.
	real    bool
	windows int // of table gguf; 0: 60
}

var subjects = []subject{
	{name: "stories260K", dir: "stories260K-f32", file: "tinystories-val-300stories.txt", elsewhere: "books-heldout.txt", cut: text.Options{Convention: text.Documents, Window: 512}},
	{name: "books1.3M", dir: "books1.3M-bf16", file: "books-heldout.txt", elsewhere: "wikitext2-test.txt", cut: text.Options{Window: 256}},
	{name: "books3.7M", dir: "books3.7M-bf16", file: "books-heldout.txt", elsewhere: "wikitext2-test.txt", cut: text.Options{Window: 256}},
	{name: "SmolLM2", dir: "smollm2-135m", file: "wikitext2-test.txt", elsewhere: "books-heldout.txt", cut: text.Options{Window: 256}, real: true, windows: 40},
	{name: "Gemma", dir: "gemma3-270m", file: "wikitext2-test.txt", elsewhere: "books-heldout.txt", cut: text.Options{Window: 256}, real: true, windows: 20},
}

func (s *subject) split(tmp string) error {
	s.file = filepath.Join(*shared, "text", s.file)
	s.elsewhere = filepath.Join(*shared, "text", s.elsewhere)
	if s.dir = filepath.Join(*shared, "models", s.dir); s.real {
		s.dir = filepath.Join(*real, filepath.Base(s.dir))
	}
	tok, err := tokenizer.Open(s.dir)
	if err != nil {
		return err
	}
	// cut divides a text after so many tokens, then at the end of the line, or of the story.
	cut := func(file string, tokens int) (head, tail []byte, err error) {
		all, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, err
		}
		ids, err := tok.Encode(string(all), tokenizer.Options{})
		if err != nil {
			return nil, nil, err
		}
		at := len(all) * tokens / len(ids)
		end := []byte("\n")
		if s.cut.Convention == text.Documents {
			end = []byte("<|endoftext|>")
		}
		at += bytes.Index(all[at:], end) + len(end)
		return all[:at], all[at:], nil
	}
	head, tail, err := cut(s.file, calibration+calibration/16) // some tokens are longer than others
	if err != nil {
		return err
	}
	if s.real {
		books, _, err := cut(filepath.Join(*shared, "text", "books-heldout.txt"), s.windows/2*s.cut.Window)
		if err != nil {
			return err
		}
		tail = append(books, tail...)
	}
	s.head, s.tail = filepath.Join(tmp, s.name+".head.txt"), filepath.Join(tmp, s.name+".tail.txt")
	return errors.Join(os.WriteFile(s.head, head, 0o666), os.WriteFile(s.tail, tail, 0o666))
}
