package conversion

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model/arch"
)

// tie finds the lm_head that is the embedding table under another name, so that
// the table is stored once: the checkpoint leaves the head out, or holds the
// same bytes twice. What config.json says is checked against what is there; the
// content wins and a contradiction is a warning.
func (pl *planner) tie() error {
	var table, head *item
	for _, it := range pl.Plan.items {
		switch it.role {
		case gqf.RoleEmbedding:
			if table == nil {
				table = it
			}
		case gqf.RoleHead:
			if head == nil {
				head = it
			}
		}
	}
	if table == nil {
		return nil
	}
	if o := pl.opts.Origin; o != nil && o.Untied && head != nil && head.quantize {
		pl.untied = head
		head.scheme = pl.opts.Recipe.Scheme(gqf.RoleEmbedding, head.rule)
	}
	if head == nil {
		return pl.tieAbsent(table)
	}
	same, err := sameContent(pl.ck, *table.src, *head.src)
	if err != nil {
		return err
	}
	stated, tied := pl.cfg != nil && pl.cfg.TieStated, pl.cfg != nil && pl.cfg.TieWordEmbeddings
	switch {
	case !same && tied:
		pl.warn("config.json says that %q is tied to %q, but their contents differ: both are stored", head.src.Name, table.src.Name)
		return nil
	case !same:
		return nil
	case !pl.share(table, head):
		return nil
	case stated && !tied:
		pl.warn("config.json says that %q is not tied to %q, but their contents are equal: stored once", head.src.Name, table.src.Name)
	}
	table.addName(nameRef{src: *head.src})
	head.line.Action, head.line.SharedWith, head.line.Rule = ActionShare, table.src.Name, ""
	head.line.Reason = "same content as " + table.src.Name
	head.line.clearScheme()
	pl.Tensors = append(pl.Tensors, head.line)
	pl.Plan.items = slices.DeleteFunc(pl.Plan.items, func(it *item) bool { return it == head })
	return nil
}

// tieAbsent gives the table the name of the head that the checkpoint leaves out.
func (pl *planner) tieAbsent(table *item) error {
	name := arch.HeadName(pl.cfg, table.src.Name)
	if name == "" { // not a model with a head
		return nil
	}
	if pl.cfg != nil && pl.cfg.TieStated && !pl.cfg.TieWordEmbeddings {
		pl.warn("config.json says that the head is not tied to %q, but the checkpoint holds no head: the table serves as %q", table.src.Name, name)
	}
	head := &item{src: table.src, names: &itemNames{as: name}, role: gqf.RoleHead, slices: 1, quantize: true}
	head.line = &PlanTensor{Name: name, Role: gqf.RoleHead, Shape: table.src.Shape, Dtype: table.src.DtypeName}
	if rule, ok := pl.rules.Match(name); ok {
		pl.rules.Use(rule)
		head.line.Rule, head.rule = rule.String(), rule
		if rule.Skip {
			head.keep("a rule says skip")
		}
		head.scheme = pl.opts.Recipe.Scheme(gqf.RoleEmbedding, rule)
	}
	if !pl.share(table, head) {
		i := slices.Index(pl.Plan.items, table)
		pl.Plan.items = slices.Insert(pl.Plan.items, i, head)
		return nil
	}
	table.addName(nameRef{src: safetensors.Tensor{Name: name}, absent: true})
	head.line.Action, head.line.SharedWith, head.line.Rule = ActionShare, table.src.Name, ""
	head.line.Reason = "not in the checkpoint: tied to the table"
	head.line.clearScheme()
	pl.Tensors = append(pl.Tensors, head.line)
	return nil
}

// share makes the table the head too: at --embedding-bits, unless a rule names it
// under either name. Where rules give the two names different schemes or layouts
// the tie is broken, which a warning says with its cost, and the head is stored
// on its own.
func (pl *planner) share(table, head *item) bool {
	if head.line.Rule != "" && table.line.Rule != "" &&
		(table.quantize != head.quantize || table.quantize && (table.scheme != head.scheme || !slices.Equal(table.layouts(), head.layouts()))) {
		pl.broken = head
		return false
	}
	table.shared = true
	if head.line.Rule != "" && table.line.Rule == "" {
		table.line.Rule, table.scheme, table.rule, table.quantize = head.line.Rule, head.scheme, head.rule, head.quantize
		if !head.quantize {
			table.keep("a rule says skip")
		}
	}
	if table.quantize {
		// The bias is the head's: only the multiplication adds it, a lookup does not read it.
		if b, ok := pl.ck.Lookup(biasName(head.name())); ok && b.Dtype.IsFloat() && b.Numel() == table.src.Shape[0] {
			table.bias = &b
		}
	}
	return true
}

func (pl *planner) warn(format string, args ...any) {
	pl.Warnings = append(pl.Warnings, fmt.Sprintf(format, args...))
}

// sameContent compares two tensors byte for byte; it is what a dry run reads of the weights.
func sameContent(ck *safetensors.Checkpoint, a, b safetensors.Tensor) (bool, error) {
	if a.Dtype != b.Dtype || !slices.Equal(a.Shape, b.Shape) || a.Dtype.Bits() == 8 { // FP8: the scales may differ
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
	same := false
	err = ck.Guard(func() error { same = bytes.Equal(av, bv); return nil })
	return same, err
}
