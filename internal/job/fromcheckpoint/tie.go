package fromcheckpoint

import (
	"bytes"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/quantizer"
)

// Tie finds the lm_head that is the embedding under another name, so that
// the embedding is stored once: the checkpoint leaves the lm_head out, or holds the
// same bytes twice. What config.json says is checked against what is there; the
// content wins and a contradiction is a warning.
func (pl *TensorPlanner) Tie() error {
	var embedding, lmHead *plan.Draft
	for _, it := range pl.Drafts {
		switch it.Role {
		case gqf.RoleEmbedding:
			// Tables of single layers are no token embedding.
			if embedding == nil || arch.HeadName(pl.Cfg, embedding.Src.Name) == "" && arch.HeadName(pl.Cfg, it.Src.Name) != "" {
				embedding = it
			}
		case gqf.RoleHead:
			if lmHead == nil {
				lmHead = it
			}
		}
	}
	if embedding == nil {
		return nil
	}
	if pl.origin != nil && pl.origin.Untied && lmHead != nil && lmHead.Quantize {
		pl.WarnTwice(lmHead.Line, "%q is not the embedding any more, because rotations changed both and the last norm's gains went into the lm_head alone: stored twice, which costs %d bytes")
		lmHead.Scheme = pl.Recipe.Scheme(gqf.RoleEmbedding, lmHead.Rule)
	}
	if lmHead == nil {
		return pl.tieAbsent(embedding)
	}
	same := embedding.Src.Dtype.Bits() != 8 // FP8: the scales may differ
	if same {
		var err error
		if same, err = pl.Same(embedding, lmHead); err != nil {
			return err
		}
	}
	stated, tied := pl.Cfg != nil && pl.Cfg.TieStated, pl.Cfg != nil && pl.Cfg.TieWordEmbeddings
	switch {
	case !same && tied:
		pl.Warn("config.json says that %q is tied to %q, but their contents differ: both are stored", lmHead.Src.Name, embedding.Src.Name)
		return nil
	case !same:
		return nil
	case !pl.share(embedding, lmHead):
		return nil
	case stated && !tied:
		pl.Warn("config.json says that %q is not tied to %q, but their contents are equal: stored once", lmHead.Src.Name, embedding.Src.Name)
	}
	pl.Share(&embedding.Entry, plan.NameRef{Src: *lmHead.Src}, "same content as "+embedding.Src.Name)
	pl.Drafts = slices.DeleteFunc(pl.Drafts, func(it *plan.Draft) bool { return it == lmHead })
	return nil
}

// tieAbsent gives the embedding the name of the lm_head that the checkpoint leaves out.
func (pl *TensorPlanner) tieAbsent(embedding *plan.Draft) error {
	name := arch.HeadName(pl.Cfg, embedding.Src.Name)
	if name == "" { // not a model with an lm_head
		return nil
	}
	if pl.Cfg != nil && pl.Cfg.TieStated && !pl.Cfg.TieWordEmbeddings {
		pl.Warn("config.json says that the lm_head is not tied to %q, but the checkpoint holds no lm_head: the embedding serves as %q", embedding.Src.Name, name)
	}
	line := plan.NewLine(name, gqf.RoleHead, embedding.Src.Shape, embedding.Src.DtypeName)
	lmHead := &plan.Draft{Entry: plan.Entry{Src: embedding.Src, Role: gqf.RoleHead, Line: line}, Quantize: true, Form: plan.Form{Slices: 1}}
	if rule, ok := pl.Rules.Match(name); ok {
		pl.Rules.Use(rule)
		lmHead.Line.Rule, lmHead.Rule = rule.String(), rule
		if rule.Skip {
			lmHead.Leave("a rule says skip")
		}
		lmHead.Scheme = pl.Recipe.Scheme(gqf.RoleEmbedding, rule)
	}
	if !pl.share(embedding, lmHead) {
		i := slices.Index(pl.Drafts, embedding)
		pl.Drafts = slices.Insert(pl.Drafts, i, lmHead)
		return nil
	}
	pl.Share(&embedding.Entry, plan.NameRef{Src: safetensors.Tensor{Name: name}, Absent: true}, "not in the checkpoint: tied to the embedding")
	return nil
}

