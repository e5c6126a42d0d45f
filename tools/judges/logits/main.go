// Logits writes what a model of a .gqf file or a checkpoint computes from a text, for the judges in
// Python to compare with:
//
//	go run -C tools ./judges/logits [-activations float32] FILE TEXT OUT
//
// OUT.json has the ids of the text in windows, and the ids of a greedy continuation of the first
// ids; OUT.f32 has the logits after each id of each window, in float32.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/model/generate"
)

// The first prompt ids of the first window are continued by greedy ids.
const (
	prompt = 16
	greedy = 64
)

func main() {
	activations := flag.String("activations", "float32", "inputs of quantized layers: float32 or int8")
	windows := flag.Int("windows", 8, "windows of the text")
	length := flag.Int("length", 96, "ids of a window")
	flag.Parse()
	if err := run(*activations, *windows, *length, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "logits:", err)
		os.Exit(1)
	}
}

func run(activations string, windows, length int, args []string) error {
	if len(args) != 3 {
		return errors.New("expected FILE TEXT OUT")
	}
	a, ok := forward.ParseActivations(activations)
	if !ok {
		return fmt.Errorf("unknown activations %q", activations)
	}
	text, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	g, err := generate.Open(args[0], generate.OpenOptions{Activations: a})
	if err != nil {
		return err
	}
	defer g.Close()
	ids, err := g.Tokenizer().Encode(string(text), tokenizer.Options{})
	if err != nil {
		return err
	}
	var out struct {
		Windows [][]int32 `json:"windows"`
		Prompt  []int32   `json:"prompt"`
		Greedy  []int32   `json:"greedy"`
	}
	for i := 0; i < windows && (i+1)*length <= len(ids); i++ {
		out.Windows = append(out.Windows, ids[i*length:(i+1)*length])
	}
	if len(out.Windows) == 0 {
		return fmt.Errorf("the text has %d tokens, fewer than a window of %d", len(ids), length)
	}
	out.Prompt = ids[:prompt]
	r, err := g.Run(context.Background(), generate.Options{PromptIDs: out.Prompt, MaxTokens: greedy, IgnoreEOS: true})
	if err != nil {
		return err
	}
	out.Greedy = r.IDs
	raw, err := json.Marshal(out)
	if err != nil {
		return err
	}
	if err := os.WriteFile(args[2]+".json", raw, 0o666); err != nil {
		return err
	}
	return writeLogits(g.Model(), out.Windows, args[2]+".f32")
}

func writeLogits(m *forward.Model, windows [][]int32, name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	for _, ids := range windows {
		logits := make([]float32, len(ids)*m.VocabSize())
		if err := m.NewSession(len(ids)).Forward(ids, logits, true); err != nil {
			return err
		}
		if err := binary.Write(w, binary.LittleEndian, logits); err != nil {
			return err
		}
	}
	return w.Flush()
}
