package accuracy

import "fmt"

// source adds the condition that the file was made from the checkpoint: the tensors have the
// checksums that the file records. Tensors without a recorded checksum are compared by name and
// shape, and unquantized tensors by their numbers. The tokenizer has to give the same ids.
func (res *GateResult) source(r *Report) {
	c := Condition{Of: "source", Metric: "the checkpoint is the one that the file was made of", Kind: Same, Note: r.Unrecorded()}
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if s.Variant > 0 || s.Slice > 0 {
			continue
		}
		c.Checked++
		switch {
		case s.SourceChanged:
			res.differs(&c, "source", s.Name, "has other bytes in the checkpoint than those that the file was made of")
		case !s.SourceRecorded && s.Unquantized && !s.Equal && !s.Tuned:
			res.differs(&c, "source", s.Name, "differs from the checkpoint: "+s.Difference)
		}
	}
	if r.TokenizerDiffers != "" {
		c.Checked++
		res.differs(&c, "tokenizer", "", r.TokenizerDiffers)
	}
	if len(r.Tensors) == 0 && r.Recorded > 0 { // no checkpoint: its checksums were compared
		c.Checked, c.Note = r.Recorded, "compared with the checksums in the reference logits"
	}
	res.add(c)
}

// Unrecorded says how tensors without recorded checksums are compared, or is "" if there are none.
func (r *Report) Unrecorded() string {
	all, without := 0, 0
	for i := range r.Tensors {
		if s := &r.Tensors[i]; s.Variant == 0 && s.Slice == 0 {
			all++
			if !s.SourceRecorded {
				without++
			}
		}
	}
	const by = "compared by names, shapes and unquantized tensors"
	switch {
	case without == 0:
		return ""
	case without == all:
		return "the file records no checksums of its source: " + by
	}
	return fmt.Sprintf("the file records no checksums for %d of %d tensors: those are %s", without, all, by)
}
