package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, want, err string }{
		{"hf://org/model@main/x.gguf", "hf://org/model@main/x.gguf", ""},
		{"HTTPS://user:secret@host:8/a/b?sig=secret", "https://host:8/a/b", ""},
		{"http://host/a", "http://host/a", ""},
		{"s3://bucket/a/b", "s3://bucket/a/b", ""},
		{"gs://bucket", "gs://bucket/", ""},
		{"az://account/container", "", "SAS"},
		{"abfs://account/container", "", "SAS"},
		{"ftp://user:secret@host/", "", "not supported"},
		{"file:///etc/passwd", "", "name the path alone"},
		{"xyz://secret", "", "unknown"},
		{"c:/path", "", "not the name of a remote place"},
		{"https://", "", "host is missing"},
		{"https://host/%zz?secret", "", "not a valid URL"},
		{"https://host/a#secret", "", "fragment"},
		{"s3:///x", "", "bucket is missing"},
		{"s3://key:secret@bucket/x", "", "credentials come from the environment"},
		{"s3://b/a/../c", "", `".." has no place`},
		{"hf://a\nb/c", "", "byte 0x0a"},
		{"https://host/" + strings.Repeat("x", maxName), "", "more than the limit"},
	} {
		l, err := Parse(c.name)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%q: error %v, want %q", c.name, err, c.err)
		case c.err == "" && (err != nil || l.String() != c.want):
			t.Errorf("%q: %v, %v", c.name, l, err)
		}
	}
}

func TestSplitFile(t *testing.T) {
	for name, want := range map[string][2]string{
		"https://h/a/model%20x.gguf?s=1":  {"https://h/a/", "model x.gguf"},
		"https://h/a/b":                   {"https://h/a/b", ""},
		"s3://b/m.safetensors.index.json": {"s3://b/", "m.safetensors.index.json"},
		"s3://b/a/model.gguf":             {"s3://b/a/", "model.gguf"},
	} {
		l, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if dir, file := l.SplitFile(); dir.String() != want[0] || file != want[1] {
			t.Errorf("%s: %v, %q", name, dir, file)
		}
	}
	l, _ := Parse("https://u:p@h/a%2Fb/?q=1")
	if got := l.URL("x y/z?.json").String(); got != "https://u:p@h/a%2Fb/x%20y/z%3F.json?q=1" {
		t.Error(got)
	}
}

// TestKey: a key has what identifies the content, and is the same when credentials are renewed.
func TestKey(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"https://h/a", "https://h/a"},
		{"https://h/a?", "https://h/a"},
		{"https://u:p@h/a?version=2", "https://h/a?version=2"},
		{"https://h/a?b=2&a=1&b=1&&c", "https://h/a?a=1&b=2&b=1&c="},
		{"https://h/a?x=%41+b&bad=%zz", "https://h/a?bad=%25zz&x=A+b"},
		{"https://h/a?X-Amz-Algorithm=AWS4&X-Amz-Credential=k&X-Amz-Date=d&X-Amz-Expires=9&X-Amz-SignedHeaders=host&X-Amz-Signature=s&versionId=7", "https://h/a?versionId=7"},
		{"https://h/a?x-amz-security-token=s&x-goog-signature=t&generation=3", "https://h/a?generation=3"},
		{"https://h/a?Expires=1&Signature=s&Key-Pair-Id=k&Policy=p", "https://h/a"},
		{"https://h/a?AWSAccessKeyId=k&Expires=1&Signature=s", "https://h/a"},
		{"https://h/a?sv=2024-11-04&st=1&se=2&sr=c&sp=r&spr=https&sig=s&snapshot=4", "https://h/a?snapshot=4"},
		{"https://h/a?sv=2024-11-04&sp=r", "https://h/a?sp=r&sv=2024-11-04"},
		{"https://h/a?token=s&hdnts=t&ref=main", "https://h/a?ref=main"},
		{"s3://b/a", "s3://b/a"},
	} {
		l, err := Parse(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Key(); got != c.want {
			t.Errorf("%s: the key is %s, want %s", c.name, got, c.want)
		}
	}
}

// FuzzParse: a name that is accepted prints without credentials, and is accepted again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"hf://org/model@main", "https://u:p@h/a?b#c", "s3://b/c", "http://[::1]:80/%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		l, err := Parse(name)
		if err != nil {
			return
		}
		if !IsRemote(name) {
			t.Errorf("%q is parsed but is no remote name", name)
		}
		s := l.String()
		if l.Scheme != "hf" && l.Scheme != "s3" && l.Scheme != "gs" && strings.ContainsAny(s[len(l.Scheme)+3:len(l.Scheme)+3+len(l.Host)], "@?") {
			t.Errorf("%q prints as %q", name, s)
		}
		again, err := Parse(s)
		if err != nil || again.String() != s {
			t.Errorf("%q prints as %q, which is %q, %v", name, s, again, err)
		}
		l.URL("a/b")
		l.SplitFile()
	})
}

