package embedding

import "github.com/lowbit-go/gq/formats/gqf"

// A Tie is a table that a file stores once for several uses.
type Tie struct {
	Names []string `json:"names"`       // the canonical one first
	Bytes int64    `json:"bytes"`       // stored, with packed headers, of all variants
	Saved int64    `json:"saved_bytes"` // what storing it for each name would add
}

// Shared lists the tables of tokens with further names, such as that of the
// model's head, in the file's order.
func Shared(f *gqf.File) []Tie {
	var ties []Tie
	for i := range f.Len() {
		t := f.Tensor(i)
		names := t.Names()
		if t.Role != gqf.RoleEmbedding || len(names) < 2 {
			continue
		}
		tie := Tie{Names: names}
		for _, p := range t.Payloads() {
			tie.Bytes += p.Length
		}
		tie.Saved = int64(len(names)-1) * tie.Bytes
		ties = append(ties, tie)
	}
	return ties
}
