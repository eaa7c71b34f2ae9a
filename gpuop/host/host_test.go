package host

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

var at = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// healthy returns the files of a node with two GPUs and a preinstalled driver. The keys are paths, the values are
// contents. "→target" is a symbolic link, and "dev 1:3" is a character device with these numbers.
func healthy() map[string]string {
	files := map[string]string{
		"/etc/hostname":               "gpu-1\n",
		"/proc/modules":               "nvidia_uvm 4943872 4 - Live 0x0\nnvidia 11490304 60 nvidia_uvm, Live 0x0\n",
		"/proc/sys/kernel/osrelease":  "6.8.0-60-generic\n",
		"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build  (dvs-builder@U22-I3-AE18-09-6)  Tue Jul  8 17:57:10 UTC 2025\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
		"/proc/devices":               "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n234 nvidia-caps\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
		"/proc/1/comm":                "systemd\n",
		"/proc/900/comm":              "nv-fabricmanage\n",
		"/dev/null":                   "dev 1:3",
		"/dev/nvidiactl":              "dev 195:255",
		"/dev/nvidia-uvm":             "dev 511:0",
		"/dev/nvidia-uvm-tools":       "dev 511:1",
		"/dev/char/195:255":           "→../nvidiactl",
		"/usr/lib/x86_64-linux-gnu/libcuda.so.570.172.08":    "",
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1":             "→libcuda.so.570.172.08",
		"/usr/bin/nvidia-cdi-hook":                           "",
		"/usr/bin/runc":                                      "",
		"/usr/local/nvidia/toolkit/nvidia-container-runtime": "",
		"/etc/containerd/config.toml": `version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
`,
		"/etc/containerd/conf.d/99-nvidia.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
SystemdCgroup = true
`,
		"/var/run":                                "→/run",
		"/run/nvidia/validations/driver-ready":    "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n",
		"/run/nvidia/validations/toolkit-ready":   "",
		"/run/nvidia/validations/cuda-ready":      "",
		"/run/nvidia/validations/plugin-ready":    "",
		"/run/cdi/management.nvidia.com-gpu.yaml": cdiFile("570.172.08"),
	}
	for i := range 2 {
		bus := fmt.Sprintf("0000:%d7:00.0", i+1)
		dir := "/sys/bus/pci/devices/" + bus
		files[dir+"/vendor"], files[dir+"/class"], files[dir+"/driver"] = "0x10de\n", "0x030200\n", "→../../drivers/nvidia"
		files["/proc/driver/nvidia/gpus/"+bus+"/information"] = fmt.Sprintf("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nDevice Minor: \t %d\nGPU Excluded:\t No\n", i)
		files[fmt.Sprintf("/dev/nvidia%d", i)] = fmt.Sprintf("dev 195:%d", i)
	}
	return files
}

func cdiFile(version string) string {
	return `cdiVersion: 0.5.0
kind: management.nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidiactl
containerEdits:
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache]
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.` + version + `
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.` + version + `
    options: [ro, nosuid, nodev, bind]
`
}

// change returns a copy of files in which some are added, replaced or removed. pairs alternates paths and contents. The content "-" removes a
// path and everything below it.
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
	const (
		validations = "/run/nvidia/validations"
		main        = "/etc/containerd/config.toml"
		version     = "/proc/driver/nvidia/version"
	)
	noDriver := []string{version, "-", "/proc/driver", "-", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.172.08", "-", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "-", "/run", "-", "/proc/devices", "-", "/run/x", ""}
	for name, tc := range map[string]struct {
		change []string
		want   []string
		broken string
	}{
		"healthy": {nil, nil, "chain"},
		"no GPU": {[]string{"/sys/bus/pci/devices", "-", "/sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086\n"},
			[]string{"error gpu-on-pci GPUs on PCI"}, "GPUs on PCI"},
		"a copy without /sys": {[]string{"/sys", "-"}, []string{"warning gpu-on-pci GPUs on PCI"}, "chain"},
		"nouveau": {append([]string{"/sys/bus/pci/devices/0000:17:00.0/driver", "→../../drivers/nouveau", "/sys/bus/pci/devices/0000:27:00.0/driver", "→../../drivers/nouveau", "/sys/module/nouveau/refcnt", "1", "/proc/modules", "nouveau 1 0 - Live 0x0\n"}, noDriver...),
			[]string{"error gpu-on-pci GPUs on PCI", "error nouveau nouveau", "error driver-module NVIDIA kernel module", "error validation " + validations, "note cdi CDI"}, "GPUs on PCI"},
		"GPUs for virtual machines":                 {append([]string{"/sys/bus/pci/devices/0000:17:00.0/driver", "→../../drivers/vfio-pci", "/sys/bus/pci/devices/0000:27:00.0/driver", "→../../drivers/vfio-pci", validations + "/workload-type", "vm-passthrough\n", validations + "/vfio-pci-ready", ""}, append(noDriver[:8:8], "/run/cdi", "-")...), []string{"note gpu-on-pci GPUs on PCI", "note driver-module NVIDIA kernel module", "note cdi CDI"}, "chain"},
		"a GPU that is hidden from every driver":    {[]string{"/sys/bus/pci/devices/0000:27:00.0/driver", "→../../drivers/pci-stub"}, []string{"error gpu-on-pci GPUs on PCI"}, "GPUs on PCI"},
		"one GPU without a driver":                  {[]string{"/sys/bus/pci/devices/0000:27:00.0/driver", "-"}, []string{"error gpu-on-pci GPUs on PCI"}, "GPUs on PCI"},
		"the module is not loaded":                  {noDriver, []string{"error driver-module NVIDIA kernel module", "error validation " + validations, "note cdi CDI"}, "NVIDIA kernel module"},
		"unparsable version":                        {[]string{version, "NVRM version: something else\n"}, []string{"warning driver-module NVIDIA kernel module"}, "chain"},
		"a library of another version":              {[]string{version, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 23 06:00:00 UTC 2025\n"}, []string{"error driver-libraries driver libraries"}, "driver libraries"},
		"two drivers":                               {[]string{"/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", ""}, []string{"warning driver-libraries driver libraries"}, "chain"},
		"no library at all":                         {[]string{"/usr/lib/x86_64-linux-gnu/libcuda.so.570.172.08", "-", "/run/cdi", "-"}, []string{"error driver-libraries driver libraries", "note cdi CDI"}, "driver libraries"},
		"a device node is missing":                  {[]string{"/dev/nvidia-uvm", "-"}, []string{"error device-nodes device nodes"}, "device nodes"},
		"device node left over from another boot":   {[]string{"/dev/nvidia-uvm", "dev 508:0"}, []string{"error device-nodes device nodes"}, "device nodes"},
		"regular file instead of a device node":     {[]string{"/dev/nvidia1", ""}, []string{"error device-nodes device nodes"}, "device nodes"},
		"a GPU that the driver does not see":        {[]string{"/proc/driver/nvidia/gpus/0000:27:00.0", "-"}, []string{"error device-nodes device nodes"}, "device nodes"},
		"a copy without devices":                    {[]string{"/dev", "-"}, []string{"warning device-nodes device nodes", "warning cdi /run/cdi/management.nvidia.com-gpu.yaml"}, "chain"},
		"NVSwitches and a fabric manager":           {[]string{"/sys/bus/pci/devices/0000:c1:00.0/vendor", "0x10de", "/sys/bus/pci/devices/0000:c1:00.0/class", "0x068000"}, nil, "chain"},
		"NVSwitches without a fabric manager":       {[]string{"/sys/bus/pci/devices/0000:c1:00.0/vendor", "0x10de", "/sys/bus/pci/devices/0000:c1:00.0/class", "0x068000", "/proc/900", "-"}, []string{"error fabric-manager fabric manager"}, "fabric manager"},
		"NVSwitches in a copy":                      {[]string{"/sys/bus/pci/devices/0000:c1:00.0/vendor", "0x10de", "/sys/bus/pci/devices/0000:c1:00.0/class", "0x068000", "/proc/900", "-", "/proc/1", "-"}, []string{"warning fabric-manager fabric manager"}, "chain"},
		"the toolkit is not validated":              {[]string{validations + "/toolkit-ready", "-", validations + "/cuda-ready", "-", validations + "/plugin-ready", "-"}, []string{"error validation-toolkit toolkit-ready", "error validation-cuda cuda-ready", "error validation-plugin plugin-ready"}, "toolkit-ready"},
		"the driver container restarts":             {[]string{validations + "/driver-ready", "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/\n"}, []string{"warning validation-driver driver-ready"}, "chain"},
		"driver installed by the cloud provider":    {[]string{validations + "/driver-ready", "IS_HOST_DRIVER=false\nNVIDIA_DRIVER_ROOT=/home/kubernetes/bin/nvidia\n", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.172.08", "-", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "-", "/home/kubernetes/bin/nvidia/lib64/libcuda.so.570.172.08", "", "/usr/lib64/libc.so.6", "", "/run/cdi", "-", "/run/x", ""}, []string{"note cdi CDI"}, "chain"},
		"preinstalled driver, up to v24.3":          {[]string{validations + "/driver-ready", "-", validations + "/host-driver-ready", ""}, nil, "chain"},
		"drop-in file not imported":                 {[]string{main, "version = 2\n[plugins]\n"}, []string{"error runtime-imports " + dropIn, "warning runtime containerd"}, dropIn},
		"an import of another folder":               {[]string{main, "version = 2\nimports = [\"more/*.toml\"]\n", "/etc/containerd/more/a.toml", "version = 2\n"}, []string{"error runtime-imports " + dropIn, "warning runtime containerd"}, dropIn},
		"drop-in file not imported, containerd 2":   {[]string{main, "version = 3\n[plugins]\n"}, []string{"warning runtime-imports " + dropIn, "warning runtime containerd"}, "chain"},
		"the toolkit's program is gone":             {[]string{"/usr/local/nvidia", "-"}, []string{"error runtime containerd"}, "containerd"},
		"no links in /dev/char":                     {[]string{"/dev/char/195:255", "-", "/dev/char/1:3", "→../null"}, []string{"warning dev-char /dev/char"}, "chain"},
		"TOML that does not parse":                  {[]string{main, "version = \n"}, []string{"warning runtime containerd"}, "chain"},
		"k3s, files in /etc/containerd not needed":  {[]string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia.options]\nBinaryName = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\n"}, []string{"note runtime-stray /etc/containerd"}, "chain"},
		"k3s, started before the toolkit":           {[]string{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n", validations + "/toolkit-ready", "-"}, []string{"error runtime k3s", "warning runtime-stray /etc/containerd", "error validation-toolkit toolkit-ready"}, "k3s"},
		"MicroK8s":                                  {[]string{"/var/snap/microk8s/current", "→4916", "/var/snap/microk8s/4916/args/containerd.toml", "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\nBinaryName = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\n", "/etc/containerd", "-"}, nil, "chain"},
		"MicroK8s, only /etc/containerd configured": {[]string{"/var/snap/microk8s/current", "→4916", "/var/snap/microk8s/4916/args/containerd.toml", "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n"}, []string{"warning runtime MicroK8s", "warning runtime-stray /etc/containerd"}, "chain"},
		"CRI-O":                                               {[]string{"/etc/containerd", "-", "/etc/crio/crio.conf.d/10-crun.conf", "[crio.runtime]\ndefault_runtime = \"crun\"\n", "/etc/crio/crio.conf.d/99-nvidia.conf", "[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/local/nvidia/toolkit/nvidia-container-runtime\"\n"}, nil, "chain"},
		"CRI-O without the drop-in":                           {[]string{"/etc/containerd", "-", "/etc/crio/crio.conf.d/10-crun.conf", "[crio.runtime]\ndefault_runtime = \"crun\"\n", validations + "/toolkit-ready", "-"}, []string{"error runtime CRI-O", "error validation-toolkit toolkit-ready"}, "CRI-O"},
		"the kubelet's flags decide":                          {[]string{"/etc/crio/crio.conf", "", "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///var/run/crio/crio.sock\"\n"}, []string{"warning runtime CRI-O"}, "chain"},
		"CDI specification of the previous driver":            {[]string{"/run/cdi/management.nvidia.com-gpu.yaml", cdiFile("570.133.20")}, []string{"error cdi /run/cdi/management.nvidia.com-gpu.yaml"}, "/run/cdi/management.nvidia.com-gpu.yaml"},
		"CDI specification of the previous driver, in a copy": {[]string{"/dev", "-", "/run/cdi/management.nvidia.com-gpu.yaml", cdiFile("570.133.20")}, []string{"warning device-nodes device nodes", "error cdi /run/cdi/management.nvidia.com-gpu.yaml"}, "/run/cdi/management.nvidia.com-gpu.yaml"},
		"CDI specification that does not parse":               {[]string{"/run/cdi/management.nvidia.com-gpu.yaml", "kind: [\n"}, []string{"error cdi /run/cdi/management.nvidia.com-gpu.yaml"}, "/run/cdi/management.nvidia.com-gpu.yaml"},
		"CDI specification of another vendor":                 {[]string{"/etc/cdi/amd.json", `{"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": []}`}, nil, "chain"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := inspectFiles(t, change(healthy(), tc.change...))
			findings, broken := notOK(tree)
			if diff := cmp.Diff(tc.want, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
				for _, v := range tree.Findings {
					t.Logf("%s %s: %s", v.Severity, v.Subject, v.Reason)
				}
			}
			if broken != tc.broken {
				t.Errorf("first broken component = %q, want %q", broken, tc.broken)
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
	if diff := cmp.Diff(want, got); diff != "" {
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

// For k3s and RKE2, the fix is a restart. For MicroK8s, it names the template. It never names the generated
// configuration file, which a restart overwrites.
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
