package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNode(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "docs"))
	code, out, errOut := call("", "node", "--root", "examples/node", "-o", "json")
	if code != exitFindings || errOut != "" {
		t.Fatalf("exit %d, standard error %q; want 1 and none", code, errOut)
	}
	var got struct {
		At       string
		Findings []struct{ ID, State, Subject string }
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if first := got.Findings[0]; got.At == "" || first.ID != "first-broken-link" || !strings.HasSuffix(first.Subject, "99-nvidia.toml") {
		t.Errorf("first finding = %+v, time = %q; want first-broken-link for 99-nvidia.toml, and a time", first, got.At)
	}
	if code, _, _ := call("", "node", "--root", "examples/node", "--fail-on", "never"); code != exitClean {
		t.Errorf("--fail-on never: exit %d, want %d", code, exitClean)
	}
}

func TestNodeRefuses(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--root " + empty + "/missing": "no such file",
		"--root " + file:               "is not a folder",
		"--root " + empty:              "has none of the folders",
		"gpu-1":                        "expected no arguments",
	} {
		code, out, errOut := call("", append([]string{"node"}, strings.Fields(args)...)...)
		if code != exitBadInput || out != "" || !strings.Contains(errOut, want) || strings.Count(errOut, "\n") != 1 {
			t.Errorf("gpuop node %s: exit %d, standard error %q; want 2 and one line with %q", args, code, errOut, want)
		}
	}
}
