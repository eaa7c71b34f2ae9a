package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

var at = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// nodes reads testdata/nodes.yaml.
var nodes = sync.OnceValue(func() (file struct {
	Healthy map[string]string
	Cases   []struct {
		Name, Broken string
		Change       map[string]*string
		Want         []string
	}
}) {
	data, err := os.ReadFile(filepath.Join("testdata", "nodes.yaml"))
	if err == nil {
		err = yaml.Unmarshal(data, &file)
	}
	if err != nil {
		panic(err)
	}
	return file
})

// healthy returns the files of a node without faults, by path.
func healthy() map[string]string { return nodes().Healthy }

// change returns a copy of files in which some are added, replaced or removed. pairs alternates paths and contents. The
// content "-" removes a path and everything below it.
func change(files map[string]string, pairs ...string) map[string]string {
	files = maps.Clone(files)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "-" {
			files[pairs[i]] = pairs[i+1]
			continue
		}
		maps.DeleteFunc(files, func(name, _ string) bool { return name == pairs[i] || strings.HasPrefix(name, pairs[i]+"/") })
	}
	return files
}

// plant writes the files. Creating devices needs privileges, so the returned root's stat fakes their numbers.
func plant(t *testing.T, files map[string]string) root {
	t.Helper()
	dir := t.TempDir()
	devices := map[string][2]uint32{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, isLink := strings.CutPrefix(content, "→"); isLink {
			err = os.Symlink(target, full)
		} else {
			var major, minor uint32
			if _, scanned := fmt.Sscanf(content, "dev %d:%d", &major, &minor); scanned == nil {
				devices[full] = [2]uint32{major, minor}
			}
			err = os.WriteFile(full, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root{path: dir, stat: func(name string) (fs.FileInfo, error) {
		info, err := os.Stat(name)
		if numbers, is := devices[name]; is && err == nil {
			return character{info, numbers}, nil
		}
		return info, err
	}}
}

type character struct {
	fs.FileInfo
	numbers [2]uint32
}

func (c character) Mode() fs.FileMode { return fs.ModeDevice | fs.ModeCharDevice | 0o666 }
func (c character) Sys() any {
	return &syscall.Stat_t{Rdev: uint64(c.numbers[0])<<8 | uint64(c.numbers[1]&0xff)}
}

func inspectFiles(t *testing.T, files map[string]string) check.Report {
	t.Helper()
	return inspectRoot(t, plant(t, files))
}

func inspectRoot(t *testing.T, r root) check.Report {
	t.Helper()
	tree, err := inspect(r, at)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// findingOf returns the first finding of a check.
func findingOf(t *testing.T, tree check.Report, id string) check.Finding {
	t.Helper()
	i := slices.IndexFunc(tree.Findings, func(f check.Finding) bool { return f.Check.ID == id })
	if i < 0 {
		t.Fatalf("findings = %+v, want one of %s", tree.Findings, id)
	}
	return tree.Findings[i]
}

// notOK returns the findings that are not OK, and the component that the first finding names as broken.
func notOK(tree check.Report) (findings []string, broken string) {
	for _, v := range tree.Findings[1:] {
		if v.Severity != check.OK {
			findings = append(findings, v.Severity.String()+" "+v.Check.ID+" "+v.Subject)
		}
	}
	return findings, tree.Findings[0].Subject
}

func TestInspect(t *testing.T) {
	for _, tc := range nodes().Cases {
		t.Run(tc.Name, func(t *testing.T) {
			var removed, added []string
			for path, content := range tc.Change {
				if content == nil {
					removed = append(removed, path, "-")
				} else {
					added = append(added, path, *content)
				}
			}
			tree := inspectFiles(t, change(change(healthy(), removed...), added...))
			findings, broken := notOK(tree)
			if diff := gocmp.Diff(tc.Want, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
				for _, v := range tree.Findings {
					t.Logf("%s %s: %s", v.Severity, v.Subject, v.Reason)
				}
			}
			if want := cmp.Or(tc.Broken, "chain"); broken != want {
				t.Errorf("first broken component = %q, want %q", broken, want)
			}
			for _, v := range tree.Findings {
				if v.Reason == "" || v.Node != "gpu-1" {
					t.Errorf("finding lacks a reason or node: %+v", v)
				}
				if strings.Contains(v.Reason, tree.Title+"/") {
					t.Errorf("reason contains the path of the mount, want the node's path: %s", v.Reason)
				}
			}
		})
	}
}

// The findings of a healthy node are in dependency order.
func TestFindingsInOrderOfDependence(t *testing.T) {
	var got []string
	for _, v := range inspectFiles(t, healthy()).Findings {
		got = append(got, v.Check.ID)
	}
	want := []string{"first-broken-link", "gpu-on-pci", "nouveau", "driver-module", "driver-libraries", "device-nodes",
		"validation-driver", "runtime", "cdi", "validation-toolkit", "validation-cuda", "validation-plugin"}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("check IDs (-want +got):\n%s", diff)
	}
}

// The finding about the driver module uses the installed files to explain why the module is not loaded. It mentions
// Secure Boot only if it is on, and kernel headers only if they are missing. The variable's value follows four bytes of
// attributes.
func TestWhyNotLoaded(t *testing.T) {
	const variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	const modules = "updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst\nupdates/dkms/nvidia.ko.zst:\n"
	for name, tc := range map[string]struct{ file, content, want string }{
		"another kernel":  {"/lib/modules/6.8.0-59-generic/modules.dep", modules, "it is built for 6.8.0-59-generic, but the running kernel is 6.8.0-60-generic"},
		"this kernel":     {"/lib/modules/6.8.0-60-generic/modules.dep", modules, "but not loaded"},
		"headers":         {"/lib/modules/6.8.0-60-generic/build/Makefile", modules, "the driver container has not built it"},
		"Secure Boot on":  {variable, "\x06\x00\x00\x00\x01", "Secure Boot is on"},
		"Secure Boot off": {variable, "\x06\x00\x00\x00\x00", ""},
		"Secure Boot cut": {variable, "\x06\x00\x00\x01", ""},
		"no UEFI":         {variable, "-", ""},
	} {
		got := findingOf(t, inspectFiles(t, change(healthy(), "/proc/driver", "-", tc.file, tc.content)), "driver-module")
		secure := tc.want == "Secure Boot is on"
		if !strings.Contains(got.Reason, tc.want) || strings.Contains(got.Reason, "headers") != (tc.file == variable) ||
			strings.Contains(got.Reason, "Secure Boot") != secure || strings.Contains(got.Fix, "mokutil") != secure {
			t.Errorf("%s: reason = %q, fix = %q, want %q", name, got.Reason, got.Fix, tc.want)
		}
	}
}

// The finding about a validation file has the file's modification time as its Since.
func TestAge(t *testing.T) {
	r := plant(t, healthy())
	since := at.Add(-26 * time.Hour)
	if err := os.Chtimes(filepath.Join(r.path, "/run/nvidia/validations/driver-ready"), since, since); err != nil {
		t.Fatal(err)
	}
	if got := findingOf(t, inspectRoot(t, r), "validation-driver").Since; !got.Equal(since) {
		t.Errorf("Since = %s, want %s", got, since)
	}
}

// Files outside the root are not read, even if a link points to them.
func TestLinksStayInTheRoot(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "version")
	if err := os.WriteFile(outside, []byte("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  999.99\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, v := range inspectFiles(t, change(healthy(), "/proc/driver/nvidia/version", "→"+outside)).Findings {
		if strings.Contains(v.Reason, "999.99") {
			t.Errorf("finding = %+v, want none from a file outside the root", v)
		}
	}
}

// A check that cannot read its file is Unknown, and the finding says how to get access.
func TestPermission(t *testing.T) {
	r := plant(t, healthy())
	stat := r.stat
	r.stat = func(name string) (fs.FileInfo, error) {
		if strings.HasSuffix(name, "/dev/nvidiactl") {
			return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrPermission}
		}
		return stat(name)
	}
	if v := findingOf(t, inspectRoot(t, r), "device-nodes"); v.Severity != check.Unknown || !strings.Contains(v.Fix, "root") {
		t.Errorf("finding = %+v, want unknown with the fix to run as root", v)
	}
	// a directory in place of a file
	v := findingOf(t, inspectFiles(t, change(healthy(), "/proc/devices", "-", "/proc/devices/x", "")), "device-nodes")
	if v.Severity != check.Unknown {
		t.Errorf("finding = %+v, want unknown", v)
	}
}

func TestNoRoot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, file + "-missing", t.TempDir()} {
		if _, err := Inspect(path, at); !errors.Is(err, ErrRoot) {
			t.Errorf("Inspect(%q): error = %v, want ErrRoot", path, err)
		}
	}
}

