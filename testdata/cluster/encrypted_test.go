package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"regexp"
	"strconv"
	"sync"
)

// tags gives the parts of uploads ETags that say nothing of their bytes, as Amazon S3 does with
// encryption by SSE-KMS: each request has another one. Lists of parts state CRC64NVME.
type tags struct {
	mu    sync.Mutex
	n     int
	parts map[string]tag // by upload and number
	real  map[string]string
}

type tag struct{ etag, crc string }

// encrypt makes the store one with encryption.
func (s *store) encrypt() { s.tags = &tags{parts: map[string]tag{}, real: map[string]string{}} }

var (
	etagElement = regexp.MustCompile(`(?s)<ETag>(?:&#34;|&quot;|")?([0-9a-f]+)(?:&#34;|&quot;|")?</ETag>`)
	partElement = regexp.MustCompile(`(?s)<Part>.*?</Part>`)
	partNumber  = regexp.MustCompile(`<PartNumber>(\d+)</PartNumber>`)
)

func (t *tags) forward(proxy *httputil.ReverseProxy, w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id, number := q.Get("uploadId"), q.Get("partNumber")
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
		sum := crc64.Checksum(body, crc64.MakeTable(0x9A6C9329AC4BC9B5))
		p := tag{fmt.Sprintf("%032x", t.n), base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, sum))}
		t.parts[id+"/"+number] = p
		t.real[p.etag] = string(bytes.Trim([]byte(answer.Header().Get("ETag")), `"`))
		answer.Header().Set("ETag", strconv.Quote(p.etag))
	case id != "" && r.Method == http.MethodGet:
		out = partElement.ReplaceAllFunc(out, func(b []byte) []byte {
			p := t.parts[id+"/"+string(partNumber.FindSubmatch(b)[1])]
			return etagElement.ReplaceAll(b, fmt.Appendf(nil, "<ETag>%s</ETag><ChecksumCRC64NVME>%s</ChecksumCRC64NVME>", p.etag, p.crc))
		})
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
