package tokenizer

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestEncodeContext: encoding a long text ends with its context.
func TestEncodeContext(t *testing.T) {
	tok, err := Open("../../../testdata/books1.3M-bf16")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("It was a dark and stormy night. ", 1<<13)
	ctx, cancel := context.WithCancel(t.Context())
	if ids, err := tok.EncodeContext(ctx, long, Options{}); err != nil || len(ids) < 1<<13 {
		t.Errorf("%d ids, %v", len(ids), err)
	}
	cancel()
	if ids, err := tok.EncodeContext(ctx, long, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%d ids, %v", len(ids), err)
	}
}
