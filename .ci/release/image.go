package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"io/fs"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// addImage adds a container image with nothing but gq, the certificates that https needs, and empty
// directories for temporary files and for the user's files. Its archive has the layout of OCI's
// image specification, with one manifest for each program.
func (r *release) addImage(programs []program) error {
	var l layout
	index := oci.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageIndex}
	for _, p := range programs {
		manifest, err := l.image(p, r)
		if err != nil {
			return err
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	// The reference names the index of both CPUs, so that a program that copies "the" image asks
	// for no manifest by its digest.
	reference, err := l.document(index.MediaType, index)
	if err != nil {
		return err
	}
	reference.Annotations = map[string]string{oci.AnnotationRefName: r.version}
	index.Manifests = []oci.Descriptor{reference}
	entry, err := json.Marshal(index)
	if err != nil {
		return err
	}
	header, err := json.Marshal(oci.ImageLayout{Version: oci.ImageLayoutVersion})
	if err != nil {
		return err
	}
	data, err := tarOf(append([]file{
		{name: oci.ImageLayoutFile, data: header, mode: 0o644},
		{name: oci.ImageIndexFile, data: entry, mode: 0o644},
	}, l.blobs...))
	if err != nil {
		return err
	}
	return r.add("gq-"+r.version+"-image.tar", data)
}

// layout collects the blobs of an image layout.
type layout struct{ blobs []file }

func (l *layout) blob(mediaType string, data []byte) oci.Descriptor {
	sum := digest.FromBytes(data)
	name := oci.ImageBlobsDir + "/" + sum.Algorithm().String() + "/" + sum.Encoded()
	l.blobs = append(l.blobs, file{name: name, data: data, mode: 0o644})
	return oci.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(data))}
}

func (l *layout) document(mediaType string, document any) (oci.Descriptor, error) {
	data, err := json.Marshal(document)
	return l.blob(mediaType, data), err
}

// image adds layer, configuration and manifest for one CPU, and describes the manifest.
func (l *layout) image(p program, r *release) (oci.Descriptor, error) {
	var none oci.Descriptor
	layer, err := tarOf([]file{
		p.file,
		{name: "etc/", mode: fs.ModeDir | 0o755},
		{name: "etc/ssl/", mode: fs.ModeDir | 0o755},
		{name: "etc/ssl/certs/", mode: fs.ModeDir | 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", data: certificates(), mode: 0o644},
		{name: "tmp/", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		{name: "work/", mode: fs.ModeDir | 0o755},
	})
	if err != nil {
		return none, err
	}
	packed, err := gzipped(layer)
	if err != nil {
		return none, err
	}
	platform := oci.Platform{OS: p.goos, Architecture: p.goarch}
	if p.goarch == "arm64" {
		platform.Variant = "v8"
	}
	labels := map[string]string{
		oci.AnnotationTitle: "gq", oci.AnnotationDescription: summary, oci.AnnotationVersion: r.version,
		oci.AnnotationLicenses: licence, oci.AnnotationSource: r.home,
	}
	config, err := l.document(oci.MediaTypeImageConfig, oci.Image{
		Created: &epoch, Platform: platform,
		Config: oci.ImageConfig{Entrypoint: []string{"/gq"}, WorkingDir: "/work", Labels: labels},
		RootFS: oci.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	if err != nil {
		return none, err
	}
	manifest, err := l.document(oci.MediaTypeImageManifest, oci.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: oci.MediaTypeImageManifest,
		Config: config, Layers: []oci.Descriptor{l.blob(oci.MediaTypeImageLayerGzip, packed)}, Annotations: labels,
	})
	manifest.Platform = &platform
	return manifest, err
}

// certificates returns Mozilla's root certificates, at the version that go.mod states, but for the
// roots with constraints that a file cannot express.
func certificates() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}))
		}
	}
	return b.Bytes()
}
