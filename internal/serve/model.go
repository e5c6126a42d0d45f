package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lowbit-go/gq/internal/lm/chat"
	"github.com/lowbit-go/gq/model/generate"
)

// Model is a model that is served.
type Model struct {
	// ID is the model's name for clients.
	ID string
	// Fingerprint identifies the program's version and the model's weights.
	Fingerprint string
	Created     int64 // the time of its file, in seconds since 1970
	Generator   *generate.Generator
	Engine      *generate.Engine
	Template    *chat.Template
	Info        ModelInfo

	gate    *gate
	metrics *modelMetrics
	failed  atomic.Bool // the last answer
}

// failing reports whether the model can compute nothing: its last answer has failed, maybe by the
// client's fault, and a single token fails, too.
func (m *Model) failing(ctx context.Context) bool {
	if m.failed.Load() {
		_, err := m.Engine.Run(ctx, generate.Options{PromptIDs: []int32{0}, MaxTokens: 1})
		m.failed.Store(err != nil)
	}
	return m.failed.Load()
}

// ModelInfo describes a model to clients, as the extension "gq" of /v1/models.
type ModelInfo struct {
	Architecture string  `json:"architecture"`
	Scheme       string  `json:"scheme"` // "4 bits, group 32", or an unquantized checkpoint's dtype
	Bits         float64 `json:"bits_per_weight"`
	Parameters   int64   `json:"parameters"`
	Bytes        int64   `json:"bytes"`       // of the file, or of all files of a checkpoint
	Activations  string  `json:"activations"` // "int8", "float32" or "int8 in 42 of 43 matrices"
	Context      int     `json:"context"`     // tokens of a sequence, prompt included
	Warning      string  `json:"warning,omitempty"`
	Parallel     int     `json:"parallel"`     // sequences at a time
	Queue        int     `json:"queue"`        // sequences that wait
	Memory       int64   `json:"memory_bytes"` // keys, values and buffers when all sequences are full
	Template     string  `json:"template"`     // file of the chat template; "plain": none
}

// model finds a model by its name. With a single model the name may be empty.
func (s *Server) model(id string) (*Model, error) {
	if id == "" && len(s.models) == 1 {
		return s.models[0], nil
	}
	for _, m := range s.models {
		if m.ID == id {
			return m, nil
		}
	}
	var ids []string
	for _, m := range s.models {
		ids = append(ids, m.ID)
	}
	if id == "" {
		return nil, invalid("model", "model is missing: this server has %s", strings.Join(ids, ", "))
	}
	return nil, &apiError{status: http.StatusNotFound, param: "model", code: codeModel, message: fmt.Sprintf("there is no model %s: this server has %s", clip(id), strings.Join(ids, ", "))}
}

// modelEntry is an element of /v1/models.
type modelEntry struct {
	ID      string    `json:"id"`
	Object  string    `json:"object"`
	Created int64     `json:"created"`
	OwnedBy string    `json:"owned_by"`
	GQ      ModelInfo `json:"gq"`
}

func (m *Model) entry() modelEntry {
	return modelEntry{ID: m.ID, Object: "model", Created: m.Created, OwnedBy: "gq", GQ: m.Info}
}

func (s *Server) listModels(x *exchange, _ *http.Request) error {
	type extension struct {
		Version      string  `json:"version"`
		PricePerHour float64 `json:"price_per_hour"` // 0: not known
	}
	list := struct {
		Object string       `json:"object"`
		Data   []modelEntry `json:"data"`
		GQ     extension    `json:"gq"`
	}{Object: "list", GQ: extension{s.version, s.pricePerHour}}
	for _, m := range s.models {
		list.Data = append(list.Data, m.entry())
	}
	writeJSON(x, http.StatusOK, list)
	return nil
}

func (s *Server) showModel(x *exchange, r *http.Request) error {
	m, err := s.model(strings.TrimPrefix(r.URL.Path, modelPath))
	if err != nil {
		return err
	}
	writeJSON(x, http.StatusOK, m.entry())
	return nil
}

// checkModels checks that the models can be told apart.
func checkModels(models []*Model) error {
	if len(models) == 0 {
		return fmt.Errorf("there is no model to serve")
	}
	var ids []string
	for _, m := range models {
		if slices.Contains(ids, m.ID) {
			return fmt.Errorf("two models are called %s", m.ID)
		}
		ids = append(ids, m.ID)
	}
	return nil
}
