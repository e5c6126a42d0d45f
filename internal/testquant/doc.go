// Package testquant writes checkpoints with random codes as other libraries store them, and says which
// weights they stand for. Only tests import it.
package testquant
