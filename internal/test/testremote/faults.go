package testremote

import (
	"fmt"
	"net/http"
	"time"
)

// A Fault is something that goes wrong with a request.
type Fault int

// The faults.
const (
	None          Fault = iota
	Reset               // the connection is reset without an answer
	TooMany             // status 429 with Retry-After
	ServerError         // status 500
	Unavailable         // status 503 with an HTML page
	ShortBody           // the connection ends within the body
	WrongRange          // the answer has another range than asked for
	NoRange             // the whole file is sent with status 200
	WrongTotal          // the range is of a file of another size
	OtherETag           // the file has another ETag
	OtherCommit         // the hub states another commit
	Forbidden           // status 403
	Unauthorized        // status 401
	NotFound            // status 404
	BadRedirect         // the answer redirects to no address
	Loop                // the answer redirects to itself
	ForeignScheme       // the answer redirects to ftp://
	Garbage             // status 200 with a page of HTML
	Compressed          // the header says that the body is compressed
	Flipped             // a bit of the body is wrong
	faultsEnd
)

// Faults lists all faults.
func Faults() (list []Fault) {
	for f := Reset; f < faultsEnd; f++ {
		list = append(list, f)
	}
	return list
}

var faultNames = [...]string{"none", "reset", "429", "500", "503", "short body", "wrong range", "no range", "wrong total", "other ETag",
	"other commit", "403", "401", "404", "bad redirect", "loop", "foreign scheme", "garbage", "compressed", "flipped bit"}

func (f Fault) String() string { return faultNames[f] }

// writer is an answer that may go wrong.
type writer struct {
	http.ResponseWriter
	s     *Server
	fault Fault
	left  int64 // bytes of the body until the connection ends; -1: no limit
	begun bool
}

// refuse gives the answers that are nothing but a fault.
func (w *writer) refuse(server string) bool {
	h := w.Header()
	switch w.fault {
	case Reset:
		panic(http.ErrAbortHandler)
	case TooMany:
		h.Set("Retry-After", "0")
		http.Error(w.ResponseWriter, "slow down", http.StatusTooManyRequests)
	case ServerError:
		http.Error(w.ResponseWriter, "internal error", http.StatusInternalServerError)
	case Unavailable:
		h.Set("Content-Type", "text/html")
		w.ResponseWriter.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w.ResponseWriter, "<html><h1>We will be back soon</h1></html>")
	case Forbidden, Unauthorized, NotFound:
		status := map[Fault]int{Forbidden: 403, Unauthorized: 401, NotFound: 404}[w.fault]
		http.Error(w.ResponseWriter, "refused by "+server, status)
	case BadRedirect:
		h["Location"] = []string{"http://%zz/"}
		w.ResponseWriter.WriteHeader(http.StatusFound)
	case Loop:
		h.Set("Location", "?loop=1")
		w.ResponseWriter.WriteHeader(http.StatusFound)
	case ForeignScheme:
		h.Set("Location", "ftp://127.0.0.1/file")
		w.ResponseWriter.WriteHeader(http.StatusFound)
	case Garbage:
		h.Set("Content-Type", "text/html")
		fmt.Fprint(w.ResponseWriter, "<!doctype html><title>Sign in to the network</title>")
	default:
		return false
	}
	return true
}

// Write sends the body at the server's rate, as far as the fault permits.
func (w *writer) Write(p []byte) (int, error) {
	if w.fault == Flipped && !w.begun && len(p) > 0 {
		p = append([]byte(nil), p...)
		p[len(p)/2] ^= 1
	}
	w.begun = true
	for done := 0; done < len(p); {
		n := min(len(p)-done, 64<<10)
		if w.left >= 0 {
			n = min(n, int(w.left))
			w.left -= int64(n)
		}
		if n > 0 {
			w.s.wait(n)
			if _, err := w.ResponseWriter.Write(p[done : done+n]); err != nil {
				return done, err
			}
		}
		if done += n; w.left == 0 {
			if f, ok := w.ResponseWriter.(http.Flusher); ok {
				f.Flush()
			}
			panic(http.ErrAbortHandler)
		}
	}
	return len(p), nil
}

// wait holds up the caller until n bytes fit the rate.
func (s *Server) wait(n int) {
	s.mu.Lock()
	if s.rate == 0 {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(float64(n) / float64(s.rate) * float64(time.Second)))
	until := s.free
	s.mu.Unlock()
	time.Sleep(time.Until(until))
}
