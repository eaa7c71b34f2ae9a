//go:build images

package images

import (
	"archive/tar"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// both lists the suffixes of the image tags.
var both = []string{"", "-nvml"}

// locked returns the options that every container runs with.
func locked(user string, more ...string) []string {
	return append([]string{"--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--user", user},
		more...)
}

func TestBuildIsReproducible(t *testing.T) {
	again := t.TempDir()
	if err := build(again); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range both {
		layout := "dcgm-exporter" + suffix
		first, second := digestOf(t, filepath.Join(layouts, layout)), digestOf(t, filepath.Join(again, layout))
		if first != second {
			t.Errorf("dcgm-exporter%s: digests of two builds = %s and %s, want equal digests", suffix, first, second)
		}
	}
}

// A build leaves no image index in the storage. In Debian 12, an index makes "podman images" and "buildah images" fail.
func TestBuildsLeaveNoIndex(t *testing.T) {
	for _, suffix := range both {
		index := name + ":" + tag + suffix + "-index"
		if out, err := exec.Command("buildah", "manifest", "inspect", index).CombinedOutput(); err == nil {
			t.Errorf("storage has an image index of dcgm-exporter%s after the build, want none:\n%s", suffix, out)
		}
	}
}

// Every image contains libdcgm, unless its tag ends in -nvml.
func TestDefaultImageHasDCGM(t *testing.T) {
	for suffix, want := range map[string]bool{"": true, "-nvml": false} {
		for _, i := range images(t, filepath.Join(layouts, "dcgm-exporter"+suffix)) {
			has := false
			for at := range i.files {
				has = has || path.Base(at) == "libdcgm.so.4"
			}
			if has != want {
				t.Errorf("dcgm-exporter%s for %s: has libdcgm: %t, want %t", suffix, i.arch, has, want)
			}
		}
	}
}

// TestContract checks the configuration, the labels and the files of the images on both architectures. The only
// programs are dcgm-exporter and gpuop. All files belong to root, every user can read them, and none is setuid or
// setgid.
func TestContract(t *testing.T) {
	shipped := folder.Files(t, root, "etc/*.csv")
	if len(shipped) < 4 {
		t.Fatal(shipped)
	}
	for _, suffix := range both {
		var architectures []string
		for _, i := range images(t, filepath.Join(layouts, "dcgm-exporter"+suffix)) {
			architectures = append(architectures, i.arch)
			t.Run(i.arch+suffix, func(t *testing.T) {
				i.checkConfig(t)
				i.checkFiles(t)
				for _, f := range shipped {
					if at := "/etc/dcgm-exporter/" + filepath.Base(f); i.files[at] == nil {
						t.Errorf("file %s is missing", at)
					}
				}
			})
		}
		if diff := cmp.Diff([]string{"amd64", "arm64"}, architectures); diff != "" {
			t.Errorf("dcgm-exporter%s (-want +got):\n%s", suffix, diff)
		}
	}
}

func (i *image) checkConfig(t *testing.T) {
	c := i.config
	if diff := cmp.Diff([]string{"/usr/bin/dcgm-exporter"}, c.Entrypoint); diff != "" || len(c.Cmd) > 0 {
		t.Errorf("entry point = %v, command = %v; want [/usr/bin/dcgm-exporter] and no command", c.Entrypoint, c.Cmd)
	}
	for _, want := range []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} {
		if !slices.Contains(c.Env, want) {
			t.Errorf("environment does not contain %s: %v", want, c.Env)
		}
	}
	if _, open := c.ExposedPorts["9400/tcp"]; !open || len(c.ExposedPorts) != 1 {
		t.Errorf("exposed ports = %v, want only 9400/tcp", c.ExposedPorts)
	}
	if c.User != "0:0" {
		t.Errorf("user = %q, want root: the GPU Operator sets no user, and only root can read the kubelet's socket",
			c.User)
	}
	for _, label := range []string{"title", "description", "source", "url", "documentation", "licenses", "version",
		"revision", "created"} {
		if v := c.Labels["org.opencontainers.image."+label]; v == "" || v == "unknown" {
			t.Errorf("label %s = %q, want a value", label, v)
		}
	}
	if got, want := c.Labels["org.opencontainers.image.revision"], os.Getenv("REVISION"); got != want {
		t.Errorf("revision = %q, want %q", got, want)
	}
}

func (i *image) checkFiles(t *testing.T) {
	if !strings.Contains(i.texts["/etc/passwd"], "\ndcgm-exporter:x:1000:1000:") {
		t.Errorf("/etc/passwd = %q, want the user dcgm-exporter with ID 1000 in it", i.texts["/etc/passwd"])
	}
	var programs []string
	for at, h := range i.files {
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o6000 != 0 {
			t.Errorf("%s: owner %d:%d, mode %o; want 0:0 and no setuid or setgid bit", at, h.Uid, h.Gid, h.Mode)
		}
		if h.Mode&0o004 == 0 || h.Typeflag == tar.TypeDir && h.Mode&0o001 == 0 {
			t.Errorf("%s: mode = %o, want it readable by every user", at, h.Mode)
		}
		if slices.Contains([]string{"bin", "sbin"}, path.Base(path.Dir(at))) && h.Typeflag != tar.TypeDir {
			programs = append(programs, at)
		}
	}
	slices.Sort(programs)
	if diff := cmp.Diff([]string{"/usr/bin/dcgm-exporter", "/usr/bin/gpuop"}, programs); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
}

