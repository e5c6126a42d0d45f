package serve

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"unicode/utf8"

	"github.com/lowbit-go/gq/internal/jsonscan"
)

// readBody reads a JSON body within the limits of size and time. Afterwards net/http notices if the
// client goes away and cancels the request's context.
func (s *Server) readBody(x *exchange, r *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, &apiError{status: http.StatusUnsupportedMediaType, code: codeType, message: "the body must be JSON: send the header Content-Type: application/json"}
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, &apiError{status: http.StatusUnsupportedMediaType, code: codeType, message: "the body must not be compressed: leave out the header Content-Encoding"}
	}
	tooLarge := &apiError{status: http.StatusRequestEntityTooLarge, code: codeTooLarge, message: fmt.Sprintf("the body is larger than %d bytes, the limit of this server", s.limits.Body)}
	if r.ContentLength > s.limits.Body {
		x.Header().Set("Connection", "close") // rather than to read the body to its end
		return nil, tooLarge
	}
	body, err := io.ReadAll(&bodyReader{http.MaxBytesReader(x.ResponseWriter, r.Body, s.limits.Body), s, x})
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return nil, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.Header().Set("Connection", "close")
		return nil, &apiError{status: http.StatusRequestTimeout, code: codeTimeout, message: fmt.Sprintf("the body did not arrive within %v", s.limits.Receive)}
	case err == errBodies:
		x.Header().Set("Connection", "close")
		return nil, err
	case err != nil: // the client may be gone, or have closed its half of the connection only
		x.Header().Set("Connection", "close")
		return nil, invalid("", "the body could not be read: %v", err)
	}
	if err := x.receive(0); err != nil {
		return nil, err
	}
	s.connections.keep(r)
	if !utf8.Valid(body) {
		return nil, invalid("", "the body is not UTF-8")
	}
	scan := jsonscan.New(body, func(pos int, msg string) error {
		return invalid("", "the body is not JSON: %s at byte %d", msg, pos)
	})
	return body, cmp.Or(scan.Skip("the body"), scan.End("the body"))
}

// A bodyReader adds the bytes that were read to the sum of the bodies of all requests.
type bodyReader struct {
	io.Reader
	s *Server
	x *exchange
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.x.body += int64(n)
	if b.s.bodies.Add(int64(n)) > b.s.limits.Bodies {
		return n, errBodies
	}
	return n, err
}

// errBodies refuses a request if the bodies of all requests leave no room.
var errBodies = &apiError{status: http.StatusTooManyRequests, code: codeBusy, retryAfter: minRetry, message: "the requests that this server works on have too many bytes together: try again"}

// errGone is logged if the client went away. Nobody reads the answer.
var errGone = &apiError{status: statusGone, code: "client_gone", message: "the client closed the connection"}

// statusGone is nginx's status for a request of a client that went away.
const statusGone = 499
