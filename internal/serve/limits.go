package serve

import (
	"cmp"
	"time"
)

// Limits bound what clients may take. The zero value of a field is its default.
type Limits struct {
	// Body is the size of the largest request body in bytes. Default 4 MiB.
	Body int64
	// Bodies is the size of the bodies of all requests at a time in bytes. Default 8 times Body.
	Bodies int64
	// Header is the size of the largest request header in bytes. Default 16 KiB.
	Header int
	// Prompt is the size of the longest prompt in bytes, after the chat template. This bounds the time
	// before tokens can be counted. Default 1 MiB.
	Prompt int64
	// Choices is the number of answers that a request may ask for: prompts times n. Default 128.
	Choices int
	// Held is the number of tokens that a request may keep in memory: tokens that the client has not
	// taken yet, and tokens that need log probabilities later in the answer. Each alternative of a
	// token counts like a token. Default 262,144.
	Held int
	// Connections is the number of connections at a time. Beyond that, a new connection replaces a
	// connection without a running answer; if there is none, the new connection is closed. Default
	// 256.
	Connections int
	// Request is the time from the end of a request's body to the end of its answer. Default 10 min.
	Request time.Duration
	// Receive is the time in which a client must send its header, and then its body. Default 10 s.
	Receive time.Duration
	// Send is the time in which a client must take an event or an answer. Default 20 s.
	Send time.Duration
	// Idle is the time that a connection may stay without a request. Default 2 min.
	Idle time.Duration
	// Drain is the time that running answers get after the server was told to end. Default 30 s.
	Drain time.Duration
}

// WithDefaults fills in the defaults.
func (l Limits) WithDefaults() Limits {
	body := cmp.Or(l.Body, 4<<20)
	return Limits{
		Body:        body,
		Bodies:      cmp.Or(l.Bodies, 8*body),
		Header:      cmp.Or(l.Header, 16<<10),
		Prompt:      cmp.Or(l.Prompt, 1<<20),
		Choices:     cmp.Or(l.Choices, 128),
		Held:        cmp.Or(l.Held, 1<<18),
		Connections: cmp.Or(l.Connections, 256),
		Request:     cmp.Or(l.Request, 10*time.Minute),
		Receive:     cmp.Or(l.Receive, 10*time.Second),
		Send:        cmp.Or(l.Send, 20*time.Second),
		Idle:        cmp.Or(l.Idle, 2*time.Minute),
		Drain:       cmp.Or(l.Drain, 30*time.Second),
	}
}
