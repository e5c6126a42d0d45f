// Package assets reads the files of a checkpoint that are stored with the model: config.json,
// the tokenizer, the model card and the licence. It checks that each has the content that its name
// promises.
package assets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/formats/safetensors"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/lm/llamacpp"
)

// assetFiles are the small files of a checkpoint that people need to use the model again:
// tokenizer, generation settings, preprocessors, and the model card with its licence. Those that
// exist are stored.
var assetFiles = []string{
	"LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.md", "NOTICE.txt", llamacpp.CardFile, "USE_POLICY.md",
	"added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json", "merges.txt",
	"preprocessor_config.json", "processor_config.json", "sentencepiece.bpe.model", "special_tokens_map.json", "spiece.model",
	"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
}

// AssetFiles lists the names of the files of a checkpoint that are stored with it, if they are
// there.
func AssetFiles() []string { return slices.Clone(assetFiles) }

// ReadAsset reads a file of AssetFiles in the directory of a checkpoint, nil if it is not there. It
// fails if the file is not what its name says: the name may be a link to something that is not to
// be published with the model.
func ReadAsset(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	b, err := files.Read(path, files.MaxModelFile)
	if e, ok := errors.AsType[*files.NotRegularError](err); ok && e.Mode.IsDir() || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, ok := errors.AsType[*files.SizeError](err); ok {
		return nil, fmt.Errorf("%w: move it out of the checkpoint's directory", err)
	}
	if err != nil {
		return nil, err
	}
	if name == llamacpp.CardFile && !llamacpp.IsCard(b) || isTerms(name) && !saysTerms(b) {
		return nil, nil // a text for people only, or anything
	}
	if err := CheckAsset(name, b); err != nil {
		return nil, fmt.Errorf("%s would be stored with the model, but %w: repair it or move it out of the checkpoint's directory", path, err)
	}
	return b, nil
}

// saysTerms reports whether a file has a word that every licence has.
func saysTerms(file []byte) bool {
	text := strings.ToLower(string(file))
	return slices.ContainsFunc([]string{"licen", "copyright", "policy"}, func(word string) bool { return strings.Contains(text, word) })
}

// ReadConfig gives the raw config.json of a checkpoint, nil if it has none.
func ReadConfig(ck *safetensors.Checkpoint) ([]byte, error) {
	b, err := files.Read(filepath.Join(ck.Dir(), ConfigName), files.MaxModelFile)
	if os.IsNotExist(err) {
		return nil, nil
	}
	return b, err
}

// ConfigName is the file that describes the model.
const ConfigName = "config.json"

// ReadAll reads config.json (config; nil: none) and the files of AssetFiles in the directory of a
// checkpoint.
func ReadAll(dir string, config []byte) (list []gqf.AssetSpec, err error) {
	if config != nil {
		list = append(list, gqf.AssetSpec{Kind: gqf.AssetConfig, Name: ConfigName, Data: config})
	}
	total := len(config)
	for _, name := range assetFiles {
		data, err := ReadAsset(dir, name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		if total += len(data); total > gqf.MaxAssetBytes {
			return nil, fmt.Errorf("%s: with it, the files that are stored with the model have more than %d bytes: move it out of the checkpoint's directory",
				filepath.Join(dir, name), gqf.MaxAssetBytes)
		}
		list = append(list, gqf.AssetSpec{Kind: gqf.AssetFile, Name: name, Data: data})
	}
	return list, nil
}

// PackAssets compresses assets as a .gqf file stores them.
func PackAssets(specs []gqf.AssetSpec) (list []gqf.PackedAsset, err error) {
	list = make([]gqf.PackedAsset, len(specs))
	for i, a := range specs {
		if list[i], err = gqf.PackAsset(a); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// NameOf is the model's name in config.json, "" if it has none. The name of the checkpoint's
// directory is not used: a copy of the checkpoint gives the same file.
func NameOf(config []byte) string {
	name := PathOf(config)
	return name[strings.LastIndexAny(name, `/\`)+1:]
}

// PathOf is the model's repository or directory in config.json, "" if it has none.
func PathOf(config []byte) string {
	var c struct {
		Name string `json:"_name_or_path"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return ""
	}
	return c.Name
}
