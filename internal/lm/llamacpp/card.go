package llamacpp

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lowbit-go/gq/formats/gguf"
	"github.com/lowbit-go/gq/internal/yamldoc"
)

// CardFile is the model card of a checkpoint: Markdown behind facts in YAML, between two lines of
// three hyphens (https://huggingface.co/docs/hub/model-cards).
const CardFile = "README.md"

// Card returns the keys for the model's name and size, and from its model card the licence, author,
// base models, tags and languages. name is used if the card has no name. card is the content of
// CardFile, or nil. A card that cannot be read gives a note. A card that was made of a GGUF file
// gives the file's keys.
func (m *Model) Card(name string, card []byte) (pairs []gguf.Pair, notes []string) {
	facts, err := cardFacts(card)
	if err != nil {
		notes = append(notes, fmt.Sprintf("%s: %v: the licence and other facts of the model card are left out", CardFile, err))
	}
	if exact, ok := facts[exactFacts].(map[string]any); ok {
		return exactPairs(exact), notes
	}
	c := &cardWriter{facts: facts}
	if said := c.first("name", "model_name"); said != "" {
		name = said
	}
	base, finetune, version := divideName(name)
	c.set("general.name", name)
	c.set("general.author", c.first("author", "model_author", "model_creator"))
	c.set("general.version", cmp.Or(c.first("version", "model_version"), version))
	c.set("general.organization", c.first("organization", "model_organization"))
	c.set("general.finetune", cmp.Or(c.first("finetune", "model_finetune"), finetune))
	c.set("general.basename", cmp.Or(c.first("basename", "model_basename", "model_type"), base))
	c.set("general.description", c.first("description", "model_description"))
	c.set(keySizeLabel, cmp.Or(c.first("size_label", "model_size_label"), m.sizeLabel()))
	c.set("general.license", strings.Join(c.list("license"), ","))
	c.set("general.license.name", c.first("license_name"))
	c.set("general.license.link", c.first("license_link"))
	c.set("general.source.url", c.first("url", "model_url"))
	c.set("general.source.repo_url", c.first("repo_url", "model_repo_url"))
	c.related("general.base_model", c.list("base_model", "base_models"), "https://huggingface.co/")
	c.related("general.dataset", c.list("datasets", "dataset"), "https://huggingface.co/datasets/")
	c.set("general.tags", append(c.list("tags"), c.list("pipeline_tag")...))
	c.set("general.languages", append(c.list("languages"), c.list("language")...))
	return c.pairs, notes
}

// hyphens matches the lines around the facts of a card.
var hyphens = regexp.MustCompile(`(?m)^---[ \t]*\r?$\n?`)

// IsCard reports whether a file begins with facts as a model card does.
func IsCard(file []byte) bool {
	line := hyphens.FindIndex(withoutMark(file))
	return line != nil && line[0] == 0
}

func withoutMark(file []byte) []byte { return bytes.TrimPrefix(file, []byte("\ufeff")) }

// DivideCard divides a model card into its facts, in YAML, and the text behind the facts. A file
// that is no card, or has facts without an end, is text; ok is then false.
func DivideCard(card []byte) (facts, text []byte, ok bool) {
	rest := withoutMark(card)
	lines := hyphens.FindAllIndex(rest, 2)
	if len(lines) < 2 || lines[0][0] != 0 {
		return nil, card, false
	}
	return rest[lines[0][1]:lines[1][0]], rest[lines[1][1]:], true
}

func cardFacts(card []byte) (facts map[string]any, err error) {
	if !IsCard(card) {
		return nil, nil
	}
	raw, _, ok := DivideCard(card)
	if !ok {
		return nil, fmt.Errorf("no line of three hyphens ends the facts that begin in line 1")
	}
	err = yamldoc.Decode(bytes.ReplaceAll(raw, []byte("\r\n"), []byte("\n")), &facts)
	return facts, err
}

type cardWriter struct {
	facts map[string]any
	pairs []gguf.Pair
}

// set adds a text or a list of texts that is not empty.
func (c *cardWriter) set(key string, value any) {
	if reflect.ValueOf(value).Len() > 0 {
		c.pairs = append(c.pairs, gguf.Pair{Key: key, Value: value})
	}
}

