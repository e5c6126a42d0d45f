package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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

// A Client sends requests over HTTP. Its methods may be called from several goroutines.
type Client struct {
	// Log is told of each request that is repeated. Default (nil): nothing is said.
	Log func(line string)
	// Sleep waits between two attempts. Set by NewClient.
	Sleep func(ctx context.Context, d time.Duration) error

	// Stall is the longest time without a byte of a body. A body must also make progress within five
	// times as long. Set by NewClient.
	Stall time.Duration

	transport http.RoundTripper
}

// NewClient returns a client that uses the proxies of the environment.
func NewClient() *Client {
	t := &http.Transport{
		Proxy: proxy, DialContext: (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 20 * time.Second, ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second, DisableCompression: true, Protocols: new(http.Protocols),
	}
	// A single HTTP/2 connection would carry all ranges, at the server's limit for a connection.
	t.Protocols.SetHTTP1(true)
	return &Client{transport: t, Sleep: sleep, Stall: time.Minute}
}

// proxy hides the address in errors, because an address may hold a password.
func proxy(r *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(r)
	if err != nil {
		return nil, errors.New("the proxy's address in HTTPS_PROXY or HTTP_PROXY is not a valid URL")
	}
	return u, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type Request struct {
	// Name stands for the URL in errors, without credentials.
	Name string
	// URL is the address. Only its host gets a user and a password in the URL.
	URL *url.URL
	// Token returns the bearer token for the URL's host, and for no other. Each request asks again, so
	// that a renewed token is used. nil: none.
	Token func() string
	// Check sees every answer of the URL's host before its body is used. nil: none.
	Check func(status int, h http.Header) error
	// Refused explains an answer of the URL's host that is an error and does not pass: status 401,
	// 403, 404 and so on. nil: the error states status and message.
	Refused func(r *Refusal) error
}

// A Refusal is an answer that is an error and that repeating the request does not change.
type Refusal struct {
	Name    string // of the request
	Status  int
	Header  http.Header
	Message string // the server's explanation, without credentials; "" if there is no text
	Token   bool   // a token was sent
}

func (e *Refusal) Error() string {
	s := fmt.Sprintf("%s: the server answers with status %d (%s)", e.Name, e.Status, http.StatusText(e.Status))
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

const maxRedirects = 10

type answer struct {
	*http.Response
	at     *url.URL // the address that answered
	origin bool     // at is on the host of the request
}

// Close ends the answer. A body that was not read to its end costs the connection.
func (a *answer) Close() { a.Body.Close() }

// get sends a GET request and follows redirects. at is where the request was redirected before;
// nil: nowhere yet. Statuses other than 200, 206 and 416 are errors.
func (c *Client) get(ctx context.Context, r *Request, at *url.URL, byteRange string) (*answer, error) {
	to, token := r.URL, ""
	if at != nil {
		to = at
	}
	for range maxRedirects {
		a := &answer{at: to, origin: sameHost(to, r.URL)}
		q := (&http.Request{Method: http.MethodGet, URL: to, Host: to.Host, Header: http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {"gq"}}}).WithContext(ctx)
		if byteRange != "" {
			q.Header.Set("Range", byteRange)
		}
		if a.origin {
			token = r.authorize(q)
		}
		var err error
		if a.Response, err = c.Transport().RoundTrip(q); err != nil {
			return nil, Sending(err, to)
		}
		if a.origin && r.Check != nil {
			if err := r.Check(a.StatusCode, a.Header); err != nil {
				a.Body.Close()
				return nil, err
			}
		}
		switch a.StatusCode {
		case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
			return a, nil
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			a.Body.Close()
			if to, err = target(to, a.Header.Get("Location")); err != nil {
				return nil, err
			}
			continue
		}
		defer a.Body.Close()
		return nil, c.failure(r, a, token)
	}
	return nil, errors.New("the server redirects in a circle")
}

// authorize adds the credentials that belong to the host of r, and returns the token.
func (r *Request) authorize(q *http.Request) (token string) {
	if u := r.URL.User; u != nil {
		password, _ := u.Password()
		q.SetBasicAuth(u.Username(), password)
	}
	if r.Token != nil {
		token = r.Token()
	}
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	if q.URL.User != nil {
		u := *q.URL
		u.User, q.URL = nil, &u
	}
	return token
}

func sameHost(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Host, b.Host)
}

func target(from *url.URL, location string) (*url.URL, error) {
	to, err := from.Parse(location)
	switch {
	case err != nil || location == "" || to.Host == "":
		return nil, Passing(errors.New("the server redirects to an address that is not valid"), nil)
	case to.Scheme == "https", to.Scheme == "http" && from.Scheme == "http":
		to.User, to.Fragment = nil, ""
		return to, nil
	}
	return nil, fmt.Errorf("the server redirects from %s to %s://%s: refused, because only TLS is used unless http:// is asked for by name", from.Scheme, to.Scheme, to.Host)
}

// Sending explains the error of a request without an answer, and marks errors that may pass.
func Sending(err error, to *url.URL) error {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, header := errors.AsType[tls.RecordHeaderError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case certificate, unknown:
		return fmt.Errorf("%s: %w", to.Host, err)
	case header || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%s does not speak TLS: name it with http:// if it may be read without", to.Host)
	case isDNS && dns.IsNotFound:
		return fmt.Errorf("the host %s is not known: is the name right, and is this machine online?", to.Hostname())
	}
	return Passing(err, nil)
}

func (c *Client) failure(r *Request, a *answer, token string) error {
	e := &Refusal{Name: r.Name, Status: a.StatusCode, Header: a.Header, Token: token != ""}
	head, _ := io.ReadAll(io.LimitReader(a.Body, 2000))
	// A redirect named the other host, and the text may quote its signature.
	if a.origin {
		e.Message = message(a.Header, head, secrets(r.URL, a.at, token))
	}
	switch s := a.StatusCode; {
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusTooManyRequests, s >= 500 && s != http.StatusNotImplemented && s != http.StatusHTTPVersionNotSupported:
		return Passing(e, a.Header)
	case !a.origin:
		return Passing(expiredError{e}, nil) // the signature of an address expires
	case s == http.StatusUnauthorized && r.Token != nil && r.Token() != token:
		return Passing(e, nil) // the token was renewed meanwhile
	case r.Refused != nil:
		return explainedError{r.Refused(e)}
	}
	return e
}

// explainedError is an error that needs no name in front.
type explainedError struct{ error }

func (e explainedError) Unwrap() error { return e.error }

// expiredError is a refusal by the address of a redirect. The next request asks for a new address.
type expiredError struct{ *Refusal }

func (e expiredError) Unwrap() error { return e.Refusal }

// For packages with requests by a library.

// Transport sends the client's requests, and ends requests with stalling bodies.
func (c *Client) Transport() http.RoundTripper { return &watchedTransport{c} }

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

// Passing marks an error that a repeated request may not have. h is the header of the answer, with
// the time of the next attempt, if stated; nil: no answer.
func Passing(err error, h http.Header) error { return &passingError{err, retryAfter(h, time.Now())} }

// Retry calls try until try succeeds, fails for another reason than a [Passing] error, or fails too
// often in a row without progress. try returns how many bytes were received. name is for errors.
func (c *Client) Retry(ctx context.Context, name string, try func() (received int, err error)) error {
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
