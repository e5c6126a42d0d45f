// Package tokenizer turns text into the token ids of a language model and back,
// as the Hugging Face library tokenizers does with the same tokenizer.json.
//
//	tok, err := tokenizer.Open(dir) // or ParseFiles, for the assets of a .gqf file
//	ids, err := tok.Encode("Hello world", tokenizer.Options{AddSpecial: true})
//	text := tok.Decode(ids, true)
//
// The model must be BPE: byte-level (GPT-2, Llama 3, Qwen, gpt-oss, DeepSeek) or with spaces as
// U+2581 and byte fallback (Llama 2, Gemma, Mistral). A text goes through the stages that
// tokenizer.json names:
//
//   - added tokens such as <|im_end|> are cut out (added.go);
//   - the text between added tokens is normalized (normalize.go);
//   - the pre-tokenizers cut the text into words (pretokenize.go), most by a regular
//     expression in the syntax of Oniguruma (pattern.go, class.go, match.go);
//   - the model merges each word's characters into tokens (bpe.go, merge.go);
//   - the post-processor adds tokens such as a BOS (normalize.go).
//
// A component that this package does not know is an [UnsupportedError] at reading; no component is
// ignored. Truncation and padding, optional parts of a tokenizer.json, are left to the caller.
//
// The time for encoding is proportional to the text, times a logarithm within a single long word.
// Regular expressions run with a budget of steps per byte, so an expression from a hostile file
// ends in an error.
//
// Classes of characters come from Go's package unicode. If two versions of Unicode disagree about a
// character, tokens may differ.
package tokenizer
