package cmdline

import "time"

// pace estimates the rate of units. It forgets the first half of the time: a resumed job skips
// finished units within seconds, and the beginning of a stage is not typical.
type pace struct {
	samples []sample // in order of time; the first is 0, 0
}

type sample struct {
	at   time.Duration // since the beginning
	done int64
}

// maxSamples bounds the memory: at this number every second sample is dropped.
const maxSamples = 256

// add records the number of units done at a time.
func (p *pace) add(at time.Duration, done int64) {
	if len(p.samples) == 0 {
		p.samples = append(p.samples, sample{})
	}
	if len(p.samples) == maxSamples {
		for i := range maxSamples / 2 {
			p.samples[i] = p.samples[2*i]
		}
		p.samples = p.samples[:maxSamples/2]
	}
	p.samples = append(p.samples, sample{at, done})
}

// rate is units per second at the last sample; 0 if nothing was done.
func (p *pace) rate() float64 {
	if len(p.samples) == 0 {
		return 0
	}
	last := p.samples[len(p.samples)-1]
	from := p.samples[0]
	for _, s := range p.samples {
		if s.at > last.at/2 {
			break
		}
		from = s
	}
	if from.done == last.done { // long steps
		from = p.samples[0]
	}
	if last.at <= from.at {
		return 0
	}
	return float64(last.done-from.done) / (last.at - from.at).Seconds()
}

// left is the time that so many units take at a rate; -1 if that is unknown.
func left(units int64, rate float64) time.Duration {
	seconds := float64(units) / rate
	if !(rate > 0) || seconds > 1e9 {
		return -1
	}
	return time.Duration(seconds * float64(time.Second))
}
