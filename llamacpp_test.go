package gq_test

import (
	"bufio"
	"encoding/json"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/lowbit-go/gq/internal/detmath"
	"github.com/lowbit-go/gq/internal/lm/forward"
)

// nodeProcess is a node process that answers requests, line by line.
type nodeProcess struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// llamaCpp is llama.cpp in a node process.
type llamaCpp struct{ *nodeProcess }

// llamaRequest and llamaAnswer are described in testdata/llamacpp.mjs.
type llamaRequest struct {
	Model     string    `json:"model"`
	Texts     []string  `json:"texts,omitempty"`
	Sequences [][]int32 `json:"sequences,omitempty"`
	Greedy    []int32   `json:"greedy,omitempty"`
	Count     int       `json:"count,omitempty"`
}

type llamaAnswer struct {
	Error         string
	Tokens        [][]int32
	BOS           bool
	Probabilities [][][]float64
	Greedy        []int32
}

func startLlamaCpp(t *testing.T) *llamaCpp {
	t.Helper()
	return &llamaCpp{startNode(t, "llamacpp.mjs", "GQ_LLAMACPP", "node-llama-cpp")}
}

// startNode starts a program of testdata. The variable names the folder in which npm has installed
// the package, GQ_NODE the node program. Without the folder the test is skipped, or fails if CI is
// set.
func startNode(t *testing.T, program, variable, pkg string) *nodeProcess {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not set, and CI is set: this test must not be skipped", variable)
		}
		t.Skipf("needs %s in the directory %s (.ci/run installs it)", pkg, variable)
	}
	node := os.Getenv("GQ_NODE")
	if node == "" {
		node = "node"
	}
	cmd := exec.Command(node, filepath.Join("testdata", program), dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v", err)
		}
	})
	return &nodeProcess{in: in, out: bufio.NewReader(out)}
}

func (l *llamaCpp) ask(t *testing.T, r llamaRequest) (a llamaAnswer) {
	t.Helper()
	l.nodeProcess.ask(t, r, &a)
	if a.Error != "" {
		t.Fatalf("llama.cpp: %s", a.Error)
	}
	return a
}

// ask sends a request and reads the answer.
func (l *nodeProcess) ask(t *testing.T, request, answer any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	line, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if line, err = l.out.ReadBytes('\n'); err != nil {
		t.Fatalf("node ended: %v", err)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		t.Fatalf("%v: %.200s", err, line)
	}
}

// ourProbabilities runs a model on a sequence.
func ourProbabilities(t *testing.T, m *forward.Model, ids []int32) [][]float64 {
	t.Helper()
	logits := make([]float32, len(ids)*m.VocabSize())
	if err := m.NewSession(len(ids)).Forward(ids, logits, true); err != nil {
		t.Fatal(err)
	}
	all := make([][]float64, len(ids))
	for i := range all {
		all[i] = softmax(logits[i*m.VocabSize():][:m.VocabSize()])
	}
	return all
}

func softmax(logits []float32) []float64 {
	top, sum := math.Inf(-1), 0.0
	for _, l := range logits {
		top = max(top, float64(l))
	}
	p := make([]float64, len(logits))
	for i, l := range logits {
		p[i] = math.Exp(float64(l) - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// worstProbability returns the largest difference between two lists of predictions.
func worstProbability(t *testing.T, got, want [][]float64) (worst float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d predictions, want %d", len(got), len(want))
	}
	for i := range want {
		if len(got[i]) != len(want[i]) {
			t.Fatalf("%d probabilities, want %d", len(got[i]), len(want[i]))
		}
		for j := range want[i] {
			worst = max(worst, math.Abs(got[i][j]-want[i][j])) // NaN stays
		}
	}
	return worst
}

// worstLogit returns the largest difference of two predictions' logits, as a part of the largest
// logit, where probabilities tell: they have logits but for a number, and none below 1e-6 counts.
func worstLogit(got, want [][]float64) float64 {
	worst, largest := 0.0, 0.0
	for i := range want {
		mean, n := 0.0, 0.0
		for j, p := range want[i] {
			if p > 1e-6 {
				mean, n = mean+math.Log(p), n+1
				worst = max(worst, math.Abs(math.Log(got[i][j])-math.Log(p)))
			}
		}
		for _, p := range want[i] {
			if p > 1e-6 {
				largest = max(largest, math.Abs(math.Log(p)-mean/n))
			}
		}
	}
	return worst / largest
}

func randomTokens(seed uint64, n, vocab int) []int32 {
	r := detmath.Source(seed)
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.Next() % uint64(vocab))
	}
	return ids
}
