// Command simulate estimates how long a job by gptq-ft would take if several workers shared each layer.
// gq has no such mode: docs/CLUSTER.md says why. It prints the table there:
//
//	go run ./docs/cluster/simulate
package main

import (
	"fmt"
	"slices"
)

// The assumptions.
const (
	tokens = 8192
	// shards of the sequences: as many for any number of workers, and added in a fixed tree, so that sums
	// have the same bits. A worker adds the shards of a subtree by itself.
	shards = 16
	// cores of a worker, and their speed-up over one core: docs/QUALITY.md.
	cores, speedup = 16, 13.0
	network        = 1e9 // bytes a second of the shared file system, for all workers together
	barrier        = 0.2 // seconds until all workers see a lock file or an entry
	layerSeconds   = 75  // CPU seconds of a layer of Llama-3.2-1B: docs/QUALITY.md
)

// linear is a linear layer of n outputs.
type linear struct{ n float64 }

// group is linear layers that share inputs, and so a Hessian of k x k.
type group struct {
	k, tokens float64
	linears   []linear
}

// stage is groups that do not depend on each other.
type stage []group

type model struct {
	name   string
	layers int
	layer  []stage
}

func dense(name string, layers int, hidden, kv, intermediate float64) model {
	return model{name, layers, []stage{
		{{hidden, tokens, []linear{{hidden}, {kv}, {kv}}}},
		{{hidden, tokens, []linear{{hidden}}}},
		{{hidden, tokens, []linear{{intermediate}, {intermediate}}}},
		{{intermediate, tokens, []linear{{hidden}}}},
	}}
}

// moe is a mixture of experts. Each token passes through active experts; all experts get as many tokens.
func moe(name string, layers int, hidden, q, kv, intermediate float64, experts, active int) model {
	own := float64(tokens * active / experts)
	var up, down stage
	for range experts {
		up = append(up, group{hidden, own, []linear{{intermediate}, {intermediate}}})
		down = append(down, group{intermediate, own, []linear{{hidden}}})
	}
	return model{name, layers, []stage{
		{{hidden, tokens, []linear{{q}, {kv}, {kv}}}},
		{{q, tokens, []linear{{hidden}}}},
		up, down,
	}}
}

func (g group) outputs() (n float64) {
	for _, l := range g.linears {
		n += l.n
	}
	return n
}

// collect is the multiply-adds for the Hessian and what belongs to it, with the forward passes
// (quantizer/calib/doc.go). All of it is a sum over tokens.
func (g group) collect() float64 {
	n := g.outputs()
	shift := min(2*g.tokens*n*g.k, g.tokens*g.k*g.k+n*g.k*g.k)
	return 2*g.tokens*n*g.k + g.tokens*g.k*g.k/2 + shift
}

// sums is the bytes of one worker's sums: half a symmetric matrix, and the shift of the targets.
func (g group) sums() float64 { return 4 * (g.k*g.k/2 + g.k*min(g.outputs(), g.k)) }

// factor is the multiply-adds for the factor of the Hessian, which all matrices of the group need.
func (g group) factor() float64 { return g.k * g.k * g.k / 6 }

// solve is the multiply-adds for the codes of one matrix.
func (g group) solve(l linear) float64 { return min(l.n*g.k*g.k, g.k*g.k*g.k) + 2.5*l.n*g.k*g.k }

func (m model) work() (collect, solve float64) {
	for _, s := range m.layer {
		for _, g := range s {
			collect += g.collect()
			solve += g.factor()
			for _, l := range g.linears {
				solve += g.solve(l)
			}
		}
	}
	return collect, solve
}

func (m model) weights() (n float64) {
	for _, s := range m.layer {
		for _, g := range s {
			n += g.k * g.outputs()
		}
	}
	return n
}

