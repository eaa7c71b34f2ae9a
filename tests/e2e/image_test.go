//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// exporterImage is a name of the exporter's image on the node. The image is loaded, not pulled from a registry. It also
// has the name that is used in deployment/.
const exporterImage = "e2e.local/dcgm-exporter:1"

// shippedImage returns the image name in deployment/kubernetes.
func shippedImage(t *testing.T) string {
	t.Helper()
	var set apps.DaemonSet
	if err := yaml.UnmarshalStrict([]byte(folder.Read(t, "../../deployment/kubernetes/daemonset.yaml")),
		&set); err != nil {
		t.Fatal(err)
	}
	return set.Spec.Template.Spec.Containers[0].Image
}

// containerfiles returns the name of an image that was built from deployment/docker at this commit, by make image or
// make image-test. The image is in buildah's storage. E2E_IMAGE selects another image.
func containerfiles() (string, error) {
	if name := os.Getenv("E2E_IMAGE"); name != "" {
		return name, nil
	}
	revision, err := exec.Command("git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "", fmt.Errorf("cannot determine the commit: %w", err)
	}
	commit := strings.TrimSpace(string(revision))
	if strings.HasSuffix(commit, "-dirty") {
		return "", errors.New("the tree has uncommitted changes")
	}
	// inspect each name by itself: listing all images fails if one of them is incomplete
	for _, tag := range []string{"dev", "test"} {
		name := "localhost/dcgm-exporter:" + tag
		of, err := exec.Command("buildah", "inspect", "--type", "image", "--format",
			`{{index .OCIv1.Config.Labels "org.opencontainers.image.revision"}}`, name).Output()
		if err == nil && strings.TrimSpace(string(of)) == commit {
			return name, nil
		}
	}
	return "", fmt.Errorf("buildah has no image of commit %s: run make image", commit)
}

// TestNodeUsesBuiltImage checks that an image built from deployment/docker, if there is one, is on the node. The image
// has a revision label, and the one that the tests make themselves does not.
func TestNodeUsesBuiltImage(t *testing.T) {
	n := theNode(t)
	if _, err := containerfiles(); err != nil {
		material.Skip(t, "image-not-built", err)
	}
	n.image(t)
	tree := n.ctr(t, "images", "inspect", exporterImage)
	config := regexp.MustCompile(`image(?:\.config)?\.v1\+json @(sha256:[0-9a-f]{64})`).FindStringSubmatch(tree)
	if config == nil {
		t.Fatalf("the image on the node has no configuration:\n%s", tree)
	}
	if text := n.ctr(t, "content", "get", config[1]); !strings.Contains(text, `"org.opencontainers.image.revision"`) {
		t.Errorf("the image on the node has no revision label:\n%s", text)
	}
}

// ctr runs containerd's client on the node and returns its output.
func (n *node) ctr(t *testing.T, args ...string) string {
	t.Helper()
	socket := filepath.Join(n.state, "host/run/containerd/containerd.sock")
	cmd := exec.Command(filepath.Join(n.programs, "ctr"),
		append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// image loads an image of the exporter into the node. If none was built from deployment/docker, it makes one from a
// static program and the shipped counters files.
func (n *node) image(t *testing.T) {
	t.Helper()
	archive := filepath.Join(n.state, "exporter.tar")
	if _, err := os.Stat(archive); err == nil {
		return // loaded by an earlier test
	}
	if name, err := containerfiles(); err == nil {
		push := exec.Command("buildah", "push", "--quiet", name, "docker-archive:"+archive+":"+exporterImage)
		if out, err := push.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", push.Args, err, out)
		}
		n.ctr(t, "images", "import", archive)
		n.ctr(t, "images", "tag", "--force", exporterImage, shippedImage(t))
		t.Logf("loaded %s into the node", name)
		return
	}
	program := filepath.Join(t.TempDir(), "dcgm-exporter")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", program, "../../cmd/dcgm-exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	files := map[string]string{"usr/bin/dcgm-exporter": folder.Read(t, program)}
	for _, path := range folder.Files(t, "../../etc/*.csv") {
		files["etc/dcgm-exporter/"+filepath.Base(path)] = folder.Read(t, path)
	}
	folder.Write(t, archive, imageOf(t, exporterImage+" "+shippedImage(t), "/usr/bin/dcgm-exporter", files))
	n.ctr(t, "images", "import", archive)
}

// imageOf returns an image with one layer, in the format of docker save. names has the image's names, separated by
// spaces.
func imageOf(t *testing.T, names, entrypoint string, files map[string]string) string {
	t.Helper()
	files["tmp/.keep"] = "" // a mount point, because the root file system is read-only
	files["var/lib/kubelet/pod-resources/.keep"] = ""
	layer := archived(t, files)
	config := asJSON(t, map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}},
		"rootfs": map[string]any{
			"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(layer)))},
		},
	})
	manifest := asJSON(t, []map[string]any{
		{"Config": "config.json", "RepoTags": strings.Fields(names), "Layers": []string{"layer.tar"}},
	})
	return archived(t, map[string]string{"manifest.json": manifest, "config.json": config, "layer.tar": layer})
}

func archived(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
