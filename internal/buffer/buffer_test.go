package buffer

import "testing"

func TestGrow(t *testing.T) {
	b := make([]int, 3, 8)
	b[0] = 7
	for _, n := range []int{0, 8, 1} {
		if got := Grow(&b, n); len(got) != n || len(b) != n || cap(b) != 8 || n > 0 && got[0] != 7 {
			t.Errorf("%d: %v of capacity %d", n, got, cap(b))
		}
	}
	if got := Grow(&b, 9); len(got) != 9 || len(b) != 9 {
		t.Errorf("9: %v", got)
	}
}
