package kernels

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/cpu"
	"github.com/lowbit-go/gq/packing"
)

type Options struct {
	// CPU is the best instruction set that the operator may use: generic, neon, dotprod, i8mm, avx2,
	// avxvnni, avx512vnni. An instruction set that this CPU lacks is an error. Default: the
	// environment variable GQ_CPU, or else the best instruction set of this CPU.
	CPU string
	// Log is called when the operator runs a kernel for the first time, from the goroutine that
	// called Forward. Default: a line to standard error if the environment variable GQ_LOG lists
	// "kernels", else nothing.
	Log func(Choice)
}

// Choice is the kernel that an operator runs for a number of rows.
type Choice struct {
	Kernel string         // its name, as in Table
	Header packing.Header // of the weights
	M      int            // rows of activations
}

func (c Choice) String() string {
	h := c.Header
	if h.Layout == packing.LayoutPlain {
		return fmt.Sprintf("%s: %s %s, %d x %d, m %d", c.Kernel, h.Layout, h.Dtype, h.Rows, h.Cols, c.M)
	}
	group := "channel"
	if h.Group != 0 {
		group = fmt.Sprint(h.Group)
	}
	return fmt.Sprintf("%s: %s %s, %d bits, group %s, %d x %d, m %d", c.Kernel, h.Layout, h.Tile, h.Bits, group, h.Rows, h.Cols, c.M)
}

// Features lists the instruction sets that this CPU and build have, from the least to the best.
func Features() []string { return cpu.Supported() }

// features lists the instruction sets that the operator may use, from the least to the best. The
// quantization of activations follows the program's choice instead: every implementation gives the
// same bits.
func (o Options) features() ([]string, error) {
	list, err := cpu.UpTo(o.CPU)
	if err != nil {
		return nil, fmt.Errorf("kernels: %w", err)
	}
	return list, nil
}

func (o Options) log() func(Choice) {
	if o.Log == nil && slices.Contains(strings.Split(os.Getenv("GQ_LOG"), ","), "kernels") {
		return func(c Choice) { fmt.Fprintln(os.Stderr, "kernels:", c) }
	}
	return o.Log
}
