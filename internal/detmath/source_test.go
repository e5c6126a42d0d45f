package detmath

import "testing"

// The authors' reference in C (prng.di.unimi.it/splitmix64.c) gives these numbers for the seed
// 1234567.
func TestNext(t *testing.T) {
	s := Source(1234567)
	for i, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821} {
		if got := s.Next(); got != want {
			t.Errorf("number %d: %d, not %d", i, got, want)
		}
	}
}
