package files

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"path/filepath"
	"strings"
)

// A Kind is a kind of file, recognized by its first bytes.
type Kind int

// The kinds that Recognize knows.
const (
	Unknown Kind = iota
	Empty
	Safetensors
	GQF
	GGUF
	Zip
	Pickle
	LFSPointer
	HTML
	Compressed
)

// kinds has the name of each kind with its article, and the advice if given as a checkpoint.
var kinds = [...]struct{ name, advice string }{
	Unknown:     {"an unknown file", ""},
	Empty:       {"an empty file", "copy or download it again"},
	Safetensors: {"a safetensors file", ""},
	GQF:         {"a .gqf file", "it is quantized already: name the checkpoint that it was made of"},
	GGUF:        {"a GGUF file", "name the safetensors checkpoint that it was made of"},
	Zip:         {"a zip archive (as PyTorch's .bin, .pt and .pth files are)", "convert it to safetensors: load it in Python, write it with safetensors.torch.save_file"},
	Pickle:      {"a Python pickle (as PyTorch's old .bin, .pt and .pth files are)", "convert it to safetensors: load it in Python, write it with safetensors.torch.save_file"},
	LFSPointer:  {"a Git LFS pointer without its content", "run git lfs pull in its directory"},
	HTML:        {"an HTML page", "download the file itself"},
	Compressed:  {"a compressed file", "decompress it"},
}

func (k Kind) String() string { return kinds[k].name }

// Advice says what to do if the file at path is given as a safetensors checkpoint, or is "".
func (k Kind) Advice(path string) string {
	return cmp.Or(k.Rename(path), kinds[k].advice)
}

// Rename says how to rename the file at path, of kind k, if a GGUF file has the ending of another
// format: commands would take the file with the ending .gguf. Else Rename returns "".
func (k Kind) Rename(path string) string {
	ext := filepath.Ext(path)
	if k != GGUF || !strings.EqualFold(ext, ".gqf") && !strings.EqualFold(ext, ".safetensors") {
		return ""
	}
	return "rename it to " + strings.TrimSuffix(filepath.Base(path), ext) + ".gguf, because commands go by the ending"
}

// HeadSize is the number of bytes that Recognize needs.
const HeadSize = 512

// Recognize returns the kind of a file from its first HeadSize bytes, or from a whole shorter file.
func Recognize(head []byte) Kind {
	head = head[:min(len(head), HeadSize)]
	has := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if bytes.HasPrefix(head, []byte(p)) {
				return true
			}
		}
		return false
	}
	text := bytes.ToLower(bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n"))
	switch {
	case len(head) == 0:
		return Empty
	// This case must come first: a header of 640 bytes begins like a pickle of protocol 2.
	case len(head) > 8 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 1<<32:
		return Safetensors
	case len(head) >= 4 && string(head[1:4]) == "GQF":
		return GQF
	case has("GGUF"):
		return GGUF
	case has("PK\x03\x04", "PK\x05\x06"):
		return Zip
	case len(head) > 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 && bytes.IndexByte([]byte("}](c\x8a\x95X\x8c"), head[2]) >= 0:
		return Pickle
	case has("version https://git-lfs.github.com/spec/"):
		return LFSPointer
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")):
		return HTML
	case has("\x1f\x8b", "\x28\xb5\x2f\xfd", "BZh", "\xfd7zXZ\x00", "7z\xbc\xaf\x27\x1c"):
		return Compressed
	}
	return Unknown
}

func KindOf(path string) (Kind, error) {
	f, _, err := Open(path)
	if err != nil {
		return Unknown, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, HeadSize))
	if err != nil {
		return Unknown, err
	}
	return Recognize(head), nil
}
