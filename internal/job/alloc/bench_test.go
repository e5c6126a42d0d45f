package alloc

import (
	"flag"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/eval"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/lm/text"
	"github.com/lowbit-go/gq/internal/test/testplan"
	"github.com/lowbit-go/gq/kernels"
)

var probeModel = flag.String("probe-model", "", "the checkpoint of BenchmarkProbe; default: a small one")

// BenchmarkProbe predicts the divergences of a model's tensors from 512 tokens, in one thread. The
// weights stay in the mapped checkpoint, as they do in large models. For the time of a layer,
// compare models of two layers and of one:
//
//	go test ./internal/job/alloc -run - -bench Probe -benchtime 1x -timeout 1h -probe-model DIR
func BenchmarkProbe(b *testing.B) {
	dir := bundled
	if *probeModel != "" {
		dir = *probeModel
	}
	var models [2]*forward.Model
	for i := range models {
		m, err := forward.OpenCheckpoint(dir, forward.Options{Threads: 1, Log: func(kernels.Choice) {}})
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
