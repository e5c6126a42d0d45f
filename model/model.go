// Package model computes the logits of a language model. OpenGQF opens a file of gq,
// OpenCheckpoint the directory of a float checkpoint. Package model/generate writes texts.
//
//	f, err := gqf.Open("model.gqf", gqf.Options{})
//	m, err := model.OpenGQF(f, model.Options{})
//	s := m.NewSession(2048)
//	logits := make([]float32, m.VocabSize())
//	err = s.Forward(ids, logits, false) // logits after the last id; more calls continue
//
// Logits have the same bits on every CPU, for any number of threads, and for any division of a
// sequence into calls.
package model

import (
	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// Model is a language model. Its methods NewSession, VocabSize and Close are for programs; the
// other methods serve gq itself and may change.
type Model = forward.Model

// Session is a sequence of tokens in a Model: Forward appends tokens and computes logits, Truncate
// and Reset shorten the sequence.
type Session = forward.Session

// Options are the options of a Model. The zero value is good.
type Options = forward.Options

// Activations are the inputs of quantized linear layers: Int8, as on the device, or Float32.
type Activations = forward.Activations

const (
	Int8    = forward.Int8    // each row of activations is quantized as the weights' layout demands
	Float32 = forward.Float32 // dequantized weights: the error of the weights alone
)

// OpenGQF opens the model in a .gqf file that holds config.json. Weights are read from the file's
// map, so f must stay open until the model is closed.
func OpenGQF(f *gqf.File, o Options) (*Model, error) { return forward.OpenGQF(f, o) }

// OpenCheckpoint opens the checkpoint in a directory, with its config.json, in float32.
func OpenCheckpoint(dir string, o Options) (*Model, error) { return forward.OpenCheckpoint(dir, o) }
