package gq

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"time"

	"github.com/lowbit-go/gq/accuracy"
	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/quantizer/workdir"
)

// Entries of the working directory, which name the recipe behind the prefix.
const (
	madePrefix     = "made-"
	measuredPrefix = "measured-"
)

// madeFile describes a file that was made.
type madeFile struct {
	SHA256           string   `json:"sha256"`
	Bytes            int64    `json:"bytes"`
	BitsPerWeight    float64  `json:"bits_per_weight"`
	AllBitsPerWeight float64  `json:"all_bits_per_weight"`
	SourceBytes      int64    `json:"source_bytes"`
	Seconds          float64  `json:"seconds"`
	Warnings         []string `json:"warnings"`
}

// measuredFile has the figures of a file.
type measuredFile struct {
	Report  *accuracy.Report `json:"report"`
	Seconds float64          `json:"seconds"`
}

// file makes and measures the file of recipe i, as far as an earlier job has not.
func (s *sweep) file(i int, to *accuracy.SweepReport) (*accuracy.SweepFile, error) {
	path, err := s.output(i)
	if err != nil {
		return nil, err
	}
	made, measured, err := s.find(i, path)
	if err != nil {
		return nil, err
	}
	r := &accuracy.SweepFile{Name: s.o.Recipes[i].Name, Recipe: s.recipes[i], Found: made != nil && measured != nil}
	if r.Found {
		s.logf("found %s, made and measured by an earlier sweep", path)
	}
	if made == nil {
		if made, err = s.make(i, path); err != nil {
			return nil, err
		}
		if measured, err = s.figures(i, made); err != nil { // of the same file
			return nil, err
		}
	}
	if measured == nil {
		if measured, err = s.measure(i, path, made); err != nil {
			return nil, err
		}
	}
	if s.o.Output == "" {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	} else {
		r.File = path
	}
	to.SourceBytes = made.SourceBytes
	r.FileBytes, r.SHA256, r.BitsPerWeight, r.AllBitsPerWeight = made.Bytes, made.SHA256, made.BitsPerWeight, made.AllBitsPerWeight
	r.QuantizeSeconds, r.MeasureSeconds = made.Seconds, measured.Seconds
	r.Warnings = append(append(r.Warnings, made.Warnings...), measured.Report.Notes...)
	for _, t := range measured.Report.Scored() {
		if s.o.Measure.Reference == "" {
			t.Text.Reference = "" // in the working directory, which is removed
		}
		r.Texts = append(r.Texts, *t)
	}
	r.Choices, r.Gate = measured.Report.Choices, measured.Report.Gate
	return r, nil
}

// find returns the records about the file of recipe i at path. made is nil if the file is missing or
// damaged, measured is nil if there are no figures. Without an output directory, figures alone are
// enough: the file need not exist any more.
func (s *sweep) find(i int, path string) (made *madeFile, measured *measuredFile, err error) {
	if !s.work.GetJSON(madePrefix+s.o.Recipes[i].Name, s.keys[i], &made) || made == nil {
		return nil, nil, nil
	}
	if measured, err = s.figures(i, made); err != nil {
		return nil, nil, err
	}
	if measured != nil && s.o.Output == "" {
		return made, measured, nil
	}
	size, hash, err := workdir.SHA256(s.ctx, path)
	if s.ctx.Err() != nil {
		return nil, nil, s.ctx.Err()
	}
	if err != nil || size != made.Bytes || hash != made.SHA256 {
		return nil, nil, nil
	}
	return made, measured, nil
}

// make makes the file of recipe i.
func (s *sweep) make(i int, path string) (*madeFile, error) {
	if err := s.openReferences(); err != nil { // a model that cannot be run is an error before the work
		return nil, err
	}
	recipe := &s.o.Recipes[i]
	r, err := Quantize(s.ctx, s.src, path, QuantizeOptions{
		Recipe: recipe.Recipe, RecipeFile: recipe.File, Format: FormatGQF, Threads: s.o.Threads, Progress: s.o.Progress, shared: s.work,
	})
	if err != nil {
		return nil, err
	}
	made := &madeFile{BitsPerWeight: r.BitsPerWeight, AllBitsPerWeight: r.AllBitsPerWeight, SourceBytes: r.SourceBytes, Seconds: r.Seconds, Warnings: r.Warnings}
	if made.Bytes, made.SHA256, err = workdir.SHA256(s.ctx, path); err != nil {
		return nil, err
	}
	return made, s.work.PutJSON(madePrefix+recipe.Name, s.keys[i], made)
}

// openReferences runs the float model on the texts, unless its predictions are kept already.
func (s *sweep) openReferences() error {
	if s.references != nil {
		return nil
	}
	dir := s.o.Measure.Reference
	if dir == "" {
		var err error
		if dir, err = s.work.Loose("references"); err != nil {
			return err
		}
	}
	store := references{dir: dir, src: s.src, version: s.o.Measure.Version, threads: s.o.Threads}
	done, err := store.open(s.ctx, s.job.Texts, s.stages)
	s.references = done
	return err
}

// measure measures the file of recipe i.
func (s *sweep) measure(i int, path string, made *madeFile) (*measuredFile, error) {
	if err := s.openReferences(); err != nil {
		return nil, err
	}
	start := time.Now()
	j := *s.job
	j.File, j.Name = path, filepath.Base(path)
	r, err := s.o.Measure.run(s.ctx, &j, s.stages)
	if err != nil {
		return nil, err
	}
	if r.NoModel != "" {
		r.Notes = append(r.Notes, "the model was not run: "+r.NoModel)
	}
	if err := different(r); err != nil {
		return nil, err
	}
	r.Tensors, r.Parity = nil, nil // the gate has seen them
	measured := &measuredFile{r, time.Since(start).Seconds()}
	key, err := s.figuresKey(made)
	if err != nil {
		return nil, err
	}
	return measured, s.work.PutJSON(measuredPrefix+s.o.Recipes[i].Name, key, measured)
}

// figures returns the figures of the file of recipe i that an earlier job measured in the same way;
// nil if there are none.
func (s *sweep) figures(i int, made *madeFile) (measured *measuredFile, err error) {
	key, err := s.figuresKey(made)
	if err != nil {
		return nil, err
	}
	if !s.work.GetJSON(measuredPrefix+s.o.Recipes[i].Name, key, &measured) || measured == nil || measured.Report == nil {
		return nil, nil
	}
	return measured, nil
}

// figuresKey hashes everything that the figures of a file depend on.
func (s *sweep) figuresKey(made *madeFile) (string, error) {
	m := &s.o.Measure
	parts := []any{"figures", accuracy.ReportSchema, made.SHA256, m.MinTokens, m.MaxQuestions, m.Activations, m.ActivationShare}
	for _, t := range s.job.Texts {
		parts = append(parts, t.Name, sha256.Sum256(t.Data), t.Tokens, t.Options)
	}
	for _, c := range s.job.Choices {
		parts = append(parts, c.Name, sha256.Sum256(c.Data))
	}
	parts = append(parts, m.Gate)
	if s.job.Gate != nil {
		raw, err := files.Read(m.Gate, files.MaxYAML)
		if err != nil {
			return "", err
		}
		parts = append(parts, sha256.Sum256(raw))
	}
	return workdir.Key(parts...)
}
