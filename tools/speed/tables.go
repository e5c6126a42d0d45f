package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// table is a table of the document.
type table struct {
	name    string
	columns []column // the first one is what ratios are of
	ratios  []string // headings
	rows    []row
	long    bool // measured with -long only
}

// column is a value of each row.
type column struct{ key, heading, format string }

// secondsColumn is the wall time of the whole command.
const secondsColumn = "seconds"

// row is a line of a table: a command for sh, and the values to find in the command's output.
type row struct {
	name    string
	command string
	repo    bool     // runs in the repository, otherwise among the files
	files   []string // of made
	tools   []string // of wanted
	against []string // rows that each ratio compares with; both joins two, "" is none
	once    bool     // one round: it takes long, or always gives the same
	counted bool     // its figure does not depend on other programs
	parse   func(out []byte) (map[string]float64, error)
}

// wanted says where tools come from.
var wanted = map[string]string{
	"llama-quantize":   "-llama.cpp says where",
	"llama-bench":      "-llama.cpp says where",
	"qemu-aarch64":     "package qemu-user has it",
	"$CC":              "-cc names a C compiler for aarch64",
	"$CXX":             "-cxx names a C++ compiler for aarch64",
	"$TOKENIZER":       "-tokenizer names a directory with tokenizer.json",
	"$KLEIDIAI/kai":    "-kleidiai names the directory of KleidiAI's sources",
	"$TORCHAO/torchao": "-torchao names the directory of TorchAO's sources",
	"$PLUGIN":          "-plugin names qemu's plugin, see tools/kernels",
}

// missing says which tool of a row is not there.
func (b *bench) missing(r row) string {
	for _, tool := range r.tools {
		path := os.Expand(tool, b.getenv)
		_, err := os.Stat(path)
		if !strings.Contains(path, "/") {
			_, err = exec.LookPath(path)
			if *llama != "" && err != nil {
				_, err = os.Stat(filepath.Join(*llama, path))
			}
		}
		if path == "" || err != nil {
			return fmt.Sprintf("%s is not there: %s", tool, wanted[tool])
		}
	}
	return ""
}

