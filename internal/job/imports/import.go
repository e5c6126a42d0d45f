// Package imports has what imports of models of other programs share.
package imports

import (
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/job/plan"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/job/write"
	"github.com/lowbit-go/gq/quantizer"
)

// Foreign is an open model of another program, with codes that an import takes over.
type Foreign interface {
	// Close closes the files. A second call does nothing.
	Close() error
	// IsGGUF reports whether the model is a GGUF file.
	IsGGUF() bool
	// Noun is the kind of the model in messages: "the .gguf file".
	Noun() string
	// Paths are the paths of the files with weights, Bytes the size of these files.
	Paths() []string
	Bytes() int64
	// Quantized describes the quantized tensors, if there are any: "tensors: 42 of Q4_0, 1 of Q8_0".
	Quantized() string
	// Sources are the files, as the provenance of a .gqf file names them.
	Sources() ([]provenance.Source, error)
	// Input returns the model as the input of one import.
	Input() Input
}

// Input is the input of an import.
type Input interface {
	write.Record
	// Import lays out the job of putting the model into a .gqf file. dequantize stores tensors whose
	// codes the file cannot hold as unquantized float32.
	Import(out write.Output, recipe quantizer.Recipe, threads int, dequantize bool) (*Import, error)
}

// Import is the plan of an import. The job changes no code and no scale, and of the unquantized
// weights only the norms of a Gemma model in a GGUF file: it subtracts the 1 that llama.cpp adds.
// The tensors of a GGUF file get the names and the order of rows that they have in a Hugging Face
// checkpoint.
type Import struct {
	*write.Job
	tensors []ImportedTensor // by item
}

// Imported are the tensors of the source, by their names in the .gqf file.
func (p *Import) Imported() map[string]ImportedTensor { return ByName(p.tensors) }

// ByName returns tensors by their names.
func ByName(tensors []ImportedTensor) map[string]ImportedTensor {
	m := map[string]ImportedTensor{}
	for _, t := range tensors {
		m[t.Name] = t
	}
	return m
}

// ImportedTensor is a tensor as the file or the checkpoint stores it that a plan imports.
type ImportedTensor struct {
	Name      string // in the .gqf file
	Type      string // ggml's name of the type, the scheme in a checkpoint, or a dtype
	Quantized bool
	Bits      int // of a code
	Group     int // weights that share a scale; 0: the row
	Bytes     int64

	File int // index in the sources
}

// origin is what a file that gq wrote says about its source.
type origin struct {
	// Tuning says that the gains of norms differ from the checkpoint's.
	Tuning  *provenance.Tuning    `json:"tuning"`
	Tensors provenance.SourceSums `json:"tensors"`

	Calibration *provenance.Calibration `json:"calibration"`
	// Fold is the summary of Record, the record of a fold.
	Fold     *provenance.Fold     `json:"fold"`
	Record   json.RawMessage      `json:"fold_record"`
	Adapters []provenance.Adapter `json:"adapters"`
}

// Imported has the tensors of an import, and its record.
type Imported struct {
	Src     Foreign
	Pl      *plan.Planner
	Tensors []ImportedTensor
}

// Job completes an import.
func (im *Imported) Job(in write.Input, out write.Output) (*Import, error) {
	if err := im.Pl.LayOut(); err != nil {
		return nil, err
	}
	j, err := write.New(im.Pl.Plan, in, out)
	return &Import{j, im.Tensors}, err
}

// RecordOrigin adds the names of the checkpoint, the names that only the model's code knows, and
// the sources. record is the source's own provenance, if gq wrote the source. by names the library
// that quantized it; nil: a GGUF file.
func (im *Imported) RecordOrigin(b *gqf.Builder, record []byte, by *provenance.QuantizedBy) error {
	var own origin
	if json.Unmarshal(record, &own) != nil {
		own = origin{}
	}
	if own.Calibration != nil {
		own.Calibration.Version = 0 // codes for other layouts might differ
	}
	sum := own.Tensors.Of()
	for i, it := range im.Pl.Items {
		e, t := it.Common(), im.Tensors[i]
		b.AddName(gqf.NameSpec{Name: e.Name(), Tensor: e.Index, InCheckpoint: true, SourceFile: t.File, SourceBytes: t.Bytes, SourceCRC: sum(e.Name())})
		for _, n := range e.Aliases {
			spec := gqf.NameSpec{Name: n.Src.Name, Tensor: e.Index, SourceFile: -1}
			if !n.Absent {
				spec.InCheckpoint, spec.SourceFile, spec.SourceBytes, spec.SourceCRC = true, n.Src.File, n.Src.Size, sum(n.Src.Name)
			}
			b.AddName(spec)
		}
		// FP8 scales that the checkpoint's weights were multiplied with.
		if name := e.Name() + "_scale_inv"; sum(name) != 0 {
			b.AddName(gqf.NameSpec{Name: name, Tensor: e.Index, InCheckpoint: true, Absorbed: true, SourceFile: -1, SourceCRC: sum(name)})
		}
	}
	sources, err := im.Src.Sources()
	if err != nil {
		return err
	}
	js, err := json.MarshalIndent(provenance.Provenance{Sources: sources, Repository: provenance.RepositoryOf(sources), Adapters: own.Adapters, Calibration: own.Calibration, Tuning: own.Tuning, Fold: own.Fold, Quantized: by}, "", "  ")
	if err != nil {
		return err
	}
	b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetProvenance, Name: gqf.ProvenanceName, Data: js})
	if own.Record != nil {
		b.AddAsset(gqf.AssetSpec{Kind: gqf.AssetFold, Name: gqf.FoldName, Data: own.Record})
	}
	return nil
}

// PutFloats stores x + add as float32.
func PutFloats(out []byte, x []float32, add float32) {
	for i, v := range x {
		if add != 0 {
			v += add
		}
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(v))
	}
}
