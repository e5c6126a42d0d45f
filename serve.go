package gq

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/lowbit-go/gq/internal/job/location"
	"github.com/lowbit-go/gq/internal/job/provenance"
	"github.com/lowbit-go/gq/internal/lm/forward"
	"github.com/lowbit-go/gq/internal/memlimit"
	"github.com/lowbit-go/gq/internal/serve"
)

// ServeOptions are the options of Serve.
type ServeOptions struct {
	// Models are the models to serve, at least one.
	Models []ServeModel
	// Lora names adapters to merge into the checkpoint among Models, as in quantizer.Recipe. Exactly
	// one model has to be an unquantized checkpoint. The merged checkpoint is a temporary copy.
	// Default: none.
	Lora []string
	// Host is the IP address to listen on, or "localhost". Default: 127.0.0.1. Any address that is
	// not of the loopback interface needs APIKey.
	Host string
	// Port is the port to listen on. Default (0): a free port.
	Port int
	// APIKey is what clients must send. Default (nil): none, and only requests to a name of the
	// loopback interface are answered.
	APIKey []byte
	// Context is the maximum number of tokens of a sequence, including the prompt. Default (0):
	// max_position_embeddings of config.json, at most 8192.
	Context int
	// Parallel is the number of sequences of a model that are computed together. Default (0): 4.
	Parallel int
	// Queue is the number of sequences of a model that wait. Default (0): 4 times Parallel; below 0:
	// none.
	Queue int
	// Activations is the type of the inputs of quantized layers. Default (forward.Int8): as on the
	// device. A checkpoint runs in float32.
	Activations forward.Activations
	// Threads is how many workers a model has. Default (0): GOMAXPROCS. Answers do not depend on
	// it.
	Threads int
	// Verify checks the checksums of all weights of .gqf files first. Default: no weight is read in
	// advance.
	Verify bool
	// PricePerHour of the machine is shown on the page. Default (0): not known.
	PricePerHour float64
	// Limits bound what clients may take.
	Limits serve.Limits
	// Log gets a record of each request. Default (nil): none.
	Log *slog.Logger
	// LogPrompts adds prompts and answers to the log.
	LogPrompts bool
	// Progress is told how far the downloads of remote models are. Default (nil): none.
	Progress Progress
	// Ready is called when the server listens. An error ends it. Default (nil): nothing is called.
	Ready func(ServeReport) error
}

// ServeModel names a model to serve.
type ServeModel struct {
	// Path is a .gqf file, a .gguf file, a checkpoint directory, or a remote name (see [Pull]).
	Path string
	from *location.Source // nil: not resolved yet
	lora []string         // adapters to merge
	// ID is the model's name for clients. Default (""): the name of the file or directory, without
	// its ending.
	ID string
}

// ServeReport lists the models that are served.
type ServeReport struct {
	URL    string        `json:"url"`
	Models []ServedModel `json:"models"`
}

// ServedModel describes a model that is served.
type ServedModel struct {
	ID string `json:"id"`
	serve.ModelInfo
}

// Serve answers HTTP requests in OpenAI's way with models, until ctx is cancelled. Then it refuses
// new requests, finishes running answers for at most Limits.Drain, and returns nil. As in Run,
// quantized checkpoints take temporary .gqf files, removed at the end.
func Serve(ctx context.Context, o ServeOptions) error {
	o.Models = slices.Clone(o.Models) // check names them
	defer func() {
		for _, m := range o.Models {
			m.from.Release()
		}
	}()
	if err := o.check(ctx); err != nil {
		return err
	}
	network := "tcp"
	if a, err := netip.ParseAddr(o.host()); err == nil && a.Is4() {
		network = "tcp4" // "tcp" takes 0.0.0.0 for all addresses of IPv6, too
	}
	l, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(o.host(), strconv.Itoa(o.Port)))
	if err != nil {
		return err
	}
	defer l.Close()
	defer memlimit.Lift()()
	return o.open(ctx, o.Models, nil, func(models []*serve.Model) error {
		r, need := ServeReport{URL: "http://" + l.Addr().String()}, int64(0)
		for _, m := range models {
			r.Models = append(r.Models, ServedModel{m.ID, m.Info})
			need += m.Info.Memory
		}
		if have := memlimit.Available(); have > 0 && need > have {
			return optionf("context", "and --parallel make room for %.1f GB of keys and values, and %.1f GB are there (GOMEMLIMIT, or the machine's memory): lower one of them", float64(need)/1e9, float64(have)/1e9)
		}
		debug.FreeOSMemory() // memory that reading the tokenizers took
		s, err := serve.New(serve.Options{
			Models: models, APIKey: o.APIKey, Limits: o.Limits, PricePerHour: o.PricePerHour, Version: Version().Version,
			Log: o.Log, LogPrompts: o.LogPrompts,
		})
		if err != nil {
			return err
		}
		if o.Ready != nil {
			if err := o.Ready(r); err != nil {
				return err
			}
		}
		return s.Serve(ctx, l)
	})
}

