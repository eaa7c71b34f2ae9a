//go:build images

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

// patience bounds every wait. It is not a performance requirement.
const patience = 40 * time.Second

const (
	root = "../.."
	// name and tag identify the images under test.
	name = "localhost/dcgm-exporter"
	tag  = "test"
	// dcgmVersion is the version of the fake DCGM package.
	dcgmVersion = "1:4.6.1-1"
)

// compilers maps each architecture to the C compiler for the fake library.
var compilers = map[string]string{"amd64": "gcc", "arm64": "aarch64-linux-gnu-gcc"}

// layouts is the directory of the OCI layouts, and repository the directory of the fake packages.
var layouts, repository string

func TestMain(m *testing.M) { os.Exit(folder.RunAsRoot(m, "images", prepare)) }

// prepare builds the images with a fake of NVIDIA's package repository.
func prepare(work string) error {
	// Debian's default runtime and limits for podman do not work on the CI machines.
	conf := filepath.Join(work, "containers.conf")
	if err := os.WriteFile(conf,
		[]byte("[engine]\nruntime = \"runc\"\n[containers]\ndefault_ulimits = [\"nofile=1024:1024\", "+
			"\"nproc=1024:1024\"]\n"), 0o600); err != nil {
		return err
	}
	os.Setenv("CONTAINERS_CONF", conf)
	repository, layouts = filepath.Join(work, "repository"), filepath.Join(work, "layouts")
	if err := standIn(repository); err != nil {
		return err
	}
	start := time.Now()
	if out, err := build(layouts, "TAG="+tag); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	} else {
		fmt.Printf("%sbuilt in %v\n", out, time.Since(start).Round(time.Second))
	}
	return nil
}

// build runs build.sh with the fake repository.
func build(out string, env ...string) (string, error) {
	cmd := exec.Command(filepath.Join(root, "deployment/docker/build.sh"), out)
	cmd.Env = append(append(os.Environ(), "REPOSITORY_OF_DCGM=file:"+repository, "NAME="+name), env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// standIn writes a package repository with the layout of NVIDIA's. Its core packages contain the test library.
func standIn(folder string) error {
	for arch, place := range map[string]struct{ folder, triplet string }{
		"amd64": {"x86_64", "x86_64-linux-gnu"}, "arm64": {"sbsa", "aarch64-linux-gnu"},
	} {
		library, err := dcgm.BuildWith(compilers[arch])
		if err != nil {
			return err
		}
		content, err := os.ReadFile(filepath.Join(library, "libdcgm.so.4"))
		if err != nil {
			return err
		}
		var index strings.Builder
		for _, p := range []struct{ name, depends string }{
			{"datacenter-gpu-manager-4-core", "libc6 (>= 2.17), libcap2"},
			{"datacenter-gpu-manager-4-proprietary", "datacenter-gpu-manager-4-core"},
		} {
			tree := filepath.Join(folder, "tree", arch, p.name)
			files := map[string][]byte{
				"DEBIAN/control": fmt.Appendf(nil,
					"Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: test <test@example.com>\nDepends: "+
						"%s\nDescription: stand-in\n",
					p.name, dcgmVersion, arch, p.depends),
				"usr/share/doc/" + p.name + "/copyright":           []byte("stand-in\n"),
				"usr/share/doc/" + p.name + "/changelog.Debian.gz": nil,
			}
			if p.depends[0] == 'l' {
				files["usr/lib/"+place.triplet+"/libdcgm.so.4"] = content
			}
			for to, content := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, to)), 0o755); err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(tree, to), content, 0o644); err != nil {
					return err
				}
			}
			deb := p.name + "_" + strings.TrimPrefix(dcgmVersion, "1:") + "_" + arch + ".deb"
			at := filepath.Join(folder, place.folder, deb)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return err
			}
			if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", tree,
				at).CombinedOutput(); err != nil {
				return fmt.Errorf("dpkg-deb: %w\n%s", err, out)
			}
			made, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			fmt.Fprintf(&index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", files["DEBIAN/control"], deb, len(made),
				sha256.Sum256(made))
		}
		if err := os.WriteFile(filepath.Join(folder, place.folder, "Packages"), []byte(index.String()),
			0o644); err != nil {
			return err
		}
	}
	return nil
}

