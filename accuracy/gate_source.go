package accuracy

import "fmt"

// source adds the condition that the checkpoint is the one that the file was made from: its tensors
// have the checksums that the file records. Tensors without a recorded checksum are compared by
// name and shape, and byte by byte if they are unquantized.
func (res *GateResult) source(r *Report) {
	c := Condition{Of: "source", Metric: "the checkpoint is the one that the file was made of", Kind: Same, Note: r.Unrecorded()}
	for i := range r.Tensors {
		s := &r.Tensors[i]
		if s.Variant > 0 || s.Slice > 0 {
			continue
		}
		f := Failure{Condition: len(res.Conditions), Tensor: s.Name, Metric: "source", Kind: Same}
		switch {
		case s.SourceChanged:
			f.Missing = "has other bytes in the checkpoint than those that the file was made of"
		case !s.SourceRecorded && s.Unquantized && !s.Equal && !s.Tuned:
			f.Missing = "differs from the checkpoint: " + s.Difference
		}
		c.Checked++
		if f.Missing != "" {
			c.Failed++
			res.Failures = append(res.Failures, f)
		}
	}
	if len(r.Tensors) == 0 && r.recorded > 0 { // no checkpoint: Job.checkSaved compared
		c.Checked, c.Note = r.recorded, "compared with the checksums in the reference logits"
	}
	res.Checked += c.Checked
	res.Conditions = append(res.Conditions, c)
}

// Unrecorded says how tensors without a recorded checksum are compared with the source; "" if there
// are none.
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