func (o *ServeOptions) host() string {
	switch o.Host {
	case "", "localhost":
		return "127.0.0.1"
	}
	return o.Host
}

// minKey is the length of the shortest API key in bytes.
const minKey = 16

func (o *ServeOptions) check(ctx context.Context) error {
	a, err := netip.ParseAddr(o.host())
	switch {
	case err != nil:
		return optionf("host", "%q is not an IP address", o.Host)
	case o.APIKey == nil && !a.IsLoopback():
		return optionf("host", "%s can be reached from other machines: give an API key too, with --api-key-file", o.Host)
	case o.APIKey != nil && len(o.APIKey) < minKey:
		return optionf("api-key-file", "holds a key of %d bytes: at least %d are needed", len(o.APIKey), minKey)
	case bytes.ContainsFunc(o.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		return optionf("api-key-file", "holds a key with characters other than visible ones of ASCII, which no HTTP header can have")
	case o.Port < 0 || o.Port > 65535:
		return optionf("port", "%d is not from 0 to 65535", o.Port)
	case len(o.Models) == 0:
		return optionf("", "there is no model to serve")
	}
	paths := map[string]string{}
	var checkpoints []int
	for i := range o.Models {
		m := &o.Models[i]
		if m.from, err = resolveSource(ctx, m.Path, true, stages{to: o.Progress}); err != nil {
			return err
		}
		m.Path = m.from.Path
		if m.ID == "" {
			m.ID = modelName(m.Path)
		}
		if other, ok := paths[m.ID]; ok {
			return optionf("alias", "is needed: %s and %s would both be called %q", other, m.from.Name, m.ID)
		}
		paths[m.ID] = m.from.Name
		directory := isDirectory(m.Path)
		if directory {
			checkpoints = append(checkpoints, i)
		}
		if o.Verify && (IsGGUF(m.Path) || directory) {
			return optionf("verify", "needs .gqf files: %s has no checksums", m.from.Name)
		}
	}
	switch n := len(checkpoints); {
	case len(o.Lora) == 0:
	case n == 1:
		o.Models[checkpoints[0]].lora = o.Lora
	case n == 0 && len(o.Models) == 1:
		return optionf("lora", loraSource, o.Models[0].from.Name)
	default:
		return optionf("lora", "merges into one checkpoint, and %d of the %d models are checkpoints: name one checkpoint", n, len(o.Models))
	}
	return nil
}

// open opens the models in turn and calls use with all of them.
func (o *ServeOptions) open(ctx context.Context, rest []ServeModel, models []*serve.Model, use func([]*serve.Model) error) error {
	if len(rest) == 0 {
		return use(models)
	}
	m := rest[0]
	return withAdapters(ctx, m.Path, m.lora, o.Threads, stages{to: o.Progress}, func(path string, _ *provenance.Provenance) error {
		m.Path = path
		return withModel(ctx, path, o.Threads, stages{}, func(file readable) (err error) {
			s, err := o.openModel(ctx, m, file)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.Engine.Close(), s.Generator.Close()) }()
			return o.open(ctx, rest[1:], append(models, s), use)
		})
	})
}
