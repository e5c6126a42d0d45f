package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lowbit-go/gq/internal/test/testremote"
)

const (
	secretToken    = "hf_TOKEN-that-nobody-must-see"
	secretPassword = "PASSWORD-that-nobody-must-see"
)

// hub ORG/NAME=DIR ...: starts a hub with these repositories, and a plain web server with the same
// directories at $PLAIN/NAME. A repository whose name begins with gated is gated. There is no
// token;
// $SECRET is the token to set, $PLAIN has a user and a password, and queries count as signatures.
func hub(t *testing.T) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		s := testremote.Start(t)
		s.Token = secretToken
		for _, arg := range args {
			name, dir, ok := strings.Cut(arg, "=")
			if !ok {
				ts.Fatalf("usage: hub ORG/NAME=DIR ...")
			}
			dir = ts.MkAbs(dir)
			s.AddRepo(t, name, dir).Gated = strings.Contains(name, "/gated")
			s.AddPlain(t, filepath.Base(name), dir)
		}
		u, err := url.Parse(s.URL)
		ts.Check(err)
		u.User = url.UserPassword("user", secretPassword)
		for key, value := range map[string]string{
			"HF_ENDPOINT": s.URL, "HF_HOME": ts.MkAbs("hf"), "XDG_CACHE_HOME": ts.MkAbs("cache"), "SECRET": secretToken, "PLAIN": u.String() + "/plain",
			"SIGNATURE": testremote.Signature, "HF_TOKEN": "", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "",
		} {
			ts.Setenv(key, value)
		}
	}
}

// nosecrets: no file of the script, and neither the last standard output nor standard error, has a
// token, a password or a signature.
func noSecrets(ts *testscript.TestScript, neg bool, args []string) {
	check := func(name string, data []byte) {
		for _, secret := range []string{secretToken, secretPassword, testremote.Signature} {
			if bytes.Contains(data, []byte(secret)) {
				ts.Fatalf("%s has a secret", name)
			}
		}
	}
	check("standard output", []byte(ts.ReadFile("stdout")))
	check("standard error", []byte(ts.ReadFile("stderr")))
	ts.Check(filepath.WalkDir(ts.MkAbs("."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		check(path, data)
		return err
	}))
}

// TestPullKilled kills gq pull at each request, and lets the same command go on. The second command
// does not fetch again a range that the first one has written.
func TestPullKilled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a killed process and its locks, as Unix has them")
	}
	s := testremote.Start(t)
	s.Token = secretToken
	model := t.TempDir()
	want := make([]byte, 5<<20+7)
	if _, err := rand.Read(want); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"config.json": []byte("{}"), "model.safetensors": want} {
		if err := os.WriteFile(filepath.Join(model, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s.AddRepo(t, "org/model", model).Private = true
	pull := func(home string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command("gq", "pull", "org/model", "--json", "-q")
		cmd.Env = append(os.Environ(), "HF_HOME="+home, "HF_ENDPOINT="+s.URL, "HF_TOKEN="+secretToken, "HF_HUB_CACHE=", "HF_HUB_OFFLINE=")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}
	s.SetFaults(nil)
	first, out := pull(t.TempDir())
	if err := first.Run(); err != nil {
		t.Fatal(err, out)
	}
	requests := len(s.Requests())
	for n := 1; n <= requests; n++ {
		home := t.TempDir()
		killed, _ := pull(home)
		s.SetFaults(nil)
		started := make(chan struct{})
		s.SetHook(func(i int, _ testremote.Request) {
			if i == n {
				<-started
				killed.Process.Kill()
			}
		})
		if err := killed.Start(); err != nil {
			t.Fatal(err)
		}
		close(started)
		if err := killed.Wait(); err == nil {
			// Ranges that start together each ask the hub for the address, ranges that start later do not:
			// the number of requests depends on how the command's threads run.
			if got := len(s.Requests()); got < n && n > requests/2 {
				continue
			}
			t.Fatalf("request %d of %d: the command was not killed", n, requests)
		}
		s.SetHook(nil)
		s.SetFaults(nil)
		again, out := pull(home)
		if err := again.Run(); err != nil {
			t.Fatalf("request %d: %v: %s", n, err, out)
		}
		var r struct{ Path string }
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err, out)
		}
		got, err := os.ReadFile(filepath.Join(r.Path, "model.safetensors"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("request %d: %d bytes, or others: %v", n, len(got), err)
		}
		if left, _ := filepath.Glob(filepath.Join(home, "hub", "models--*", "blobs", "*.gq-*")); len(left) > 0 {
			t.Errorf("request %d: %v is left", n, left)
		}
		if err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				data, e := os.ReadFile(path)
				if err = e; bytes.Contains(data, []byte(secretToken)) || bytes.Contains(data, []byte(testremote.Signature)) {
					err = fmt.Errorf("%s has a secret", path)
				}
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}
