package accuracy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/testshared"
	"github.com/lowbit-go/gq/kernels"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
	"github.com/lowbit-go/gq/quantizer/conversion"
)

// TestMain lets the test binary stand for gq in TestRemoteParity.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == parityArgs("")[0] && os.Args[2] == parityArgs("")[1] {
		f, err := gqf.Open(os.Args[3], gqf.Options{})
		if err == nil {
			var d *Digests
			if d, err = ParityDigest(context.Background(), f, ParityOptions{}); err == nil {
				err = json.NewEncoder(os.Stdout).Encode(d)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "starting\n"+err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// layoutFile quantizes a small model into several layouts.
func layoutFile(t *testing.T, r quantizer.Recipe) string {
	t.Helper()
	dir := writeCheckpoint(t, "",
		testTensor{name: "model.embed_tokens.weight", dtype: packing.BF16, shape: []int64{97, 64}},
		testTensor{name: "model.layers.0.self_attn.q_proj.weight", dtype: packing.F32, shape: []int64{37, 192}},
		testTensor{name: "model.layers.0.self_attn.q_proj.bias", dtype: packing.F32, shape: []int64{37}},
		testTensor{name: "model.layers.0.mlp.up_proj.weight", dtype: packing.BF16, shape: []int64{200, 192}},
		testTensor{name: "lm_head.weight", dtype: packing.BF16, shape: []int64{97, 64}},
	)
	skip, err := quantizer.ParseRule("lm_head.weight=skip")
	if err != nil {
		t.Fatal(err)
	}
	path, _ := quantize(t, dir, conversion.Options{Recipe: r, Rules: []quantizer.Rule{skip}})
	return path
}

func TestCheckParity(t *testing.T) {
	recipes := []struct {
		name string
		r    quantizer.Recipe
		none string // a part of the reason why a payload has no kernel
	}{
		{"lowbit", quantizer.Recipe{}, ""},
		{"1 bit", quantizer.Recipe{Bits: 1}, ""},
		{"asymmetric", quantizer.Recipe{Bits: 5, Mapping: gqf.MappingAsymmetric}, ""},
		{"two layouts", quantizer.Recipe{Layouts: formats(t, "lowbit,kleidiai"), ScaleDtype: packing.ScaleF16}, ""},
		{"torchao", quantizer.Recipe{Layouts: formats(t, "torchao"), ScaleDtype: packing.ScaleF32}, "torchao-embedding"},
		{"codes", quantizer.Recipe{Layouts: formats(t, "plain")}, "codes"},
	}
	for _, tt := range recipes {
		t.Run(tt.name, func(t *testing.T) {
			f := openFile(t, layoutFile(t, tt.r))
			list, err := CheckParity(context.Background(), f, ParityOptions{})
			if err != nil {
				t.Fatal(err)
			}
			m := map[string][]int{} // by tensor and variant
			reason := ""
			for _, p := range list {
				if !p.Equal {
					t.Errorf("%+v", p)
				}
				reason += p.NoKernel
				if p.NoKernel == "" && (len(p.Panels) == 0 || p.Panels[len(p.Panels)-1] != p.PanelsOf-1) {
					t.Errorf("%s: panels %v of %d", p.Tensor, p.Panels, p.PanelsOf)
				}
				name := fmt.Sprint(p.Tensor, " ", p.Variant)
				m[name] = append(m[name], p.M...)
			}
			for name, tried := range m {
				for _, n := range parityM {
					if !slices.Contains(tried, n) && len(tried) > 0 {
						t.Errorf("%s: no kernel was given %d rows", name, n)
					}
				}
			}
			if (tt.none == "") != (reason == "") || !strings.Contains(reason, tt.none) {
				t.Errorf("no kernel: %s", reason)
			}
			if len(m["lm_head.weight 0"]) == 0 {
				t.Error("the unquantized lm_head was not compared")
			}
		})
	}
}

// TestEveryKernel checks a file in the layout of every kernel, and that no kernel of this machine
// is missed.
func TestEveryKernel(t *testing.T) {
	f := openFile(t, layoutFile(t, quantizer.Recipe{}))
	list, err := CheckParity(context.Background(), f, ParityOptions{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range kernels.Table() {
		if !info.Available || !slices.Contains(info.Layouts, packing.LayoutLowbit) || info.Bits != 4 || !slices.Contains(info.Tiles, packing.DefaultTile) ||
			!slices.Contains(info.Zeros, packing.ZeroNone) || !slices.Contains(info.Grids, packing.GridInteger) || !slices.Contains(info.Scales, packing.ScaleBF16) {
			continue
		}
		if !slices.ContainsFunc(list, func(p Parity) bool { return p.Kernel == info.Name }) {
			t.Errorf("%s was not compared", info.Name)
		}
	}
}

// TestDifference checks that differing bits are found and described.
func TestDifference(t *testing.T) {
	f := openFile(t, layoutFile(t, quantizer.Recipe{}))
	here, err := ParityDigest(context.Background(), f, ParityOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	there := clone(t, here)
	there.Payloads[1].Reference = strings.Repeat("0", 64)
	for _, p := range here.compare(there, "another") {
		if p.Equal != (p.Tensor != here.Payloads[1].Payload.Tensor) || !p.Equal && p.FirstDifference == "" || p.Machine != "another" {
			t.Errorf("%+v", p)
		}
	}
	d := &here.Payloads[0]
	d.Payload.Panels = []int{3, 9}
	want := make([]float32, 2*16)
	got := slices.Clone(want)
	if s := d.difference(want, got, 16, 4); s != "" {
		t.Error(s)
	}
	got[16+9] = 1
	if s := d.difference(want, got, 16, 4); s != "m 4: output 1 of panel 9 for activations 1 is 1 (0x3f800000), the reference has 0 (0x00000000)" {
		t.Error(s)
	}
}

func clone(t *testing.T, d *Digests) *Digests {
	t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	c := &Digests{}
	if err := json.Unmarshal(b, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestParityGolden compares the reference's outputs on this machine with a file from another
// machine.
func TestParityGolden(t *testing.T) {
	path, _ := quantize(t, filepath.Join(testshared.Root(t), "testdata", "books1.3M-bf16"), conversion.Options{})
	d, err := digests(context.Background(), openFile(t, path), ParityOptions{}, kernels.Features())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range d.Payloads {
		lines = append(lines, p.Reference+" "+p.Payload.Tensor)
		for _, k := range p.Kernels {
			if k.SHA256 != p.Reference {
				t.Errorf("%s: %s %s", p.Payload.Tensor, k.Kernel, k.FirstDifference)
			}
		}
	}
	compareGolden(t, filepath.Join("testdata", "parity.txt"), []byte(strings.Join(lines, "\n")+"\n"))
}

// TestRemoteParity runs the test binary as the other build.
func TestRemoteParity(t *testing.T) {
	path := layoutFile(t, quantizer.Recipe{})
	f := openFile(t, path)
	t.Setenv("GQ_CPU", "") // it would limit the other build as well
	list, err := RemoteParity(context.Background(), f, path, RemoteOptions{Arch: runtime.GOARCH, Match: func(name string) bool { return !strings.Contains(name, "head") }})
	if err != nil {
		if strings.Contains(err.Error(), "exec format error") {
			t.Skip("run by qemu, which cannot start programs for another machine: ", err)
		}
		t.Fatal(err)
	}
	for _, p := range list {
		if !p.Equal || p.Machine != runtime.GOARCH || p.Tensor == "lm_head.weight" {
			t.Errorf("%+v", p)
		}
	}
	if len(list) < 3 {
		t.Errorf("%d results", len(list))
	}
	if _, err := RemoteParity(context.Background(), f, path+".gone", RemoteOptions{Arch: runtime.GOARCH}); err == nil || !strings.Contains(err.Error(), "exit status 1: ") || !strings.Contains(err.Error(), ".gone") {
		t.Errorf("error %v for a file that is not there", err)
	}
}

func TestRemoteParityMissing(t *testing.T) {
	path := layoutFile(t, quantizer.Recipe{})
	f := openFile(t, path)
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	text := filepath.Join(t.TempDir(), "gq")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		o       RemoteOptions
		want    string
		missing bool
	}{
		{RemoteOptions{Arch: "riscv64"}, "use arm64 or amd64", false},
		{RemoteOptions{Arch: other}, "GOARCH=" + other + " go build", true},
		{RemoteOptions{Arch: other, Binary: text + ".gone"}, "there is no " + text + ".gone", true},
		{RemoteOptions{Arch: other, Binary: text}, "is not a Linux program", false},
		{RemoteOptions{Arch: other, Binary: own}, "is a program for ", false},
	}
	for _, tt := range tests {
		if tt.o.Binary == own && runtime.GOOS != "linux" {
			continue
		}
		_, err := RemoteParity(context.Background(), f, path, tt.o)
		var missing *MissingError
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &missing) != tt.missing {
			t.Errorf("%+v: error %v", tt.o, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := findQemu(architectures["arm64"]); err == nil || runtime.GOOS == "linux" && !strings.Contains(err.Error(), "apt install qemu-user") {
		t.Errorf("error %v without qemu", err)
	}
}

func TestSameDigests(t *testing.T) {
	want := &Digests{Version: digestsVersion, Arch: "arm64", Size: 5, Payloads: []PayloadDigest{{Payload: Parity{Tensor: "a"}}}}
	for _, tt := range []struct {
		change func(d *Digests)
		want   string
	}{
		{func(d *Digests) {}, ""},
		{func(d *Digests) { d.Version++ }, "version 2"},
		{func(d *Digests) { d.Arch = "amd64" }, "a build for amd64, not arm64"},
		{func(d *Digests) { d.Size++ }, "another file"},
		{func(d *Digests) { d.Payloads = nil }, "another file"},
		{func(d *Digests) { d.Payloads[0].Payload.Tensor = "b" }, `tensor "b"`},
	} {
		got := clone(t, want)
		tt.change(got)
		if err := sameDigests(got, want, "arm64"); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, tt := range []struct {
		all  int
		want []int
	}{{0, nil}, {1, []int{0}}, {4, []int{0, 1, 2, 3}}, {5, []int{0, 1, 2, 4}}, {100, []int{0, 33, 66, 99}}} {
		if got := spread(tt.all, 4); !slices.Equal(got, tt.want) {
			t.Errorf("spread(%d) = %v, want %v", tt.all, got, tt.want)
		}
	}
}
