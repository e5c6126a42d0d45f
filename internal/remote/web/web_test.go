package web

import (
	"context"
	"testing"

	"github.com/lowbit-go/gq/internal/remote"
)

// TestAdd: names that lead out of the directory are refused before a request.
func TestAdd(t *testing.T) {
	l, err := remote.Parse("http://127.0.0.1:1/a")
	if err != nil {
		t.Fatal(err)
	}
	s := Open(l, remote.NewClient())
	for _, name := range []string{"../x", "a/../../x", "/x", "", "a//b"} {
		if _, err := s.Add(context.Background(), name); err == nil {
			t.Errorf("%q is asked for", name)
		}
	}
}
