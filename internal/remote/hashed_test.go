package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// bytesStore is a Store of one object.
type bytesStore struct {
	data []byte
	read int64
}

func (s *bytesStore) List(context.Context) ([]Object, error) { return nil, nil }
func (s *bytesStore) String() string                         { return "hf://org/model" }
func (s *bytesStore) ReadAt(_ context.Context, _ Object, dst []byte, off int64) error {
	s.read += int64(copy(dst, s.data[off:]))
	return nil
}

// TestHashed reads ranges in several orders, and less than the object.
func TestHashed(t *testing.T) {
	data := make([]byte, 40*grain+5)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	sum := sha256.Sum256(data)
	for name, c := range map[string]struct {
		ranges  []int64 // numbers of grains
		wrong   bool    // the list has another hash
		change  bool    // of a byte of the first grain after the ranges
		fetched int64   // bytes more than the ranges
		want    string
	}{
		"nothing read":      {nil, false, false, int64(len(data)), ""},
		"another order":     {[]int64{3, 1, 0, 2, 1}, false, false, int64(len(data)) - 4*grain, ""},
		"wrong hash":        {[]int64{0, 1}, true, false, int64(len(data)) - 2*grain, "its SHA-256 is " + hex.EncodeToString(sum[:]) + ", expected ffff"},
		"read again":        {[]int64{0, 1}, false, true, int64(len(data)) - 2*grain, ""},
		"changed and reads": {[]int64{1, 1, 0, 39}, false, true, int64(len(data)) - 3*grain, ""},
	} {
		s := &bytesStore{data: append([]byte{}, data...)}
		o := Object{Name: "x", Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
		if c.wrong {
			o.SHA256 = strings.Repeat("f", 64)
		}
		h := HashObjects(s, []Object{o})[0]
		for _, i := range c.ranges {
			if err := h.ReadAt(t.Context(), make([]byte, grain), i*grain); err != nil {
				t.Fatal(err)
			}
		}
		before := s.read
		if c.change {
			s.data[0] ^= 1
			if err := h.ReadAt(t.Context(), make([]byte, grain), 0); err == nil || !strings.Contains(err.Error(), "differ in two readings") {
				t.Errorf("%s: %v", name, err)
			}
			before += grain
		}
		err := h.Check(t.Context())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if n := s.read - before; n > c.fetched+grain*8 {
			t.Errorf("%s: %d bytes are fetched, expected about %d", name, n, c.fetched)
		}
	}
}
