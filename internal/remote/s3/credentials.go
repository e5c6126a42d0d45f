package s3

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// keyChain asks sources of credentials one after the other. If all fail, its error
// gives the reason of each source, which the library's chain does not. A [credentials.Credentials] calls it
// and keeps the credentials.
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

// metadataTimeout bounds the question to the metadata service, which other machines do not have.
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

// Retrieve implements credentials.Provider.
func (c *keyChain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements credentials.Provider. Without credentials requests are not signed:
// public buckets can be read so.
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

// reason explains why a source has no credentials. It shows known errors only, because others may quote a
// secret.
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

// IsExpired implements credentials.Provider.
func (c *keyChain) IsExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.found == nil || c.found.IsExpired()
}

// missing says that no credentials were found and where they were looked for; "" if there are some.
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