func TestSimulatedNodeAsBothUsers(t *testing.T) {
	for _, suffix := range both {
		for _, user := range []string{"0:0", "1000:1000"} {
			t.Run(user+suffix, func(t *testing.T) {
				c := start(t, locked(user, name+":"+tag+suffix, "--source=sim", "-c", "500")...)
				page := c.page(t, "DCGM_FI_DEV_GPU_TEMP{", "dcgm_exporter_collect_success 1")
				if n := strings.Count(page, "\nDCGM_"); n < 50 {
					t.Errorf("GPU series = %d, want at least 50", n)
				}
				want, got := `revision="`+os.Getenv("REVISION")+`"`, grep(page, "dcgm_exporter_build_info")
				if !strings.Contains(got, want) {
					t.Errorf("%s not found in %s", want, got)
				}
				if code := c.stop(t); code != "0" {
					t.Errorf("exit code after SIGTERM = %s, want 0", code)
				}
			})
		}
	}
}

// shared returns the options that pass environment variables to a container. The value of each variable is a path, and
// the directory of the path is mounted. Every user can then write to the directory and to the file.
func shared(t *testing.T, env []string) (options []string) {
	t.Helper()
	for _, e := range env {
		_, file, _ := strings.Cut(e, "=")
		options = append(options, "-e", e)
		for _, at := range []string{filepath.Dir(file), file} {
			if err := os.Chmod(at, 0o777); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		if mount := filepath.Dir(file) + ":" + filepath.Dir(file); !slices.Contains(options, mount) {
			options = append(options, "-v", mount)
		}
	}
	return options
}

// engine returns the options for a container with the DCGM test library and a script for two GPUs. The image contains
// the library, so LD_LIBRARY_PATH is not set.
func engine(t *testing.T) []string {
	t.Helper()
	_, env := dcgm.NewFor(t, "gpu 0 uuid=GPU-a name=NVIDIA+H100", "gpu 1 uuid=GPU-b name=NVIDIA+H100",
		"value gpu:* 150 int 41", "value gpu:* 155 double 300")
	return shared(t, slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "LD_LIBRARY_PATH=") }))
}

func TestDCGMInTheImage(t *testing.T) {
	for how, flags := range map[string][]string{
		"embedded":         {"--source=dcgm"},
		"remote":           {"--remote-hostengine-info=nvidia-dcgm:5555"},
		"automatic choice": nil,
	} {
		t.Run(how, func(t *testing.T) {
			options := append(locked("1000:1000", engine(t)...), name+":"+tag, "-c", "500")
			c := start(t, append(options, flags...)...)
			page := c.page(t, `DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"`, `DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b"`)
			if !strings.Contains(grep(page, "dcgm_exporter_source_info"), `source="dcgm"`) {
				t.Errorf("source = %s, want dcgm", grep(page, "dcgm_exporter_source_info"))
			}
			for line := range strings.Lines(grep(page, "DCGM_FI_DEV_GPU_TEMP{")) {
				if !strings.HasSuffix(line, " 41\n") {
					t.Errorf("series = %q, want the value 41 from the engine", line)
				}
			}
			if got := grep(page, "dcgm_exporter_library_missing"); got != "" {
				t.Errorf("dcgm_exporter_library_missing = %s, want no series", got)
			}
		})
	}
}

// driver returns the options that mount the NVML test library at the place where the NVIDIA Container Toolkit mounts
// the driver's library.
func driver(t *testing.T) []string {
	t.Helper()
	library, err := nvml.Build(t.TempDir())
	nvml.Need(t, err)
	options := shared(t, nvml.NewWorld(t, "gpus 2", "gpu 0 set temperature 43").Env())
	for _, at := range []string{filepath.Dir(library), library} {
		if err := os.Chmod(at, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return append(options, "-v", library+":/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1:ro")
}

func TestNVMLInBothImages(t *testing.T) {
	for _, suffix := range both {
		t.Run(suffix, func(t *testing.T) {
			options := append(locked("1000:1000", driver(t)...), name+":"+tag+suffix, "--source=nvml", "-c", "500")
			c := start(t, options...)
			page := c.page(t, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`, `DCGM_FI_DEV_GPU_TEMP{gpu="1"`)
			if !strings.Contains(grep(page, "dcgm_exporter_source_info"), `source="nvml"`) {
				t.Errorf("source = %s, want nvml", grep(page, "dcgm_exporter_source_info"))
			}
		})
	}
}
