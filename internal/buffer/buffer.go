// Package buffer reuses slices.
package buffer

// Grow makes *b n long and returns it; its content is undefined. It allocates only if *b's capacity
// is smaller.
func Grow[T any](b *[]T, n int) []T {
	if cap(*b) < n {
		*b = make([]T, n)
	}
	*b = (*b)[:n]
	return *b
}
