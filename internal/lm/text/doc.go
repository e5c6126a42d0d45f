// Package text turns text into the token sequences that a model reads. Measurement and calibration
// share its functions.
//
// [Cut] divides a text, or its token ids, into windows: sequences that a model reads from an empty
// context, and the range of scored tokens in each. [Read] does the same for calibration, up to a
// number of tokens. [Write] lets a model write the text.
//
// # Documents
//
// Some texts, such as TinyStories, have "<|endoftext|>" between documents. To most tokenizers this
// marker is ordinary text that no model has seen. By default a text with markers is therefore split
// at the markers, and no window has tokens of two documents. The convention [Windows], if chosen
// explicitly, keeps markers as text.
package text
