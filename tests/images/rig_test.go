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
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
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
	return build(layouts)
}

// build runs build.sh with the fake repository.
func build(out string) error {
	start := time.Now()
	cmd := exec.Command(filepath.Join(root, "deployment/docker/build.sh"), out)
	cmd.Env = append(os.Environ(), "REPOSITORY_OF_DCGM=file:"+repository, "NAME="+name, "TAG="+tag)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w\n%s", err, text)
	}
	fmt.Printf("%sbuilt in %v\n", text, time.Since(start).Round(time.Second))
	return nil
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
		const core = "datacenter-gpu-manager-4-core"
		var index []byte
		for name, depends := range map[string]string{
			core: "libc6 (>= 2.17), libcap2", "datacenter-gpu-manager-4-proprietary": core,
		} {
			control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: %s\n"+
				"Maintainer: test <test@example.com>\nDepends: %s\nDescription: stand-in\n",
				name, dcgmVersion, arch, depends)
			files := map[string]string{
				"DEBIAN/control": control, "usr/share/doc/" + name + "/copyright": "stand-in\n",
				"usr/share/doc/" + name + "/changelog.Debian.gz": "",
			}
			if name == core {
				files["usr/lib/"+place.triplet+"/libdcgm.so.4"] = string(content)
			}
			deb := name + "_" + strings.TrimPrefix(dcgmVersion, "1:") + "_" + arch + ".deb"
			tree := filepath.Join(folder, "tree", arch, name)
			made, err := pack(files, tree, filepath.Join(folder, place.folder, deb))
			if err != nil {
				return err
			}
			index = fmt.Appendf(index, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, deb, len(made),
				sha256.Sum256(made))
		}
		if err := os.WriteFile(filepath.Join(folder, place.folder, "Packages"), index, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack writes files to the folder tree and builds a Debian package of them. It returns the content of the package.
func pack(files map[string]string, tree, deb string) ([]byte, error) {
	for name, content := range files {
		path := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.MkdirAll(filepath.Dir(deb), 0o755),
			os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return nil, err
		}
	}
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", tree, deb).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("dpkg-deb: %w\n%s", err, out)
	}
	return os.ReadFile(deb)
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
		content := folder.Read(t, layout, "blobs", strings.Replace(digest, ":", "/", 1))
		if err := json.Unmarshal([]byte(content), into); err != nil {
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
	unpacked, err := gzip.NewReader(strings.NewReader(folder.Read(t, blob)))
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
	var index struct{ Manifests []struct{ Digest string } }
	err := json.Unmarshal([]byte(folder.Read(t, layout, "index.json")), &index)
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
	return prom.Await(t, patience, c.url+"/metrics", has...)
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
