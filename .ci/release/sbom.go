package main

import (
	"debug/buildinfo"
	"fmt"
	"io"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes a CycloneDX bill of materials: the modules that the Go linker recorded in the
// binary, with their versions and go.sum hashes.
func writeSBOM(path, binary, version string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	main := component(cdx.ComponentTypeApplication, info.Main.Path, "v"+version, "")
	components := []cdx.Component{component(cdx.ComponentTypePlatform, "std", info.GoVersion, "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			return fmt.Errorf("module %s is replaced by %s: a release has no replacements", m.Path, m.Replace.Path)
		}
		components = append(components, component(cdx.ComponentTypeLibrary, m.Path, m.Version, m.Sum))
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &components
	return create(path, func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}

func component(kind cdx.ComponentType, module, version, sum string) cdx.Component {
	purl := "pkg:golang/" + module + "@" + version
	c := cdx.Component{BOMRef: purl, Type: kind, Name: module, Version: version, PackageURL: purl}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go.sum", Value: sum}}
	}
	return c
}
