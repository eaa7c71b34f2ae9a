package operand_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/operand"
)

var written = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// The content is what cmd/nvidia-validator and the startup probe of gpu-operator v26.7.0 write.
const (
	hostDriver = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	gds        = "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: false\n"
)

func folder(files ...string) fstest.MapFS {
	m := fstest.MapFS{".": {Mode: fs.ModeDir | 0o755}}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		m[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644, ModTime: written}
	}
	return m
}

func states(r operand.Reading) string {
	var words []string
	for _, s := range r.Operands {
		switch s.State {
		case operand.Ready:
			words = append(words, "+"+s.Name)
		case operand.NotReady:
			words = append(words, "-"+s.Name)
		}
		if (s.State == operand.Ready) != (s.Why == "") || (s.State == operand.Ready) != s.Since.Equal(written) {
			words = append(words, "?"+s.Name)
		}
	}
	return strings.Join(words, " ")
}

func TestRead(t *testing.T) {
	for name, tc := range map[string]struct {
		dir      fstest.MapFS
		want     string
		partial  int
		workload string
		driver   operand.Driver
	}{
		"a node that has just booted":        {folder(), "-driver -toolkit -cuda -plugin", 0, operand.Container, operand.Driver{}},
		"healthy":                            {folder("driver-ready="+hostDriver, "toolkit-ready", "cuda-ready", "plugin-ready"), "+driver +toolkit +cuda +plugin", 0, operand.Container, operand.Driver{Known: true, Host: true, Root: "/", DevRoot: "/"}},
		"the toolkit is missing":             {folder("driver-ready=" + hostDriver), "+driver -toolkit -cuda -plugin", 0, operand.Container, operand.Driver{Known: true, Host: true, Root: "/", DevRoot: "/"}},
		"storage is enabled":                 {folder(".driver-ctr-ready=" + gds), "-driver -nvidia-fs -toolkit -cuda -plugin", 0, operand.Container, operand.Driver{}},
		"a virtual machine's":                {folder("workload-type=vm-passthrough\n"), "-vfio-pci", 0, operand.VMPassthrough, operand.Driver{}},
		"vGPU":                               {folder("workload-type=vm-vgpu\n", "vgpu-manager-ready"), "+vgpu-manager -vgpu-devices", 0, operand.VMVGPU, operand.Driver{}},
		"vGPU, with a manager of the host's": {folder("workload-type=vm-vgpu\n", "host-vgpu-manager-ready", "vgpu-devices-ready"), "+host-vgpu-manager +vgpu-devices", 0, operand.VMVGPU, operand.Driver{}},
		"vGPU without a manager":             {folder("workload-type=vm-vgpu\n"), "-vgpu-manager -vgpu-devices", 0, operand.VMVGPU, operand.Driver{}},
		"a host's driver, up to v24.3":       {folder("host-driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready"), "+driver +toolkit +cuda +plugin", 0, operand.Container, operand.Driver{Known: true, Host: true, Root: "/", DevRoot: "/"}},
		"a driver container, up to v24.3":    {folder("driver-ready", ".driver-ctr-ready", "toolkit-ready", "cuda-ready", "plugin-ready"), "+driver +toolkit +cuda +plugin", 0, operand.Container, operand.Driver{Known: true, Root: "/run/nvidia/driver", DevRoot: "/run/nvidia/driver"}},
		"an old or half driver-ready":        {folder("driver-ready", "toolkit-ready"), "+driver +toolkit -cuda -plugin", 1, operand.Container, operand.Driver{}},
		"half a status":                      {folder(".driver-ctr-ready=GDS_ENAB", "workload-type=vm"), "-driver -toolkit -cuda -plugin", 2, operand.Container, operand.Driver{}},
	} {
		r, err := operand.Read(tc.dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := states(r); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if len(r.Partial) != tc.partial || r.Workload != tc.workload {
			t.Errorf("%s: partial %q, workload %s, want %d, %s", name, r.Partial, r.Workload, tc.partial, tc.workload)
		}
		if diff := cmp.Diff(tc.driver, r.Driver); diff != "" {
			t.Errorf("%s: driver (-want +got):\n%s", name, diff)
		}
	}
}

// A folder that is not there is no folder without files.
func TestNoFolder(t *testing.T) {
	_, err := operand.Read(mustSub(t, fstest.MapFS{"a": {}}, "validations"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want fs.ErrNotExist", err)
	}
}

func mustSub(t *testing.T, parent fs.FS, name string) fs.FS {
	t.Helper()
	sub, err := fs.Sub(parent, name)
	if err != nil {
		t.Fatal(err)
	}
	return sub
}

// closed refuses one file, as the host does without permission.
type closed struct {
	fstest.MapFS
	name string
}

func (c closed) Open(name string) (fs.File, error) {
	if name == c.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return c.MapFS.Open(name)
}

func (c closed) Stat(name string) (fs.FileInfo, error) {
	if name == c.name {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrPermission}
	}
	return c.MapFS.Stat(name)
}

func TestUnreadableIsUnknown(t *testing.T) {
	r, err := operand.Read(closed{folder("driver-ready="+hostDriver, "toolkit-ready"), "toolkit-ready"})
	if err != nil {
		t.Fatal(err)
	}
	if got := states(r); got != "+driver -cuda -plugin" {
		t.Errorf("got %s", got)
	}
}

// Whatever the files hold, an operand is ready if and only if its file is there.
func FuzzRead(f *testing.F) {
	f.Add(hostDriver, gds, "container\n", uint16(3))
	f.Fuzz(func(t *testing.T, driver, container, workload string, there uint16) {
		dir := fstest.MapFS{
			".driver-ctr-ready": {Data: []byte(container)}, "workload-type": {Data: []byte(workload)},
		}
		for i, o := range operand.All() {
			if there&(1<<i) != 0 {
				dir[o.File] = &fstest.MapFile{Data: []byte(driver)}
			}
		}
		r, err := operand.Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range r.Operands {
			if (s.State == operand.Ready) != (there&(1<<i) != 0) {
				t.Fatalf("%s is %d", s.Name, s.State)
			}
		}
		if r.Driver.Known && !strings.HasPrefix(r.Driver.Root, "/") {
			t.Fatalf("root %q", r.Driver.Root)
		}
	})
}