// share makes the embedding the lm_head too: at --embedding-bits, unless a rule names it
// under either name. Where rules give the two names different schemes or layouts
// the tie is broken, which a warning says with its cost, and the lm_head is stored
// on its own.
func (pl *TensorPlanner) share(embedding, lmHead *plan.Draft) bool {
	if lmHead.Line.Rule != "" && embedding.Line.Rule != "" &&
		(embedding.Quantize != lmHead.Quantize || embedding.Quantize && (embedding.Scheme != lmHead.Scheme || !slices.Equal(embedding.Requests(), lmHead.Requests()))) {
		pl.WarnTwice(lmHead.Line, "%q is equal to the embedding, but rules give the two names different schemes or layouts: stored twice, which costs %d bytes")
		return false
	}
	embedding.Shared = true
	if lmHead.Line.Rule != "" && embedding.Line.Rule == "" {
		embedding.Line.Rule, embedding.Scheme, embedding.Rule, embedding.Quantize = lmHead.Line.Rule, lmHead.Scheme, lmHead.Rule, lmHead.Quantize
		if !lmHead.Quantize {
			embedding.Leave("a rule says skip")
		}
	}
	if r := embedding.Rule; r != nil && r.Algorithm.ByLayers() { // calibrated as an lm_head would be
		embedding.Scheme.Algorithm = r.Algorithm
	}
	if embedding.Quantize {
		// The bias is the lm_head's: only the multiplication adds it, a lookup does not read it.
		if b, ok := pl.Ck.Lookup(arch.BiasName(lmHead.Name())); ok && b.Dtype.IsFloat() && b.Numel() == embedding.Src.Shape[0] {
			embedding.Bias = &b
		}
	}
	return true
}

// tiePiece is how much of two tensors is compared at a time. The first piece is small: tensors
// that differ differ there.
const tiePiece = 1 << 20

// SameContent compares two tensors byte for byte. A dry run reads no other weights.
func SameContent(ck *safetensors.Checkpoint, a, b safetensors.Tensor) (bool, error) {
	if a.Dtype != b.Dtype || !slices.Equal(a.Shape, b.Shape) {
		return false, nil
	}
	av, err := ck.Bytes(a)
	if err != nil {
		return false, err
	}
	bv, err := ck.Bytes(b)
	if err != nil {
		return false, err
	}
	compare := func(off, n int64) (same bool, err error) {
		err = ck.Guard(func() error { same = bytes.Equal(av[off:off+n], bv[off:off+n]); return nil })
		return same, err
	}
	first := min(a.Size, 1<<16)
	release, err := ck.Fetch(ck.Context(), a.Range(0, first), b.Range(0, first))
	if err != nil {
		return false, err
	}
	same, err := compare(0, first)
	release()
	if !same || err != nil {
		return false, err
	}
	steps := int((a.Size - first + tiePiece - 1) / tiePiece)
	piece := func(i int) (off, n int64) {
		off = first + int64(i)*tiePiece
		return off, min(tiePiece, a.Size-off)
	}
	ahead := ck.ReadAhead(ck.Context(), steps, func(i int, list []safetensors.Range) []safetensors.Range {
		off, n := piece(i)
		return append(list, a.Range(off, n), b.Range(off, n))
	})
	defer ahead.Close()
	for i := range steps {
		if err := ahead.Wait(i); err != nil {
			return false, err
		}
		if same, err := compare(piece(i)); !same || err != nil {
			return false, err
		}
		ahead.Done(i)
	}
	return true, nil
}

// TensorPlanner decides on the tensors of a checkpoint.
type TensorPlanner struct {
	*plan.Planner
	origin *Origin // nil: the checkpoint is not folded
	Rules  *quantizer.RuleSet
	// Same compares two tensors.
	Same func(a, b *plan.Draft) (bool, error)
}
