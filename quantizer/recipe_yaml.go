package quantizer

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/lowbit-go/gq/internal/yamldoc"
	"github.com/lowbit-go/gq/packing"
)

// RecipeError reports a recipe file that cannot be used.
type RecipeError struct {
	File string
	Line int // from 1; 0 if it is not known
	Err  error
}

func (e *RecipeError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns e.Err.
func (e *RecipeError) Unwrap() error { return e.Err }

// ParseRecipe reads a recipe file; file is its name for messages. A recipe is a
// YAML mapping whose keys are all optional:
//
//	bits: 4                   # 1 to 8
//	group: 32                 # a multiple of 16, or channel
//	mapping: full-range       # symmetric, symmetric-no-clip, asymmetric, half-step
//	scale-dtype: bf16         # f16, f32
//	algorithm: search         # rtn, hqq; with calibration imatrix, gptq, gptq-ft
//	positive-scales: false
//	layout: lowbit            # kleidiai, torchao, plain; kleidiai:4x16x2; several: lowbit,kleidiai:4x8x2
//	tile: 8x16x2              # of layouts that state none
//	target: pytorch-aarch64   # instead of layout and tile
//	embedding-bits: 8
//	embedding-group: 32       # default: group
//	fold: none                # rotate, equalize, both, auto: fold the checkpoint first
//	rotate: false             # instead of fold: fold rotations into the checkpoint first
//	equalize: false           # instead of fold: balance columns of the checkpoint first
//	hash: headers             # sha256 of whole source files too
//	quality: good             # fast, best: a preset for what is not stated
//	calibrate: self           # or a file of text or token ids
//	calibrate-tokens: 8192
//	seed: 1                   # of the text that the model writes, and of rotations
//	refine: false             # coordinate descent and a refit of scales behind gptq and gptq-ft
//	tune: off                 # norms, floats, codes, blocks: train numbers of the file afterwards
//	tune-tokens: 32768
//	tune-text: self           # or a file of text or token ids
//	imatrix: [a.gguf]         # files of second moments for the algorithm imatrix
//	pre: llama-bpe            # llama.cpp's name of the pre-tokenizer, of a .gguf file
//	rules:                    # the first that matches; exact names before re:
//	  - match: re:.*\.down_proj
//	    bits: 6               # also group, mapping, scale-dtype, algorithm, positive-scales, layout
//	  - match: lm_head
//	    skip: true
//
// Every other key is an error, as are documents after the first, anchors and aliases. Errors are of
// type *RecipeError.
func ParseRecipe(file string, raw []byte) (Recipe, error) {
	var r Recipe
	body, err := yamldoc.Parse(raw)
	if e, ok := errors.AsType[*yamldoc.Error](err); ok {
		return r, &RecipeError{file, e.Line, errors.New(e.Msg)}
	}
	if body == nil { // comments at most
		return r, nil
	}
	y := recipeReader{file}
	var whole, steps bool // fold, and rotate or equalize
	err = y.mapping(body, func(key string, v ast.Node) (err error) {
		switch key {
		case "bits":
			r.Bits, err = scalar(v, ParseBits)
		case "group":
			r.Group, err = scalar(v, ParseGroup)
		case "mapping":
			r.Mapping, err = scalar(v, ParseMapping)
		case "scale-dtype":
			r.ScaleDtype, err = scalar(v, ParseScaleDtype)
		case "algorithm":
			r.Algorithm, err = scalar(v, ParseAlgorithm)
		case "positive-scales":
			r.PositiveScales, err = boolean(v)
		case "layout":
			r.Layouts, err = scalar(v, ParseLayouts)
		case "target":
			r.Targets, err = scalar(v, ParseTargets)
		case "tile":
			r.Tile, err = scalar(v, packing.ParseTile)
		case "embedding-bits":
			r.EmbeddingBits, err = scalar(v, ParseBits)
		case "embedding-group":
			r.EmbeddingGroup, err = scalar(v, ParseGroup)
		case "fold":
			whole = true
			r.Fold, err = scalar(v, ParseFold)
		case "rotate":
			steps = true
			r.Rotate, err = boolean(v)
		case "equalize":
			steps = true
			r.Equalize, err = boolean(v)
		case "rules":
			r.Rules, err = y.rules(v)
		default:
			err = r.setOther(key, v)
		}
		if whole && steps && err == nil {
			err = errTwoFolds
		}
		return err
	})
	return r, err
}

// setOther sets the keys that affect the file but not schemes.
func (r *Recipe) setOther(key string, v ast.Node) (err error) {
	switch key {
	case "hash":
		r.HashFiles, err = scalar(v, ParseHash)
	case "quality":
		r.Quality, err = scalar(v, ParseQuality)
	case "calibrate":
		r.Calibrate, err = name(v)
	case "calibrate-tokens":
		r.CalibrateTokens, err = scalar(v, parsePositive[int])
	case "seed":
		r.Seed, err = scalar(v, parsePositive[uint64])
	case "refine":
		var b bool
		b, err = boolean(v)
		r.Refine = &b
	case "tune":
		r.Tune, err = scalar(v, ParseTune)
	case "tune-tokens":
		r.TuneTokens, err = scalar(v, parsePositive[int])
	case "tune-text":
		r.TuneText, err = name(v)
	case "imatrix":
		r.Imatrix, err = names(v)
	case "pre":
		r.Pre, err = name(v)
	default:
		err = errUnknownKey
	}
	return err
}

// parsePositive reads an integer above 0.
func parsePositive[T int | uint64](s string) (T, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || T(n) < 0 {
		return 0, fmt.Errorf("%q: use an integer above 0", s)
	}
	return T(n), nil
}

// ParseHash reads which hashes of source files are recorded: headers only, or sha256 of the whole
// files too.
func ParseHash(s string) (whole bool, err error) {
	if s != "headers" && s != "sha256" {
		return false, fmt.Errorf("%q: use headers or sha256", s)
	}
	return s == "sha256", nil
}

var errUnknownKey = errors.New("unknown key")

// recipeReader walks the syntax tree of a recipe file, so that each error has a line.
type recipeReader struct{ file string }

// mapping calls set for each key of a mapping. Errors of set get the key and its line.
func (y recipeReader) mapping(n ast.Node, set func(key string, v ast.Node) error) error {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		return &RecipeError{y.file, yamldoc.Line(n), errors.New("a mapping of keys to values was expected")}
	}
	for _, kv := range m.Values {
		key := kv.Key.GetToken().Value
		err := set(key, kv.Value)
		var positioned *RecipeError
		switch {
		case err == nil:
			continue
		case errors.As(err, &positioned):
			return err
		case err == errUnknownKey:
			err = fmt.Errorf("unknown key %q", key)
		default:
			err = fmt.Errorf("%s: %w", key, err)
		}
		return &RecipeError{y.file, yamldoc.Line(kv.Key), err}
	}
	return nil
}

