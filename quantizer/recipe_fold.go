package quantizer

import (
	"errors"
	"fmt"
)

// Fold says how to fold a checkpoint, see package fold.
type Fold struct {
	Rotate, Equalize bool
	// Auto chooses between the four folds by a measurement on the checkpoint. Rotate and Equalize are
	// then false.
	Auto bool
}

// folds are the values of the recipe's key fold.
var folds = []struct {
	name string
	Fold
}{
	{"none", Fold{}},
	{"rotate", Fold{Rotate: true}},
	{"equalize", Fold{Equalize: true}},
	{"both", Fold{Rotate: true, Equalize: true}},
	{"auto", Fold{Auto: true}},
}

// String returns the name that ParseFold reads.
func (f Fold) String() string {
	for _, known := range folds {
		if f == known.Fold {
			return known.name
		}
	}
	return fmt.Sprintf("%+v", struct{ Rotate, Equalize, Auto bool }(f))
}

// ParseFold reads none, rotate, equalize, both or auto.
func ParseFold(s string) (Fold, error) {
	for _, known := range folds {
		if s == known.name {
			return known.Fold, nil
		}
	}
	return Fold{}, fmt.Errorf("%q: use none, rotate, equalize, both or auto", s)
}

// errTwoFolds refuses a recipe with the key fold beside the keys of single steps.
var errTwoFolds = errors.New("beside rotate or equalize: state fold alone")
