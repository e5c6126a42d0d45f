package testremote

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Server is a running server with its content network. Add everything before the first request,
// but the functions that begin with Set may be called at any time.
type Server struct {
	URL string // of the hub, for HF_ENDPOINT; the plain web server is at URL + "/plain/"
	CDN string // of the content network

	// Token is the token that private and gated repositories want. Default (""): every token will do.
	Token string

	repos map[string]*Repo
	plain map[string]*File // by path
	blobs map[string]*File // by SHA-256

	mu        sync.Mutex
	faults    map[int]Fault
	hook      func(n int, r Request)
	log       []Request
	rate      int64
	free      time.Time // when the line is free again
	signature int       // number of the last signature
	uses      map[int]int
	maxUses   int
}

// A Repo is a repository with a single commit.
type Repo struct {
	Name    string // "org/model"
	Commit  string // 40 hexadecimal digits
	Refs    map[string]string
	Files   map[string]*File
	Private bool // wants the token, and is not there for others
	Gated   bool // wants the token of somebody who accepted the licence
}

// A File is a file of a repository.
type File struct {
	Data io.ReaderAt
	Size int64
	// LFS says that the file is in Git LFS, on the content network.
	LFS bool
	// SHA256 is the hash in hex, for LFS files. The hash is also the blob's name, so any name will do
	// for contents that are too large to hash.
	SHA256 string
	// OID is the hash of Git's blob in hex, or of the pointer for an LFS file.
	OID string
}

// Start starts a server for the duration of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{repos: map[string]*Repo{}, plain: map[string]*File{}, blobs: map[string]*File{}, uses: map[int]int{}}
	hub := httptest.NewServer(s.handler("hub", s.serveHub))
	cdn := httptest.NewServer(s.handler("cdn", s.serveCDN))
	t.Cleanup(hub.Close)
	t.Cleanup(cdn.Close)
	// Bodies that a fault holds up end with the connection.
	t.Cleanup(hub.CloseClientConnections)
	t.Cleanup(cdn.CloseClientConnections)
	s.URL, s.CDN = hub.URL, cdn.URL
	return s
}

// AddRepo adds a repository with the files of a directory, at a commit that follows from its name.
// Files of weights and of more than 1 MB are in LFS.
func (s *Server) AddRepo(t testing.TB, name, dir string) *Repo {
	t.Helper()
	r := &Repo{Name: name, Files: map[string]*File{}, Refs: map[string]string{}}
	sum := sha1.Sum([]byte(name))
	r.Commit = hex.EncodeToString(sum[:])
	r.Refs["main"] = r.Commit
	for path, data := range readDir(t, dir) {
		r.Add(path, data, len(data) > 1e6 || strings.HasSuffix(path, ".safetensors") || strings.HasSuffix(path, ".gguf") || strings.HasSuffix(path, ".gqf"))
	}
	s.AddRepository(r)
	return r
}

// AddRepository adds a repository that the caller has made.
func (s *Server) AddRepository(r *Repo) {
	s.repos[r.Name] = r
	for _, f := range r.Files {
		if f.LFS {
			s.blobs[f.SHA256] = f
		}
	}
}

// Add adds a file, before AddRepository.
func (r *Repo) Add(name string, data []byte, lfs bool) {
	f := &File{Data: strings.NewReader(string(data)), Size: int64(len(data)), LFS: lfs, OID: gitHash(data)}
	if lfs {
		sum := sha256.Sum256(data)
		f.SHA256 = hex.EncodeToString(sum[:])
		f.OID = gitHash(fmt.Appendf(nil, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", f.SHA256, f.Size))
	}
	r.Files[name] = f
}

func gitHash(data []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}

// AddPlain serves the files of a directory as a plain web server, and returns the URL of the
// directory.
func (s *Server) AddPlain(t testing.TB, name, dir string) string {
	t.Helper()
	for path, data := range readDir(t, dir) {
		s.plain[name+"/"+path] = &File{Data: strings.NewReader(string(data)), Size: int64(len(data)), OID: gitHash(data)}
	}
	return s.URL + "/plain/" + name
}

func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	list := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		list[filepath.ToSlash(name)], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A Request is a request that was received.
type Request struct {
	Server string // "hub" or "cdn"
	Path   string // with the query
	Header http.Header
}

// SetFaults sets what goes wrong: the n-th request from now on, from 1, gets fault faults[n].
func (s *Server) SetFaults(faults map[int]Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.log = faults, nil
}

// SetHook sets a function that is called at each request, with its number, before the answer.
func (s *Server) SetHook(hook func(n int, r Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// SetRate limits all bodies together to so many bytes a second; 0: no limit.
func (s *Server) SetRate(bytesPerSecond int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate, s.free = bytesPerSecond, time.Now()
}

// SetSignatureUses lets a signed address of the content network expire after so many requests; 0:
// never.
func (s *Server) SetSignatureUses(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxUses = n
}

// Requests returns the requests since the last SetFaults.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.log...)
}

// handler counts requests and applies faults.
func (s *Server) handler(server string, serve func(w *writer, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := Request{server, r.URL.RequestURI(), r.Header.Clone()}
		s.mu.Lock()
		s.log = append(s.log, q)
		n, hook := len(s.log), s.hook
		fault := s.faults[n]
		s.mu.Unlock()
		if hook != nil {
			hook(n, q)
		}
		out := &writer{ResponseWriter: w, s: s, fault: fault, left: -1}
		if out.refuse(server) {
			return
		}
		serve(out, r)
	})
}
