package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom returns a CycloneDX bill of materials: the modules that the Go linker recorded in the
// binary, with their versions and go.sum hashes.
func sbom(binary, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	main := component(cdx.ComponentTypeApplication, info.Main.Path, "v"+version, "")
	components := []cdx.Component{component(cdx.ComponentTypePlatform, "std", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced by %s: a release has no replacements", m.Path, m.Replace.Path)
		}
		components = append(components, component(cdx.ComponentTypeLibrary, m.Path, m.Version, m.Sum))
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	var b bytes.Buffer
	err = cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return b.Bytes(), err
}

func component(kind cdx.ComponentType, module, version, sum string) cdx.Component {
	purl := "pkg:golang/" + module + "@" + version
	c := cdx.Component{BOMRef: purl, Type: kind, Name: module, Version: version, PackageURL: purl}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}