func TestContentRange(t *testing.T) {
	for s, want := range map[string]byteRange{
		"bytes 0-0/1": {0, 0, 1}, "bytes 5-9/*": {5, 9, -1}, "bytes */7": {0, -1, 7},
	} {
		if r, err := parseContentRange(s); err != nil || r != want {
			t.Errorf("%q: %v, %v", s, r, err)
		}
	}
	for _, s := range []string{"", "bytes", "bytes 0-0", "bytes 1-0/2", "bytes 0-2/2", "bytes -1-2/4", "bytes 0-99999999999999999999/*", "items 0-0/1", "bytes +1-2/4", "bytes 1-2/-4"} {
		if r, err := parseContentRange(s); err == nil {
			t.Errorf("%q: %v", s, r)
		}
	}
}

func FuzzContentRange(f *testing.F) {
	f.Add("bytes 0-99/1000")
	f.Add("bytes */5")
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := parseContentRange(s); err == nil && (r.first < 0 || r.last < r.first-1 || r.size >= 0 && r.last >= r.size || r.size < -1) {
			t.Errorf("%q: %v", s, r)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"7": 7 * time.Second, "": 0, "-1": 0, "x": 0, "Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0,
	} {
		if got := retryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if got := retryAfter(http.Header{"Ratelimit": {`"resolvers";r=0;t=55`}}, now); got != 55*time.Second {
		t.Error(got)
	}
}

// impatient is a client that counts its waits instead of waiting.
func impatient(waits *[]time.Duration) *Client {
	c := NewClient()
	c.Sleep = func(ctx context.Context, d time.Duration) error {
		*waits = append(*waits, d)
		return ctx.Err()
	}
	return c
}

// TestWaits: waits grow, the server's wish is met, and a long one ends the job.
func TestWaits(t *testing.T) {
	after := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", after)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	u, _ := url.Parse(s.URL)
	var waits []time.Duration
	c := impatient(&waits)
	for _, v := range []string{"", "30", "100000"} {
		after, waits = v, nil
		_, _, err := c.Get(context.Background(), &Request{Name: "x", URL: u}, 10)
		if err == nil {
			t.Fatal("no error")
		}
		switch v {
		case "":
			for i := 1; i < len(waits); i++ {
				if waits[i] < waits[i-1] || waits[i] > 3*waits[i-1] {
					t.Errorf("waits %v", waits)
				}
			}
			if len(waits) != attempts-1 {
				t.Errorf("%d waits", len(waits))
			}
		case "30":
			if waits[0] != 30*time.Second {
				t.Errorf("waits %v", waits)
			}
		default:
			if len(waits) != 0 || !strings.Contains(err.Error(), "run the command again") {
				t.Errorf("waits %v, %v", waits, err)
			}
		}
	}
}

// TestRedirects: credentials go to the host that they are for, and TLS is not left.
func TestRedirects(t *testing.T) {
	var seen atomic.Value
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Header.Get("Authorization") + r.Header.Get("Cookie") + r.URL.RawQuery)
		io.WriteString(w, "x")
	}))
	defer other.Close()
	first := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/down":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/same":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		default:
			io.WriteString(w, r.Header.Get("Authorization"))
		}
	}))
	defer first.Close()
	var waits []time.Duration
	c := impatient(&waits)
	get := func(address string, token string) (string, error) {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		b, _, err := c.Get(context.Background(), &Request{Name: "name", URL: u, Token: func() string { return token }}, 100)
		return string(b), err
	}
	if _, err := get(first.URL, "secret"); err == nil || strings.Contains(err.Error(), "secret") || len(waits) > 0 {
		t.Errorf("an unknown authority: %v after %d waits", err, len(waits))
	}
	c.transport.(*http.Transport).TLSClientConfig = first.Client().Transport.(*http.Transport).TLSClientConfig
	if _, err := get(first.URL+"/down", "secret"); err == nil || !strings.Contains(err.Error(), "only TLS") || seen.Load() != nil {
		t.Errorf("a redirect to http: %v, %v", err, seen.Load())
	}
	if got, err := get(first.URL+"/same", "secret"); err != nil || got != "Bearer secret" {
		t.Errorf("a redirect to the same host: %q, %v", got, err)
	}
	if got, err := get(strings.Replace(first.URL, "://", "://user:secret@", 1)+"/same", ""); err != nil || got != "Basic dXNlcjpzZWNyZXQ=" {
		t.Errorf("a user and a password: %q, %v", got, err)
	}
	cross := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer cross.Close()
	if _, err := get(strings.Replace(cross.URL, "://", "://user:secret@", 1)+"/?q=secret", "secret"); err != nil || seen.Load() != "" {
		t.Errorf("a redirect to another host: %v, sent %q", err, seen.Load())
	}
	if _, err := get(strings.Replace(other.URL, "http:", "https:", 1)+"/?q=secret", "secret"); err == nil || !strings.Contains(err.Error(), "does not speak TLS") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a server without TLS: %v", err)
	}
}

