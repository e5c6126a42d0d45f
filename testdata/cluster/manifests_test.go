package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// jobs decodes the manifests. A field that the types do not have is an error.
func jobs(t *testing.T) (parts, merge batchv1.Job) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "cluster", "kubernetes.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != 2 {
		t.Fatalf("%d documents", len(documents))
	}
	for i, job := range []*batchv1.Job{&parts, &merge} {
		if err := yaml.UnmarshalStrict(documents[i], job); err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
		if job.APIVersion != "batch/v1" || job.Kind != "Job" {
			t.Fatalf("document %d is a %s of %s", i, job.Kind, job.APIVersion)
		}
	}
	return parts, merge
}

// TestManifests checks facts that the API's types cannot express: the numbers and paths of the
// manifests agree, and each mounted volume is defined.
func TestManifests(t *testing.T) {
	parts, merge := jobs(t)
	s := parts.Spec
	if s.CompletionMode == nil || *s.CompletionMode != batchv1.IndexedCompletion || s.Completions == nil || s.Parallelism == nil || s.BackoffLimitPerIndex == nil {
		t.Fatalf("not an Indexed Job with a limit for each index: %+v", s)
	}
	n := strconv.Itoa(int(*s.Completions))
	command := s.Template.Spec.Containers[0].Command
	if after(command, "--part") != "/"+n {
		t.Errorf("%s completions, the command is %q", n, command)
	}
	m := merge.Spec.Template.Spec.Containers[0]
	flags := strings.Join(command[1:len(command)-5], " ") // without --part, --quiet and -o
	if want := "gq " + flags + " --part 0/" + n + " --dry-run"; !strings.Contains(m.Command[2], want) {
		t.Errorf("the merge runs %q, expected %q in it", m.Command[2], want)
	}
	if out := after(command, "-o"); m.Env[0].Value != out {
		t.Errorf("the parts are of %s, the merge is of %q", out, m.Env)
	}
	for _, job := range []batchv1.Job{parts, merge} {
		p := job.Spec.Template.Spec
		if p.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s: restart policy %q", job.Name, p.RestartPolicy)
		}
		for _, c := range append(p.InitContainers, p.Containers...) {
			for _, m := range c.VolumeMounts {
				if !mounts(p.Volumes, m.Name) {
					t.Errorf("%s, %s: no volume %q", job.Name, c.Name, m.Name)
				}
			}
		}
	}
	if rule := s.PodFailurePolicy.Rules[1].OnExitCodes; rule == nil || *rule.ContainerName != s.Template.Spec.Containers[0].Name || rule.Values[0] != 2 {
		t.Errorf("the policy for exit codes: %+v", rule)
	}
}

// after is the argument after a flag.
func after(args []string, flag string) string {
	for i, a := range args[:len(args)-1] {
		if a == flag {
			return args[i+1]
		}
	}
	return ""
}

func mounts(volumes []corev1.Volume, name string) bool {
	for _, v := range volumes {
		if v.Name == name {
			return true
		}
	}
	return false
}

// TestManifestCommands runs the commands of the manifests with the volume's paths replaced: the
// merge's wait begins before the last part is there, and the merged file equals the file of a
// single job.
func TestManifestCommands(t *testing.T) {
	parts, merge := jobs(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "out"), 0o777); err != nil {
		t.Fatal(err)
	}
	local := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "/models/Llama-3.1-8B", model), "/models/out", filepath.Join(dir, "out"))
	}
	start := func(c corev1.Container, env ...string) *exec.Cmd {
		args := make([]string, len(c.Command))
		for i, a := range c.Command {
			args[i] = local(a)
		}
		if args[0] == "gq" {
			args[0] = gq
		}
		env = append(env, "PATH="+filepath.Dir(gq)+string(os.PathListSeparator)+os.Getenv("PATH"))
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), env...)
		for _, e := range c.Env {
			cmd.Env = append(cmd.Env, e.Name+"="+local(e.Value))
		}
		return cmd
	}
	run := func(cmd *exec.Cmd) {
		t.Helper()
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
	}
	n := int(*parts.Spec.Completions)
	part := func(i int) {
		run(start(parts.Spec.Template.Spec.Containers[0], fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i)))
	}
	for i := range n - 1 {
		part(i)
	}
	part(0) // a second time
	// Parts of another job are there, as after an earlier job with other flags. They are replaced.
	out := local(after(parts.Spec.Template.Spec.Containers[0].Command, "-o"))
	run(exec.Command(gq, "quantize", model, "--bits", "5", "-q", "--part", fmt.Sprintf("%d/%d", n-1, n), "-o", out))
	wait := start(merge.Spec.Template.Spec.Containers[0])
	if err := wait.Start(); err != nil {
		t.Fatal(err)
	}
	part(n - 1)
	if err := wait.Wait(); err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(dir, "one.gqf")
	run(exec.Command(gq, "quantize", model, "--bits", "4", "-q", "-o", one))
	want, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the merged file differs from one job's (%v)", err)
	}
}
