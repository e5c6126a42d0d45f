package generate

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/lm/arch"
	"github.com/lowbit-go/gq/internal/test/testmodels"
	"github.com/lowbit-go/gq/internal/test/testshared"
)

// TestEngineArchitectures serves a model of each architecture, and all models with states and with
// borrowed keys and values: answers are equal to the answers of Generator.Run, whatever else is
// served and whatever is known of the prompts. With -short, as under the race detector, one model
// of each kind is enough: goroutines share nothing that an architecture decides.
func TestEngineArchitectures(t *testing.T) {
	testshared.SlowEmulated(t, "TestBatch has the bits")
	tested, seen := map[arch.Kind]int{}, map[string]bool{}
	for _, v := range testmodels.Variants(t) {
		f := arch.FactsOf(v.Type())
		known, requests := 192, 3 // whole pages
		another := len(seen) == 0
		if f.Has(arch.PerLayerGate) {
			known = 199
		}
		for _, kind := range []arch.Kind{arch.PerLayerGate, arch.ConvIn, arch.DeltaDecay, arch.MambaIn} {
			if f.Has(kind) {
				another = another || tested[kind] == 0
				tested[kind]++
				requests = 10
			}
		}
		if requests < 10 && seen[v.Type()] || testing.Short() && !another {
			continue
		}
		seen[v.Type()] = true
		t.Run(v.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), v.Name)
			v.Narrow().Write(t, dir)
			g := open(t, dir, 2)
			e := newEngine(t, g, EngineOptions{Parallel: 3, Queue: 40, Context: 400})
			prompt := make([]int32, 200)
			for i := range prompt {
				prompt[i] = int32(3 + i*37%500)
			}
			request := func(i int) Options {
				ids := slices.Clone(prompt[:60+i*41%140])
				if i%3 == 0 { // another end
					ids[len(ids)-1-i] = 5
				}
				o := Options{PromptIDs: ids, MaxTokens: 3 + i*7%16, Sampling: DefaultSampling}
				o.Sampling.Seed = uint64(i)
				return o
			}
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() {
					want, err := g.Run(t.Context(), request(i))
					if err != nil {
						t.Error(err)
						return
					}
					r, err := e.Run(t.Context(), request(i))
					if err != nil || r.Text != want.Text || !slices.Equal(r.IDs, want.IDs) {
						t.Errorf("request %d: %+v, %v, want %q", i, r, err, want.Text)
					}
				})
			}
			wg.Wait()
			// The answers of a prompt share the pages before its state.
			o := Options{PromptIDs: prompt, MaxTokens: 2}
			for _, cached := range []int{-1, known} {
				r, err := e.Run(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				if requests == 10 && cached >= 0 && r.CachedTokens != cached {
					t.Errorf("%d tokens were there, want %d", r.CachedTokens, cached)
				}
			}
		})
	}
	if !testing.Short() {
		testmodels.All(t, seen)
	}
	if len(tested) != 4 {
		t.Errorf("models by kind: %v, want short convolutions, delta nets, Mamba-2, and layers with inputs of their own", tested)
	}
}
