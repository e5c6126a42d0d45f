package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiveTime is waited for in full by clients whose request never becomes complete. The others
// must send their headers within it, however busy the machine is.
const receiveTime = 3 * time.Second

// TestSlowSender: connections that do not send their request in time are closed.
func TestSlowSender(t *testing.T) {
	t.Parallel()
	a := listen(t, Options{Limits: Limits{Receive: receiveTime}})
	var clients sync.WaitGroup
	for _, c := range []struct{ send, want string }{
		{"", ""},
		{"POST /v1/completions HTTP/1.1\r\nHost: loc", ""},
		{"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"prompt\":", "408"},
	} {
		conn, err := net.Dial("tcp", a.address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, c.send)
		clients.Go(func() {
			defer conn.Close()
			b, err := io.ReadAll(conn) // until the server closes
			if err != nil || c.want == "" && len(b) != 0 || c.want != "" && (!strings.HasPrefix(string(b), "HTTP/1.1 "+c.want) || !strings.Contains(string(b), `"code":"request_timeout"`)) {
				t.Errorf("%q: %v %s", c.send, err, b)
			}
		})
	}
	clients.Wait()
	if n := a.work.count(); n != 0 {
		t.Errorf("%d answers run", n)
	}
}

// TestMissingBody: no answer that does not need the body waits for it without end.
func TestMissingBody(t *testing.T) {
	t.Parallel()
	o := Options{Limits: Limits{Receive: receiveTime}}
	open := listen(t, o)
	o.APIKey = []byte("0123456789abcdef")
	closed := listen(t, o)
	var clients sync.WaitGroup
	for _, c := range []struct {
		on               *listening
		request, headers string
		status           string
	}{
		{open, "GET /", "", "200"},
		{open, "GET /health", "", "200"},
		{open, "GET /metrics", "", "200"},
		{open, "GET /v1/models", "", "200"},
		{open, "GET /v1/models/books", "", "200"},
		{open, "GET /nothing", "", "404"},
		{open, "POST /v1/models", "", "405"},
		{open, "GET /v1/completions", "", "405"},
		{open, "POST /v1/completions", "", "415"},
		{open, "POST /v1/chat/completions", "", "415"},
		{open, "POST /v1/completions", "Content-Type: application/json\r\n", "408"},
		{open, "POST /v1/completions", "Sec-Fetch-Site: cross-site\r\n", "403"},
		{closed, "POST /v1/completions", "", "401"},
		{closed, "GET /", "", "200"},
	} {
		for _, length := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
			conn, err := net.Dial("tcp", c.on.address)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n\r\n", c.request, c.headers, length)
			clients.Go(func() {
				defer conn.Close()
				b, err := io.ReadAll(conn) // until the server closes
				if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 "+c.status) {
					t.Errorf("%s, %s: %v %.200s", c.request, length, err, b)
				}
			})
		}
	}
	clients.Wait()
}

// TestBodies: the bodies of all requests together have a limit, which those that are done leave.
func TestBodies(t *testing.T) {
	a := listen(t, Options{Models: longModel(t, 2, 2), Limits: Limits{Bodies: 1000}})
	ctx, cancel := context.WithCancel(t.Context())
	r := a.begin(t, ctx)
	large := `{"prompt":"x","max_tokens":1` + strings.Repeat(" ", 1000-len(long)-28) + `}`
	if status, body, header := a.status(t, large); status != http.StatusTooManyRequests || !strings.Contains(body, codeBusy) || header.Get("Retry-After") == "" {
		t.Errorf("%d %s", status, body)
	}
	if status, body, _ := a.status(t, `{"prompt":"x","max_tokens":1}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	cancel()
	r.Body.Close()
	until(t, "the body of a request that has ended counts", func() bool { return a.bodies.Load() == 0 })
	if status, body, _ := a.status(t, large); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestUnreadableBody: a body that ends early or is damaged on its way gets an error, also if the
// client has closed only its half of the connection.
func TestUnreadableBody(t *testing.T) {
	a := listen(t, Options{})
	for _, c := range []struct{ what, headers, body string }{
		{"damaged chunk", "Transfer-Encoding: chunked\r\n", "zz\r\n"},
		{"missing chunk", "Transfer-Encoding: chunked\r\n", "1\r\n{\r\n"},
		{"missing bytes", "Content-Length: 100\r\n", "{"},
	} {
		conn, err := net.Dial("tcp", a.address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\n%s", c.headers, c.body)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 400 ") || !strings.Contains(string(b), `{"error":{"message":"the body could not be read: `) {
			t.Errorf("%s: %v %s", c.what, err, b)
		}
	}
}
