// Package jsonscan reads JSON strictly and in little memory. encoding/json keeps the last of
// duplicate keys, replaces invalid UTF-8, accepts null anywhere, and needs seconds and hundreds of
// megabytes for the header of a large model or for a tokenizer of 800,000 strings.
//
// A [Scanner] reads a text once, directed by the caller's expected structure, or only checks the
// text ([Scanner.Skip]). [Elements], [AppendString] and [End] then read parts of a checked text in
// place.
package jsonscan
