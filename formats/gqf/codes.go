package gqf

import (
	"fmt"
	"slices"
	"strings"
)

// Role is a tensor's function in its model. The codes are part of the file format and never change
// their meaning. An unknown code means RoleOther, and String says so.
type Role uint8

const (
	RoleOther      Role = 0 // none of the below
	RoleEmbedding  Role = 1 // embedding, looked up by token
	RoleHead       Role = 2 // lm_head, unless tied to the embedding
	RoleProjection Role = 3 // matrix of a linear layer
	RoleExpert     Role = 4 // matrix of an expert, or of all experts fused
	RoleRouter     Role = 5 // chooses experts
	RoleNorm       Role = 6 // weight or bias of a normalization
	RoleBias       Role = 7 // bias of a linear layer
	RoleConv       Role = 8 // convolution kernel
	RolePosition   Role = 9 // position embedding
)

var roleNames = []string{"other", "embedding", "head", "projection", "expert", "router", "norm", "bias", "conv", "position"}

func (r Role) String() string { return informativeName(roleNames, uint8(r)) }

func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Mapping derives scale and zero point from a group's range. Files store the codes.
type Mapping uint8

const (
	MappingNone Mapping = 0 // unquantized, or unknown
	// the signed absolute maximum goes to -2^(bits-1); scales may be negative
	MappingFullRange       Mapping = 1
	MappingSymmetric       Mapping = 2 // TorchAO's SYMMETRIC
	MappingSymmetricNoClip Mapping = 3 // TorchAO's SYMMETRIC_NO_CLIPPING_ERR
	MappingAsymmetric      Mapping = 4 // with zero points
	// the half-step grid; the absolute maximum goes to its last step, 2^(bits-1) - 1/2
	MappingHalfStep Mapping = 5
	MappingKQuant   Mapping = 6 // llama.cpp's K types, only in .gguf files

	MappingOther Mapping = 255 // none of the above, also every unknown code
)

var mappingNames = []string{"none", "full-range", "symmetric", "symmetric-no-clip", "asymmetric", "half-step", "k-quant",
	// of other types of .gguf files, see package rounding
	"nonlinear", "nonlinear-k", "ternary", "mxfp4", "lattice", "lattice-xs", "lattice-xxs"}

func (m Mapping) String() string { return informativeName(mappingNames, uint8(m)) }

func (m Mapping) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

func ParseMapping(s string) (Mapping, bool) {
	i := slices.Index(mappingNames, s)
	return Mapping(max(i, 0)), i >= 0
}

// Algorithm says how codes were chosen. The codes are part of the file format.
type Algorithm uint8

const (
	AlgorithmNone    Algorithm = 0 // unquantized
	AlgorithmRTN     Algorithm = 1 // round to nearest
	AlgorithmSearch  Algorithm = 2 // weighted search of the scales
	AlgorithmHQQ     Algorithm = 3 // reserved: half-quadratic quantization, no longer offered
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

// ByLayers reports whether codes depend on the codes of earlier layers.
func (a Algorithm) ByLayers() bool { return a == AlgorithmGPTQ || a == AlgorithmGPTQFT }

func (a Algorithm) String() string { return informativeName(algorithmNames, uint8(a)) }

func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

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

func ParseAlgorithm(s string) (Algorithm, bool) {
	i := slices.Index(algorithmNames, s)
	return Algorithm(max(i, 0)), i >= 0
}

// Kind is the content of a payload. The codes are part of the file format.
type Kind uint8

// The kinds of version 1. Companions hold data that a foreign layout stores apart from its codes.
// Companions are plain payloads.
const (
	KindWeights Kind = 0 // the weights themselves
	KindScales  Kind = 1 // companion: scales
	KindZeros   Kind = 2 // companion: zero points
	KindTable   Kind = 3 // companion: lookup table
)

var kindNames = []string{"weights", "scales", "zeros", "table"}

func (k Kind) String() string { return codeName(kindNames, uint8(k), "kind") }

func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// AssetKind is the purpose of an asset. The codes are part of the file format.
type AssetKind uint8

const (
	AssetConfig     AssetKind = 1 // the model's config.json, byte for byte
	AssetRecipe     AssetKind = 2 // JSON: the recipe; named RecipeName
	AssetProvenance AssetKind = 3 // JSON: the file's inputs; named ProvenanceName
	AssetFile       AssetKind = 4 // a file from the checkpoint's directory, such as tokenizer.json
	// JSON: how factors were folded into the checkpoint before quantization; named FoldName
	AssetFold AssetKind = 5
)

var assetKindNames = []string{"", "config", "recipe", "provenance", "file", "fold"}

func (k AssetKind) String() string { return codeName(assetKindNames, uint8(k), "asset kind") }

func (k AssetKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Known reports whether this version knows the kind. Assets of other kinds are for newer programs:
// this version checks only their places and checksums.
func (k AssetKind) Known() bool { return k >= AssetConfig && k <= AssetFold }

// Names of assets that gq makes. The slash distinguishes these names from files' names.
const (
	RecipeName     = "gq/recipe.json"
	ProvenanceName = "gq/provenance.json"
	FoldName       = "gq/fold.json"
)

// assetCodec is the encoding of an asset's bytes. The codes are part of the file format.
type assetCodec uint8

const (
	codecStored assetCodec = 0 // uncompressed
	codecZstd   assetCodec = 1 // a single zstd frame (RFC 8878) that states its content size
)

var codecNames = []string{"stored", "zstd"}

func (c assetCodec) String() string { return codeName(codecNames, uint8(c), "codec") }

// CPUFeatures is a set of CPU features that a variant's kernels need. The bits are part of the file
// format. An unknown bit is a feature that no CPU has, as far as this version knows.
type CPUFeatures uint32

const (
	CPUDotProd    CPUFeatures = 1 << 0  // Arm FEAT_DotProd
	CPUI8MM       CPUFeatures = 1 << 1  // Arm FEAT_I8MM
	cpuSVE        CPUFeatures = 1 << 2  // Arm FEAT_SVE
	cpuSVE2       CPUFeatures = 1 << 3  // Arm FEAT_SVE2
	cpuSME        CPUFeatures = 1 << 4  // Arm FEAT_SME
	cpuSME2       CPUFeatures = 1 << 5  // Arm FEAT_SME2
	cpuAVX2       CPUFeatures = 1 << 16 // x86 AVX2, FMA and F16C
	cpuAVXVNNI    CPUFeatures = 1 << 17 // x86 AVX-VNNI
	cpuAVX512VNNI CPUFeatures = 1 << 18 // x86 AVX-512 F, BW, DQ, VL and VNNI
	cpuAMXInt8    CPUFeatures = 1 << 19 // x86 AMX-INT8
)

var cpuFeatureNames = []struct {
	bit  CPUFeatures
	name string
}{
	{CPUDotProd, "dotprod"}, {CPUI8MM, "i8mm"}, {cpuSVE, "sve"}, {cpuSVE2, "sve2"}, {cpuSME, "sme"}, {cpuSME2, "sme2"},
	{cpuAVX2, "avx2"}, {cpuAVXVNNI, "avxvnni"}, {cpuAVX512VNNI, "avx512vnni"}, {cpuAMXInt8, "amx-int8"},
}

// NewCPUFeatures returns the features of names that String may print, and ignores other names.
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

func (c CPUFeatures) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// otherName stands for an unknown code that is informative only.
const otherName = "other"

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
