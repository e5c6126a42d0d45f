package serve

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

//go:embed page/index.html
var pageHTML []byte

// pagePolicy lets the page run its own script and style, by their hashes, and talk to this server:
// nothing else, even if an answer of a model should get into the page as HTML.
// It is not made before the page is asked for, because every start of the program would wait for it.
var pagePolicy = sync.OnceValue(func() string { return policy(pageHTML) })

// pageTag changes with the page.
var pageTag = sync.OnceValue(func() string {
	sum := sha256.Sum256(pageHTML)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
})

var inline = regexp.MustCompile(`(?s)<(script|style)\b[^>]*>(.*?)</(?:script|style)>`)

func policy(html []byte) string {
	hashes := map[string][]string{}
	for _, m := range inline.FindAllSubmatch(html, -1) {
		sum := sha256.Sum256(m[2])
		hashes[string(m[1])] = append(hashes[string(m[1])], "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	sources := func(kind string) string {
		if len(hashes[kind]) == 0 {
			return "'none'"
		}
		return strings.Join(hashes[kind], " ")
	}
	return "default-src 'none'; script-src " + sources("script") + "; style-src " + sources("style") +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// page answers GET /.
func (s *Server) page(x *exchange, r *http.Request) error {
	h := x.Header()
	h.Set("Content-Security-Policy", pagePolicy())
	h.Set("Cache-Control", "no-cache") // ask whether it has changed
	h.Set("ETag", pageTag())
	if r.Header.Get("If-None-Match") == pageTag() {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = x.Write(pageHTML)
	return nil
}
