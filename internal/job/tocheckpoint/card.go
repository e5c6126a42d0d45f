package tocheckpoint

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
)

// card is the model card of the new checkpoint: the source's, with facts about its origin and a
// section about the quantization, which replaces the section that gq wrote for the source. recipe
// and origin tell which of gq's files stand beside it. Without a recipe, another program chose the
// codes.
func (o *Output) card(source []byte, recipe, origin bool) []byte {
	head, text, _ := llamacpp.DivideCard(source)
	facts, body := string(head), ownSection.ReplaceAllString(string(text), "")
	add := func(key, value string) {
		if value != "" && !regexp.MustCompile(`(?m)^`+key+`\s*:`).MatchString(facts) {
			facts += key + ": " + value + "\n"
		}
	}
	if name := assets.PathOf(o.Config); repository.MatchString(name) {
		add("base_model", name)
		add("base_model_relation", "quantized")
	}
	if recipe {
		add("quantized_by", "gq")
	}
	if strings.TrimSpace(body) == "" {
		body = fmt.Sprintf("\n# %s\n", cmp.Or(assets.NameOf(o.Config), "Model"))
	}
	return []byte("---\n" + facts + "---\n" + strings.TrimRight(body, "\n") + "\n\n" + o.cardSection(recipe, origin))
}

// unquantizedCard removes what card wrote about the quantization: the section, and the facts that
// say that the model is quantized. Other cards stay as they are.
func unquantizedCard(card []byte) []byte {
	facts, text, ok := llamacpp.DivideCard(card)
	if !ok || !ownSection.Match(text) {
		return card
	}
	facts = ownFacts.ReplaceAll(facts, nil)
	text = append(bytes.TrimRight(ownSection.ReplaceAll(text, nil), "\n"), '\n')
	return slices.Concat([]byte("---\n"), facts, []byte("---\n"), text)
}

var ownFacts = regexp.MustCompile(`(?m)^(?:base_model_relation: quantized|quantized_by: gq)\n`)

// ownSection matches the sections that cardSection wrote.
var ownSection = regexp.MustCompile(`(?m)^## Quantization\n\n(?:The weights were quantized with gq, in|gq stored the weights in) the format .*\n\n(?:- [0-9]+ tensors: .*\n)+(?:\n` + "`gq-.*` has the .*\n" + `)?`)

// repository is the form of a name that the Hugging Face Hub knows.
var repository = regexp.MustCompile(`^[\w.-]+/[\w.-]+$`)

func (o *Output) cardSection(recipe, origin bool) string {
	counts := map[string]int{}
	var schemes []string
	unquantized := 0
	for _, it := range o.Items {
		q, ok := it.(*plan.Quantized)
		if !ok {
			unquantized++
			continue
		}
		s := q.Stored.String()
		if counts[s]++; counts[s] == 1 {
			schemes = append(schemes, s)
		}
	}
	slices.SortStableFunc(schemes, func(a, b string) int { return counts[b] - counts[a] })
	var b strings.Builder
	b.WriteString("## Quantization\n\n")
	if title := formatTitle(o.opts.Format); recipe {
		fmt.Fprintf(&b, "The weights were quantized with gq, in the format %s.\n\n", title)
	} else {
		fmt.Fprintf(&b, "gq stored the weights in the format %s. It took their codes over from another quantized model.\n\n", title)
	}
	for _, s := range schemes {
		fmt.Fprintf(&b, "- %d tensors: %s\n", counts[s], s)
	}
	fmt.Fprintf(&b, "- %d tensors: unquantized\n", unquantized)
	switch {
	case recipe && origin:
		fmt.Fprintf(&b, "\n`%s` has the settings, `%s` the source's files and hashes.\n", provenance.RecipeFile, provenance.ProvenanceFile)
	case recipe:
		fmt.Fprintf(&b, "\n`%s` has the settings.\n", provenance.RecipeFile)
	case origin:
		fmt.Fprintf(&b, "\n`%s` has the source's files and hashes.\n", provenance.ProvenanceFile)
	}
	return b.String()
}

// formatTitle is a format as its users call it.
func formatTitle(f hfquant.Format) string {
	switch f {
	case hfquant.IntQuantized, hfquant.PackQuantized:
		return "compressed-tensors (" + string(f) + ")"
	case hfquant.GPTQ:
		return "GPTQ"
	case hfquant.MLX:
		return "MLX"
	case hfquant.TorchAO:
		return "torchao (safetensors)"
	}
	return string(f)
}
