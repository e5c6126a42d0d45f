package remote

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// For packages whose requests are made by a library.

// Transport returns what sends the client's requests. It ends requests whose bodies stall in either direction.
func (c *Client) Transport() http.RoundTripper { return &watchedTransport{c} }

// Retry calls try until it succeeds, fails for another reason than a [Passing] one, or fails too often in a
// row without progress. try returns how many bytes it received. name is for errors.
func (c *Client) Retry(ctx context.Context, name string, try func() (received int, err error)) error {
	return c.retry(ctx, name, try)
}

// Passing marks an error that a repeated request may not have. h is the header of the answer, which may
// state when to repeat it; nil: there is none.
func Passing(err error, h http.Header) error { return &passingError{err, retryAfter(h, time.Now())} }

// Sending explains the error of a request that got no answer, and marks it if it may pass.
func Sending(err error, to *url.URL) error { return sending(err, to) }
