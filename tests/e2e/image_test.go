//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// exporterImage is the name that deployment/kubernetes has for the image, which
// no registry is asked for: the node has it.
const exporterImage = "ghcr.io/gpu-telemetry/dcgm-exporter:latest"

// image gives the node an image of the exporter: what deployment/docker puts
// into one, with a program that needs no base.
func (n *node) image(t *testing.T) {
	t.Helper()
	archive := filepath.Join(n.state, "exporter.tar")
	if _, err := os.Stat(archive); err == nil {
		return // an earlier test has
	}
	program := filepath.Join(t.TempDir(), "dcgm-exporter")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "../../cmd/dcgm-exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	counters, err := filepath.Glob("../../etc/*.csv")
	if err != nil || len(counters) == 0 {
		t.Fatalf("no counters files: %v", err)
	}
	files := map[string][]byte{"usr/bin/dcgm-exporter": read(t, program)}
	for _, path := range counters {
		files["etc/dcgm-exporter/"+filepath.Base(path)] = read(t, path)
	}
	if err := os.WriteFile(archive, imageOf(t, exporterImage, "/usr/bin/dcgm-exporter", files), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(n.state, "host/run/containerd/containerd.sock")
	load := exec.Command(filepath.Join(n.programs, "ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", load.Args, err, out)
	}
}

// imageOf returns an image of one layer, in the form that docker save writes.
func imageOf(t *testing.T, name, entrypoint string, files map[string][]byte, env ...string) []byte {
	t.Helper()
	files["tmp/.keep"] = nil // a place to mount at, the root being read-only
	files["var/lib/kubelet/pod-resources/.keep"] = nil
	layer := archived(t, files)
	config := asJSON(t, map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}, "Env": env},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	manifest := asJSON(t, []map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	return archived(t, map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer})
}

func archived(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
