package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

const testKey = "0123456789abcdef"

// client is a connection of a test.
type client struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// dial opens a connection and sends what a client begins with.
func (a *listening) dial(t *testing.T, text string) *client {
	t.Helper()
	c, err := net.Dial("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return &client{t, c, bufio.NewReader(c)}
}

// ask sends a GET request and returns the status of its answer; 0: the connection was closed.
func (c *client) ask(path, key string) int {
	c.t.Helper()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, key)
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return 0
	}
	return r.StatusCode
}

// closed waits until the server has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	if b, err := io.ReadAll(c.in); len(b) > 0 {
		c.t.Errorf("the server sends %q, %v", b, err)
	}
}

// TestIdleConnections: the oldest of the connections that take all places gives way, whatever part
// of a request strangers have sent.
func TestIdleConnections(t *testing.T) {
	const get = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	const post = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n{"
	for _, c := range []struct {
		name, begin, key string
		most             int
	}{
		{"nothing", "", testKey, 0},
		{"a byte", get[:1], testKey, 16},
		{"half a header", get[:40], testKey, 16},
		{"half a body", post, testKey, 16},
		{"nothing, without a key", "", "", 16},
		{"half a body, without a key", post, "", 16},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Limits: Limits{Receive: patience, Connections: c.most}}
			if c.key != "" {
				o.APIKey = []byte(c.key)
			}
			a := listen(t, o)
			var idle []*client
			for range a.limits.Connections {
				idle = append(idle, a.dial(t, c.begin))
			}
			if status := a.dial(t, "").ask("/v1/models", c.key); status != http.StatusOK {
				t.Fatalf("status %d", status)
			}
			if c.begin == post {
				return // some of them have an answer
			}
			idle[0].closed()
			io.WriteString(idle[1], get[len(c.begin):])
			if r, err := http.ReadResponse(idle[1].in, nil); err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("the second connection has gone, too: %v %v", r, err)
			}
		})
	}
}

// TestKeptConnections: strangers come and go, and cut off neither an answer that is computed nor a
// request with the key. Of the others, the connection gives way that has waited longest.
func TestKeptConnections(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 1), APIKey: []byte(testKey), Limits: Limits{Connections: 4}})
	post := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n", testKey)
	working := a.dial(t, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", post, len(long), long))
	if line, err := working.in.ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	const small = `{"prompt":7}`
	sending := a.dial(t, fmt.Sprintf("%sContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", post, len(small)))
	if line, err := sending.in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	sending.in.ReadString('\n')
	for i := range 20 {
		c := a.dial(t, "")
		for range 3 { // an open route, and a wrong key
			if status := c.ask("/health", "wrong"); status != http.StatusOK {
				t.Fatalf("stranger %d: status %d", i, status)
			}
			if status := c.ask("/v1/models", "wrong"); status != http.StatusUnauthorized {
				t.Fatalf("stranger %d: status %d", i, status)
			}
		}
	}
	first, second := a.dial(t, ""), a.dial(t, "")
	for _, c := range []*client{second, first} {
		if status := c.ask("/v1/models", testKey); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		until(t, "the request does not end", func() bool {
			a.connections.mu.Lock()
			defer a.connections.mu.Unlock()
			waiting := 0
			for _, since := range a.connections.since {
				if since != busy {
					waiting++
				}
			}
			return waiting == 2
		})
	}
	third := a.dial(t, "")
	second.closed()
	for _, c := range []*client{first, third} {
		if status := c.ask("/v1/models", testKey); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	io.WriteString(sending, small)
	if r, err := http.ReadResponse(sending.in, nil); err != nil || r.StatusCode != http.StatusBadRequest {
		t.Errorf("a request with the key was cut off: %v %v", r, err)
	}
	for range 100 {
		if _, err := working.in.ReadString('\n'); err != nil {
			t.Fatalf("an answer was cut off: %v", err)
		}
	}
}

// TestConnections: if all connections wait for answers, another one is closed at once. There is
// room after an answer has ended.
func TestConnections(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 1, 1), Limits: Limits{Connections: 1}})
	r := a.begin(t, t.Context())
	a.dial(t, "").closed()
	r.Body.Close()
	until(t, "no connection is served after one has ended", func() bool { return a.dial(t, "").ask("/health", "") == http.StatusOK })
}
