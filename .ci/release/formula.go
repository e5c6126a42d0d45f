package main

import (
	"bytes"
	"text/template"
)

// formula installs what an archive holds. Homebrew enters the directory of the archive by itself.
var formula = template.Must(template.New("gq.rb").Parse(`class Gq < Formula
  desc "{{.Summary}}"
  homepage "{{.Home}}"
  version "{{.Version}}"
  license "{{.Licence}}"
{{range .Systems}}
  on_{{.Name}} do
{{- range .CPUs}}
    on_{{.Name}} do
      url "{{.URL}}"
      sha256 "{{.SHA256}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "gq"
    bash_completion.install "completions/gq.bash" => "gq"
    zsh_completion.install "completions/_gq"
    fish_completion.install "completions/gq.fish"
    man1.install "man/man1/gq.1"
  end

  test do
    system bin/"gq", "version"
  end
end
`))

type (
	formulaCPU    struct{ Name, URL, SHA256 string }
	formulaSystem struct {
		Name string
		CPUs []formulaCPU
	}
)

// addFormula adds a Homebrew formula for the archives that are there.
func (r *release) addFormula() error {
	var systems []formulaSystem
	for _, s := range []struct{ goos, name string }{{"darwin", "macos"}, {"linux", "linux"}} {
		system := formulaSystem{Name: s.name}
		for _, cpu := range []struct{ goarch, name string }{{"arm64", "arm"}, {"amd64", "intel"}} {
			name := r.archive(s.goos, cpu.goarch) + ".tar.gz"
			system.CPUs = append(system.CPUs, formulaCPU{cpu.name, r.url + "/" + name, r.sums[name]})
		}
		systems = append(systems, system)
	}
	var b bytes.Buffer
	err := formula.Execute(&b, map[string]any{
		"Summary": summary, "Home": r.home, "Version": r.version, "Licence": licence, "Systems": systems,
	})
	if err != nil {
		return err
	}
	return r.add("gq.rb", b.Bytes())
}