// TestStall: a body that stops is asked for again.
// TestEchoedSecrets: servers that quote a request in their errors reveal nothing.
func TestEchoedSecrets(t *testing.T) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		query, _ := url.QueryUnescape(r.URL.RawQuery)
		w.Header().Set("X-Error-Message", fmt.Sprint("cannot read ", r.URL, " ", query, " ", user, password, r.Header.Get("Authorization")))
		w.WriteHeader(http.StatusForbidden)
	})
	named := httptest.NewServer(echo)
	defer named.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, named.URL+"/x?sig=swordfish%2Fsecret", http.StatusFound)
	}))
	defer other.Close()
	for _, address := range []string{named.URL + "/x?sig=swordfish%2Fsecret&v=1", strings.Replace(named.URL, "//", "//me:swordfish%2Fsecret@", 1), other.URL} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		var waits []time.Duration
		c := impatient(&waits)
		c.Log = func(line string) {
			if strings.Contains(line, "swordfish") {
				t.Errorf("%s: the log has %s", address, line)
			}
		}
		_, _, err = c.Get(t.Context(), &Request{Name: "name", URL: u}, 100)
		if err == nil || !strings.Contains(err.Error(), "403") || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestStall(t *testing.T) {
	n := atomic.Int32{}
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Content-Length", "4")
			io.WriteString(w, "ab")
			w.(http.Flusher).Flush()
			<-end
			return
		}
		io.WriteString(w, "abcd")
	}))
	defer s.Close()
	defer close(end)
	u, _ := url.Parse(s.URL)
	var waits []time.Duration
	c := impatient(&waits)
	// Within which a busy machine has to give one of the later answers.
	c.Stall = 250 * time.Millisecond
	b, _, err := c.Get(context.Background(), &Request{Name: "x", URL: u}, 10)
	if err != nil || string(b) != "abcd" || len(waits) == 0 {
		t.Errorf("%q, %v, waits %v", b, err, waits)
	}
}

// TestChangedVersion: a file that changes while it is read is an error, by its ETag or, without
// one, by its time.
func TestChangedVersion(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after [2]string // ETag, Last-Modified
		what          string    // "": no error
	}{
		{"the same", [2]string{`"a"`, "1"}, [2]string{`"a"`, "1"}, ""},
		{"another time with an ETag", [2]string{`"a"`, "1"}, [2]string{`"a"`, "2"}, ""},
		{"another ETag", [2]string{`"a"`, "1"}, [2]string{`"b"`, "1"}, "ETag"},
		{"another time", [2]string{"", "1"}, [2]string{"", "2"}, "Last-Modified"},
		{"a time no more", [2]string{"", "1"}, [2]string{"", ""}, ""},
		{"nothing", [2]string{"", ""}, [2]string{"", ""}, ""},
	} {
		now := c.before
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i, name := range []string{"ETag", "Last-Modified"} {
				if now[i] != "" {
					w.Header().Set(name, now[i])
				}
			}
			_, _ = io.WriteString(w, "abcd")
		}))
		u, _ := url.Parse(s.URL)
		var waits []time.Duration
		client, r := impatient(&waits), &Request{Name: "x", URL: u}
		h, err := client.Stat(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, head := range []Head{h, {}} { // known before, or from the first answer
			now = c.before
			f := client.File(r, h.Size, head)
			if err := f.ReadAt(t.Context(), make([]byte, 4), 0); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			now = c.after
			err := f.ReadAt(t.Context(), make([]byte, 4), 0)
			changed, ok := errors.AsType[*ChangedError](err)
			if c.what == "" && err != nil || c.what != "" && (!ok || changed.What != c.what) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		s.Close()
	}
}

// TestLimits: neither a body nor a file is larger than it may be.
func TestLimits(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "abcdef") }))
	defer s.Close()
	u, _ := url.Parse(s.URL)
	var waits []time.Duration
	c := impatient(&waits)
	if _, _, err := c.Get(context.Background(), &Request{Name: "x", URL: u}, 5); err == nil || !strings.Contains(err.Error(), "limit of 5 bytes") {
		t.Error(err)
	}
	f := c.File(&Request{Name: "x", URL: u}, 7, Head{})
	if _, changed := errors.AsType[*ChangedError](f.ReadAt(context.Background(), make([]byte, 1), 0)); !changed {
		t.Error("a file of another size is read")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := c.Get(ctx, &Request{Name: "x", URL: u}, 10); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
