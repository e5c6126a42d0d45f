package toonnx

import (
	"encoding/json"
	"fmt"

	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/jsonscan"
)

// genaiFile is the configuration of ONNX Runtime GenAI, generationFile the checkpoint's of sampling.
const (
	genaiFile      = "genai_config.json"
	generationFile = "generation_config.json"
)

// files lists the files beside graph and weights, without the provenance.
func (o *Output) files() error {
	list, err := o.from.Assets()
	if err != nil {
		return err
	}
	config, err := o.config()
	if err != nil {
		return err
	}
	genai, err := o.genai()
	if err != nil {
		return err
	}
	o.beside = []write.SideFile{write.FileOf(assets.ConfigName, config), write.FileOf(genaiFile, genai)}
	for _, f := range list {
		if tocheckpoint.OwnName(f.Name) || f.Name == genaiFile {
			return fmt.Errorf("asset %q has the name of a file that gq writes itself: this file was not made by gq", f.Name)
		}
		if f.Name != assets.ConfigName {
			o.beside = append(o.beside, f)
		}
	}
	recipe, _, err := o.from.Provenance(&plan.Codes{}, nil, nil)
	if recipe != nil {
		o.beside = append(o.beside, write.FileOf(provenance.RecipeFile, recipe))
	}
	return err
}

// config is config.json with the settings of transformers.js: which graph to load, and the number
// of files with weights.
func (o *Output) config() ([]byte, error) {
	config, err := hfquant.WithoutQuantization(o.Config)
	if err != nil {
		return nil, err
	}
	return hfquant.WithMember(config, "transformers.js_config", struct {
		Dtype string `json:"dtype"`
		Files int    `json:"use_external_data_format"`
	}{o.dtype.name, len(o.data)})
}

// genaiConfig is the content of genaiFile (onnxruntime-genai, src/config.h).
type genaiConfig struct {
	Model struct {
		BOS           json.RawMessage `json:"bos_token_id,omitempty"`
		EOS           json.RawMessage `json:"eos_token_id,omitempty"`
		Pad           json.RawMessage `json:"pad_token_id,omitempty"`
		ContextLength int             `json:"context_length"`
		VocabSize     int             `json:"vocab_size"`
		Type          string          `json:"type"`
		Decoder       genaiDecoder    `json:"decoder"`
	} `json:"model"`
	Search map[string]any `json:"search"`
}

type genaiDecoder struct {
	SessionOptions struct {
		LogID           string `json:"log_id"`
		ProviderOptions []any  `json:"provider_options"`
	} `json:"session_options"`
	Filename string            `json:"filename"`
	HeadSize int               `json:"head_size"`
	Hidden   int               `json:"hidden_size"`
	Heads    int               `json:"num_attention_heads"`
	KVHeads  int               `json:"num_key_value_heads"`
	Layers   int               `json:"num_hidden_layers"`
	Inputs   map[string]string `json:"inputs"`
	Outputs  map[string]string `json:"outputs"`
}

// anyDecoder is GenAI's type of models that differ in nothing that GenAI has to know.
const anyDecoder = "decoder"

// genai is the configuration of ONNX Runtime GenAI.
func (o *Output) genai() ([]byte, error) {
	c := o.c
	var g genaiConfig
	m, d := &g.Model, &g.Model.Decoder
	m.ContextLength, m.VocabSize, m.Type = context(c), c.VocabSize, anyDecoder
	d.SessionOptions.LogID, d.SessionOptions.ProviderOptions = "onnxruntime-genai", []any{}
	d.Filename, d.HeadSize, d.Hidden = o.modelPath(), c.HeadDim, c.HiddenSize
	d.Heads, d.KVHeads, d.Layers = c.Heads, c.KVHeads, len(c.Layers)
	d.Inputs = map[string]string{inputIDs: inputIDs, attentionMask: attentionMask, "past_key_names": pastKey, "past_value_names": pastValue}
	d.Outputs = map[string]string{logitsName: logitsName, "present_key_names": presentKey, "present_value_names": presentValue}
	g.Search = map[string]any{"max_length": m.ContextLength, "past_present_share_buffer": true}
	generation, err := o.asset(generationFile)
	if err != nil {
		return nil, err
	}
	for _, source := range [][]byte{o.Config, generation} { // the second has the last word
		if source == nil {
			continue
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(jsonscan.Finite(source), &keys); err != nil {
			return nil, fmt.Errorf("%s: %w", o.root, err)
		}
		for key, to := range map[string]*json.RawMessage{"bos_token_id": &m.BOS, "eos_token_id": &m.EOS, "pad_token_id": &m.Pad} {
			if v := keys[key]; v != nil && string(v) != "null" {
				*to = v
			}
		}
		for _, key := range []string{"do_sample", "temperature", "top_k", "top_p", "repetition_penalty"} {
			if v := keys[key]; v != nil && string(v) != "null" {
				g.Search[key] = v
			}
		}
	}
	if m.Pad == nil { // GenAI needs it for batches
		m.Pad = m.EOS
		var list []json.RawMessage
		if json.Unmarshal(m.EOS, &list) == nil && len(list) > 0 {
			m.Pad = list[0]
		}
	}
	b, err := json.MarshalIndent(g, "", "  ")
	return append(b, '\n'), err
}
