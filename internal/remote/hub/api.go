package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
	"github.com/lowbit-go/gq/internal/hubpath"
	"github.com/lowbit-go/gq/internal/remote"
)

const (
	maxPage  = 32 << 20 // bytes of an answer of the API
	maxFiles = 200_000  // in a repository
	maxPages = 10_000   // of the list of files; the hub's have 50 to 1000 entries
	maxSize  = 1 << 44  // bytes of a file
)

// address is the URL of a path below the endpoint. The path is escaped.
func (s Settings) address(path, query string) *url.URL {
	u := *s.Endpoint
	escaped := u.EscapedPath() + path
	u.Path, _ = url.PathUnescape(escaped) // the path comes from url.PathEscape
	u.RawPath, u.RawQuery = escaped, query
	return &u
}

func escapePath(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

func (s *Store) resolveRevision(ctx context.Context) (string, error) {
	if hubpath.IsCommit(s.name.Revision) {
		return s.name.Revision, nil
	}
	r := s.request(s.set.address("/api/models/"+s.name.Repo+"/revision/"+url.PathEscape(s.name.Revision), ""), "")
	body, _, err := s.client.Get(ctx, r, maxPage)
	if err != nil {
		return "", err
	}
	return parseRevision(r.Name, body)
}

func parseRevision(name string, body []byte) (string, error) {
	var info struct {
		SHA string `json:"sha"`
	}
	if err := json.Unmarshal(body, &info); err != nil || !hubpath.IsCommit(info.SHA) {
		return "", fmt.Errorf("%s: the answer of the hub names no commit: is HF_ENDPOINT a hub, and does the network need a sign-in?", name)
	}
	return info.SHA, nil
}

func (s *Store) tree(ctx context.Context) (list []remote.Object, err error) {
	path := "/api/models/" + s.name.Repo + "/tree/" + s.commit
	query := "recursive=true"
	for seen := map[string]bool{}; ; {
		r := s.request(s.set.address(path, query), "")
		body, h, err := s.client.Get(ctx, r, maxPage)
		if err != nil {
			return nil, err
		}
		page, entries, err := parseTree(body)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		if list = append(list, page...); len(list) > maxFiles {
			return nil, fmt.Errorf("%s: the repository has more than %d files", r.Name, maxFiles)
		}
		cursor := nextCursor(h.Get("Link"))
		if cursor == "" {
			break
		}
		switch {
		case seen[cursor]:
			return nil, fmt.Errorf("%s: the pages of the list of files lead in a circle", r.Name)
		case entries == 0:
			return nil, fmt.Errorf("%s: a page of the list of files is empty but has a next page: is HF_ENDPOINT a hub?", r.Name)
		case len(seen) == maxPages:
			return nil, fmt.Errorf("%s: the list of files has more than %d pages: is HF_ENDPOINT a hub?", r.Name, maxPages)
		}
		seen[cursor] = true
		// Only the cursor is taken over: a mirror names the original host.
		query = "recursive=true&cursor=" + url.QueryEscape(cursor)
	}
	slices.SortFunc(list, func(a, b remote.Object) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return nil, fmt.Errorf("%s: %q appears twice in the list of files", s, list[i].Name)
		}
	}
	return list, nil
}

var (
	linkNext = regexp.MustCompile(`<([^>]*)>\s*;\s*rel="?next"?`)
	etagForm = regexp.MustCompile(`^[0-9a-f]{40}$|^[0-9a-f]{64}$`)
)

func nextCursor(link string) string {
	m := linkNext.FindStringSubmatch(link)
	if m == nil {
		return ""
	}
	u, err := url.Parse(m[1])
	if err != nil {
		return ""
	}
	return u.Query().Get("cursor")
}

// parseTree reads a page of the list of files. n is the number of its entries, with directories.
func parseTree(body []byte) (list []remote.Object, n int, err error) {
	var entries []struct {
		Type string `json:"type"`
		Path string `json:"path"`
		Size int64  `json:"size"`
		OID  string `json:"oid"`
		LFS  *struct {
			OID  string `json:"oid"`
			Size int64  `json:"size"`
		} `json:"lfs"`
	}
	if err := json.Unmarshal(body, &entries); err != nil {
		return nil, 0, errors.New("the answer of the hub is not a list of files: is HF_ENDPOINT a hub, and does the network need a sign-in?")
	}
	for _, e := range entries {
		if e.Type != "file" {
			continue
		}
		o := remote.Object{Name: e.Path, Size: e.Size, ETag: e.OID}
		if e.LFS != nil {
			o.Size, o.ETag, o.SHA256 = e.LFS.Size, e.LFS.OID, e.LFS.OID
		}
		switch {
		case !isRelative(o.Name):
			return nil, 0, fmt.Errorf("the list of files has %q, which cannot be the name of a file on every system", o.Name)
		case o.Size < 0 || o.Size > maxSize:
			return nil, 0, fmt.Errorf("%s: %d bytes: expected at most %d", o.Name, o.Size, int64(maxSize))
		case !etagForm.MatchString(o.ETag), e.LFS != nil && len(o.SHA256) != 64:
			return nil, 0, fmt.Errorf("%s: %q is not a hash of its content", o.Name, o.ETag)
		}
		list = append(list, o)
	}
	return list, len(entries), nil
}

