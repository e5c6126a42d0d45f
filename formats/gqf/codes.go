package gqf

import (
	"fmt"
	"slices"
	"strings"
)

// Role is a tensor's function in its model. The codes are part of the file format and never change
// their meaning. An unknown code means RoleOther, and String says so.
type Role uint8

// The roles of version 1.
const (
	RoleOther      Role = 0 // none of the below
	RoleEmbedding  Role = 1 // embedding, looked up by token
	RoleHead       Role = 2 // lm_head, unless it is the embedding
	RoleProjection Role = 3 // matrix of a linear layer
	RoleExpert     Role = 4 // matrix of one expert, or of all experts fused
	RoleRouter     Role = 5 // chooses experts
	RoleNorm       Role = 6 // weight or bias of a normalization
	RoleBias       Role = 7 // bias of a linear layer
	RoleConv       Role = 8 // convolution kernel
	RolePosition   Role = 9 // position embedding
)

var roleNames = []string{"other", "embedding", "head", "projection", "expert", "router", "norm", "bias", "conv", "position"}

// String gives the role's name as reports and JSON spell it.
func (r Role) String() string { return informativeName(roleNames, uint8(r)) }

// MarshalText returns String, for JSON.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Mapping is the rule that derives scale and zero point from the range of a group. The codes are
// part of the file format.
type Mapping uint8

// The mappings of version 1.
const (
	MappingNone            Mapping = 0 // unquantized, or unknown
	MappingFullRange       Mapping = 1 // the signed absolute maximum goes to -2^(bits-1); scales may be negative
	MappingSymmetric       Mapping = 2 // TorchAO's SYMMETRIC
	MappingSymmetricNoClip Mapping = 3 // TorchAO's SYMMETRIC_NO_CLIPPING_ERR
	MappingAsymmetric      Mapping = 4 // with zero points
	MappingHalfStep        Mapping = 5 // the half-step grid; the absolute maximum goes to its last step, 2^(bits-1) - 1/2
	MappingKQuant          Mapping = 6 // llama.cpp's K types, which only .gguf files hold: never in a .gqf file

	MappingOther Mapping = 255 // none of the above, also every unknown code
)

var mappingNames = []string{"none", "full-range", "symmetric", "symmetric-no-clip", "asymmetric", "half-step", "k-quant"}

// String gives the mapping's name as the command line spells it.
func (m Mapping) String() string { return informativeName(mappingNames, uint8(m)) }

// MarshalText returns String, for JSON.
func (m Mapping) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// ParseMapping is the inverse of [Mapping.String].
func ParseMapping(s string) (Mapping, bool) {
	for i, name := range mappingNames {
		if name == s {
			return Mapping(i), true
		}
	}
	return 0, false
}

// Algorithm says how codes were chosen. The codes are part of the file format.
type Algorithm uint8

// The algorithms of version 1.
const (
	AlgorithmNone    Algorithm = 0 // unquantized
	AlgorithmRTN     Algorithm = 1 // round to nearest
	AlgorithmSearch  Algorithm = 2 // weighted search of the scales
	AlgorithmHQQ     Algorithm = 3 // half-quadratic quantization
	AlgorithmMSE     Algorithm = 4 // reserved: a grid of shrunken ranges, no longer offered
	AlgorithmGPTQ    Algorithm = 5 // GPTQ with calibration data
	AlgorithmGPTQFT  Algorithm = 6 // GPTQ towards the unquantized model's outputs
	AlgorithmImatrix Algorithm = 7 // search of the scales, weighted by an importance matrix
	AlgorithmAWQ     Algorithm = 8 // AlgorithmImatrix after scaling by AWQ's factors, see AssetFold

	AlgorithmOther Algorithm = 255 // none of the above, also every unknown code
)

var algorithmNames = []string{"none", "rtn", "search", "hqq", "mse", "gptq", "gptq-ft", "imatrix", "awq"}

// Calibrated tells whether the algorithm needs calibration data.
func (a Algorithm) Calibrated() bool { return a >= AlgorithmGPTQ && a <= AlgorithmAWQ }

// ByLayers reports whether the algorithm chooses codes layer by layer, so that codes depend on the codes
// of earlier layers.
func (a Algorithm) ByLayers() bool { return a == AlgorithmGPTQ || a == AlgorithmGPTQFT }

// String gives the algorithm's name as reports spell it.
func (a Algorithm) String() string { return informativeName(algorithmNames, uint8(a)) }

// MarshalText returns String, for JSON.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (a *Algorithm) UnmarshalText(text []byte) error {
	parsed, ok := ParseAlgorithm(string(text))
	if !ok && string(text) != otherName {
		return fmt.Errorf("unknown algorithm %q", text)
	}
	if *a = parsed; !ok {
		*a = AlgorithmOther
	}
	return nil
}

// ParseAlgorithm is the inverse of [Algorithm.String].
func ParseAlgorithm(s string) (Algorithm, bool) {
	i := slices.Index(algorithmNames, s)
	return Algorithm(max(i, 0)), i >= 0
}

// Kind is the content of a payload. The codes are part of the file format.
type Kind uint8