// getenv is a variable of the commands' environment.
func (b *bench) getenv(name string) (value string) {
	for _, e := range b.env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

// made are the files that rows read, and how they are made.
var made = map[string]product{
	"bare":        {line: `gq synth -q --preset llama-3.2-1b bare`},
	"source.gguf": {files: []string{"bare"}, line: `gq quantize bare --target gguf --rule '*=skip' -q -o source.gguf`},
	"model":       {files: []string{"bare"}, line: `mkdir model && ln bare/* model && cp "$TOKENIZER"/tokenizer*.json model`},
	"q4.gguf":     {files: []string{"model"}, line: `gq quantize model --target gguf --bits 4 --embedding-bits 4 -q -o q4.gguf`},
	"q4.gqf":      {files: []string{"model"}, line: `gq quantize model --bits 4 --embedding-bits 4 -q -o q4.gqf`},
	"prompt.txt":  {line: `yes ' hello' | head -n 511 | tr -d '\n' >prompt.txt`},
	"text.txt":    {line: `seq 1000 2000 | tr '\n' ' ' >text.txt`},
}

// product is how a file is made of others.
type product struct {
	files []string
	line  string
}

// command is the command line, or the one of a tiny model to try the program.
func (p product) command() string {
	if !*quick {
		return p.line
	}
	return strings.Replace(p.line, "--preset llama-3.2-1b", "--preset tiny --vocab 128256 --intermediate 256", 1)
}

// prepare makes the files that are not there yet.
func (b *bench) prepare(files []string) error {
	for _, f := range files {
		if _, err := os.Stat(filepath.Join(b.dir, f)); err == nil {
			continue
		}
		if err := b.prepare(made[f].files); err != nil {
			return err
		}
		if _, err := b.sh(b.dir, made[f].command()); err != nil {
			return errors.Join(err, os.RemoveAll(filepath.Join(b.dir, f)))
		}
	}
	return nil
}

func tables() []table {
	return []table{quantizing(), inference(), arm(), accuracyTable(), start(), calibration()}
}

// quantizing is whole commands, from a checkpoint in the page cache to a file.
func quantizing() table {
	const rtn, pure, copied = "rtn", "llama-quantize Q4_0 --pure", `cat bare/model.safetensors >/dev/null; head -c 830MB bare/model.safetensors >out.copy; sync out.copy`
	t := table{name: "quantizing", columns: []column{{secondsColumn, "seconds", "%.2f"}}, ratios: []string{"/ rtn", "/ Q4_0 --pure"}}
	add := func(r row) { t.rows = append(t.rows, r) }
	gq := func(name, cpu, flags string, against ...string) {
		add(row{name: name, command: cpu + "gq quantize bare " + flags + " --threads $THREADS -q -o out.gqf", files: []string{"bare"}, against: against})
	}
	add(row{name: "plain copy of as many bytes", command: copied, files: []string{"bare"}, against: []string{rtn, pure}})
	gq(rtn, "", "--algorithm rtn", "", pure)
	gq("search, 4 bits", "", "--bits 4", rtn, pure)
	gq("search, 2 bits", "", "--bits 2", rtn)
	gq("search, 3 bits", "", "--bits 3", rtn)
	gq("search, 8 bits", "", "--bits 8", rtn)
	gq("search, 4 bits, asymmetric", "", "--bits 4 --mapping asymmetric", rtn)
	gq("search, 2 bits, half-step", "", "--bits 2 --mapping half-step", rtn)
	t.rows[len(t.rows)-1].once = true
	gq("rtn, AVX2 alone", "GQ_CPU=avx2 ", "--algorithm rtn", rtn, pure)
	gq("search, 4 bits, AVX2 alone", "GQ_CPU=avx2 ", "--bits 4", rtn, pure)
	add(row{name: pure, command: "llama-quantize --pure source.gguf out.gguf Q4_0 $THREADS", files: []string{"source.gguf"}, tools: []string{"llama-quantize"}, against: []string{rtn}})
	add(row{name: "llama-quantize Q4_K_M", command: "llama-quantize source.gguf out.gguf Q4_K_M $THREADS", files: []string{"source.gguf"}, tools: []string{"llama-quantize"}, against: []string{rtn, pure}, once: true})
	return t
}

// inference is of 4 bits in groups of 32, the embedding and lm_head too.
func inference() table {
	const prefill, decode = "llama-bench, prefill of 512 tokens", "llama-bench, decoding 64 tokens"
	ours, theirs := []string{"q4.gqf", "prompt.txt"}, []string{"q4.gguf"}
	tokenizer, bench := []string{"$TOKENIZER"}, []string{"$TOKENIZER", "llama-bench"}
	rate := func(key string) func([]byte) (map[string]float64, error) {
		return func(out []byte) (map[string]float64, error) {
			return parseNumbers(out, map[string]string{key: rateColumn})
		}
	}
	return table{name: "inference", columns: []column{{rateColumn, "tokens/s", "%.1f"}}, ratios: []string{"/ llama-bench"}, rows: []row{
		{name: "gq run, prefill of 512 tokens", command: "gq run q4.gqf --verify --prompt-file prompt.txt -n 1 --threads $THREADS -q --json", files: ours, tools: tokenizer, parse: rate("prefill_tokens_per_second"), against: []string{prefill}},
		{name: prefill, command: "llama-bench -m q4.gguf -p 512 -n 0 -t $THREADS -r 1 -o json", files: theirs, tools: bench, parse: parseLlamaBench},
		{name: "gq run, decoding 64 tokens", command: "gq run q4.gqf --verify --prompt ' hello' --temperature 0 --ignore-eos -n 65 --threads $THREADS -q --json", files: ours, tools: tokenizer, parse: rate("decode_tokens_per_second"), against: []string{decode}},
		{name: decode, command: "llama-bench -m q4.gguf -p 0 -n 64 -t $THREADS -r 1 -o json", files: theirs, tools: bench, parse: parseLlamaBench},
	}}
}

// rateColumn is in tokens per second.
const rateColumn = "rate"

// accuracyTable compares measuring a pair of models with running the one and the other.
func accuracyTable() table {
	const float, quantized = "prefill of the checkpoint, float32", "prefill of the file"
	prefill := func(out []byte) (map[string]float64, error) {
		return parseNumbers(out, map[string]string{"prefill_tokens_per_second": rateColumn})
	}
	tools := []string{"$TOKENIZER"}
	return table{name: "accuracy", columns: []column{{rateColumn, "tokens/s", "%.1f"}}, ratios: []string{"/ both prefills"}, rows: []row{
		{name: float, command: "gq run model --prompt-file prompt.txt -n 1 --threads $THREADS -q --json", files: []string{"model", "prompt.txt"}, tools: tools, parse: prefill, once: true},
		{name: quantized, command: "gq run q4.gqf --verify --prompt-file prompt.txt -n 1 --threads $THREADS -q --json", files: []string{"q4.gqf", "prompt.txt"}, tools: tools, parse: prefill, once: true},
		{name: "gq accuracy of the pair", command: "gq accuracy model q4.gqf --text text.txt --max-tokens 1022 --no-outputs --no-parity --threads $THREADS -q --json", files: []string{"model", "q4.gqf", "text.txt"}, tools: tools, once: true,
			parse: func(out []byte) (map[string]float64, error) {
				return parseNumbers(out, map[string]string{"run.tokens_per_second": rateColumn})
			}, against: []string{float + both + quantized}},
	}}
}

// start is how long it takes to open a model and to compute one token.
func start() table {
	const theirs = "llama-bench, one token, without warming up"
	return table{name: "start", columns: []column{{secondsColumn, "whole command, seconds", "%.3f"}, {"open", "opening, with the tokenizer", "%.3f"}, {"first", "first token", "%.3f"}}, ratios: []string{"/ llama-bench"}, rows: []row{
		{name: "gq run, one token", command: "gq run q4.gqf --prompt ' hello' -n 1 --no-bos --threads $THREADS -q --json", files: []string{"q4.gqf"}, tools: []string{"$TOKENIZER"}, against: []string{theirs},
			parse: func(out []byte) (map[string]float64, error) {
				return parseNumbers(out, map[string]string{"open_seconds": "open", "first_token_seconds": "first"})
			}},
		{name: theirs, command: "llama-bench -m q4.gguf -p 1 -n 0 -t $THREADS -r 1 --no-warmup", files: []string{"q4.gguf"}, tools: []string{"$TOKENIZER", "llama-bench"}},
	}}
}

// calibration is whole jobs with their peak memory.
func calibration() table {
	job := func(name, flags string) row {
		return row{name: name, command: "gq quantize model " + flags + " --threads $THREADS -q -o out.gqf", files: []string{"model"}, tools: []string{"$TOKENIZER"}, once: true}
	}
	return table{name: "calibration", long: true, columns: []column{{secondsColumn, "seconds", "%.0f"}, {memoryColumn, "private memory, GB", "%.2f"}}, rows: []row{
		job("--quality good", "--quality good"),
		job("--quality good --target-bpw 4.5", "--quality good --target-bpw 4.5"),
	}}
}
