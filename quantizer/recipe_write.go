package quantizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/packing"
)

// recipeJSON and ruleJSON are the canonical form of a recipe. They have the keys of a recipe file.
type recipeJSON struct {
	Bits           int    `json:"bits"`
	Group          any    `json:"group,omitempty"`       // a number, or "channel"; nil if the target chooses it
	Mapping        string `json:"mapping,omitempty"`     // "" if target gguf chooses it
	ScaleDtype     string `json:"scale-dtype,omitempty"` // "" if targets choose it
	Algorithm      string `json:"algorithm"`
	PositiveScales bool   `json:"positive-scales"`
	Layout         string `json:"layout,omitempty"`
	Target         string `json:"target,omitempty"`
	EmbeddingBits  int    `json:"embedding-bits,omitempty"` // 0 if the target leaves the embedding unquantized
	EmbeddingGroup any    `json:"embedding-group,omitempty"`
	Rotate         bool   `json:"rotate,omitempty"`
	Equalize       bool   `json:"equalize,omitempty"`
	// The fields below decide the bytes of a file but are not properties of tensors: a file has them
	// in its provenance or metadata, a saved recipe here.
	Hash            string     `json:"hash,omitempty"`
	Quality         Quality    `json:"quality,omitempty"`
	Calibrate       string     `json:"calibrate,omitempty"`
	CalibrateTokens int        `json:"calibrate-tokens,omitempty"`
	Seed            uint64     `json:"seed,omitempty"`
	Refine          *bool      `json:"refine,omitempty"`
	Tune            Tune       `json:"tune,omitempty"`
	TuneTokens      int        `json:"tune-tokens,omitempty"`
	TuneText        string     `json:"tune-text,omitempty"`
	Imatrix         []string   `json:"imatrix,omitempty"`
	Pre             string     `json:"pre,omitempty"`
	Rules           []ruleJSON `json:"rules"`
}

type ruleJSON struct {
	Match          string `json:"match"`
	Skip           bool   `json:"skip,omitempty"`
	Bits           int    `json:"bits,omitempty"`
	Group          any    `json:"group,omitempty"`
	Mapping        string `json:"mapping,omitempty"`
	ScaleDtype     string `json:"scale-dtype,omitempty"`
	Algorithm      string `json:"algorithm,omitempty"`
	PositiveScales *bool  `json:"positive-scales,omitempty"`
	Layout         string `json:"layout,omitempty"`
}

// JSON is the canonical form of the recipe, with rules that precede its own: it states every
// default, and omits where rules were stated. ParseRecipe reads it, because JSON is YAML.
func (r Recipe) JSON(first []Rule) ([]byte, error) {
	j := r.canonical(first)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(j)
	return b.Bytes(), err
}

// canonical states every default except the dtype of scales that targets choose.
func (r Recipe) canonical(first []Rule) *recipeJSON {
	stated, mapped, scales := r.Algorithm, r.Mapping != gqf.MappingNone, r.ScaleDtype != packing.ScaleNone
	group, embeddingGroup := r.Group, r.EmbeddingGroup
	r = r.WithDefaults()
	j := &recipeJSON{
		Algorithm: cmp.Or(stated, defaultAlgorithm(r.Mapping)).String(),
		Bits:      r.Bits, Group: groupJSON(r.Group), Mapping: r.Mapping.String(), PositiveScales: r.PositiveScales,
		Layout: layoutsString(r.Layouts), Target: TargetNames(r.Targets), EmbeddingBits: r.EmbeddingBits, EmbeddingGroup: groupJSON(r.EmbeddingGroup),
		Rotate: r.Rotate, Equalize: r.Equalize, Rules: []ruleJSON{},
	}
	if r.ForGGUF() { // the target chooses what is not stated, by a tensor's bits
		j.Group, j.EmbeddingGroup = groupJSON(group), groupJSON(embeddingGroup)
		if !mapped {
			j.Mapping = ""
		}
	}
	if f := r.CheckpointFormat(); f != "" { // the target chooses groups by bits
		j.Group, j.EmbeddingGroup = groupJSON(group), groupJSON(embeddingGroup)
		if !QuantizesEmbedding(f) {
			j.EmbeddingBits, j.EmbeddingGroup = 0, nil
		}
	}
	if scales || len(r.Targets) == 0 {
		j.ScaleDtype = r.ScaleDtype.String()
	}
	for _, rule := range slices.Concat(first, r.Rules) {
		k := ruleJSON{Match: rule.Match, Skip: rule.Skip, Bits: rule.Bits, Group: groupJSON(rule.Group), PositiveScales: rule.PositiveScales, Layout: layoutsString(rule.Layouts)}
		if !mapped && !r.ForGGUF() {
			rule.Mapping = cmp.Or(rule.Mapping, r.oneBit(&rule))
		}
		if rule.Mapping != gqf.MappingNone {
			k.Mapping = rule.Mapping.String()
		}
		if rule.ScaleDtype != packing.ScaleNone {
			k.ScaleDtype = rule.ScaleDtype.String()
		}
		// State what the rule's mapping implies, because the recipe now states an algorithm.
		if a := rule.Algorithm; a != gqf.AlgorithmNone {
			k.Algorithm = a.String()
		} else if stated == gqf.AlgorithmNone && rule.Mapping != gqf.MappingNone {
			k.Algorithm = defaultAlgorithm(rule.Mapping).String()
		}
		j.Rules = append(j.Rules, k)
	}
	return j
}

// YAML is the whole recipe, with rules that precede its own, as a file that ParseRecipe reads:
// first comment, as comment lines; then every default of the schemes; then everything else that
// decides a file's bytes; then one line per rule. Names and values are spelled as in JSON, which is
// YAML.
func (r Recipe) YAML(comment string, first []Rule) ([]byte, error) {
	j := r.canonical(first)
	j.Quality, j.Calibrate, j.CalibrateTokens, j.Seed, j.Refine, j.Imatrix = r.Quality, r.Calibrate, r.CalibrateTokens, r.Seed, r.Refine, r.Imatrix
	j.Tune, j.TuneTokens, j.TuneText = r.Tune, r.TuneTokens, r.TuneText
	j.Pre = r.Pre
	if r.HashFiles {
		j.Hash = "sha256"
	}
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false)
	if err := e.Encode(j); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for line := range strings.Lines(comment) {
		fmt.Fprintf(&b, "# %s\n", strings.TrimRight(line, "\n"))
	}
	d := json.NewDecoder(&raw)
	if _, err := d.Token(); err != nil { // {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "rules" {
			var v json.RawMessage
			if err := d.Decode(&v); err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "%s: %s\n", key, v)
			continue
		}
		var rules []json.RawMessage
		if err := d.Decode(&rules); err != nil {
			return nil, err
		}
		if len(rules) > 0 {
			b.WriteString("rules:\n")
		}
		for _, rule := range rules {
			line, err := oneLine(rule)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "  - %s\n", line)
		}
	}
	return b.Bytes(), nil
}

// oneLine formats a flat JSON object as {match: "a.b", bits: 4}.
func oneLine(raw json.RawMessage) (string, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil { // {
		return "", err
	}
	var parts []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return "", err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return "", err
		}
		parts = append(parts, fmt.Sprintf("%s: %s", key, v))
	}
	return "{" + strings.Join(parts, ", ") + "}", nil
}
