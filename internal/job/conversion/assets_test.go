package conversion

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lowbit-go/gq/formats/gqf"
	"github.com/lowbit-go/gq/internal/test/testshared"
	"github.com/lowbit-go/gq/packing"
	"github.com/lowbit-go/gq/quantizer"
)

// TestForeignAsset has a file of a checkpoint lead to something that is not to be published.
func TestForeignAsset(t *testing.T) {
	dir := writeCheckpoint(t, "", llama()...)
	secret := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(secret, []byte("[default]\nkey = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "tokenizer_config.json")
	if err := os.Symlink(secret, link); err != nil {
		t.Skip(err)
	}
	_, err := newPlan(t, dir, Options{})
	if err == nil || !strings.Contains(err.Error(), link+" would be stored with the model, but is not a JSON object") {
		t.Error(err)
	}
}

// TestAssetsTooLarge has files beside a checkpoint that are too large together.
func TestAssetsTooLarge(t *testing.T) {
	testshared.SlowEmulated(t, "limits are the same natively")
	dir := writeCheckpoint(t, "", llama()...)
	text := append(bytes.Repeat([]byte(" "), 45<<20), "{}"...)
	for _, name := range []string{"added_tokens.json", "chat_template.json", "special_tokens_map.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	_, err := newPlan(t, dir, Options{})
	if err == nil || !strings.Contains(err.Error(), "special_tokens_map.json: with it, the files that are stored with the model have more than 134217728 bytes") {
		t.Error(err)
	}
}

// withAssets is a file of one tensor and these assets.
func withAssets(t *testing.T, assets ...gqf.AssetSpec) *gqf.File {
	b := gqf.NewBuilder()
	ti := b.AddTensor(gqf.TensorSpec{Name: "w", Shape: []int64{4}, Dtype: packing.U8})
	b.AddName(gqf.NameSpec{Name: "w", Tensor: ti, InCheckpoint: true})
	b.AddPayload(gqf.PayloadSpec{Tensor: ti, Header: packing.PlainHeader(packing.U8, 1, 4)})
	for _, a := range assets {
		b.AddAsset(a)
	}
	im, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	m := make(memory, im.Size())
	if err := im.WritePayloadHeaders(m); err != nil {
		t.Fatal(err)
	}
	im.AddData(im.PayloadOffset(0)+packing.HeaderSize, make([]byte, 4))
	if err := im.WriteFront(m); err != nil {
		t.Fatal(err)
	}
	f, err := gqf.OpenBytes(m, gqf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestDequantizeAssets writes assets to an empty directory, and not to one that holds files.
func TestDequantizeAssets(t *testing.T) {
	long := bytes.Repeat([]byte("merges and tokens "), 200_000) // of several pieces
	f := withAssets(t, gqf.AssetSpec{Kind: gqf.AssetFile, Name: "empty.txt"}, gqf.AssetSpec{Kind: gqf.AssetFile, Name: "long.txt", Data: long})
	tests := []struct {
		name string
		have map[string]string
		ok   bool
	}{
		{"nothing", nil, true},
		{"the same", map[string]string{"long.txt": string(long), "empty.txt": ""}, false},
		{"another", map[string]string{"other.txt": "x"}, false},
	}
	for _, test := range tests {
		dir := t.TempDir()
		for name, data := range test.have {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Dequantize(context.Background(), f, "", dir, DequantizeOptions{})
		if !test.ok {
			if _, ok := errors.AsType[*quantizer.RequestError](err); !ok {
				t.Errorf("%s: error %v, want a *RequestError", test.name, err)
			}
			continue
		}
		if err != nil || r.Files != 2 {
			t.Errorf("%s: %+v %v", test.name, r, err)
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, "long.txt")); err != nil || !bytes.Equal(got, long) {
			t.Errorf("%s: %d bytes, %v", test.name, len(got), err)
		}
	}
	for _, name := range []string{"model.safetensors", "Model.SafeTensors", "model.safetensors.index.json", "gq-recipe.json", "GQ-provenance.json"} {
		f := withAssets(t, gqf.AssetSpec{Kind: gqf.AssetFile, Name: name, Data: []byte("x")})
		if _, err := Dequantize(context.Background(), f, "", t.TempDir(), DequantizeOptions{}); err == nil || !strings.Contains(err.Error(), "that gq writes itself") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