// Any content of a file yields a report that begins with first-broken-link.
func FuzzFiles(f *testing.F) {
	const spec = "/run/cdi/management.nvidia.com-gpu.yaml"
	f.Add(spec, `{"kind": "nvidia.com/gpu", "devices": [{"containerEdits": {"deviceNodes": [null], "mounts": [null], "hooks": [null]}}]}`)
	f.Add("/etc/containerd/config.toml", "imports = [1]\nplugins = 3\n")
	f.Add("/etc/containerd/config.toml", "imports = [\"../*\"]\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes]\nnvidia = 1\n")
	f.Add("/proc/devices", "x nvidia\n99999999999 nvidiactl\n")
	f.Add("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  0570.0.0\n")
	f.Fuzz(func(t *testing.T, name, content string) {
		if old, known := healthy()[name]; !known || strings.HasPrefix(content, "→") || content == "-" || strings.HasPrefix(old, "→") {
			return
		}
		tree := inspectFiles(t, change(healthy(), name, content))
		if len(tree.Findings) < 5 || tree.Findings[0].Check.ID != "first-broken-link" {
			t.Fatalf("report = %+v, want at least 5 findings with first-broken-link first", tree)
		}
	})
}

// The fix is a restart for k3s and RKE2. It names the template for MicroK8s. It never names the generated configuration
// file, which a restart overwrites.
func TestNextStepOfABundledContainerd(t *testing.T) {
	const without = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
	for config, want := range map[string]string{
		"/var/lib/rancher/k3s/agent/etc/containerd/config.toml":  "systemctl restart k3s-agent",
		"/var/lib/rancher/rke2/agent/etc/containerd/config.toml": "systemctl restart rke2-agent",
		"/var/snap/microk8s/current/args/containerd.toml":        "containerd-template.toml",
	} {
		tree := inspectFiles(t, change(healthy(), config, without))
		for _, id := range []string{"runtime", "runtime-stray"} {
			if fix := findingOf(t, tree, id).Fix; !strings.Contains(fix, want) || strings.Contains(fix, "CONTAINERD_CONFIG="+config) {
				t.Errorf("%s: the fix of %s = %q, want it to contain %q and not the generated file", config, id, fix, want)
			}
		}
	}
}
