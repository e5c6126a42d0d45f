package hub

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lowbit-go/gq/internal/files"
)

// Settings say where the hub and the cache are.
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
		return s, errors.New("HF_ENDPOINT is not a URL of the form https://HOST[/PATH]") // it may hold a password
	}
	s.Endpoint = u
	return s, nil
}

// expand replaces variables, and a ~ in front.
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

// maxToken is the greatest size of the file with the token.
const maxToken = 64 << 10

// Token returns the user's token, "" if there is none, and where it is from.
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
