package conversion

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/model/llamacpp"
)

// assetFiles are the files beside a checkpoint that people need to use the model
// again: tokenizer, generation settings, preprocessors, and the model card with its licence. Those that exist are stored.
var assetFiles = []string{
	"LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.md", "NOTICE.txt", llamacpp.CardFile, "USE_POLICY.md",
	"added_tokens.json", "chat_template.jinja", "chat_template.json", "generation_config.json", "merges.txt",
	"preprocessor_config.json", "processor_config.json", "sentencepiece.bpe.model", "special_tokens_map.json", "spiece.model",
	"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
}

// AssetFiles lists the names of the files beside a checkpoint that are stored with it, if they are there.
func AssetFiles() []string { return slices.Clone(assetFiles) }

// ReadAsset reads a file of AssetFiles in the directory of a checkpoint, nil if it is not there. It fails if the file is
// not what its name says: the name may be a link to something that is not to be published with the model.
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
	if err := checkAsset(name, b); err != nil {
		return nil, fmt.Errorf("%s would be stored with the model, but %w: repair it or move it out of the checkpoint's directory", path, err)
	}
	return b, nil
}

// isTerms reports whether an asset of this name says on what terms the model may be used.
func isTerms(name string) bool {
	return strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "NOTICE") || name == "USE_POLICY.md"
}

// saysTerms reports whether a file has a word that every licence has.
func saysTerms(file []byte) bool {
	text := strings.ToLower(string(file))
	return slices.ContainsFunc([]string{"licen", "copyright", "policy"}, func(word string) bool { return strings.Contains(text, word) })
}

// modelFiles lists config.json and the files of AssetFiles that the checkpoint has.
func (p checkpointInput) modelFiles() (list []gqf.AssetSpec, err error) {
	if p.config != nil {
		list = append(list, gqf.AssetSpec{Kind: gqf.AssetConfig, Name: "config.json", Data: p.config})
	}
	total := len(p.config)
	for _, name := range assetFiles {
		data, err := ReadAsset(p.ck.Dir(), name)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		if total += len(data); total > gqf.MaxAssetBytes {
			return nil, fmt.Errorf("%s: with it, the files that are stored with the model have more than %d bytes: move it out of the checkpoint's directory",
				filepath.Join(p.ck.Dir(), name), gqf.MaxAssetBytes)
		}
		list = append(list, gqf.AssetSpec{Kind: gqf.AssetFile, Name: name, Data: data})
	}
	return list, nil
}

// packAssets compresses assets as a file stores them.
func packAssets(specs []gqf.AssetSpec) (list []gqf.PackedAsset, err error) {
	list = make([]gqf.PackedAsset, len(specs))
	for i, a := range specs {
		if list[i], err = gqf.PackAsset(a); err != nil {
			return nil, err
		}
	}
	return list, nil
}
