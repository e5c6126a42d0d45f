package hub_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/lowbit-go/gq/internal/remote/hub"
)

// TestPages: a hub whose list of files never ends is an error.
func TestPages(t *testing.T) {
	for page, want := range map[string]string{
		`[]`:                                "is empty but has a next page",
		`[{"type":"directory","path":"d"}]`: "more than 10000 pages",
	} {
		var n atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", fmt.Sprintf(`<http://%s%s?cursor=%d>; rel="next"`, r.Host, r.URL.Path, n.Add(1)))
			io.WriteString(w, page)
		}))
		u, _ := url.Parse(s.URL)
		l, err := remote.Parse("hf://org/model@" + strings.Repeat("a1", 20))
		if err != nil {
			t.Fatal(err)
		}
		h, err := hub.Open(context.Background(), l, hub.Settings{Endpoint: u, Cache: t.TempDir()}, remote.NewClient())
		if err == nil {
			_, err = h.List(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v after %d pages, want %q", page, err, n.Load(), want)
		}
		s.Close()
	}
}
