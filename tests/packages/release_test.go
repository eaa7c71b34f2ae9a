//go:build packages

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// clone returns the path of a clone of the repository, in which the current commit is tagged v0.1.0.
func clone(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "clone")
	for _, args := range [][]string{
		{"git", "clone", "--quiet", "--shared", root, at},
		{"git", "-C", at, "-c", "user.name=test", "-c", "user.email=test@example.com", "tag", "-a", "-m", "test",
			"v0.1.0"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return at
}

func release(at string, settings ...string) (string, error) {
	cmd := exec.Command("make", append([]string{"-C", at, "release"}, settings...)...)
	// make the DCGM packages unavailable, so that no image with DCGM is built; tests/images builds it with a fake
	// package
	cmd.Env = append(os.Environ(), "REPOSITORY_OF_DCGM=https://127.0.0.1:1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A release has exactly the expected files, with correct digests. dcgm-exporter reports the version of the release, and
// gpuop generates values with it.
func TestRelease(t *testing.T) {
	at := clone(t)
	out, err := release(at, "VERSION=v0.1.0")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "SKIP ") {
			t.Log(strings.TrimSpace(line))
		}
	}
	dist := filepath.Join(at, "dist", "v0.1.0")
	var names []string
	for _, f := range folder.Files(t, dist, "*") {
		names = append(names, filepath.Base(f))
	}
	want := []string{
		"SHA256SUMS", "dcgm-exporter-0.1.0-1.aarch64.rpm", "dcgm-exporter-0.1.0-1.x86_64.rpm",
		"dcgm-exporter_0.1.0-1_amd64.deb",
		"dcgm-exporter_0.1.0-1_arm64.deb", "dcgm-exporter_0.1.0.intoto.json",
		"dcgm-exporter_0.1.0_linux_amd64.cdx.json",
		"dcgm-exporter_0.1.0_linux_amd64.tar.gz", "dcgm-exporter_0.1.0_linux_arm64.cdx.json",
		"dcgm-exporter_0.1.0_linux_arm64.tar.gz",
		"gpuop_0.1.0_linux_amd64.cdx.json", "gpuop_0.1.0_linux_arm64.cdx.json", "notes.md",
	}
	if _, err := exec.LookPath("buildah"); err == nil {
		want = append(want, "dcgm-exporter_0.1.0-nvml_image.cdx.json", "dcgm-exporter_0.1.0-nvml_image.oci.tar.gz",
			"images.txt")
	}
	if _, err := os.Stat(filepath.Join(root, "deployment/chart/Chart.yaml")); err == nil {
		want = append(want, "dcgm-exporter-0.1.0-chart.tgz")
	}
	slices.Sort(want)
	slices.Sort(names)
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	// SHA256SUMS must list all other files with the right digests, and the provenance statement must list all but these
	// two
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = dist
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
	sums, provenance := folder.Read(t, dist, "SHA256SUMS"), folder.Read(t, dist, "dcgm-exporter_0.1.0.intoto.json")
	for _, n := range names {
		if n != "SHA256SUMS" && !strings.Contains(sums, "  "+n+"\n") {
			t.Errorf("%s has no checksum", n)
		}
		if n != "SHA256SUMS" && !strings.HasSuffix(n, ".intoto.json") &&
			!strings.Contains(provenance, `"name": "`+n+`"`) {
			t.Errorf("provenance statement does not have the file %s", n)
		}
	}
	head, err := exec.Command("git", "-C", at, "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	revision := strings.TrimSpace(string(head))
	if !strings.Contains(provenance, `"gitCommit": "`+revision+`"`) {
		t.Errorf("provenance statement does not name the commit %s", revision)
	}

	unpacked := t.TempDir()
	contents := unpack(t, filepath.Join(dist, "dcgm-exporter_0.1.0_linux_amd64.tar.gz"), unpacked)
	for _, f := range []string{"dcgm-exporter", "gpuop", "LICENSE", "etc/default-counters.csv",
		"systemd/dcgm-exporter.service", "systemd/drop-ins/tls.conf"} {
		if !slices.Contains(contents, "dcgm-exporter_0.1.0_linux_amd64/"+f) {
			t.Errorf("files in the archive = %v, want %s among them", contents, f)
		}
	}
	said, err := exec.Command(filepath.Join(unpacked, "dcgm-exporter_0.1.0_linux_amd64", "dcgm-exporter"),
		"--version").Output()
	wanted := `^dcgm-exporter v0\.1\.0\n  revision: ` + revision + `\n  date:     20\d\d-\d\d-\d\dT[0-9:]+Z\n`
	if err != nil || !regexp.MustCompile(wanted).Match(said) {
		t.Errorf("--version: %v\n%s", err, said)
	}
	// gpuop must write the version of the release into the values that it generates
	written, err := exec.Command(filepath.Join(unpacked, "dcgm-exporter_0.1.0_linux_amd64", "gpuop"), "values", "gen",
		"generic", "exporter").Output()
	if err != nil || !regexp.MustCompile(`version: "?v0\.1\.0"?\n`).Match(written) {
		t.Errorf("gpuop values gen generic exporter: error %v, want no error and the version v0.1.0 in:\n%s", err,
			written)
	}
	if slices.Contains(names, "images.txt") {
		images := folder.Read(t, dist, "images.txt")
		if !strings.HasPrefix(images, "dcgm-exporter:v0.1.0-nvml sha256:") {
			t.Errorf("images.txt = %q, want the reference and the digest of an image", images)
		}
	}
}

// unpack unpacks an archive and returns the paths of its files. The test fails if an entry does not belong to root.
func unpack(t *testing.T, archive, into string) (files []string) {
	t.Helper()
	for line := range strings.Lines(reads(t, "tar", "--numeric-owner", "-tvzf", archive)) {
		words := strings.Fields(line) // mode, owner, size, date, time, name
		if words[1] != "0/0" {
			t.Errorf("owner = %s, want 0/0, in the line %q", words[1], line)
		}
		if strings.HasPrefix(line, "-") {
			files = append(files, filepath.Clean(words[5]))
		}
	}
	reads(t, "tar", "-xzf", archive, "-C", into)
	return files
}