// first returns the first of the facts that is a text or a number.
func (c *cardWriter) first(names ...string) string {
	for _, name := range names {
		if s := factText(c.facts[name]); s != "" {
			return s
		}
	}
	return ""
}

// list returns the first of the facts that exists, a text or a list of texts.
func (c *cardWriter) list(names ...string) (list []string) {
	for _, name := range names {
		all, ok := c.facts[name].([]any)
		if !ok {
			all = []any{c.facts[name]}
		}
		for _, v := range all {
			if s := factText(v); s != "" && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
}

// factText returns a scalar of YAML as its text; "" for another value.
func factText(v any) string {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			return ""
		}
		return strings.TrimSpace(v)
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v] // Norwegian
	case int64, uint64, float64:
		return fmt.Sprint(v)
	}
	return ""
}

// related writes models or datasets that are named by addresses or as OWNER/NAME at a site.
func (c *cardWriter) related(key string, ids []string, site string) {
	if len(ids) == 0 {
		return
	}
	c.pairs = append(c.pairs, gguf.Pair{Key: key + ".count", Value: uint32(len(ids))})
	for i, id := range ids {
		at := fmt.Sprintf("%s.%d.", key, i)
		url := ""
		if strings.Contains(id, "://") {
			url = id
			rest, ok := strings.CutPrefix(id, site)
			if !ok {
				c.set(at+"repo_url", url)
				continue
			}
			id = rest
		}
		owner, name, ok := strings.Cut(id, "/")
		if !ok {
			owner, name = "", id
		}
		_, _, version := divideName(name)
		c.set(at+"name", title(name))
		c.set(at+"version", version)
		c.set(at+"organization", title(owner))
		if url == "" && owner != "" {
			url = site + id
		}
		c.set(at+"repo_url", url)
	}
}

var versionPart = regexp.MustCompile(`^(v\d+(\.\d+)*|\d.*)$`)

// title writes a name with spaces and capitals: "my-model-v2" is "My Model v2".
func title(name string) string {
	words := strings.Fields(strings.ReplaceAll(name, "-", " "))
	for i, w := range words {
		if w == strings.ToLower(w) && !versionPart.MatchString(w) {
			r, n := utf8.DecodeRuneInString(w)
			words[i] = string(unicode.ToUpper(r)) + w[n:]
		}
	}
	return strings.Join(words, " ")
}

var (
	sizePart = regexp.MustCompile(`^(\d+x)?\d+([._]\d+)?[KMBT]$`)
	namedVer = regexp.MustCompile(`^v\d+(\.\d+)*$`)
)

// divideName divides names such as Mistral-7B-Instruct-v0.3 at the number of parameters. Without
// that number the end of the base name is unknown.
func divideName(name string) (base, finetune, version string) {
	var front, behind []string
	sized := false
	for _, w := range strings.FieldsFunc(name, func(r rune) bool { return r == '-' || r == ' ' }) {
		switch {
		case sizePart.MatchString(strings.ToUpper(w)) && len(front) > 0 && !sized:
			sized = true
		case namedVer.MatchString(w):
			version = w
		case sized:
			behind = append(behind, w)
		default:
			front = append(front, w)
		}
	}
	if !sized {
		return "", "", version
	}
	return strings.Join(front, "-"), strings.Join(behind, "-"), version
}

// sizeLabel is the number of parameters in two digits or more: 1.3M, 7B, 8x7B with the shared
// parameters counted to each expert.
func (m *Model) sizeLabel() string {
	total, experts := int64(0), int64(0)
	for _, t := range m.Tensors {
		n := t.Elements()
		if len(t.Shape) == 3 && strings.Contains(t.Name, "_exps.") {
			experts = t.Shape[2]
			n /= experts
		}
		total += n
	}
	label := roundedCount(total)
	if experts > 0 {
		label = fmt.Sprintf("%dx%s", experts, label)
	}
	return label
}

func roundedCount(n int64) string {
	unit, scaled := "K", float64(n)/1e3
	for _, u := range []struct {
		unit string
		size float64
	}{{"M", 1e6}, {"B", 1e9}, {"T", 1e12}} {
		if float64(n) > u.size {
			unit, scaled = u.unit, float64(n)/u.size
		}
	}
	digits := 0
	if math.Round(scaled) < 10 {
		digits = 1
	}
	return fmt.Sprintf("%.*f%s", digits, scaled, unit)
}
