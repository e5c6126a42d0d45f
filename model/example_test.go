package model_test

import (
	"fmt"
	"log"

	"github.com/lowbit-go/gq/internal/lm/tokenizer"
	"github.com/lowbit-go/gq/model"
)

// A session gives the logits of the token after a text.
func Example() {
	const dir = "../testdata/books1.3M-bf16"
	m, err := model.OpenCheckpoint(dir, model.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	tok, err := tokenizer.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tok.Encode("It was a dark and stormy", tokenizer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s := m.NewSession(len(ids))
	logits := make([]float32, m.VocabSize())
	if err := s.Forward(ids, logits, false); err != nil {
		log.Fatal(err)
	}
	best := 0
	for id, v := range logits {
		if v > logits[best] {
			best = id
		}
	}
	fmt.Printf("%d tokens, then %q\n", s.Len(), tok.Token(int32(best)))
	// Output: 10 tokens, then "▁m"
}
