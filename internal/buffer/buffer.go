// Package buffer reuses slices.
package buffer

// Grow makes *b n long and returns it, with anything in it. It allocates only where *b's capacity
// is less.
func Grow[T any](b *[]T, n int) []T {
	if cap(*b) < n {
		*b = make([]T, n)
	}
	*b = (*b)[:n]
	return *b
}
