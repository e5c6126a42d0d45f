package quantizer

import (
	"cmp"

	"github.com/lowbit-go/gq/internal/suggest"
)

// Tune says which numbers of a file are trained after its codes were chosen, see package tune.
type Tune string

// The kinds of tuning. The zero value is TuneOff.
const (
	TuneOff    Tune = "off"
	TuneNorms  Tune = "norms"  // a factor for each row of scales, and gains of norms
	TuneFloats Tune = "floats" // all scales, and gains of norms
	TuneCodes  Tune = "codes"  // codes, all scales, and gains of norms
	TuneBlocks Tune = "blocks" // codes and scales layer by layer, then the numbers of TuneFloats
)

// ParseTune reads the name of a kind of tuning.
func ParseTune(s string) (Tune, error) {
	switch t := Tune(s); t {
	case TuneOff, TuneNorms, TuneFloats, TuneCodes, TuneBlocks:
		return t, nil
	}
	return "", suggest.Unknown("kind of tuning", s, []string{string(TuneOff), string(TuneNorms), string(TuneFloats), string(TuneCodes), string(TuneBlocks)})
}

// Tunes reports whether the recipe asks for tuning.
func (r Recipe) Tunes() bool { return cmp.Or(r.Tune, TuneOff) != TuneOff }
