package serve

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestHost: without a key, only names of the loopback interface are answered.
func TestHost(t *testing.T) {
	open, closed := newServer(t, Options{}), newServer(t, Options{APIKey: []byte("0123456789abcdef")})
	for host, ok := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST.:8080": true, "gq.localhost": true, "127.0.0.1": true, "127.8.7.6:1": true, "[::1]": true, "[::1]:8080": true,
		"": false, "evil.example": false, "127.0.0.1.evil.example:8080": false, "localhost.evil.example": false, "0.0.0.0": false, "10.0.0.1:8080": false, "[::]:8080": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost/v1/models", nil)
		r.Host = host
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		if got := w.Code == http.StatusOK; got != ok || !ok && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), codeHost)) {
			t.Errorf("%q: %d %s", host, w.Code, w.Body)
		}
		r.Header.Set("Authorization", "Bearer 0123456789abcdef")
		w = httptest.NewRecorder()
		closed.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Errorf("%q with a key: %d", host, w.Code)
		}
	}
}

// TestKey: everything but the page and /health needs the key.
func TestKey(t *testing.T) {
	s := newServer(t, Options{APIKey: []byte("0123456789abcdef")})
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{"/", "", 200}, {"/health", "", 200},
		{"/metrics", "", 401}, {"/v1/models", "", 401}, {"/v1/models/books", "", 401}, {"/v1/chat/completions", "", 401},
		{"/v1/models/..", "", 401}, {"/v1/models/ID", "", 401},
		{"/v1/models", "Bearer 0123456789abcdef", 200}, {"/v1/models", "bearer 0123456789abcdef", 200}, {"/metrics", "Bearer 0123456789abcdef", 200},
		{"/v1/models", "0123456789abcdef", 401}, {"/v1/models", "Basic 0123456789abcdef", 401}, {"/v1/models", "Bearer", 401},
		{"/v1/models", "Bearer 0123456789abcdeF", 401}, {"/v1/models", "Bearer 0123456789abcdef0", 401}, {"/v1/models", "Bearer 0123456789abcde", 401},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://gq.example"+c.path, nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status || c.status == 401 && (w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), codeKey)) {
			t.Errorf("%s with %q: %d %s", c.path, c.header, w.Code, w.Body)
		}
	}
}

// TestEmptyKey: an empty key would be no key for clients that send none.
func TestEmptyKey(t *testing.T) {
	if _, err := New(Options{Models: []*Model{{ID: "x"}}, APIKey: []byte{}}); err == nil || !strings.Contains(err.Error(), "the API key is empty") {
		t.Errorf("%v", err)
	}
}

// TestOrigin: a page of another origin can make a browser send requests. They are refused.
func TestOrigin(t *testing.T) {
	s := newServer(t, Options{})
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"", "", 400}, {"Sec-Fetch-Site", "same-origin", 400}, {"Sec-Fetch-Site", "none", 400}, {"Origin", "http://localhost:8080", 400},
		{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403}, {"Origin", "https://evil.example", 403}, {"Origin", "null", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost:8080/v1/completions", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		if c.name != "" {
			r.Header.Set(c.name, c.value)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status || c.status == 403 && !strings.Contains(w.Body.String(), codeOrigin) {
			t.Errorf("%s: %s: %d %s", c.name, c.value, w.Code, w.Body)
		}
		if h := w.Header(); h.Get("Access-Control-Allow-Origin") != "" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Request-Id") == "" {
			t.Errorf("%v", h)
		}
	}
}

// TestPage: the page runs under its policy, which names its script and style and nothing else.
func TestPage(t *testing.T) {
	s := newServer(t, Options{})
	w := do(t, s, "/", "")
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || w.Body.Len() != len(pageHTML) {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	p := w.Header().Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none';", "connect-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(p, part) {
			t.Errorf("no %s in %s", part, p)
		}
	}
	if strings.Contains(p, "unsafe") || strings.Contains(p, "*") {
		t.Errorf("%s", p)
	}
	// What the policy forbids must not be in the page: it would not work.
	for _, forbidden := range []string{`(?i)<[^>]+\sstyle\s*=`, `(?i)<[^>]+\son[a-z]+\s*=`, `(?i)<script[^>]+src`, `(?i)<link[^>]+stylesheet`, `https?://(?:[^w]|w[^w])`} {
		html := regexp.MustCompile(`(?s)<script.*?</script>`).ReplaceAllString(string(pageHTML), "")
		if m := regexp.MustCompile(forbidden).FindString(html); m != "" {
			t.Errorf("the page has %q", m)
		}
	}
	for _, element := range []string{"script", "style"} {
		m := regexp.MustCompile(`(?s)<` + element + `[^>]*>(.*?)</` + element + `>`).FindSubmatch(pageHTML)
		if m == nil {
			t.Errorf("the page has no %s", element)
			continue
		}
		sum := sha256.Sum256(m[1])
		if !strings.Contains(p, element+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("the %s is not in %s", element, p)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "http://localhost/", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	w = httptest.NewRecorder()
	if s.ServeHTTP(w, r); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
