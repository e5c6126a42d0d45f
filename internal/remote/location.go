package remote

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A Location is a parsed name of a remote place. It prints without credentials.
type Location struct {
	Scheme string // "hf", "https", "http", "s3" or "gs"
	// Host is the host and port of a web server, or the bucket of an object store. "" for hf.
	Host string
	// Path is what follows, without a slash in front: the path on the server, the prefix in the bucket,
	// or org/model[@revision][/file] for hf. Of a web server it is escaped as in the URL.
	Path string

	user  *url.Userinfo // of https and http
	query string        // of https and http, which may hold a signature
}

// schemes says of each scheme why it is not supported, or "" if it is.
var schemes = map[string]string{
	"hf": "", "https": "", "http": "", "s3": "", "gs": "",
	"az":   "Azure needs a client library of its own: name the place as https://ACCOUNT.blob.core.windows.net/CONTAINER/DIRECTORY?SAS, with a shared access signature that may read",
	"abfs": "Azure needs a client library of its own: name the place as https://ACCOUNT.blob.core.windows.net/CONTAINER/DIRECTORY?SAS, with a shared access signature that may read",
	"ftp":  "name the place as https://, s3://, gs:// or hf://, or copy the files to a directory",
	"file": "name the path alone",
}

// IsRemote reports whether name has the form of a remote name, SCHEME://..., of a scheme that gq
// supports or not. Paths of files do not have this form.
func IsRemote(name string) bool {
	scheme, _, found := strings.Cut(name, "://")
	return found && isScheme(scheme)
}

// isScheme: RFC 3986, and at least two letters, as one letter is a drive of Windows.
func isScheme(s string) bool {
	if len(s) < 2 {
		return false
	}
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || (c < '0' || '9' < c) && !strings.ContainsRune("+-.", rune(c))) {
			return false
		}
	}
	return true
}

// maxName is the greatest length of a name in bytes.
const maxName = 8 << 10

// Parse reads the name of a remote place. No error holds more of the name than its scheme and path.
func Parse(name string) (Location, error) {
	scheme, rest, found := strings.Cut(name, "://")
	if !found || !isScheme(scheme) {
		return Location{}, fmt.Errorf("%q is not the name of a remote place: expected hf://, https://, s3:// or gs://", Redact(name))
	}
	l := Location{Scheme: strings.ToLower(scheme)}
	reason, known := schemes[l.Scheme]
	var err error
	switch {
	case !known:
		return Location{}, fmt.Errorf("%s://: the scheme is unknown: expected hf://, https://, s3:// or gs://", l.Scheme)
	case reason != "":
		return Location{}, fmt.Errorf("%s:// is not supported: %s", l.Scheme, reason)
	case len(name) > maxName:
		return Location{}, fmt.Errorf("%s://: the name has %d bytes, more than the limit of %d", l.Scheme, len(name), maxName)
	case l.Scheme == "https" || l.Scheme == "http":
		err = l.parseWeb(name)
	case l.Scheme == "hf":
		l.Path, err = checkPath(rest)
	default:
		bucket, prefix, _ := strings.Cut(rest, "/")
		switch {
		case bucket == "":
			err = errors.New("the bucket is missing: expected " + l.Scheme + "://BUCKET/PREFIX")
		case strings.ContainsAny(bucket, "@:?#"):
			err = errors.New("the name of a bucket has none of @, :, ? and #: credentials come from the environment, not from the name")
		}
		if l.Host = bucket; err == nil {
			l.Path, err = checkPath(prefix)
		}
	}
	if err != nil {
		return Location{}, fmt.Errorf("%q: %w", Redact(name), err)
	}
	return l, nil
}

// parseWeb reads the URL of a web server.
func (l *Location) parseWeb(name string) error {
	u, err := url.Parse(name)
	switch {
	case err != nil:
		return errors.New("the name is not a valid URL") // the parser's error quotes the name
	case u.Host == "" || u.Opaque != "":
		return errors.New("the host is missing: expected " + l.Scheme + "://HOST/PATH")
	case u.Fragment != "":
		return errors.New("a URL of a file has no fragment (#...)")
	}
	l.Host, l.user, l.query = u.Host, u.User, u.RawQuery
	l.Path = strings.TrimPrefix(u.EscapedPath(), "/")
	return nil
}

// checkPath refuses what no object's name has.
func checkPath(path string) (string, error) {
	for _, c := range []byte(path) {
		if c < 0x20 || c == 0x7f {
			return "", fmt.Errorf("byte %#02x has no place in a name", c)
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." {
			return "", fmt.Errorf("%q has no place in the path", part)
		}
	}
	return path, nil
}

// String returns the name without user, password and query.
func (l Location) String() string {
	if l.Host == "" {
		return l.Scheme + "://" + l.Path
	}
	return l.Scheme + "://" + l.Host + "/" + l.Path
}

// Key identifies the content that the location names, also if credentials are renewed: it is the name with
// those parameters of the query that are no credentials, in order of their names. A parameter may still be a
// secret under an unknown name, so a key must not be printed or stored, but only its hash.
func (l Location) Key() string {
	if query := stableQuery(l.query); query != "" {
		return l.String() + "?" + query
	}
	return l.String()
}

// URL returns the address of a file: of the location itself if name is "", else of the file name below
// it. It holds the location's credentials and must not be printed. Only locations of web servers have
// one.
func (l Location) URL(name string) *url.URL {
	path := l.Path
	if name != "" {
		path = strings.TrimSuffix(path, "/")
		for part := range strings.SplitSeq(name, "/") {
			path += "/" + url.PathEscape(part)
		}
		path = strings.TrimPrefix(path, "/")
	}
	u := &url.URL{Scheme: l.Scheme, Host: l.Host, User: l.user, RawQuery: l.query}
	u.Path, _ = url.PathUnescape("/" + path)
	u.RawPath = "/" + path
	return u
}

// fileEndings are the ends of names of files. Every other location is a directory.
var fileEndings = []string{".safetensors", ".safetensors.index.json", ".gguf", ".gqf", ".zst"}

// SplitFile returns the directory that the location names and "", or, if it names a file, the file's
// directory and its name.
func (l Location) SplitFile() (dir Location, file string) {
	if !slices.ContainsFunc(fileEndings, func(e string) bool { return strings.HasSuffix(l.Path, e) }) {
		return l, ""
	}
	return l.Split()
}

// Split returns the directory and the name of the file that the location names, whatever the name ends
// in. The file is "" if the location names no file: it ends in a slash.
func (l Location) Split() (dir Location, file string) {
	at := strings.LastIndexByte(l.Path, '/') + 1
	file = l.Path[at:]
	if l.Scheme == "https" || l.Scheme == "http" {
		file, _ = url.PathUnescape(file) // Parse has done so without an error
	}
	l.Path = l.Path[:at]
	return l, file
}

// Redact removes from a remote name, or from a URL, what may be a credential: user and password, the
// query and the fragment. Other strings stay as they are.
func Redact(name string) string {
	scheme, rest, found := strings.Cut(name, "://")
	if !found {
		return name
	}
	if at := strings.IndexAny(rest, "?#"); at >= 0 {
		rest = rest[:at]
	}
	if strings.EqualFold(scheme, "hf") {
		return scheme + "://" + rest // an @ precedes the revision
	}
	host, path, slash := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:]
	if slash {
		host += "/" + path
	}
	return scheme + "://" + host
}
