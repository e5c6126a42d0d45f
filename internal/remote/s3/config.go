package s3

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lowbit-go/gq/internal/remote"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"
)

type endpoint struct {
	host   string // with a port, if stated
	secure bool
	region string // "": the library asks the store
	keys   *keyChain
}

// Environment variables of Google Cloud Storage's HMAC keys: GDAL has the same.
const (
	googleKey    = "GS_ACCESS_KEY_ID"
	googleSecret = "GS_SECRET_ACCESS_KEY"
	googleHost   = "storage.googleapis.com"
	amazonHost   = "s3.amazonaws.com"
)

// newEndpoint finds a location's endpoint by the environment and the AWS command line's files.
func newEndpoint(l remote.Location, transport http.RoundTripper) (e endpoint, err error) {
	if l.Scheme == "gs" {
		return endpoint{host: googleHost, secure: true, region: "auto", keys: googleChain()}, nil
	}
	profile := readProfile()
	e = endpoint{host: amazonHost, secure: true, keys: amazonChain(transport)}
	e.region = cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), profile.get("region"))
	name, address := "endpoint_url in the profile", profile.get("endpoint_url")
	for _, variable := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		if v := os.Getenv(variable); v != "" {
			name, address = variable, v
		}
	}
	if address == "" {
		if strings.HasPrefix(e.region, "cn-") {
			e.host = "s3." + e.region + ".amazonaws.com.cn"
		}
		return e, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return e, fmt.Errorf("%s: expected https://HOST or http://HOST", name)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return e, fmt.Errorf("%s: an endpoint has no user, query or fragment: keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", name)
	case strings.Trim(u.Path, "/") != "":
		return e, fmt.Errorf("%s: %s has a path: name the bucket in s3://BUCKET/PREFIX, not in the endpoint", name, u.Host)
	}
	e.host, e.secure = u.Host, u.Scheme == "https"
	if e.region == "" { // most stores have a single region, with any name
		e.region = "us-east-1"
	}
	return e, nil
}

type profile struct{ section *ini.Section }

// readProfile reads the shared configuration, if any. Its errors are reported with the credentials,
// because these come from there too.
func readProfile() profile {
	path := os.Getenv("AWS_CONFIG_FILE")
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return profile{}
		}
		path = filepath.Join(home, ".aws", "config")
	}
	f, err := ini.Load(path)
	if err != nil {
		return profile{}
	}
	name := cmp.Or(os.Getenv("AWS_PROFILE"), "default")
	for _, section := range []string{"profile " + name, name} {
		if s, err := f.GetSection(section); err == nil {
			return profile{s}
		}
	}
	return profile{}
}

func (p profile) get(key string) string {
	if p.section == nil {
		return ""
	}
	return p.section.Key(key).String()
}

func (e endpoint) client(transport http.RoundTripper) (*minio.Core, error) {
	c, err := minio.NewCore(e.host, &minio.Options{
		Creds: credentials.New(e.keys), Secure: e.secure, Region: e.region, Transport: transport,
		MaxRetries: 1, // package remote repeats requests
	})
	if err != nil {
		return nil, errors.New(e.host + " is not a valid endpoint")
	}
	c.SetAppInfo("gq", "1")
	return c, nil
}

// keyChain asks sources of credentials in order. If all fail, its error gives the reason of each
// source. The library's chain gives no reasons. A [credentials.Credentials] calls the chain and
// keeps the credentials.
type keyChain struct {
	sources []source

	mu      sync.Mutex
	found   credentials.Provider
	value   credentials.Value
	reasons []string // why sources have no credentials
}

type source struct {
	name string
	credentials.Provider
}

// metadataTimeout bounds the question to the metadata service. Other machines have no such service.
const metadataTimeout = 2 * time.Second

// amazonChain is the chain that users of AWS expect.
func amazonChain(transport http.RoundTripper) *keyChain {
	c := &keyChain{sources: []source{{"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", &credentials.EnvAWS{}}}}
	local := os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") + os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") + os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	role := source{"the web identity or the container's role", &credentials.IAM{Client: &http.Client{Transport: transport, Timeout: 20 * time.Second}}}
	if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		c.sources = append(c.sources, role)
	}
	c.sources = append(c.sources, source{"the shared configuration", &credentials.FileAWSCredentials{}})
	switch {
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
	case local != "":
		c.sources = append(c.sources, role)
	case !strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		c.sources = append(c.sources, source{"the metadata service of EC2", &credentials.IAM{Client: &http.Client{Timeout: metadataTimeout}}})
	}
	return c
}

func googleChain() *keyChain {
	return &keyChain{sources: []source{{googleKey + " and " + googleSecret, &credentials.Static{Value: credentials.Value{
		AccessKeyID: os.Getenv(googleKey), SecretAccessKey: os.Getenv(googleSecret), SignerType: credentials.SignatureV4,
	}}}}}
}

func (c *keyChain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider. Without credentials, requests are not
// signed. Public buckets can be read so.
func (c *keyChain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	var reasons []string
	for _, s := range c.sources {
		v, err := s.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.found, c.value, c.reasons = s.Provider, v, nil
			return v, nil
		}
		reasons = append(reasons, s.name+": "+reason(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reasons = reasons
	return credentials.Value{SignerType: credentials.SignatureAnonymous}, nil
}

// reason explains why a source has no credentials, by known errors only: others may quote secrets.
func reason(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return "not set"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer"
	}
	return "failed"
}

func (c *keyChain) IsExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found == nil || c.found.IsExpired()
}

// missing says where credentials were looked for and not found; "" if some were found.
func (c *keyChain) missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found != nil || c.reasons == nil {
		return ""
	}
	return "no credentials were found (" + strings.Join(c.reasons, "; ") + ")"
}

// hide replaces credentials in a text that a server sent.
func (c *keyChain) hide(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []string{c.value.SessionToken, c.value.SecretAccessKey, c.value.AccessKeyID} {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[credential]")
		}
	}
	return text
}
