package lora

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
)

// Names of the files of an adapter.
const (
	configName  = "adapter_config.json"
	weightsName = "adapter_model.safetensors"
)

// config holds the keys of adapter_config.json that decide the merged weights.
type config struct {
	Type         string   `json:"peft_type"`
	R            int      `json:"r"`
	Alpha        float64  `json:"lora_alpha"`
	RankPattern  patterns `json:"rank_pattern"`
	AlphaPattern patterns `json:"alpha_pattern"`
	RSLoRA       bool     `json:"use_rslora"`
	DoRA         bool     `json:"use_dora"`
	FanInFanOut  bool     `json:"fan_in_fan_out"`

	Init any `json:"init_lora_weights"`
}

// unsupported lists keys that change what an adapter means. Each has to be absent, null, false or
// empty.
var unsupported = []string{"lora_bias", "layer_replication", "target_parameters", "alora_invocation_tokens", "trainable_token_indices", "use_qalora", "use_bdlora", "arrow_config", "velora_config"}

// changesBase lists the values of init_lora_weights with which PEFT changes the weights of the base
// model before it adds the adapter.
var changesBase = []string{"pissa", "olora", "corda", "loftq", "lora_ga", "loraga"}

func readConfig(dir string) (*config, []byte, error) {
	path := filepath.Join(dir, configName)
	raw, err := files.Read(path, files.MaxModelFile)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: an adapter of PEFT has this file and %s", err, weightsName)
	}
	c := &config{Type: "LORA", R: 8, Alpha: 8}
	var keys map[string]any
	if err = json.Unmarshal(raw, c); err == nil {
		err = json.Unmarshal(raw, &keys)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.Type != "LORA" {
		return nil, nil, fmt.Errorf("%s: peft_type %q: only LORA is merged; merge this adapter in Python (merge_and_unload of peft)", path, c.Type)
	}
	for _, key := range unsupported {
		if v, err := json.Marshal(keys[key]); err == nil && slices.Contains([]string{"null", "false", "[]", "{}"}, string(v)) {
			continue
		}
		return nil, nil, fmt.Errorf("%s: %s is set, and gq does not merge such adapters: merge it in Python (merge_and_unload of peft)", path, key)
	}
	if s, ok := c.Init.(string); ok && slices.ContainsFunc(changesBase, func(p string) bool { return strings.HasPrefix(strings.ToLower(s), p) }) {
		return nil, nil, fmt.Errorf("%s: init_lora_weights %q: the adapter belongs to other weights than the base model's; convert it when saving (path_initial_model_for_weight_conversion of peft)", path, s)
	}
	return c, raw, nil
}

// rank returns the rank that the configuration states for a module, and the factor of B A.
func (c *config) rank(module string) (r int, scale float64) {
	r = int(c.RankPattern.of(module, float64(c.R)))
	alpha := c.AlphaPattern.of(module, c.Alpha)
	if c.RSLoRA {
		return r, alpha / math.Sqrt(float64(r))
	}
	return r, alpha / float64(r)
}

// patterns is a JSON object of numbers by patterns of modules. The first pattern that matches
// counts.
type patterns []pattern

type pattern struct {
	match *regexp.Regexp
	value float64
}

// UnmarshalJSON keeps the order of the object's keys.
func (p *patterns) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	open, err := d.Token()
	if err != nil || open == nil {
		return err
	}
	if open != json.Delim('{') {
		return errors.New("expected an object of numbers by patterns of modules")
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		var v float64
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("pattern %q: %w", key, err)
		}
		// As PEFT's get_pattern_key: a pattern matches the end of a module's name.
		match, err := regexp.Compile(fmt.Sprintf(`^(?:.*\.)?(?:%s)$`, key))
		if err != nil {
			return fmt.Errorf("pattern %q: %w", key, err)
		}
		*p = append(*p, pattern{match, v})
	}
	return nil
}

func (p patterns) of(module string, otherwise float64) float64 {
	for _, e := range p {
		if e.match.MatchString(module) {
			return e.value
		}
	}
	return otherwise
}

// Split reads DIR or DIR=SCALE. A directory of the whole name comes first.
func Split(s string) (dir string, scale float64, err error) {
	at := strings.LastIndexByte(s, '=')
	if _, err := os.Stat(s); err == nil || at < 0 {
		return s, 1, nil
	}
	scale, err = strconv.ParseFloat(s[at+1:], 64)
	if err != nil || math.IsNaN(scale) || math.IsInf(scale, 0) || float32(scale) == 0 {
		return "", 0, fmt.Errorf("%q: expected DIR or DIR=SCALE with a finite number other than 0, found the scale %q", s, s[at+1:])
	}
	return s[:at], scale, nil
}

// Files returns the files of an adapter, as --lora names it.
func Files(name string) []string {
	dir, _, err := Split(name)
	if err != nil {
		return nil
	}
	return []string{filepath.Join(dir, configName), filepath.Join(dir, weightsName)}
}
