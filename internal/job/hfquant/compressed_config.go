package hfquant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

type compressedConfig struct {
	Format    string                      `json:"format"`
	Groups    map[string]*compressedGroup `json:"config_groups"`
	Transform struct {
		Groups map[string]json.RawMessage `json:"config_groups"`
	} `json:"transform_config"`
	Sparsity struct {
		Format string `json:"format"`
	} `json:"sparsity_config"`

	only     *compressedGroup            // the only group that quantizes weights
	names    map[string]*compressedGroup // by target
	patterns []compressedPattern         // in order of text
}

// compressedGroup is a config group: modules with the same quantization.
type compressedGroup struct {
	Targets []string        `json:"targets"`
	Weights *compressedArgs `json:"weights"`
	Format  string          `json:"format"`
}

// compressedArgs says how weights are quantized. Defaults are those of QuantizationArgs.
type compressedArgs struct {
	Bits      int    `json:"num_bits"`
	Type      string `json:"type"`
	Symmetric *bool  `json:"symmetric"`
	Strategy  string `json:"strategy"`
	GroupSize *int64 `json:"group_size"`
}

type compressedPattern struct {
	text  string
	re    *regexp.Regexp // nil until compile
	group *compressedGroup
}

// Limits of what is matched with every module's name.
const (
	maxPatterns     = 64
	maxPatternBytes = 16 << 10
)

func (f *finder) compressedConfig() (*compressedConfig, error) {
	c := &compressedConfig{}
	fail := func(err error) error {
		return &FormatError{Dir: f.ck.Dir(), Msg: "quantization_config: " + err.Error()}
	}
	if err := json.Unmarshal(f.entry.raw, c); err != nil {
		return nil, fail(err)
	}
	if len(c.Transform.Groups) > 0 {
		return nil, &UnsupportedError{Dir: f.ck.Dir(), Msg: "transform_config: weights that are multiplied with transformed activations are not read"}
	}
	if s := c.Sparsity.Format; s != "" && s != "dense" {
		return nil, &UnsupportedError{Dir: f.ck.Dir(), Msg: fmt.Sprintf("sparsity_config: format %s is not read", quote(s))}
	}
	c.names = map[string]*compressedGroup{}
	quantizing := 0
	for name, g := range c.Groups {
		if g == nil {
			return nil, fail(fmt.Errorf("config group %s is null", quote(name)))
		}
		if g.Weights == nil {
			continue
		}
		if err := g.check(); err != nil {
			return nil, fail(fmt.Errorf("config group %s: %w", quote(name), err))
		}
		quantizing++
		c.only = g
		if err := c.addTargets(g); err != nil {
			return nil, fail(err)
		}
	}
	if quantizing != 1 {
		c.only = nil
	}
	slices.SortFunc(c.patterns, func(a, b compressedPattern) int { return strings.Compare(a.text, b.text) })
	return c, nil
}

func (c *compressedConfig) addTargets(g *compressedGroup) error {
	for _, t := range g.Targets {
		if strings.HasPrefix(t, "re:") {
			c.patterns = append(c.patterns, compressedPattern{text: t, group: g})
			continue
		}
		if other := c.names[t]; other != nil && other != g {
			return fmt.Errorf("two config groups target %s", quote(t))
		}
		c.names[t] = g
	}
	return nil
}

// check fills the defaults of the group.
func (g *compressedGroup) check() error {
	w := g.Weights
	w.Bits = cmp.Or(w.Bits, 8)
	w.Type = cmp.Or(w.Type, "int")
	if w.Bits < 1 || w.Bits > 32 {
		return fmt.Errorf("num_bits is %d", w.Bits)
	}
	if w.GroupSize != nil && (*w.GroupSize < -1 || *w.GroupSize == 0) {
		return fmt.Errorf("group_size is %d", *w.GroupSize)
	}
	if g.strategy() == "group" && (w.GroupSize == nil || *w.GroupSize < 0) {
		return errors.New("strategy group has no group_size")
	}
	return nil
}

// strategy says which weights share a scale. Without a stated strategy, group_size decides.
func (g *compressedGroup) strategy() string {
	w := g.Weights
	switch {
	case w.Strategy != "":
		return strings.ToLower(w.Strategy)
	case w.GroupSize == nil:
		return "tensor"
	case *w.GroupSize < 0:
		return "channel"
	}
	return "group"
}

// unread says why weights of the group cannot be read, or is "". format is the checkpoint's.
func (g *compressedGroup) unread(format string) string {
	if g.Format != "" {
		format = g.Format
	}
	known := []string{string(IntQuantized), string(PackQuantized), "naive-quantized", "mixed-precision", ""}
	switch {
	case !slices.Contains(known, format):
		return fmt.Sprintf("format %s is not read, only %s and %s", quote(format), IntQuantized, PackQuantized)
	case !strings.EqualFold(g.Weights.Type, "int"):
		return fmt.Sprintf("weights of type %s are not read, only int", quote(g.Weights.Type))
	case g.Weights.Bits > 8:
		return fmt.Sprintf("weights of %d bits are not read, only 1 to 8", g.Weights.Bits)
	}
	if s := g.strategy(); s != "group" && s != "channel" && s != "tensor" {
		return fmt.Sprintf("strategy %s is not read, only group, channel and tensor", quote(s))
	}
	return ""
}

