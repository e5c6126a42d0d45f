package serve

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the options of New.
type Options struct {
	// Models are the models, at least 1. The caller closes their engines and generators after the
	// server has ended.
	Models []*Model
	// APIKey must be sent with every request but those for the page and for /health. Default (nil):
	// no key is needed, and only requests to a host name of the loopback interface are answered.
	APIKey []byte
	// Limits bound what clients may take.
	Limits Limits
	// PricePerHour of the machine is shown on the page. Default (0): not known.
	PricePerHour float64
	// Version is the program's version. Default "devel".
	Version string
	// Log gets a record of each request. Default (nil): none.
	Log *slog.Logger
	// LogPrompts adds prompts and answers to the log.
	LogPrompts bool
}

// Server is an http.Handler that answers requests.
type Server struct {
	models       []*Model
	limits       Limits
	guard        *guard
	routes       map[string]http.Handler // by path
	other        http.Handler            // of all other paths
	paths        []string
	metrics      *metricsSet
	pricePerHour float64
	version      string
	logger       *slog.Logger
	logPrompts   bool

	work        drain        // the answers that are computed
	bodies      atomic.Int64 // bytes of the bodies of all requests
	connections connections
}

func New(o Options) (*Server, error) {
	if err := checkModels(o.Models); err != nil {
		return nil, err
	}
	if o.APIKey != nil && len(o.APIKey) == 0 {
		return nil, errors.New("the API key is empty")
	}
	s := &Server{
		models: o.Models, limits: o.Limits.WithDefaults(), guard: &guard{origin: http.NewCrossOriginProtection()}, routes: map[string]http.Handler{},
		pricePerHour: o.PricePerHour, version: cmp.Or(o.Version, "devel"), logger: o.Log, logPrompts: o.LogPrompts,
	}
	if o.APIKey != nil {
		sum := sha256.Sum256(o.APIKey)
		s.guard.key = &sum
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.connections = connections{most: s.limits.Connections, since: map[net.Conn]int{}}
	s.metrics = newMetrics(s)
	for _, m := range s.models {
		m.gate = &gate{parallel: m.Info.Parallel, queue: m.Info.Queue}
		m.metrics = s.metrics.model(m)
		if m.Info.Warning != "" {
			s.logger.Warn(m.Info.Warning, "model", m.ID)
		}
	}
	s.route("/", true, s.page, http.MethodGet, http.MethodHead)
	s.route("/health", true, s.health, http.MethodGet, http.MethodHead)
	s.route("/metrics", false, s.writeMetrics, http.MethodGet, http.MethodHead)
	s.route("/v1/models", false, s.listModels, http.MethodGet, http.MethodHead)
	s.route(modelPath+"ID", false, s.showModel, http.MethodGet, http.MethodHead)
	s.route("/v1/chat/completions", false, s.counted(s.chatCompletions), http.MethodPost)
	s.route("/v1/completions", false, s.counted(s.completions), http.MethodPost)
	s.other = s.handler("other", true, func(_ *exchange, r *http.Request) error {
		return &apiError{status: http.StatusNotFound, code: codeURL, message: fmt.Sprintf("there is nothing at %s: this server has %s", clip(r.URL.Path), strings.Join(s.paths, ", "))}
	})
	return s, nil
}

// A handle answers a request, or returns an error to answer with.
type handle func(x *exchange, r *http.Request) error

// route adds a path. open says that no key is needed.
func (s *Server) route(path string, open bool, h handle, methods ...string) {
	s.paths = append(s.paths, path)
	s.routes[path] = s.handler(path, open, func(x *exchange, r *http.Request) error {
		if !slices.Contains(methods, r.Method) {
			x.Header().Set("Allow", strings.Join(methods, ", "))
			return &apiError{status: http.StatusMethodNotAllowed, code: codeMethod, message: fmt.Sprintf("%s does not take %s: use %s", path, clip(r.Method), methods[0])}
		}
		return h(x, r)
	})
}

// modelPath precedes the ID of a model in a path.
const modelPath = "/v1/models/"

// ServeHTTP answers a request. http.ServeMux would redirect paths such as /v1/models/.. by itself,
// without the key, the log and the shape of errors.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if len(path) > len(modelPath) && strings.HasPrefix(path, modelPath) {
		path = modelPath + "ID"
	}
	h, ok := s.routes[path]
	if !ok {
		h = s.other
	}
	h.ServeHTTP(w, r)
}

// handler does for h what all requests need: headers, the guard, errors, panics, the log, counts.
func (s *Server) handler(name string, open bool, h handle) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		x := &exchange{ResponseWriter: w, send: s.limits.Send, logPrompts: s.logPrompts}
		if r.ContentLength != 0 { // net/http reads the rest of a body before it sends the answer
			_ = x.receive(s.limits.Receive) // fails on a closed connection
		}
		id := randomID()
		x.log("request", id)
		for key, value := range map[string]string{
			"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": "no-referrer",
			"X-Content-Type-Options": "nosniff", "X-Request-Id": id,
		} {
			x.Header().Set(key, value)
		}
		defer func() {
			s.bodies.Add(-x.body)
			if p := recover(); p != nil {
				s.logger.Error("panic", "request", id, "value", p, "stack", string(debug.Stack()))
				x.fail(errInternal)
			}
			took := time.Since(start)
			// By the route: a path of a client would be a label of its own for each misspelling.
			s.metrics.set.GetOrCreateCounter(labelled("gq_http_requests_total", "path", name, "status", fmt.Sprint(x.status))).Inc()
			s.metrics.set.GetOrCreateSummaryExt(labelled("gq_http_request_seconds", "path", name), window, quantiles).Update(took.Seconds())
			x.slog(s.logger, r, took)
		}()
		err := s.guard.check(r, open)
		if err == nil {
			if !open && s.guard.key != nil {
				s.connections.keep(r)
			}
			err = h(x, r)
		}
		if err == nil {
			return
		}
		e, ok := errors.AsType[*apiError](err)
		if !ok {
			e = errInternal
			s.logger.Error("failure", "request", id, "error", err)
		}
		x.fail(e)
	})
}

//go:embed page/index.html
var pageHTML []byte

// pagePolicy lets the page run its own script and style, by their hashes, and talk to this server:
// nothing else, even if an answer of a model should get into the page as HTML. The hashes are
// computed at the first request, not at every start of the program.
var pagePolicy = sync.OnceValue(func() string { return policy(pageHTML) })

// pageTag changes with the page.
var pageTag = sync.OnceValue(func() string {
	sum := sha256.Sum256(pageHTML)
	return `"` + hex.EncodeToString(sum[:8]) + `"`
})

var inline = regexp.MustCompile(`(?s)<(script|style)\b[^>]*>(.*?)</(?:script|style)>`)

func policy(html []byte) string {
	hashes := map[string][]string{}
	for _, m := range inline.FindAllSubmatch(html, -1) {
		sum := sha256.Sum256(m[2])
		hashes[string(m[1])] = append(hashes[string(m[1])], "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	sources := func(kind string) string {
		if len(hashes[kind]) == 0 {
			return "'none'"
		}
		return strings.Join(hashes[kind], " ")
	}
	return "default-src 'none'; script-src " + sources("script") + "; style-src " + sources("style") +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

func (s *Server) page(x *exchange, r *http.Request) error {
	h := x.Header()
	h.Set("Content-Security-Policy", pagePolicy())
	h.Set("Cache-Control", "no-cache") // browsers ask for changes
	h.Set("ETag", pageTag())
	if r.Header.Get("If-None-Match") == pageTag() {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = x.Write(pageHTML)
	return nil
}
