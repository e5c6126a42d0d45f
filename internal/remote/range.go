package remote

import (
	"errors"
	"strconv"
	"strings"
)

// A byteRange is the header Content-Range: bytes first to last of size. size is -1 if it is not stated.
type byteRange struct {
	first, last, size int64
}

// parseContentRange reads the header Content-Range of an answer with status 206 or 416. An answer with
// status 416 has no bytes: first and last are 0 and -1.
func parseContentRange(s string) (r byteRange, err error) {
	bad := errors.New("the header Content-Range is not valid")
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, size, found := strings.Cut(rest, "/")
	if !ok || !found {
		return r, bad
	}
	if r.size = -1; size != "*" {
		if r.size, ok = decimal(size); !ok {
			return r, bad
		}
	}
	if span == "*" {
		r.last = -1
		return r, nil
	}
	first, last, found := strings.Cut(span, "-")
	var ok1, ok2 bool
	r.first, ok1 = decimal(first)
	r.last, ok2 = decimal(last)
	if !found || !ok1 || !ok2 || r.last < r.first || r.size >= 0 && r.last >= r.size {
		return r, bad
	}
	return r, nil
}

// decimal reads a number of digits only.
func decimal(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
