package cluster

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"regexp"
	"strconv"
	"sync"
)

// tags gives the parts of uploads ETags that say nothing of their bytes, as Amazon S3 does with
// encryption by SSE-KMS: each request has another one.
type tags struct {
	mu   sync.Mutex
	n    int
	real map[string]string
}

// encrypt makes the store one with encryption.
func (s *store) encrypt() { s.tags = &tags{real: map[string]string{}} }

var etagElement = regexp.MustCompile(`(?s)<ETag>(?:&#34;|&quot;|")?([0-9a-f]+)(?:&#34;|&quot;|")?</ETag>`)

func (t *tags) forward(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id := q.Get("uploadId")
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPost && id != "" { // the store knows the server's ETags
		t.mu.Lock()
		body = etagElement.ReplaceAllFunc(body, func(b []byte) []byte {
			return fmt.Appendf(nil, "<ETag>%s</ETag>", t.real[string(etagElement.FindSubmatch(b)[1])])
		})
		t.mu.Unlock()
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := httptest.NewRecorder()
	proxy.ServeHTTP(answer, r)
	out := answer.Body.Bytes()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case id != "" && r.Method == http.MethodPut && answer.Code == http.StatusOK:
		t.n++
		etag := fmt.Sprintf("%032x", t.n)
		t.real[etag] = string(bytes.Trim([]byte(answer.Header().Get("ETag")), `"`))
		answer.Header().Set("ETag", strconv.Quote(etag))
		answer.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
	case r.Method == http.MethodPost && id != "":
		out = etagElement.ReplaceAll(out, []byte("<ETag>0123456789abcdef0123456789abcdef-9</ETag>"))
	}
	for k, v := range answer.Header() {
		w.Header()[k] = v
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(out)
}
