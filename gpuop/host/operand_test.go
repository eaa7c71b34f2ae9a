package host

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// The contents are those written by cmd/nvidia-validator and the driver's startup probe of gpu-operator v26.7.0.
const (
	hostDriver = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	gds        = "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: false\n"
)

// In want, + marks an operand that is ready, ! one that is ready with a warning, and - one that is required but
// missing.
func TestValidations(t *testing.T) {
	signs := map[check.Severity]string{check.OK: "+", check.Warning: "!", check.Error: "-"}
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"a node that has just booted":                      {nil, "-driver -toolkit -cuda -plugin"},
		"healthy":                                          {[]string{"driver-ready=" + hostDriver, "toolkit-ready", "cuda-ready", "plugin-ready"}, "+driver +toolkit +cuda +plugin"},
		"the toolkit is missing":                           {[]string{"driver-ready=" + hostDriver}, "+driver -toolkit -cuda -plugin"},
		"storage is enabled":                               {[]string{".driver-ctr-ready=" + gds}, "-driver -nvidia-fs -toolkit -cuda -plugin"},
		"a node for virtual machines":                      {[]string{"workload-type=vm-passthrough\n"}, "-vfio-pci"},
		"vGPU":                                             {[]string{"workload-type=vm-vgpu\n", "vgpu-manager-ready"}, "+vgpu-manager -vgpu-devices"},
		"vGPU with the host's own manager":                 {[]string{"workload-type=vm-vgpu\n", "host-vgpu-manager-ready", "vgpu-devices-ready"}, "+vgpu-manager +host-vgpu-manager +vgpu-devices"},
		"vGPU without a manager":                           {[]string{"workload-type=vm-vgpu\n"}, "-vgpu-manager -vgpu-devices"},
		"preinstalled driver, up to v24.3":                 {[]string{"host-driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready"}, "+driver +toolkit +cuda +plugin"},
		"a driver container, up to v24.3":                  {[]string{"driver-ready", ".driver-ctr-ready", "toolkit-ready", "cuda-ready", "plugin-ready"}, "+driver +toolkit +cuda +plugin"},
		"a driver container that is gone":                  {[]string{"driver-ready=NVIDIA_DRIVER_ROOT=/run/nvidia/driver\n", "toolkit-ready"}, "!driver +toolkit -cuda -plugin"},
		"driver installed by the cloud provider":           {[]string{"driver-ready=NVIDIA_DRIVER_ROOT=/home/kubernetes/bin/nvidia\n", "toolkit-ready"}, "+driver +toolkit -cuda -plugin"},
		"an empty driver-ready without a driver container": {[]string{"driver-ready", "toolkit-ready"}, "+driver +toolkit -cuda -plugin"},
	} {
		planted := map[string]string{validationDir + "/.keep": ""}
		for _, f := range tc.files {
			name, content, _ := strings.Cut(f, "=")
			planted[validationDir+"/"+name] = content
		}
		n := &inspection{root: plant(t, planted)}
		n.passed = n.validations()
		n.validated(true)
		n.validated(false)
		var words []string
		for _, f := range n.findings {
			words = append(words, signs[f.Severity]+strings.TrimPrefix(f.Check.ID, "validation-"))
		}
		if got := strings.Join(words, " "); got != tc.want {
			t.Errorf("%s: operands = %s, want %s", name, got, tc.want)
		}
	}
}

// The operands' file names equal those in the source of the newest release's validator.
func TestFilesAreTheValidators(t *testing.T) {
	text, err := exec.Command("git", "-C", charts.Source(t), "show", chart.Load().Latest().String()+":cmd/nvidia-validator/main.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, m := range regexp.MustCompile(`(?m)^\t\w+StatusFile += "([\w-]+-ready)"`).FindAllSubmatch(text, -1) {
		want = append(want, string(m[1]))
	}
	for _, o := range operands {
		have = append(have, o.file())
	}
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("file names (-validator +gpuop):\n%s", diff)
	}
}
