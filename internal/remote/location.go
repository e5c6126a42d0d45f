package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Location is a parsed name of a remote place, and prints without credentials.
type Location struct {
	Scheme string // "hf", "https", "http", "s3" or "gs"
	// Host is the host and port of a web server, or the bucket of an object store. "" for hf.
	Host string
	// Path is the rest of the name, without a slash in front: the path on the server, escaped as in
	// the URL, the prefix in the bucket, or org/model[@revision][/file] for hf.
	Path string

	user  *url.Userinfo // of https and http
	query string        // of https and http; may hold a signature
}

// schemes has the reason why a scheme is not supported, or "" for supported schemes.
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

// isScheme: RFC 3986, and at least two letters, as a single letter is a drive of Windows.
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

func (l Location) String() string {
	if l.Host == "" {
		return l.Scheme + "://" + l.Path
	}
	return l.Scheme + "://" + l.Host + "/" + l.Path
}

// Key identifies the content of the location even if credentials are renewed: the name with the
// parameters of the query that are no credentials, in order of their names. A parameter may still
// be a secret under an unknown name, so never print or store a key, only its hash.
func (l Location) Key() string {
	if query := stableQuery(l.query); query != "" {
		return l.String() + "?" + query
	}
	return l.String()
}

// URL returns the address of a file: of the location itself if name is "", else of the file name in
// the location. The address holds the location's credentials and must not be printed. Only
// locations of web servers have addresses.
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
var fileEndings = []string{".safetensors", ".safetensors.index.json", ".gguf", ".gqf"}

// SplitFile returns the location and "", or, for a file, its directory and its name.
func (l Location) SplitFile() (dir Location, file string) {
	if !slices.ContainsFunc(fileEndings, func(e string) bool { return strings.HasSuffix(l.Path, e) }) {
		return l, ""
	}
	at := strings.LastIndexByte(l.Path, '/') + 1
	file = l.Path[at:]
	if l.Scheme == "https" || l.Scheme == "http" {
		file, _ = url.PathUnescape(file) // Parse has done so without an error
	}
	l.Path = l.Path[:at]
	return l, file
}

// Redact removes possible credentials from a remote name, or from a URL: user and password, the
// query and the fragment. Other strings stay the same.
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

// stableQuery is the query, sorted by name, without credentials: these change on renewal.
func stableQuery(query string) string {
	type parameter struct{ name, value string }
	var list []parameter
	isSAS := false
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		p := parameter{unescape(name), unescape(value)}
		isSAS = isSAS || p.name == "sig"
		if part != "" && !isCredential(p.name) {
			list = append(list, p)
		}
	}
	if isSAS {
		list = slices.DeleteFunc(list, func(p parameter) bool { return slices.Contains(sasParameters, p.name) })
	}
	slices.SortStableFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	parts := make([]string, len(list))
	for i, p := range list {
		parts[i] = url.QueryEscape(p.name) + "=" + url.QueryEscape(p.value)
	}
	return strings.Join(parts, "&")
}

// unescape decodes a name or a value of a query. An invalid string stays the same.
func unescape(s string) string {
	if plain, err := url.QueryUnescape(s); err == nil {
		return plain
	}
	return s
}

func isCredential(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(credentialPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) || slices.Contains(credentials, name)
}

// credentialPrefixes are the beginnings of the parameters of signed URLs: of S3 and stores that
// speak its protocol, Google Cloud Storage, Alibaba's OSS and Tencent's COS.
var credentialPrefixes = []string{"x-amz-", "x-goog-", "x-oss-", "q-sign-", "q-ak", "q-key-time", "q-header-list", "q-url-param-list", "q-signature"}

// credentials are other parameters of signed URLs, in lower case: of S3's second version, Google's,
// Alibaba's, CloudFront, Azure, Akamai, and tokens by their usual names.
var credentials = []string{
	"signature", "expires", "awsaccesskeyid", "googleaccessid", "ossaccesskeyid", "security-token",
	"policy", "key-pair-id", "hash-algorithm", "sig", "hdnts", "hdnea", "__token__", "__gda__",
	"token", "access_token", "auth_token", "id_token", "api_key", "apikey", "auth", "authorization", "sign", "exp", "expiry",
}

// sasParameters are Azure's parameters of a shared access signature without sig. The short words
// count as credentials only together with sig.
var sasParameters = []string{
	"sv", "st", "se", "sr", "sp", "si", "ss", "srt", "sip", "spr", "sdd", "ses",
	"skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid",
}

// An Object is a file in a Store.
type Object struct {
	// Name is relative to the store's location, with slashes: "model-00001-of-00002.safetensors".
	Name string
	Size int64 // in bytes
	// ETag identifies the content: a store's ETags are equal only if the contents are. "": none
	// stated.
	ETag string
	// Modified is the time of the last change, in the server's spelling, if there is no ETag.
	Modified string
	// SHA256 is the hash of the content in lower-case hex; "" if unknown.
	SHA256 string
}

// Version identifies the content, by hash or by the server; "" if only the size is known.
func (o Object) Version() string { return cmp.Or(o.SHA256, o.ETag, o.Modified) }

// Note is the content of the object's note.
func (o Object) Note() string {
	s := fmt.Sprintf("%d %q %q", o.Size, o.ETag, o.SHA256)
	if o.Modified != "" {
		s += fmt.Sprintf(" %q", o.Modified)
	}
	return s + "\n"
}

// NoteEnding ends the names of notes: files of gq's cache, each of which identifies another file's
// object.
const NoteEnding = ".gq-object"

// NoteOf is the name of the note of the file at path.
func NoteOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+NoteEnding)
}

// Unverified reports whether the file at path has a note, and the note has no SHA-256: the file was
// downloaded from a place that states no hash of it.
func Unverified(path string) bool {
	text, err := os.ReadFile(NoteOf(path))
	if err != nil {
		return false
	}
	var size, etag, sha256 string
	_, err = fmt.Sscanf(string(text), "%s %q %q", &size, &etag, &sha256)
	return err == nil && sha256 == ""
}

// A Store is a place with files that can be read by ranges. Several goroutines may call methods.
type Store interface {
	// List returns all files below the location, or the location's only file, in order of name.
	List(ctx context.Context) ([]Object, error)
	// ReadAt fills dst with the bytes of the object from off on. A failure for a passing reason is
	// retried. If the object differs from List's, the error is a *ChangedError.
	ReadAt(ctx context.Context, o Object, dst []byte, off int64) error
	// String is the location without credentials, with the revision that never changes, if the store
	// knows this revision: "hf://org/model@COMMIT".
	String() string
}

// A ChangedError says that a file was replaced during reading.
type ChangedError struct {
	File string // without credentials
	// What differs: "ETag", "Last-Modified", "size". Before and Now are its values.
	What, Before, Now string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s: the source changed while it was read: its %s was %s and is %s now: start again", e.File, e.What, e.Before, e.Now)
}
