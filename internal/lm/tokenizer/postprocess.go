package tokenizer

import "slices"

// postProcessor adds tokens around the tokens of a text.
type postProcessor struct {
	before, after []int32
}

// readPostProcessor reads post_processor. ByteLevel affects only offsets; this package has none.
func readPostProcessor(n node) (postProcessor, error) {
	if n.null() {
		return postProcessor{}, nil
	}
	all, err := readPostProcessors(n, 0)
	var p postProcessor
	for _, q := range all {
		p.before = append(slices.Clone(q.before), p.before...)
		p.after = append(p.after, q.after...)
	}
	return p, err
}

func readPostProcessors(n node, depth int) ([]postProcessor, error) {
	f := n.fields()
	switch t := f.typ(); {
	case f.err != nil:
		return nil, f.err
	case t == "Sequence":
		return components(f, "processors", depth, readPostProcessors)
	case t == "ByteLevel":
		return nil, nil
	case t == "TemplateProcessing":
		p, err := readTemplate(f)
		return []postProcessor{p}, err
	default:
		return nil, n.unsupported("post-processor %q is not supported", t)
	}
}

// readTemplate reads the template for a single text and ignores the template for pairs of texts.
func readTemplate(f *fields) (p postProcessor, err error) {
	single := f.child("single")
	tokens := map[string]node{}
	if special := f.optional("special_tokens"); f.err == nil && !special.null() {
		tokens, f.err = special.object()
	}
	if f.err == nil {
		f.fail(single.array())
	}
	if f.err != nil {
		return p, f.err
	}
	texts := 0
	for _, e := range single.elements() {
		piece := e.fields()
		if piece.err != nil {
			return p, piece.err
		}
		if _, ok := piece.m["Sequence"]; ok {
			seq := piece.child("Sequence").fields()
			if id := seq.str("id"); seq.err == nil && id != "A" {
				seq.fail(e.malformed("the sequence %q in a template for one text", id))
			}
			if seq.err != nil {
				return p, seq.err
			}
			texts++
			continue
		}
		ids, err := readSpecial(piece, tokens)
		if err != nil {
			return p, err
		}
		if texts == 0 {
			p.before = append(p.before, ids...)
		} else {
			p.after = append(p.after, ids...)
		}
		if len(p.before)+len(p.after) > maxComponents {
			return p, single.malformed("more than %d tokens", maxComponents)
		}
	}
	if texts != 1 {
		return p, single.unsupported("a template with the text %d times", texts)
	}
	return p, nil
}

// readSpecial reads {"SpecialToken": {"id": name}} and looks up the name.
func readSpecial(piece *fields, tokens map[string]node) ([]int32, error) {
	ref := piece.child("SpecialToken")
	if piece.err != nil {
		return nil, piece.err
	}
	f := ref.fields()
	name := f.str("id")
	if f.err != nil {
		return nil, f.err
	}
	def, ok := tokens[name]
	if !ok {
		return nil, ref.malformed("special_tokens does not have %q", name)
	}
	d := def.fields()
	list := d.child("ids")
	if d.err == nil {
		d.fail(list.array())
	}
	if d.err != nil {
		return nil, d.err
	}
	var ids []int32
	for _, e := range list.elements() {
		id, err := e.integer()
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
