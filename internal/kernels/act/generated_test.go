//go:build amd64 && !purego

package act

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

func TestGenerated(t *testing.T) { asmtest.Generated(t, "kernels_amd64.s", "kernels_amd64.go") }
