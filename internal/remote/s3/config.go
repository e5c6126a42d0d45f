package s3

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"gopkg.in/ini.v1"

	"github.com/lowbit-go/gq/internal/remote"
)

// endpoint says where a bucket is and who asks.
type endpoint struct {
	host   string // with a port, if one is stated
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

// newEndpoint finds the endpoint of a location by the environment and by the files of the AWS command
// line.
func newEndpoint(l remote.Location, transport http.RoundTripper) (e endpoint, err error) {
	if l.Scheme == "gs" {
		return endpoint{host: googleHost, secure: true, region: "auto", keys: googleChain()}, nil
	}
	profile := readProfile()
	e = endpoint{host: amazonHost, secure: true, keys: amazonChain(transport)}
	e.region = first(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), profile.get("region"))
	name, address := "AWS_ENDPOINT_URL_S3", os.Getenv("AWS_ENDPOINT_URL_S3")
	if address == "" {
		name, address = "AWS_ENDPOINT_URL", os.Getenv("AWS_ENDPOINT_URL")
	}
	if address == "" {
		name, address = "endpoint_url in the profile", profile.get("endpoint_url")
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
	if e.region == "" { // most stores have one region, and take this name for it
		e.region = "us-east-1"
	}
	return e, nil
}

func first(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// profile is the section of the shared configuration that AWS_PROFILE names.
type profile struct{ section *ini.Section }

// readProfile reads the shared configuration, if there is one. Its errors are reported with the
// credentials, which come from there too.
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
	name := first(os.Getenv("AWS_PROFILE"), "default")
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

// client returns the library's client of the endpoint.
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
