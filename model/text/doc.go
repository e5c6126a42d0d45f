// Package text turns text into the token sequences that a model reads. Measuring and calibrating use the same functions.
//
// [Cut] turns a text, or its token ids, into windows: sequences that a model reads from an empty context, and the tokens
// of each that are scored. [Read] does the same for calibration, up to a number of tokens. [Write] has a model write the
// text itself.
//
// # Documents
//
// Texts such as those of TinyStories hold "<|endoftext|>" between documents. To most tokenizers the marker is ordinary
// text that no model has seen, so by default a text that holds it is cut at it, and no window holds tokens of two
// documents. The convention [Windows], stated explicitly, keeps the marker as text.
package text
