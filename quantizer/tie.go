package quantizer

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/packing"
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
	case stated && !tied:
		pl.warn("config.json says that %q is not tied to %q, but their contents are equal: stored once", head.src.Name, table.src.Name)
	}
	if err := pl.shareRule(table, head.src.Name, head.quantize, head.scheme, head.line.Rule); err != nil {
		return err
	}
	if table.quantize && table.bias == nil && head.bias != nil {
		// Only the multiplication adds a bias, a lookup does not read it.
		table.bias = head.bias
		table.header.Flags |= packing.FlagBias
	}
	table.aliases = append(table.aliases, nameRef{src: *head.src})
	head.line.Action, head.line.SharedWith, head.line.Rule = ActionShare, table.src.Name, ""
	head.line.Reason = "same content as " + table.src.Name
	head.line.clearScheme()
	pl.Tensors = append(pl.Tensors, head.line)
	pl.Plan.items = slices.DeleteFunc(pl.Plan.items, func(it *item) bool { return it == head })
	return nil
}

// tieAbsent gives the table the name of the head that the checkpoint leaves out.
func (pl *planner) tieAbsent(table *item) error {
	name := model.HeadName(pl.cfg, table.src.Name)
	if name == "" { // not a model with a head
		return nil
	}
	if pl.cfg != nil && pl.cfg.TieStated && !pl.cfg.TieWordEmbeddings {
		pl.warn("config.json says that the head is not tied to %q, but the checkpoint holds no head: the table serves as %q", table.src.Name, name)
	}
	rule, ok := pl.rules.Match(name)
	if ok {
		pl.rules.Use(rule)
		if err := pl.shareRule(table, name, !rule.Skip, pl.opts.Recipe.Scheme(gqf.RoleEmbedding, rule), rule.String()); err != nil {
			return err
		}
	}
	table.aliases = append(table.aliases, nameRef{src: safetensors.Tensor{Name: name}, absent: true})
	pl.Tensors = append(pl.Tensors, &PlanTensor{Name: name, Role: gqf.RoleHead, Action: ActionShare, Shape: table.src.Shape,
		Dtype: table.src.DtypeName, SharedWith: table.src.Name, Reason: "not in the checkpoint: tied to the table"})
	return nil
}

// shareRule settles what a shared table becomes: at --embedding-bits, unless a
// rule names it under either name. Two rules that disagree are an error.
func (pl *planner) shareRule(table *item, head string, quantize bool, scheme Scheme, rule string) error {
	if rule == "" {
		return nil
	}
	if table.line.Rule != "" {
		if table.quantize == quantize && (!quantize || table.scheme == scheme) {
			return nil
		}
		return requestf("%s and %s disagree: %q and %q are one table, stored once", table.line.Rule, rule, table.src.Name, head)
	}
	table.line.Rule = rule
	if !quantize {
		table.keep("a rule says skip")
		return nil
	}
	if !table.quantize {
		table.quantize = true
	}
	table.scheme = scheme
	return pl.shapeItem(table)
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
