package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// randomID is a name that no other answer has.
func randomID() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// A guard decides who may ask.
type guard struct {
	key    *[sha256.Size]byte // hash of the API key; nil: everybody may ask
	origin *http.CrossOriginProtection
}

// check refuses requests that other pages in a browser have sent, and requests without the key.
// Open routes need no key.
func (g *guard) check(r *http.Request, open bool) error {
	// Without a key the server must only be asked by this machine's users, and not by a page that has
	// its own host name point to 127.0.0.1 (DNS rebinding).
	if g.key == nil && !loopbackHost(r.Host) {
		return &apiError{status: http.StatusForbidden, code: codeHost, message: "a server without an API key answers to localhost, 127.0.0.1 and [::1] only, not to the host " + clip(r.Host)}
	}
	if g.origin.Check(r) != nil {
		return &apiError{status: http.StatusForbidden, code: codeOrigin, message: "requests from pages of other origins are not allowed"}
	}
	if g.key == nil || open {
		return nil
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	sum := sha256.Sum256([]byte(strings.TrimSpace(key)))
	if subtle.ConstantTimeCompare(sum[:], g.key[:]) != 1 || !strings.EqualFold(scheme, "Bearer") {
		return &apiError{status: http.StatusUnauthorized, code: codeKey, message: "this server needs its API key: send the header Authorization: Bearer KEY"}
	}
	return nil
}

// loopbackHost reports whether a Host header names this machine by a name that no DNS server can
// give.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.IsLoopback()
}