// group returns the config group of a module with its codes in tensor. The only group that
// quantizes weights is every module's. Otherwise, as in match_targets of the library, names come
// before patterns, in order of text, and patterns before the class of linear layers. "ignore" is
// not needed, because tensors show which modules are quantized.
func (c *compressedConfig) group(f *finder, module, tensor string) (*compressedGroup, error) {
	if c.only != nil {
		return c.only, nil
	}
	name := strings.TrimSuffix(module, ".")
	if g := c.names[name]; g != nil {
		return g, nil
	}
	if err := c.compile(); err != nil {
		return nil, &UnsupportedError{Dir: f.ck.Dir(), Msg: "quantization_config: " + err.Error()}
	}
	for _, p := range c.patterns {
		if p.re.MatchString(name) {
			return p.group, nil
		}
	}
	if g := c.names["Linear"]; g != nil {
		return g, nil
	}
	return nil, f.unsupported(tensor, "no config group of quantization_config targets %s", quote(name))
}

func (c *compressedConfig) compile() error {
	size := 0
	for i := range c.patterns {
		p := &c.patterns[i]
		if p.re != nil {
			return nil
		}
		if size += len(p.text); i >= maxPatterns || size > maxPatternBytes {
			return fmt.Errorf("its targets have more than %d patterns, or %d bytes of patterns", maxPatterns, maxPatternBytes)
		}
		var err error
		if p.re, err = regexp.Compile("^(?:" + p.text[len("re:"):] + ")"); err != nil {
			return fmt.Errorf("target %s is not read: %w", quote(p.text), err)
		}
	}
	return nil
}

// The entry as the library writes it, without fields that older versions refuse.
type (
	compressedEntry struct {
		Groups      map[string]compressedEntryGroup `json:"config_groups"`
		Format      Format                          `json:"format"`
		Compression *float64                        `json:"global_compression_ratio"`
		Ignore      []string                        `json:"ignore"`
		KVCache     *struct{}                       `json:"kv_cache_scheme"`
		Method      string                          `json:"quant_method"`
		Status      string                          `json:"quantization_status"`
	}
	compressedEntryGroup struct {
		Input   *compressedEntryArgs `json:"input_activations"`
		Output  *compressedEntryArgs `json:"output_activations"`
		Targets []string             `json:"targets"`
		Weights *compressedEntryArgs `json:"weights"`
	}
	compressedEntryArgs struct {
		ActOrder  *string  `json:"actorder"`
		Block     *string  `json:"block_structure"`
		Dynamic   bool     `json:"dynamic"`
		GroupSize *int64   `json:"group_size"`
		Bits      int      `json:"num_bits"`
		Observer  *string  `json:"observer"`
		Kwargs    struct{} `json:"observer_kwargs"`
		Strategy  string   `json:"strategy"`
		Symmetric bool     `json:"symmetric"`
		Type      string   `json:"type"`
	}
)

// configCompressed is Format.Config. If all weights have the same scheme, its group targets
// the class Linear, and "ignore" names other linear layers. Otherwise each group names its modules.
func configCompressed(format Format, config []byte, weights []ModelWeight) ([]byte, map[string]string, error) {
	e := compressedEntry{
		Groups: map[string]compressedEntryGroup{}, Format: format, Ignore: []string{},
		Method: "compressed-tensors", Status: "compressed",
	}
	var schemes []Scheme
	var modules [][]string // of each scheme
	head := false
	for _, w := range weights {
		module, ok := strings.CutSuffix(w.Name, ".weight")
		switch {
		case w.Scheme == nil && (!w.Linear || !ok):
			continue
		case w.Scheme == nil:
			e.Ignore = append(e.Ignore, module)
		case !w.Linear || !ok:
			return nil, nil, fmt.Errorf("tensor %s: only weights of linear layers can be quantized; leave it unquantized", quote(w.Name))
		default:
			// The tensors show the dtype of scales.
			s := *w.Scheme
			s.Scales = 0
			i := slices.Index(schemes, s)
			if i < 0 {
				i = len(schemes)
				schemes, modules = append(schemes, s), append(modules, nil)
			}
			modules[i] = append(modules[i], module)
		}
		head = head || module == "lm_head"
	}
	if len(schemes) == 0 {
		return nil, nil, errNothingQuantized
	}
	if !head { // a tied lm_head is a linear layer without a tensor
		e.Ignore = append(e.Ignore, "lm_head")
	}
	for i, s := range schemes {
		targets := modules[i]
		if len(schemes) == 1 {
			targets = []string{"Linear"}
		}
		e.Groups[fmt.Sprintf("group_%d", i)] = entryGroup(s, format, targets)
	}
	out, err := WithEntry(config, "quantization_config", e)
	return out, nil, err
}

// entryGroup is the config group of a scheme. int-quantized quantizes activations to int8 per
// token, and so do 4 bits with zero points: vLLM calls KleidiAI for these on Arm.
func entryGroup(s Scheme, format Format, targets []string) compressedEntryGroup {
	minmax := "minmax"
	w := &compressedEntryArgs{Bits: s.Bits, Observer: &minmax, Strategy: "channel", Symmetric: s.Zeros == NoZeros, Type: "int"}
	if s.Group > 0 {
		w.Strategy, w.GroupSize = "group", &s.Group
	}
	g := compressedEntryGroup{Targets: targets, Weights: w}
	if format == IntQuantized {
		g.Input = &compressedEntryArgs{Bits: 8, Dynamic: true, Strategy: "token", Symmetric: s.Bits != 4, Type: "int"}
	}
	return g
}
