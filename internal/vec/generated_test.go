//go:build amd64 && !purego

package vec

import (
	"testing"

	"github.com/lowbit-go/gq/internal/test/asmtest"
)

func TestGenerated(t *testing.T) { asmtest.Generated(t, "kernels_amd64.s", "kernels_amd64.go") }
