package crc32c

import "testing"

// TestCheck has the check value of the catalogue of CRCs.
func TestCheck(t *testing.T) {
	if got := Checksum([]byte("123456789")); got != 0xe3069283 {
		t.Errorf("%#x", got)
	}
	if got := Update(Checksum([]byte("1234")), []byte("56789")); got != 0xe3069283 {
		t.Errorf("in two pieces %#x", got)
	}
}
