package toonnx

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/lowbit-go/gq/internal/job/assets"
	"github.com/lowbit-go/gq/internal/job/hfquant"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/tocheckpoint"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/internal/jsonscan"
)

// genaiFile is the configuration of ONNX Runtime GenAI.
const genaiFile = "genai_config.json"

// files lists the other files of the directory, without the provenance.
func (o *Output) files() error {
	list, errAssets := o.from.Assets()
	recipe, _, errRecipe := o.from.Provenance(&plan.Codes{}, nil, nil)
	config, errConfig := o.config()
	genai, errGenAI := o.genai()
	if err := cmp.Or(errAssets, errRecipe, errConfig, errGenAI); err != nil {
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
	if recipe != nil {
		o.beside = append(o.beside, write.FileOf(provenance.RecipeFile, recipe))
	}
	return nil
}

// config is config.json with the settings of transformers.js: which graph to load, and the number
// of files with weights.
func (o *Output) config() ([]byte, error) {
	return hfquant.WithEntry(o.Config, "transformers.js_config", struct {
		Dtype string `json:"dtype"`
		Files int    `json:"use_external_data_format"`
	}{o.dtype.name, len(o.data)})
}

// genai is the configuration of ONNX Runtime GenAI.
func (o *Output) genai() ([]byte, error) {
	c := o.c
	type object = map[string]any
	model := object{ // of a type that differs in nothing that GenAI has to know
		"context_length": context(c), "vocab_size": c.VocabSize, "type": "decoder", "decoder": object{
			"session_options": object{"log_id": "onnxruntime-genai", "provider_options": []any{}},
			"filename":        folder + "/" + o.modelName(), "head_size": c.HeadDim, "hidden_size": c.HiddenSize,
			"num_attention_heads": c.Heads, "num_key_value_heads": c.KVHeads, "num_hidden_layers": len(c.Layers),
			"inputs":  object{inputIDs: inputIDs, attentionMask: attentionMask, "past_key_names": pastKey, "past_value_names": pastValue},
			"outputs": object{logitsName: logitsName, "present_key_names": presentKey, "present_value_names": presentValue},
		},
	}
	search := object{"max_length": context(c), "past_present_share_buffer": true}
	of := map[string]object{"bos_token_id": model, "eos_token_id": model, "pad_token_id": model,
		"do_sample": search, "temperature": search, "top_k": search, "top_p": search, "repetition_penalty": search}
	generation, err := o.from.Asset("generation_config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, source := range [][]byte{o.Config, generation} { // the second has the last word
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(jsonscan.Finite(source), &keys); err != nil && source != nil {
			return nil, fmt.Errorf("%s: generation_config.json: %w", o.root, err)
		}
		for key, v := range keys {
			if to := of[key]; to != nil && string(v) != "null" {
				to[key] = v
			}
		}
	}
	// GenAI pads sequences of a batch.
	if eos, ok := model["eos_token_id"].(json.RawMessage); ok && model["pad_token_id"] == nil {
		var list []json.RawMessage
		if model["pad_token_id"] = eos; json.Unmarshal(eos, &list) == nil && len(list) > 0 {
			model["pad_token_id"] = list[0]
		}
	}
	b, err := json.MarshalIndent(object{"model": model, "search": search}, "", "  ")
	return append(b, '\n'), err
}
