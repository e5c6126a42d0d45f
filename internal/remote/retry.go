package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	attempts  = 7                      // in a row without progress
	firstWait = 250 * time.Millisecond // doubled after each attempt
	longWait  = 5 * time.Minute        // the longest wait that a server may ask for
	progress  = 64 << 10               // bytes that count as progress
)

// passingError is an error that a repeated request may not have.
type passingError struct {
	err   error
	after time.Duration // the server asks to wait so long
}

func (e *passingError) Error() string { return e.err.Error() }
func (e *passingError) Unwrap() error { return e.err }

func passing(err error) error { return &passingError{err, 0} }

// retry calls try until try succeeds, fails for good, or fails too often in a row. try returns how
// many bytes were received. name is for errors.
func (c *Client) retry(ctx context.Context, name string, try func() (received int, err error)) error {
	failed, got := 0, 0
	for {
		n, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if e, ok := errors.AsType[explainedError](err); ok {
			return e.error
		}
		p, ok := errors.AsType[*passingError](err)
		if !ok {
			return named(name, err)
		}
		if got += n; got >= progress {
			failed, got = 0, 0
		}
		if failed++; failed == attempts {
			return named(name, fmt.Errorf("%w (after %d attempts)", p.err, attempts))
		}
		wait := firstWait << (failed - 1)
		wait += time.Duration(rand.Int64N(int64(wait) / 4)) // workers do not come back all at once
		if p.after > longWait {
			return named(name, fmt.Errorf("%w; it asks to wait %v: run the command again then, it goes on from what is finished", p.err, p.after.Round(time.Second)))
		}
		wait = max(wait, p.after)
		if c.Log != nil && wait >= time.Second {
			c.Log(fmt.Sprintf("%v; next attempt in %v", named(name, p.err), wait.Round(time.Second/10)))
		}
		if err := c.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func named(name string, err error) error {
	if strings.Contains(err.Error(), name) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// resetIn matches the time in seconds until requests are allowed again, in the header RateLimit.
var resetIn = regexp.MustCompile(`;\s*t=(\d{1,9})`)

// retryAfter is how long the server asks to wait; 0 if unstated.
func retryAfter(h http.Header, now time.Time) time.Duration {
	s := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(at.Sub(now), 0)
	}
	if m := resetIn.FindStringSubmatch(h.Get("RateLimit")); m != nil {
		seconds, _ := strconv.ParseUint(m[1], 10, 31)
		return time.Duration(seconds) * time.Second
	}
	return 0
}

// shortestSecret is the least length of a value of a query that is taken for a secret: shorter
// values are versions and switches, and parts of words.
const shortestSecret = 6

// secrets lists the strings that no message may hold: the token, and passwords and queries of
// addresses, as written and decoded.
func secrets(name, at *url.URL, token string) []string {
	list := []string{token}
	for _, u := range []*url.URL{name, at} {
		if password, ok := u.User.Password(); ok {
			list = append(list, u.User.String(), password, url.QueryEscape(password))
		}
		list = append(list, u.RawQuery)
		for _, pair := range strings.Split(u.RawQuery, "&") {
			_, value, _ := strings.Cut(pair, "=")
			if len(value) < shortestSecret {
				continue
			}
			list = append(list, value)
			if decoded, err := url.QueryUnescape(value); err == nil {
				list = append(list, decoded)
			}
		}
	}
	// Longest first: a secret may hold another.
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	return list
}

// message is a server's description of an error: X-Error-Message, or a short text in the body.
func message(h http.Header, body []byte, secrets []string) string {
	s := h.Get("X-Error-Message")
	if s == "" && len(body) < 2000 && utf8.Valid(body) && !strings.HasPrefix(strings.TrimSpace(string(body)), "<") {
		s = string(body)
	}
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "[secret]")
		}
	}
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return s
}
