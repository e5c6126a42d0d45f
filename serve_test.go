package gq

import (
	"errors"
	"strings"
	"testing"
)

// TestServeAddress: the server listens where it was told to, and nowhere else.
func TestServeAddress(t *testing.T) {
	done := errors.New("done")
	for host, want := range map[string]string{"": "http://127.0.0.1:", "localhost": "http://127.0.0.1:", "127.0.0.2": "http://127.0.0.2:", "0.0.0.0": "http://0.0.0.0:"} {
		o := ServeOptions{Models: []ServeModel{{Path: books}}, Host: host, Ready: func(r ServeReport) error {
			if !strings.HasPrefix(r.URL, want) {
				t.Errorf("host %q: %s", host, r.URL)
			}
			return done
		}}
		if host == "0.0.0.0" {
			o.APIKey = []byte("0123456789abcdef")
		}
		if err := Serve(t.Context(), o); !errors.Is(err, done) {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for host, option := range map[string]string{"0.0.0.0": "host", "::": "host", "192.0.2.1": "host", "::ffff:192.0.2.1": "host", "example.org": "host"} {
		err := Serve(t.Context(), ServeOptions{Models: []ServeModel{{Path: books}}, Host: host})
		if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != option {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for _, key := range []string{"", "short", "0123456789 abcdef", "0123456789abcdéf"} {
		err := Serve(t.Context(), ServeOptions{Models: []ServeModel{{Path: books}}, APIKey: []byte(key)})
		if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "api-key-file" {
			t.Errorf("key %q: %v", key, err)
		}
	}
}
