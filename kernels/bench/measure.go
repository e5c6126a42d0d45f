package bench

import (
	"context"
	"slices"
	"time"

	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/kernels/internal/gemv"
)

// products calls operators that are copies of each other, in turn.
type products struct {
	ctx    context.Context
	pool   *kernels.Pool
	w      *kernels.Workspace
	ops    []kernels.Operator
	space  space
	memory []byte
	x, dst []float32
	m      int
	next   int // index of the next copy
}

// round holds the mean times of a call and of a reading in one round, in seconds.
type round struct{ product, read float64 }

// measure runs rounds; each round has as many calls as fill its time.
func (p *products) measure(rounds int, total time.Duration) ([]round, error) {
	// The first call grows the workspace, faults in pages and raises the clock.
	if _, err := p.call(); err != nil {
		return nil, err
	}
	var list []round
	start := time.Now()
	for i := range rounds {
		if i > 0 && time.Since(start) >= 2*total {
			break
		}
		var product, read time.Duration
		calls := 0
		for calls == 0 || product+read < total/time.Duration(rounds) {
			t, err := p.call()
			if err != nil {
				return nil, err
			}
			product += t
			read += p.read(p.space.copy(p.memory, (p.next+p.space.copies/2)%p.space.copies))
			calls++
		}
		list = append(list, round{product.Seconds() / float64(calls), read.Seconds() / float64(calls)})
	}
	return list, nil
}

// call measures one product.
func (p *products) call() (time.Duration, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	op := p.ops[p.next]
	p.next = (p.next + 1) % len(p.ops)
	start := time.Now()
	err := op.Forward(p.w, p.dst, p.x, p.m)
	return time.Since(start), err
}

// read measures reading b, in as many parts as a product of one row has.
func (p *products) read(b []byte) time.Duration {
	parts := 8 * p.pool.Threads()
	part := max(len(b)/parts/readUnit*readUnit, readUnit)
	parts = len(b) / part
	start := time.Now()
	p.pool.Run(parts, func(_, i int) {
		end := (i + 1) * part
		if i == parts-1 {
			end = len(b) / readUnit * readUnit
		}
		gemv.ReadSum(b[i*part : end])
	})
	return time.Since(start)
}

// readUnit divides the lengths that gemv.ReadSum reads.
const readUnit = 256

// median is the median over rounds of a figure of a round.
func median(rounds []round, of func(round) float64) float64 {
	list := make([]float64, len(rounds))
	for i, r := range rounds {
		list[i] = of(r)
	}
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
