package alloc

import (
	"flag"
	"testing"

	"github.com/lowbit-go/gq/internal/testplan"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/model"
	"github.com/lowbit-go/gq/model/eval"
	"github.com/lowbit-go/gq/model/text"
)

var probeModel = flag.String("probe-model", "", "the checkpoint of BenchmarkProbe; default: a small one")

// BenchmarkProbe predicts the divergences of a model's tensors from 512 tokens, in one thread. The
// weights stay in the mapped checkpoint, as they do in large models. For the time of a layer, compare
// models of two layers and of one:
//
//	go test ./quantizer/alloc -run - -bench Probe -benchtime 1x -timeout 1h -probe-model DIR
func BenchmarkProbe(b *testing.B) {
	dir := bundled
	if *probeModel != "" {
		dir = *probeModel
	}
	var models [2]*model.Model
	for i := range models {
		m, err := model.OpenCheckpoint(dir, model.Options{Threads: 1, Log: func(kernels.Choice) {}})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close()
		models[i] = m
	}
	ck, config := testplan.Open(b, dir)
	j := Job{Checkpoint: ck, Config: config, Model: models[1]}
	j.Options.Threads = 1
	sequences := testplan.Text(models[0].VocabSize(), 256, 256).Sequences
	for b.Loop() {
		var err error
		if j.Reference, err = eval.NewReference(b.Context(), models[0], text.WindowsOf(sequences)); err != nil {
			b.Fatal(err)
		}
		probe(b, j)
	}
}
