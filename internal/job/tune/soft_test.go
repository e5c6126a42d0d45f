package tune

import (
	"math"
	"slices"
	"testing"

	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestSoft trains relaxed codes of every grid down a slope.
func TestSoft(t *testing.T) {
	testshared.SlowEmulated(t, "TestRun has the bits")
	const rows, cols, steps = 3, 512, 60
	for name, s := range schemes(t) {
		if s.Table() != nil || s.Points() != nil { // such codes stay
			continue
		}
		t.Run(name, func(t *testing.T) {
			m, w := quantized(t, s, rows, cols)
			start, before := slices.Clone(m.codes), read(t, m)
			m.train(false, layerFine)
			if err := m.soften(func(dst []float32, first, n int) error {
				copy(dst, w[first*cols:][:n*cols])
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			soft := m.soft
			soft.harden(m.codes, 0, rows*cols)
			if !slices.Equal(m.codes, start) {
				t.Error("codes have changed before training")
			}
			slope := make([]float32, rows*cols) // d loss / d weight
			for i := range slope {
				slope[i] = float32(math.Cos(float64(7 * i)))
			}
			descend := func() {
				for r := range rows {
					m.gradient(r, slope[r*cols:][:cols])
				}
			}

			// The values of codes without a step, and so without a gradient.
			refresh := func() { soft.step(0, len(soft.value), 0, 1, 1, soft.temperature) }
			descend()
			x := slices.Clone(soft.x)
			soft.step(0, len(soft.value), 1e-3, 1-beta1, 1-beta2, hot)
			moved := slices.Clone(soft.x)
			copy(soft.x, x)
			for i := 37; i < rows*cols*soft.n; i += 97 {
				var at [2]float64
				for side, d := range []float32{-.1, .1} {
					soft.x[i] = x[i] + d
					clear(soft.m)
					refresh()
					at[side] = loss(m, slope)
				}
				soft.x[i] = x[i]
				// The first step of Adam has the size of the rate.
				if d := at[1] - at[0]; math.Abs(d) > 1e-6 && (d > 0) != (moved[i] < x[i]) {
					t.Errorf("the loss grows by %g with logit %d, and a step moves it from %g to %g", d, i, x[i], moved[i])
				}
			}

			copy(soft.x, moved)
			refresh()
			for step := range steps {
				descend()
				first, second := corrections(step + 1)
				next := temperature(step+1, steps)
				soft.step(0, len(soft.value), softRate, first, second, next)
				soft.temperature = next
			}
			relaxed := loss(m, slope)
			soft.harden(m.codes, 0, rows*cols)
			m.soft = nil
			m.refresh(0, rows)
			same(t, "after training", m)
			hard := loss(m, slope)
			for i, v := range before {
				relaxed -= float64(v) * float64(slope[i])
				hard -= float64(v) * float64(slope[i])
			}
			if !(hard < 0) || !(relaxed < 0) || math.Abs(hard-relaxed) > .3*math.Abs(hard) {
				t.Errorf("the loss changes by %g with relaxed codes, and by %g with hard codes", relaxed, hard)
			}
			if least, most := slices.Min(m.codes), slices.Max(m.codes); int(least) < m.lo || int(most) > m.hi {
				t.Errorf("codes %d .. %d of %d .. %d", least, most, m.lo, m.hi)
			}
			if !slices.Equal(m.codes[:m.width], start[:m.width]) && m.width <= 32 {
				t.Error("codes of a group of zeros have changed")
			}
		})
	}
}

// TestTemperature is the schedule of the temperature.
func TestTemperature(t *testing.T) {
	for _, c := range []struct {
		step, steps int
		want        float64
	}{{0, 480, hot}, {479, 480, cold}, {410, 480, cold}, {0, 1, hot}} {
		if got := temperature(c.step, c.steps); math.Abs(got/c.want-1) > 1e-9 {
			t.Errorf("step %d of %d: %g, want %g", c.step, c.steps, got, c.want)
		}
	}
	if a, b := temperature(100, 480), temperature(200, 480); !(hot > a && a > b && b > cold) {
		t.Errorf("%g, then %g", a, b)
	}
}
