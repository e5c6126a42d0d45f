package tokenizer

import "slices"

type roles struct {
	bos, eos int32 // -1 if absent
	eosAll   []int32
	addBOS   bool
	addEOS   bool
	named    map[string]int32 // tokens by the keys of otherRoles
}

// otherRoles are keys of tokenizer_config.json and special_tokens_map.json, other than bos_token
// and eos_token, that name tokens.
var otherRoles = []string{"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// BOS returns the token that begins a text: bos_token of tokenizer_config.json, else of
// special_tokens_map.json, else bos_token_id of generation_config.json.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.roles.bos, t.roles.bos >= 0 }

// EOS returns the token that ends a text, from the same files as BOS.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.roles.eos, t.roles.eos >= 0 }

// EOSIDs returns all tokens at which generation stops, in ascending order: EOS and the list in
// generation_config.json, in which models have different tokens for ends of turns and of texts.
func (t *Tokenizer) EOSIDs() []int32 { return slices.Clone(t.roles.eosAll) }

// AddsBOS reports whether tokenizer_config.json asks for a BOS before every text (add_bos_token)
// that the post-processor of tokenizer.json does not add. DeepSeek-V3 is an example: the tokenizers
// library encodes without BOS, but transformers' tokenizer class adds the BOS.
func (t *Tokenizer) AddsBOS() bool { return t.roles.addBOS }

// FirstBOS returns the token that the tokenizer's files put before a text. Some files only name a
// BOS that must not be added: in SmolLM2-Instruct, <|im_start|> begins turns.
func (t *Tokenizer) FirstBOS() (id int32, ok bool, err error) {
	id, ok = t.BOS()
	if !ok || t.AddsBOS() {
		return id, ok, nil
	}
	around, err := t.Encode("", Options{AddSpecial: true})
	return id, slices.Contains(around, id), err
}

// AddsEOS reports whether tokenizer_config.json asks for an EOS behind every text (add_eos_token)
// that the post-processor of tokenizer.json does not add.
func (t *Tokenizer) AddsEOS() bool { return t.roles.addEOS }

func (t *Tokenizer) readRoles(files Files) (roles, error) {
	r := roles{bos: -1, eos: -1}
	var config, special, generation *fields
	for _, s := range []struct {
		to   **fields
		name string
		data []byte
	}{{&config, configFile, files.Config}, {&special, specialFile, files.SpecialTokensMap}, {&generation, generationFile, files.GenerationConfig}} {
		var err error
		if *s.to, err = readSettings(s.name, s.data); err != nil {
			return r, err
		}
	}
	starts, err := tokenIDs(generation.m["bos_token_id"])
	if err == nil {
		r.bos, err = t.role("bos_token", starts, config, special)
	}
	if err == nil {
		r.eosAll, err = tokenIDs(generation.m["eos_token_id"])
	}
	if err == nil {
		r.eos, err = t.role("eos_token", r.eosAll, config, special)
	}
	if err != nil {
		return r, err
	}
	if r.eos >= 0 {
		r.eosAll = append(r.eosAll, r.eos)
	}
	slices.Sort(r.eosAll)
	r.eosAll = slices.Compact(r.eosAll)
	r.addBOS = config.optionalBool("add_bos_token", false) && r.bos >= 0 && !slices.Contains(t.post.before, r.bos)
	r.addEOS = config.optionalBool("add_eos_token", false) && r.eos >= 0 && !slices.Contains(t.post.after, r.eos)
	r.named = map[string]int32{}
	for _, name := range otherRoles {
		// No text depends on these roles: malformed counts as absent.
		if id, err := t.role(name, nil, config, special); err == nil && id >= 0 {
			r.named[name] = id
		}
	}
	return r, config.err
}

// readSettings reads an object of settings; a missing file is an empty object.
func readSettings(file string, data []byte) (*fields, error) {
	if data == nil {
		return &fields{}, nil
	}
	n, err := parseDocument(file, data)
	if err != nil {
		return nil, err
	}
	f := n.fields()
	return f, f.err
}

// role returns the id of the token that the first of the settings names (as a string or an object
// with its content), else the first of ids, else -1. A null setting means no token.
func (t *Tokenizer) role(name string, ids []int32, settings ...*fields) (int32, error) {
	for _, s := range settings {
		n, ok := s.m[name]
		if !ok {
			continue
		}
		if n.null() {
			return -1, nil
		}
		var content string
		var err error
		if n.kind() == '{' {
			f := n.fields()
			content, err = f.str("content"), f.err
		} else {
			content, err = n.str()
		}
		if err != nil {
			return -1, err
		}
		if id, ok := t.ID(content); ok {
			return id, nil
		}
		return -1, nil // unlike transformers, add nothing that no model knows
	}
	if len(ids) > 0 {
		return ids[0], nil
	}
	return -1, nil
}

func tokenIDs(n node) ([]int32, error) {
	switch n.kind() {
	case '[':
		return n.integers()
	case 'n':
		return nil, nil
	}
	id, err := n.integer()
	return []int32{id}, err
}