// The kinds of version 1. Companions hold data that a foreign layout stores apart from its codes;
// they are plain payloads.
const (
	KindWeights Kind = 0 // the weights themselves
	KindScales  Kind = 1 // companion: scales
	KindZeros   Kind = 2 // companion: zero points
	KindTable   Kind = 3 // companion: lookup table
)

var kindNames = []string{"weights", "scales", "zeros", "table"}

// String gives the kind's name as reports spell it.
func (k Kind) String() string { return codeName(kindNames, uint8(k), "kind") }

// MarshalText returns String, for JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// AssetKind is the purpose of an asset. The codes are part of the file format.
type AssetKind uint8

// The kinds of asset of version 1.
const (
	AssetConfig     AssetKind = 1 // the model's config.json, byte for byte
	AssetRecipe     AssetKind = 2 // JSON: the recipe; named RecipeName
	AssetProvenance AssetKind = 3 // JSON: the file's inputs; named ProvenanceName
	AssetFile       AssetKind = 4 // a file from the checkpoint's directory, such as tokenizer.json
	AssetFold       AssetKind = 5 // JSON: how factors were folded into the checkpoint before quantization; named FoldName
)

var assetKindNames = []string{"", "config", "recipe", "provenance", "file", "fold"}

// String gives the kind's name as reports spell it.
func (k AssetKind) String() string { return codeName(assetKindNames, uint8(k), "asset kind") }

// MarshalText returns String, for JSON.
func (k AssetKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Known reports whether this version knows the kind. Assets of other kinds are for newer programs:
// this version checks only their places and checksums.
func (k AssetKind) Known() bool { return k >= AssetConfig && k <= AssetFold }

// Names of assets that gq makes. The slash distinguishes them from files, whose names have none.
const (
	RecipeName     = "gq/recipe.json"
	ProvenanceName = "gq/provenance.json"
	FoldName       = "gq/fold.json"
)

// Codec is the encoding of an asset's bytes. The codes are part of the file format.
type Codec uint8

// The codecs of version 1.
const (
	CodecStored Codec = 0 // as they are
	CodecZstd   Codec = 1 // one zstd frame (RFC 8878) that states its content size
)

var codecNames = []string{"stored", "zstd"}

// String gives the codec's name as reports spell it.
func (c Codec) String() string { return codeName(codecNames, uint8(c), "codec") }

// MarshalText returns String, for JSON.
func (c Codec) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// CPUFeatures is a set of CPU features that a variant's kernels need. The bits are part of the file
// format. An unknown bit is a feature that no CPU has, as far as this version knows.
type CPUFeatures uint32

// The features of version 1.
const (
	CPUDotProd    CPUFeatures = 1 << 0  // Arm FEAT_DotProd
	CPUI8MM       CPUFeatures = 1 << 1  // Arm FEAT_I8MM
	CPUSVE        CPUFeatures = 1 << 2  // Arm FEAT_SVE
	CPUSVE2       CPUFeatures = 1 << 3  // Arm FEAT_SVE2
	CPUSME        CPUFeatures = 1 << 4  // Arm FEAT_SME
	CPUSME2       CPUFeatures = 1 << 5  // Arm FEAT_SME2
	CPUAVX2       CPUFeatures = 1 << 16 // x86 AVX2, FMA and F16C
	CPUAVXVNNI    CPUFeatures = 1 << 17 // x86 AVX-VNNI
	CPUAVX512VNNI CPUFeatures = 1 << 18 // x86 AVX-512 F, BW, DQ, VL and VNNI
	CPUAMXInt8    CPUFeatures = 1 << 19 // x86 AMX-INT8
)

var cpuFeatureNames = []struct {
	bit  CPUFeatures
	name string
}{
	{CPUDotProd, "dotprod"}, {CPUI8MM, "i8mm"}, {CPUSVE, "sve"}, {CPUSVE2, "sve2"}, {CPUSME, "sme"}, {CPUSME2, "sme2"},
	{CPUAVX2, "avx2"}, {CPUAVXVNNI, "avxvnni"}, {CPUAVX512VNNI, "avx512vnni"}, {CPUAMXInt8, "amx-int8"},
}

// NewCPUFeatures returns the set of the features with these names, as String spells them. It
// ignores other names.
func NewCPUFeatures(names []string) (c CPUFeatures) {
	for _, f := range cpuFeatureNames {
		if slices.Contains(names, f.name) {
			c |= f.bit
		}
	}
	return c
}

// String lists the features, as in "dotprod,i8mm", or "" without any. Unknown bits are "other".
func (c CPUFeatures) String() string {
	var names []string
	for _, f := range cpuFeatureNames {
		if c&f.bit != 0 {
			names = append(names, f.name)
			c &^= f.bit
		}
	}
	if c != 0 {
		names = append(names, otherName)
	}
	return strings.Join(names, ",")
}

// MarshalText returns String, for JSON.
func (c CPUFeatures) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// otherName stands for an unknown code that is informative only.
const otherName = "other"

// informativeName returns names[code], or "other" for an unknown code.
func informativeName(names []string, code uint8) string {
	if int(code) < len(names) {
		return names[code]
	}
	return otherName
}

// codeName returns names[code], or a spelling that shows the unknown code.
func codeName(names []string, code uint8, what string) string {
	if int(code) < len(names) && names[code] != "" {
		return names[code]
	}
	return fmt.Sprintf("unknown %s %d", what, code)
}
