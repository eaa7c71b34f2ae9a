package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The content is what cmd/nvidia-validator and the startup probe of gpu-operator v26.7.0 write.
const (
	hostDriver = "IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\nNVIDIA_DEV_ROOT=/\nDEV_ROOT_CTR_PATH=/host\n"
	gds        = "GDRCOPY_ENABLED: false\nGDS_ENABLED: true\nGPU_DIRECT_RDMA_ENABLED: false\n"
)

// validating is a node whose validator has left the files.
func validating(t *testing.T, files ...string) *node {
	t.Helper()
	planted := map[string]string{validationDir + "/.keep": ""}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		planted[validationDir+"/"+name] = content
	}
	n := &node{root: plant(t, planted)}
	var err error
	if n.passed, err = n.readValidations(); err != nil {
		t.Fatal(err)
	}
	return n
}

// states are the operands that are ready (+), should be and are not (-), or cannot be read (?).
func states(n *node) string {
	var words []string
	for _, o := range operands {
		switch ready, since, why, err := n.ready(o); {
		case err != nil:
			words = append(words, "?"+o.name)
		case ready && !since.IsZero() && why == "":
			words = append(words, "+"+o.name)
		case why != "":
			words = append(words, "-"+o.name)
		}
	}
	return strings.Join(words, " ")
}

func TestValidations(t *testing.T) {
	own := validations{known: true, host: true, driverRoot: "/"}
	for name, tc := range map[string]struct {
		files    []string
		want     string
		partial  int
		workload string
		driver   validations
	}{
		"a node that has just booted":        {nil, "-driver -toolkit -cuda -plugin", 0, forContainers, validations{}},
		"healthy":                            {[]string{"driver-ready=" + hostDriver, "toolkit-ready", "cuda-ready", "plugin-ready"}, "+driver +toolkit +cuda +plugin", 0, forContainers, own},
		"the toolkit is missing":             {[]string{"driver-ready=" + hostDriver}, "+driver -toolkit -cuda -plugin", 0, forContainers, own},
		"storage is enabled":                 {[]string{".driver-ctr-ready=" + gds}, "-driver -nvidia-fs -toolkit -cuda -plugin", 0, forContainers, validations{}},
		"a virtual machine's":                {[]string{"workload-type=vm-passthrough\n"}, "-vfio-pci", 0, forPassthrough, validations{}},
		"vGPU":                               {[]string{"workload-type=vm-vgpu\n", "vgpu-manager-ready"}, "+vgpu-manager -vgpu-devices", 0, forVGPU, validations{}},
		"vGPU, with a manager of the host's": {[]string{"workload-type=vm-vgpu\n", "host-vgpu-manager-ready", "vgpu-devices-ready"}, "+host-vgpu-manager +vgpu-devices", 0, forVGPU, validations{}},
		"vGPU without a manager":             {[]string{"workload-type=vm-vgpu\n"}, "-vgpu-manager -vgpu-devices", 0, forVGPU, validations{}},
		"a host's driver, up to v24.3":       {[]string{"host-driver-ready", "toolkit-ready", "cuda-ready", "plugin-ready"}, "+driver +toolkit +cuda +plugin", 0, forContainers, own},
		"a driver container, up to v24.3":    {[]string{"driver-ready", ".driver-ctr-ready", "toolkit-ready", "cuda-ready", "plugin-ready"}, "+driver +toolkit +cuda +plugin", 0, forContainers, validations{known: true, driverRoot: driverDir}},
		"an old or half driver-ready":        {[]string{"driver-ready", "toolkit-ready"}, "+driver +toolkit -cuda -plugin", 1, forContainers, validations{}},
		"half a status":                      {[]string{".driver-ctr-ready=GDS_ENAB", "workload-type=vm"}, "-driver -toolkit -cuda -plugin", 2, forContainers, validations{}},
		"a folder in a file's place":         {[]string{"driver-ready=" + hostDriver, "toolkit-ready/x"}, "+driver ?toolkit -cuda -plugin", 0, forContainers, own},
	} {
		n := validating(t, tc.files...)
		if got := states(n); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		v := n.passed
		if len(v.partial) != tc.partial || v.workload != tc.workload {
			t.Errorf("%s: partial %q, workload %s, want %d, %s", name, v.partial, v.workload, tc.partial, tc.workload)
		}
		driver := validations{known: v.known, host: v.host, driverRoot: v.driverRoot}
		if diff := cmp.Diff(tc.driver, driver, cmp.AllowUnexported(validations{})); diff != "" {
			t.Errorf("%s: driver (-want +got):\n%s", name, diff)
		}
	}
}
