package conversion

import (
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
)

// tie finds the lm_head that is the embedding under another name, so that
// the embedding is stored once: the checkpoint leaves the lm_head out, or holds the
// same bytes twice. What config.json says is checked against what is there; the
// content wins and a contradiction is a warning.
func (pl *planner) tie() error {
	var embedding, lmHead *draft
	for _, it := range pl.drafts {
		switch it.role {
		case gqf.RoleEmbedding:
			if embedding == nil {
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
	if o := pl.opts.Origin; o != nil && o.Untied && lmHead != nil && lmHead.quantize {
		pl.untied = lmHead.line
		lmHead.scheme = pl.opts.Recipe.Scheme(gqf.RoleEmbedding, lmHead.rule)
	}
	if lmHead == nil {
		return pl.tieAbsent(embedding)
	}
	same, err := pl.same(embedding, lmHead)
	if err != nil {
		return err
	}
	stated, tied := pl.cfg != nil && pl.cfg.TieStated, pl.cfg != nil && pl.cfg.TieWordEmbeddings
	switch {
	case !same && tied:
		pl.warn("config.json says that %q is tied to %q, but their contents differ: both are stored", lmHead.src.Name, embedding.src.Name)
		return nil
	case !same:
		return nil
	case !pl.share(embedding, lmHead):
		return nil
	case stated && !tied:
		pl.warn("config.json says that %q is not tied to %q, but their contents are equal: stored once", lmHead.src.Name, embedding.src.Name)
	}
	embedding.aliases = append(embedding.aliases, nameRef{src: *lmHead.src})
	lmHead.line.Action, lmHead.line.SharedWith, lmHead.line.Rule = ActionShare, embedding.src.Name, ""
	lmHead.line.Reason = "same content as " + embedding.src.Name
	lmHead.line.clearScheme()
	pl.Tensors = append(pl.Tensors, lmHead.line)
	pl.drafts = slices.DeleteFunc(pl.drafts, func(it *draft) bool { return it == lmHead })
	return nil
}

// tieAbsent gives the embedding the name of the lm_head that the checkpoint leaves out.
func (pl *planner) tieAbsent(embedding *draft) error {
	name := arch.HeadName(pl.cfg, embedding.src.Name)
	if name == "" { // not a model with an lm_head
		return nil
	}
	if pl.cfg != nil && pl.cfg.TieStated && !pl.cfg.TieWordEmbeddings {
		pl.warn("config.json says that the lm_head is not tied to %q, but the checkpoint holds no lm_head: the embedding serves as %q", embedding.src.Name, name)
	}
	line := &PlanTensor{Name: name, Role: gqf.RoleHead, Shape: embedding.src.Shape, Dtype: embedding.src.DtypeName}
	lmHead := &draft{entry: entry{src: embedding.src, role: gqf.RoleHead, line: line}, slices: 1, quantize: true}
	if rule, ok := pl.rules.Match(name); ok {
		pl.rules.Use(rule)
		lmHead.line.Rule, lmHead.rule = rule.String(), rule
		if rule.Skip {
			lmHead.leave("a rule says skip")
		}
		lmHead.scheme = pl.opts.Recipe.Scheme(gqf.RoleEmbedding, rule)
	}
	if !pl.share(embedding, lmHead) {
		i := slices.Index(pl.drafts, embedding)
		pl.drafts = slices.Insert(pl.drafts, i, lmHead)
		return nil
	}
	embedding.aliases = append(embedding.aliases, nameRef{src: safetensors.Tensor{Name: name}, absent: true})
	lmHead.line.Action, lmHead.line.SharedWith, lmHead.line.Rule = ActionShare, embedding.src.Name, ""
	lmHead.line.Reason = "not in the checkpoint: tied to the embedding"
	lmHead.line.clearScheme()
	pl.Tensors = append(pl.Tensors, lmHead.line)
	return nil
}

// share makes the embedding the lm_head too: at --embedding-bits, unless a rule names it
// under either name. Where rules give the two names different schemes or layouts
// the tie is broken, which a warning says with its cost, and the lm_head is stored
// on its own.
func (pl *planner) share(embedding, lmHead *draft) bool {
	if lmHead.line.Rule != "" && embedding.line.Rule != "" &&
		(embedding.quantize != lmHead.quantize || embedding.quantize && (embedding.scheme != lmHead.scheme || !slices.Equal(embedding.requests(), lmHead.requests()))) {
		pl.broken = lmHead.line
		return false
	}
	embedding.shared = true
	if lmHead.line.Rule != "" && embedding.line.Rule == "" {
		embedding.line.Rule, embedding.scheme, embedding.rule, embedding.quantize = lmHead.line.Rule, lmHead.scheme, lmHead.rule, lmHead.quantize
		if !lmHead.quantize {
			embedding.leave("a rule says skip")
		}
	}
	if embedding.quantize {
		// The bias is the lm_head's: only the multiplication adds it, a lookup does not read it.
		if b, ok := pl.ck.Lookup(biasName(lmHead.name())); ok && b.Dtype.IsFloat() && b.Numel() == embedding.src.Shape[0] {
			embedding.bias = &b
		}
	}
	return true
}

func (pl *planner) warn(format string, args ...any) {
	pl.Warnings = append(pl.Warnings, fmt.Sprintf(format, args...))
}

// same compares two drafts: their bytes, or codes and scales of weights that are quantized already.
func (pl *planner) same(a, b *draft) (bool, error) {
	in, ok := pl.in.(*hfInput)
	switch {
	case !ok || !a.quantize && !b.quantize:
		return sameContent(pl.ck, *a.src, *b.src)
	case a.quantize && b.quantize:
		return in.sameCodes(a.src.Name, b.src.Name)
	}
	return false, nil
}
