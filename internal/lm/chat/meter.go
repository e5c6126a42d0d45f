package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mitsuhiko/minijinja/minijinja-go/v2/filters"
	"github.com/mitsuhiko/minijinja/minijinja-go/v2/value"
)

// Limits of a Render. Real templates take some hundred steps for a message and move each message a
// few times, without deep values or long ranges.
const (
	maxTemplate = 128 << 10 // bytes of a template; the largest in use has 40 thousand
	maxMessages = 10_000    // of a conversation
	maxSteps    = 4_000_000 // statements and expressions
	baseBytes   = 64 << 20  // moved by a template, whatever the conversation
	perByte     = 64        // bytes moved for each byte of the conversation
	maxDepth    = 32        // of lists in lists
	maxRange    = 10_000    // numbers of a range
	maxFactor   = 4096      // in the product of a string and a number
	maxRepeated = 256       // length of a string or list that is repeated
)

var (
	errSteps  = fmt.Errorf("the template takes more than %d steps", maxSteps)
	errBytes  = errors.New("the template moves more data than a chat template needs")
	errNested = fmt.Errorf("the template nests values more than %d deep", maxDepth)
)

// A meter counts the bytes that a template moves, and ends a template when its context is
// cancelled. minijinja counts steps.
type meter struct {
	ctx  context.Context
	left int
	now  time.Time
	err  error // a function's first error, before minijinja wraps it
}

type meterKey struct{}

func newMeter(ctx context.Context, size int, now time.Time) *meter {
	return &meter{ctx: ctx, left: baseBytes + perByte*size, now: now}
}

func meterOf(s value.State) *meter { return s.Context().Value(meterKey{}).(*meter) }

func (m *meter) fail(err error) error {
	if m.err == nil {
		m.err = err
	}
	return err
}

func (m *meter) take(n int) error {
	if err := m.ctx.Err(); err != nil {
		return m.fail(err)
	}
	if n < 0 || n > m.left {
		m.left = 0
		return m.fail(errBytes)
	}
	m.left -= n
	return nil
}

// valueBytes is about the size of minijinja's representation of a value without its content.
const valueBytes = 16

// value counts v with its whole content, as if v were written as text.
func (m *meter) value(v value.Value) error { return m.nested(v, 0) }

func (m *meter) nested(v value.Value, depth int) error {
	if depth > maxDepth {
		return m.fail(errNested)
	}
	if s, ok := v.AsString(); ok {
		return m.take(valueBytes + len(s))
	}
	if err := m.take(valueBytes); err != nil {
		return err
	}
	if fields, ok := v.AsMap(); ok {
		for key, field := range fields {
			if err := m.take(valueBytes + len(key)); err != nil {
				return err
			}
			if err := m.nested(field, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if _, ok := v.Len(); !ok {
		return nil
	}
	for _, item := range v.Iter() {
		if err := m.nested(item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// runeBytes is the size of a string of a single character: iterating over text makes such strings.
const runeBytes = 48

// items counts v for a function that iterates over v.
func (m *meter) items(v value.Value) error {
	if s, ok := v.AsString(); ok && len(s) <= m.left {
		return m.take(runeBytes * len(s))
	}
	return m.shallow(v)
}

// valueItems counts v as items does, and the whole content.
func (m *meter) valueItems(v value.Value) error {
	if err := m.items(v); err != nil {
		return err
	}
	return m.value(v)
}

// shallow counts v without the content of its elements.
func (m *meter) shallow(v value.Value) error {
	if s, ok := v.AsString(); ok {
		return m.take(valueBytes + len(s))
	}
	n, _ := v.Len()
	return m.take(valueBytes * (n + 1))
}

// charge is a filter that counts a value and returns the value. The rewritten template applies
// charge wherever values are joined or written.
func charge(s filters.State, v value.Value, _ []value.Value, _ map[string]value.Value) (value.Value, error) {
	return whole(v), meterOf(s).value(v)
}

// whole returns a list that minijinja can iterate over: minijinja takes a nil slice for no list.
func whole(v value.Value) value.Value {
	if list, ok := v.AsSlice(); ok && list == nil {
		return value.FromSlice([]value.Value{})
	}
	return v
}

// factor is a filter on the operands of * that keeps repetitions short.
func factor(s filters.State, v value.Value, _ []value.Value, _ map[string]value.Value) (value.Value, error) {
	if n, ok := v.AsInt(); ok {
		if n > maxFactor || n < -maxFactor {
			return v, meterOf(s).fail(fmt.Errorf("%d is too large a factor: at most %d", n, maxFactor))
		}
		return v, nil
	}
	if n, ok := v.Len(); ok && n > maxRepeated {
		return v, meterOf(s).fail(fmt.Errorf("a value of length %d is repeated: at most %d", n, maxRepeated))
	}
	return v, nil
}

// item is a filter on the value before a subscript. Its argument says whether the subscript is a
// slice.
func item(s filters.State, v value.Value, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	m := meterOf(s)
	if _, ok := v.AsString(); ok || args[0].IsTrue() {
		return v, m.shallow(v)
	}
	return v, nil
}

// loop is a filter on a for statement's values that counts the literal text of all rounds.
func loop(s filters.State, v value.Value, args []value.Value, _ map[string]value.Value) (value.Value, error) {
	text, _ := args[0].AsInt()
	m := meterOf(s)
	if err := m.items(v); err != nil {
		return v, err
	}
	n, _ := v.Len()
	if text > 0 && int64(n) > int64(m.left)/text {
		return v, m.fail(errBytes)
	}
	return whole(v), m.take(n * int(text))
}