// request is a request for a URL of the hub and a file; "" for the API.
func (s *Store) request(u *url.URL, file string) *remote.Request {
	r := &remote.Request{Name: s.String(), URL: u}
	if file != "" {
		r.Name += ": " + file
	}
	r.Token = func() string {
		token, _ := s.set.Token()
		return token
	}
	r.Refused = func(e *remote.Refusal) error { return s.explain(e, file) }
	return r
}

func (s *Store) explain(e *remote.Refusal, file string) error {
	page := strings.TrimRight(remote.Redact(s.set.Endpoint.String()), "/") + "/" + s.name.Repo
	_, from := s.set.Token()
	said := ""
	if e.Message != "" {
		said = " (the hub says: " + e.Message + ")"
	}
	code := e.Header.Get("X-Error-Code")
	denied := e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	switch {
	case code == "GatedRepo" && e.Token:
		return fmt.Errorf("%s is gated, and the account of the token (%s) has no access: accept its licence at %s with that account, or wait for the owner's approval%s", s.name.Repo, from, page, said)
	case code == "GatedRepo":
		return fmt.Errorf("%s is gated: accept its licence at %s with your account, then set HF_TOKEN to a token of it (%s)", s.name.Repo, page, "https://huggingface.co/settings/tokens")
	case code == "RevisionNotFound":
		return fmt.Errorf("%s has no revision %q: %s/tree/main shows its branches and tags", s.name.Repo, s.name.Revision, page)
	case code == "EntryNotFound":
		return fmt.Errorf("%s has no file %q%s", s, file, said)
	case code == "DisabledRepo":
		return fmt.Errorf("%s is disabled%s", s.name.Repo, said)
	case e.Status == http.StatusUnauthorized && e.Token && strings.Contains(e.Message, "Invalid credentials"):
		return fmt.Errorf("%s: the hub refuses the token of %s: renew it at https://huggingface.co/settings/tokens%s", s.name.Repo, from, said)
	case e.Status == http.StatusForbidden && e.Token:
		return fmt.Errorf("%s: the token of %s may not read it: give it the right to read this repository, also if it is public and gated%s", s.name.Repo, from, said)
	case denied, e.Status == http.StatusNotFound:
		do := "set HF_TOKEN if it is private"
		if e.Token {
			do = "if it is private, use a token of an account that may read it; this one is from " + from
		}
		return fmt.Errorf("there is no repository %s at %s, or it is private: check the name, and %s%s", s.name.Repo, page, do, said)
	}
	return e
}

type Settings struct {
	Endpoint  *url.URL // HF_ENDPOINT
	Cache     string   // HF_HUB_CACHE, or else hub in HF_HOME
	TokenFile string   // HF_TOKEN_PATH, or else token in HF_HOME
	Offline   bool     // HF_HUB_OFFLINE: only the cache is used
}

const defaultEndpoint = "https://huggingface.co"

// FromEnvironment reads the variables that the Python library reads.
func FromEnvironment() (s Settings, err error) {
	home := expand(os.Getenv("HF_HOME"))
	if home == "" {
		cache := expand(os.Getenv("XDG_CACHE_HOME"))
		if cache == "" {
			user, err := os.UserHomeDir()
			if err != nil {
				return s, fmt.Errorf("there is no home directory for the Hugging Face cache: set HF_HOME (%w)", err)
			}
			cache = filepath.Join(user, ".cache")
		}
		home = filepath.Join(cache, "huggingface")
	}
	s.Cache = cmp.Or(expand(os.Getenv("HF_HUB_CACHE")), expand(os.Getenv("HUGGINGFACE_HUB_CACHE")), filepath.Join(home, "hub"))
	s.TokenFile = cmp.Or(expand(os.Getenv("HF_TOKEN_PATH")), filepath.Join(home, "token"))
	s.Offline = isTrue(cmp.Or(os.Getenv("HF_HUB_OFFLINE"), os.Getenv("TRANSFORMERS_OFFLINE")))
	u, err := url.Parse(strings.TrimRight(cmp.Or(os.Getenv("HF_ENDPOINT"), defaultEndpoint), "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" {
		// The URL may hold a password.
		return s, errors.New("HF_ENDPOINT is not a URL of the form https://HOST[/PATH]")
	}
	s.Endpoint = u
	return s, nil
}

func expand(path string) string {
	path = os.ExpandEnv(path)
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		if home, err := os.UserHomeDir(); err == nil {
			return home + rest
		}
	}
	return path
}

func isTrue(s string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(s))
}

const maxToken = 64 << 10

// Token returns the user's token, or "", and its origin.
func (s Settings) Token() (token, from string) {
	if isTrue(os.Getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return "", ""
	}
	for _, name := range []string{"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"} {
		if t := clean(os.Getenv(name)); t != "" {
			return t, name
		}
	}
	data, err := files.Read(s.TokenFile, maxToken)
	if err != nil {
		return "", ""
	}
	return clean(string(data)), s.TokenFile
}

// clean removes white space. A token that no header can hold is none.
func clean(token string) string {
	token = strings.Join(strings.Fields(token), "")
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return token
}