// makespan is the time until workers have done units, the longest first.
func makespan(units []float64, workers int) float64 {
	slices.SortFunc(units, func(a, b float64) int { return int(min(1, max(-1, b-a))) })
	load := make([]float64, workers)
	for _, u := range units {
		i := 0
		for k := range load {
			if load[k] < load[i] {
				i = k
			}
		}
		load[i] += u
	}
	return slices.Max(load)
}

// way is how workers share a stage.
type way string

const (
	alone    way = "alone"
	hessians way = "Hessians" // each worker makes the sums of its sequences, which are then added
	inputs   way = "inputs"   // each worker computes its sequences, and one worker for each group has all else to do
)

// seconds is the compute and the transfer time of a stage with workers of rate multiply-adds a second.
func (s stage) seconds(w way, workers int, rate float64) (compute, transfer float64) {
	n := float64(workers)
	var shared float64  // work that all workers divide
	var units []float64 // work of one worker each
	unique := map[float64]float64{}
	for _, g := range s {
		rest := g.factor()
		for _, l := range g.linears {
			rest += g.solve(l)
		}
		forward := 2 * g.tokens * g.outputs() * g.k
		switch w {
		case alone:
			compute += (g.collect() + rest) / rate
			continue
		case hessians:
			shared += g.collect()
			units = append(units, rest/rate)
			transfer += 2 * n * g.sums() / network // written and read
		case inputs:
			shared += forward
			units = append(units, (g.collect()-forward+rest)/rate)
			both := 2 * 4 * g.tokens * g.k // of the float and of the quantized model
			unique[g.k] = max(unique[g.k], min(2*4*tokens*g.k, both*float64(len(s))))
			transfer += both / network
		}
		transfer += (n - 1) * g.k * g.outputs() * 4.5 / 8 / network // codes of 4 bits, for the other workers
	}
	for _, bytes := range unique {
		transfer += bytes / network
	}
	if w != alone {
		parts := make([]float64, shards)
		for i := range parts {
			parts[i] = shared / shards / rate
		}
		compute = makespan(parts, workers) + makespan(units, workers) + 2*barrier
	}
	return compute, transfer
}

// seconds is the time of a layer. local tells that each worker has the checkpoint on a disk of its own;
// else each reads all of the layer from the shared file system.
func (m model) seconds(w way, workers int, rate float64, local bool) (total, transfer float64) {
	for _, s := range m.layer {
		compute, t := s.seconds(w, workers, rate)
		total, transfer = total+compute+t, transfer+t
	}
	if !local {
		t := 2 * m.weights() * float64(workers) / network
		total, transfer = total+t, transfer+t
	}
	return total, transfer
}

func main() {
	one := dense("Llama-3.2-1B", 16, 2048, 512, 8192)
	collect, solve := one.work()
	rate := (collect + solve) / layerSeconds * speedup
	fmt.Printf("%.1f G multiply-adds a second and core, from %d CPU s a layer of %s\n\n", (collect+solve)/layerSeconds/1e9, layerSeconds, one.name)
	fmt.Println("| model | workers | exchanged | weights | s a layer | of it transfer | whole job | speed-up |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, m := range []model{dense("8B dense", 32, 4096, 1024, 14336), moe("235B MoE", 94, 4096, 8192, 512, 1536, 128, 8)} {
		base, _ := m.seconds(alone, 1, rate, true)
		fmt.Printf("| %s | 1 | | local | %.1f | 0 | %.2f h | 1 |\n", m.name, base, base*float64(m.layers)/3600)
		for _, w := range []way{hessians, inputs} {
			for _, local := range []bool{true, false} {
				for _, workers := range []int{2, 4, 8, 16} {
					total, transfer := m.seconds(w, workers, rate, local)
					where := map[bool]string{true: "local", false: "shared"}[local]
					fmt.Printf("| %s | %d | %s | %s | %.1f | %.1f | %.2f h | %.2f |\n", m.name, workers, w, where, total, transfer,
						total*float64(m.layers)/3600, base/total)
				}
			}
		}
	}
}