func (y recipeReader) rules(n ast.Node) ([]Rule, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, errors.New("a list of rules was expected")
	}
	rules := []Rule{}
	for i, v := range seq.Values {
		r, err := y.rule(v)
		if err != nil {
			what := fmt.Sprintf("rule %d", i+1)
			if r.Match != "" {
				what += fmt.Sprintf(" (%s)", r.Match)
			}
			var e *RecipeError
			if !errors.As(err, &e) {
				e = &RecipeError{y.file, yamldoc.Line(v), err}
			}
			return nil, &RecipeError{e.File, e.Line, fmt.Errorf("%s: %w", what, e.Err)}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func (y recipeReader) rule(n ast.Node) (Rule, error) {
	r := Rule{Origin: fmt.Sprintf("%s:%d", y.file, yamldoc.Line(n))}
	err := y.mapping(n, func(key string, v ast.Node) (err error) {
		switch key {
		case "match":
			r.Match, err = name(v)
		case "skip":
			r.Skip, err = boolean(v)
		case "bits":
			r.Bits, err = scalar(v, ParseBits)
		case "group":
			r.Group, err = scalar(v, ParseGroup)
		case "mapping":
			r.Mapping, err = scalar(v, ParseMapping)
		case "scale-dtype":
			r.ScaleDtype, err = scalar(v, ParseScaleDtype)
		case "algorithm":
			r.Algorithm, err = scalar(v, ParseAlgorithm)
		case "layout":
			r.Layouts, err = scalar(v, ParseLayouts)
		case "positive-scales":
			var b bool
			b, err = boolean(v)
			r.PositiveScales = &b
		default:
			err = errUnknownKey
		}
		return err
	})
	if err != nil {
		return r, err
	}
	return r, r.check()
}

// name reads a name.
func name(n ast.Node) (string, error) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		return "", errors.New("a name was expected; put it in quotes")
	}
	return s.Value, nil
}

// names reads a list of names.
func names(n ast.Node) ([]string, error) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		return nil, errors.New("a list of names was expected")
	}
	var list []string
	for _, v := range seq.Values {
		s, err := name(v)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// scalar reads a number or a word.
func scalar[T any](n ast.Node, parse func(string) (T, error)) (T, error) {
	switch n.(type) {
	case *ast.IntegerNode, *ast.StringNode, *ast.FloatNode:
		return parse(n.GetToken().Value)
	case *ast.NullNode:
		var zero T
		return zero, errors.New("it has no value")
	}
	var zero T
	return zero, fmt.Errorf("a number or a word was expected, not a %s", n.Type().YAMLName())
}

func boolean(n ast.Node) (bool, error) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return false, errors.New("use true or false")
	}
	return b.Value, nil
}