type image struct {
	arch   string
	config struct {
		User         string
		Env          []string
		Entrypoint   []string
		Cmd          []string
		ExposedPorts map[string]struct{}
		Labels       map[string]string
	}
	files map[string]*tar.Header // headers of files and directories by absolute path
	texts map[string]string      // content of small files by absolute path
}

// images reads the images of an OCI layout, one for each architecture.
func images(t *testing.T, layout string) []image {
	t.Helper()
	type descriptor struct {
		Digest   string
		Platform struct{ OS, Architecture string }
	}
	blob := func(digest string, into any) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(layout, "blobs", strings.Replace(digest, ":", "/", 1)))
		if err == nil {
			err = json.Unmarshal(content, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var list struct{ Manifests []descriptor }
	blob(digestOf(t, layout), &list)
	var all []image
	for _, m := range list.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(m.Digest, &manifest)
		i := image{arch: m.Platform.Architecture, files: map[string]*tar.Header{}, texts: map[string]string{}}
		var config struct {
			OS, Architecture string
			Config           any
		}
		config.Config = &i.config
		blob(manifest.Config.Digest, &config)
		if config.OS != "linux" || config.Architecture != i.arch {
			t.Errorf("platform = linux/%s in the index and %s/%s in the image, want the same", i.arch, config.OS,
				config.Architecture)
		}
		for _, l := range manifest.Layers {
			i.unpack(t, filepath.Join(layout, "blobs", strings.Replace(l.Digest, ":", "/", 1)))
		}
		all = append(all, i)
	}
	return all
}

func (i *image) unpack(t *testing.T, blob string) {
	t.Helper()
	content, err := os.ReadFile(blob)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unpacked); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		at := path.Clean("/" + h.Name)
		i.files[at] = h
		if h.Size < 1<<16 && h.Typeflag == tar.TypeReg {
			text, err := io.ReadAll(archive)
			if err != nil {
				t.Fatal(err)
			}
			i.texts[at] = string(text)
		}
	}
}

// digestOf returns the digest of the only index in a layout.
func digestOf(t *testing.T, layout string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(layout, "index.json"))
	var index struct{ Manifests []struct{ Digest string } }
	if err == nil {
		err = json.Unmarshal(content, &index)
	}
	if err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%s: index.json has %d manifests, want 1 (error %v)", layout, len(index.Manifests), err)
	}
	return index.Manifests[0].Digest
}

// podman runs podman and returns its standard output and exit code.
func podman(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out, stderr bytes.Buffer
	cmd := exec.Command("podman", args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("podman %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

type container struct {
	id, url string
}

// start starts a container with the arguments of "podman run", and removes it when the test ends. It publishes port
// 9400 on a free loopback port.
func start(t *testing.T, args ...string) *container {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	out, code := podman(t, append([]string{"run", "-d", "-p", address + ":9400"}, args...)...)
	if code != 0 {
		t.Fatalf("podman run: exit code = %d, want 0; output:\n%s", code, out)
	}
	c := &container{id: strings.TrimSpace(out), url: "http://" + address}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the container:\n%s", c.log(t))
		}
		podman(t, "rm", "-f", "-t", "0", c.id)
	})
	return c
}

func (c *container) log(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("podman", "logs", c.id).CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	return string(out)
}

// page waits until, for each prefix in has, a line of the container's page starts with it. It returns the page.
func (c *container) page(t *testing.T, has ...string) string {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	var page string
	err := wait.Until(patience, func() error {
		response, err := client.Get(c.url + "/metrics")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s: %w", response.Status, err)
		}
		page = string(content)
		for _, h := range has {
			if !strings.Contains("\n"+page, "\n"+h) {
				return fmt.Errorf("series %s not found", h)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v on the page:\n%s", err, grep(page, "dcgm_exporter_"))
	}
	return page
}

// stop sends SIGTERM, and SIGKILL after 10 s. It returns the exit code.
func (c *container) stop(t *testing.T) string {
	t.Helper()
	podman(t, "stop", "-t", "10", c.id)
	code, _ := podman(t, "inspect", "--format", "{{.State.ExitCode}}", c.id)
	return strings.TrimSpace(code)
}

// grep returns the lines that start with prefix.
func grep(text, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			b.WriteString(line)
		}
	}
	return b.String()
}
