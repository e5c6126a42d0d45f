package testremote

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pageSize is the number of entries of a page of the tree.
const pageSize = 3

// serveHub answers requests to the API and for files.
func (s *Server) serveHub(w *writer, r *http.Request) {
	path := r.URL.Path
	if name, ok := strings.CutPrefix(path, "/plain/"); ok {
		s.servePlain(w, r, name)
		return
	}
	repo, rest := s.find(strings.TrimPrefix(strings.TrimPrefix(path, "/"), "api/models/"))
	api := strings.HasPrefix(path, "/api/models/")
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	granted := token != "" && (s.Token == "" || token == s.Token)
	switch {
	case token != "" && s.Token != "" && token != s.Token:
		refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header: "+token)
		return
	case repo == nil || repo.Private && !granted:
		refuse(w, http.StatusUnauthorized, "", "Invalid username or password.")
		return
	}
	verb, rest, _ := strings.Cut(rest, "/")
	escaped := r.URL.EscapedPath()
	revision, file, _ := strings.Cut(escaped[strings.LastIndex(escaped, "/"+verb+"/")+len(verb)+2:], "/")
	revision, _ = url.PathUnescape(revision)
	_ = rest
	commit := repo.Refs[revision]
	if revision == repo.Commit {
		commit = revision
	}
	if commit == "" {
		refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	w.Header().Set("X-Repo-Commit", commit)
	if w.fault == OtherCommit {
		w.Header().Set("X-Repo-Commit", strings.Repeat("9", 40))
	}
	switch {
	case api && verb == "revision":
		writeJSON(w, map[string]any{"id": repo.Name, "sha": commit, "gated": repo.Gated})
	case api && verb == "tree":
		s.serveTree(w, r, repo)
	case repo.Gated && !granted:
		refuse(w, http.StatusForbidden, "GatedRepo", "Access to model "+repo.Name+" is restricted.")
	case !api && verb == "resolve":
		file, _ = url.PathUnescape(file)
		s.resolve(w, r, repo, file)
	default:
		refuse(w, http.StatusNotFound, "", "no such page")
	}
}

// find splits a path into a repository and the rest.
func (s *Server) find(path string) (*Repo, string) {
	for name, r := range s.repos {
		if rest, ok := strings.CutPrefix(path, name+"/"); ok {
			return r, rest
		}
	}
	return nil, ""
}

func refuse(w *writer, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}

func writeJSON(w *writer, v any) {
	data, _ := json.Marshal(v) // of maps and strings
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if w.fault == Compressed {
		w.Header().Set("Content-Encoding", "gzip")
	}
	if w.fault == ShortBody {
		w.left = int64(len(data) / 2)
	}
	w.Write(data)
}

// serveTree answers with a page of the list of files and directories.
func (s *Server) serveTree(w *writer, r *http.Request, repo *Repo) {
	entries := []map[string]any{}
	dirs := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(repo.Files)) {
		f := repo.Files[name]
		if at := strings.LastIndexByte(name, '/'); at >= 0 && !dirs[name[:at]] {
			dirs[name[:at]] = true
			entries = append(entries, map[string]any{"type": "directory", "path": name[:at], "size": 0, "oid": gitHash([]byte(name))})
		}
		e := map[string]any{"type": "file", "path": name, "size": f.Size, "oid": f.OID}
		if f.LFS {
			e["lfs"] = map[string]any{"oid": f.SHA256, "size": f.Size, "pointerSize": 134}
		}
		entries = append(entries, e)
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	from = min(from, len(entries))
	to := min(from+pageSize, len(entries))
	if to < len(entries) {
		w.Header().Set("Link", fmt.Sprintf(`<https://huggingface.co%s?recursive=true&cursor=%d>; rel="next"`, r.URL.EscapedPath(), to))
	}
	writeJSON(w, entries[from:to])
}

// resolve answers with the file, or redirects to the content network for a file in LFS.
func (s *Server) resolve(w *writer, r *http.Request, repo *Repo, name string) {
	f := repo.Files[name]
	if f == nil {
		refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	if !f.LFS {
		serveFile(w, r, f, `"`+f.OID+`"`)
		return
	}
	etag := `"` + f.SHA256 + `"`
	if w.fault == OtherETag {
		etag = `"` + strings.Repeat("9", 64) + `"`
	}
	s.mu.Lock()
	s.signature++
	signature := s.signature
	s.mu.Unlock()
	h := w.Header()
	h.Set("X-Linked-Etag", etag)
	h.Set("X-Linked-Size", strconv.FormatInt(f.Size, 10))
	h.Set("ETag", `"of-the-redirect"`)
	h.Set("Location", fmt.Sprintf("%s/blobs/%s?Signature=%s&n=%d", s.CDN, f.SHA256, Signature, signature))
	w.WriteHeader(http.StatusFound)
}

// Signature is in all signed addresses and must not appear in any output.
const Signature = "SIGNATURE-that-nobody-must-see"

// serveCDN answers requests to the content network.
func (s *Server) serveCDN(w *writer, r *http.Request) {
	q := r.URL.Query()
	n, _ := strconv.Atoi(q.Get("n"))
	s.mu.Lock()
	s.uses[n]++
	expired := s.maxUses > 0 && s.uses[n] > s.maxUses
	s.mu.Unlock()
	f := s.blobs[strings.TrimPrefix(r.URL.Path, "/blobs/")]
	switch {
	case r.Header.Get("Authorization") != "":
		http.Error(w, "Only one auth mechanism allowed", http.StatusBadRequest)
	case q.Get("Signature") != Signature || expired:
		http.Error(w, "Request has expired", http.StatusForbidden)
	case f == nil:
		http.Error(w, "no such key", http.StatusNotFound)
	default:
		sum := sha256.Sum256([]byte(f.SHA256))
		serveFile(w, r, f, `"`+hex.EncodeToString(sum[:8])+`-1"`)
	}
}

// servePlain answers as a plain web server.
func (s *Server) servePlain(w *writer, r *http.Request, name string) {
	f := s.plain[name]
	if f == nil {
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	serveFile(w, r, f, `"`+f.OID[:16]+`"`)
}

// serveFile sends a file, or a range of bytes.
func serveFile(w *writer, r *http.Request, f *File, etag string) {
	h := w.Header()
	if w.fault == OtherETag {
		etag = `"another"`
	}
	h.Set("ETag", etag)
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "application/octet-stream")
	if w.fault == Compressed {
		h.Set("Content-Encoding", "gzip")
	}
	first, last, status := int64(0), f.Size-1, http.StatusOK
	if ask := r.Header.Get("Range"); ask != "" && w.fault != NoRange {
		if _, err := fmt.Sscanf(ask, "bytes=%d-%d", &first, &last); err != nil || first >= f.Size || last < first {
			h.Set("Content-Range", fmt.Sprintf("bytes */%d", f.Size))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		last, status = min(last, f.Size-1), http.StatusPartialContent
		total := f.Size
		switch {
		case w.fault == WrongTotal:
			total++
		case w.fault == WrongRange && first > 0:
			first--
			last--
		case w.fault == WrongRange && last > first:
			first++
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, total))
	}
	h.Set("Content-Length", strconv.FormatInt(last-first+1, 10))
	if w.fault == ShortBody {
		w.left = (last - first + 1) / 2
	}
	w.WriteHeader(status)
	_, _ = io.Copy(w, io.NewSectionReader(f.Data, first, last-first+1))
}
