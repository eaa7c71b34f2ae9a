//go:build linux && cgo

package nvml_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// child reads twice with the library at path, and prints the results.
func child(path string) int {
	plan := &gpu.Plan{Interval: time.Second, Devices: gpu.Selector{Flex: true}}
	for _, id := range []gpu.FieldID{1, 53, 100, 140, 155, 202, 203, 230, 250, 252, 253, 526, 1001, 170} {
		entry, _ := catalog.ByID(id)
		f := entry.Field()
		f.Levels |= gpu.KindsOf(gpu.KindGPU)
		plan.Fields = append(plan.Fields, f)
	}
	plan.Placement, plan.Peers, plan.Links = true, true, true
	s, err := nvml.New(path).Open(context.Background(), plan)
	if err != nil {
		fmt.Printf("open %s: %v\n", gpu.Reason(err), err)
		return 0
	}
	defer s.Close()
	var b gpu.Batch
	for range 2 {
		b.Reset()
		if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err != nil {
			fmt.Printf("read %s: %v\n", gpu.Reason(err), err)
			return 0
		}
	}
	for key, value := range results(s.Topology(), plan, &b) {
		fmt.Printf("%s = %s\n", key, value)
	}
	return 0
}

// runOld runs child with a library that does not have the given symbols. It returns the output as a map and as text.
func runOld(t *testing.T, world *fakenvml.World, without ...string) (map[string]string, string) {
	t.Helper()
	path, err := fakenvml.Build(t.TempDir(), without...)
	fakenvml.Need(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(world.Env(), childEnv+"="+path)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child process failed: %v: %s", err, out)
	}
	found := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), " = "); ok {
			found[key] = value
		}
	}
	return found, string(out)
}

// An old driver lacks functions, and calling a missing one would crash the process. Fields that need one are
// declined. All others are served.
func TestOldDriver(t *testing.T) {
	world := fakenvml.NewWorld(t, "gpus 1", "gpu 0 set nvlinks 1")
	base, out := runOld(t, world)
	if base["GPU 0 DCGM_FI_DEV_FB_USED"] != "4096" {
		t.Fatalf("with the complete library: used memory of GPU 0 is not 4096: %s", out)
	}
	tests := []struct {
		name    string
		without []string
		changes map[string]string // changed results; "" for missing ones
	}{
		{
			"R470: no reserved memory, no GPM, no license query with the new layout",
			[]string{
				"nvmlDeviceGetMemoryInfo_v2", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree",
				"nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet",
				"nvmlDeviceGetGridLicensableFeatures_v4",
			},
			map[string]string{
				"GPU 0 DCGM_FI_DEV_FB_USED":             "fault:not_supported",
				"GPU 0 DCGM_FI_DEV_FB_RESERVED":         "fault:not_supported",
				"GPU 0 DCGM_FI_PROF_GR_ENGINE_ACTIVE":   "fault:not_supported",
				"GPU 0 DCGM_FI_DEV_VGPU_LICENSE_STATUS": "fault:not_supported",
			},
		},
		{
			"R418: no MIG, and only the first versions of the event and PCI calls",
			[]string{
				"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
				"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
				"nvmlEventSetWait_v2", "nvmlDeviceGetPciInfo_v3",
			},
			map[string]string{"GPU 0 DCGM_FI_DEV_XID_ERRORS": "fault:not_supported"},
		},
		{
			"no field values, no serial, no driver version, no events",
			[]string{
				"nvmlDeviceGetFieldValues", "nvmlDeviceGetSerial", "nvmlSystemGetDriverVersion", "nvmlEventSetCreate",
			},
			map[string]string{
				"GPU 0 DCGM_FI_DEV_MEMORY_TEMP": "fault:not_supported",
				"GPU 0 DCGM_FI_DEV_SERIAL":      "fault:not_supported",
				"GPU 0 DCGM_FI_DRIVER_VERSION":  "fault:not_supported",
				"GPU 0 DCGM_FI_DEV_XID_ERRORS":  "fault:not_supported",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := maps.Clone(base)
			maps.Copy(want, test.changes)
			got, _ := runOld(t, world, test.without...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("no placement, no fabric, no links", func(t *testing.T) {
		got, out := runOld(t, fakenvml.NewWorld(t, "gpus 2"),
			"nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetCpuAffinity",
			"nvmlDeviceGetP2PStatus", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetGpuFabricInfoV")
		for key, want := range map[string]string{
			"GPU 0 peers": "fault:not_supported", "GPU 1 peers": "fault:not_supported",
			"GPU 0 DCGM_FI_DEV_FABRIC_MANAGER_STATUS": "fault:not_supported", "GPU 0 DCGM_FI_DEV_SM_CLOCK": "1980",
		} {
			if got[key] != want {
				t.Errorf("%s = %q, want %q: %s", key, got[key], want, out)
			}
		}
	})
	t.Run("a library that is not NVML", func(t *testing.T) {
		_, out := runOld(t, world, "nvmlInit_v2")
		if !strings.HasPrefix(out, "open version: ") || !strings.Contains(out, "nvmlInit_v2") {
			t.Errorf("output = %q, want a version error that names the function", out)
		}
	})
}

// DCGM can profile GPUs from Volta to Ada, and GPM cannot. Only for these GPUs, the reason is that they need DCGM.
func TestProfilingThatNeedsDCGM(t *testing.T) {
	src, _ := source(t, "gpus 6",
		"gpu 0 set gpm 0", "gpu 0 set architecture 7", // Ampere
		"gpu 1 set gpm 0", "gpu 1 set architecture 4", // Pascal
		"gpu 2 set gpm 0", "gpu 2 set architecture 8", "gpu 2 set brand 5", // GeForce
		"gpu 3 set gpm 0", "gpu 3 set architecture 5", // Volta
		"gpu 4 set gpm 0", "gpu 4 set architecture 9", // Hopper
		"gpu 5 set gpm 0", "gpu 5 set architecture 4294967295") // unknown
	plan := planOf(t, 1001)
	s, err := src.Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := map[string]string{}
	for i := range 6 {
		reason := "not_supported"
		if i == 0 || i == 3 {
			reason = "needs_dcgm"
		}
		want[fmt.Sprintf("GPU %d DCGM_FI_PROF_GR_ENGINE_ACTIVE", i)] = "fault:" + reason
	}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Profiling needs two samples 100 ms apart. Values have DCGM's units.
func TestProfiling(t *testing.T) {
	script := []string{"gpu 0 set gpm.20 2.5", "gpu 0 set gpm.30 -", "gpu 0 set gpm.13 nan", "gpu 2 set gpm 0"}
	src, world := source(t, append(script, cut...)...)
	plan := planOf(t, 1001, 1005, 1008, 1009, 1012, 1017)
	synctest.Test(t, func(t *testing.T) {
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		unsupported := map[string]string{}
		for _, f := range plan.Fields {
			unsupported["GPU 2 "+f.Name] = "fault:not_supported"
		}
		time.Sleep(10 * time.Millisecond)
		if diff := cmp.Diff(unsupported, read(t, s, plan)); diff != "" {
			t.Errorf("values 10 ms after the first sample (-want +got):\n%s", diff)
		}
		time.Sleep(time.Second)
		got := read(t, s, plan)
		want := map[string]string{
			"DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.01", "DCGM_FI_PROF_DRAM_ACTIVE": "0.1",
			"DCGM_FI_PROF_PIPE_FP16_ACTIVE": "fault:unavailable",
			"DCGM_FI_PROF_PCIE_TX_BYTES":    "2621440", "DCGM_FI_PROF_NVLINK_RX_BYTES": "62914560",
			"DCGM_FI_PROF_NVDEC0_ACTIVE": "fault:not_supported",
		}
		if diff := cmp.Diff(want, only(got, "GPU 0")); diff != "" {
			t.Errorf("GPU 0 (-want +got):\n%s", diff)
		}
		want = map[string]string{ // instances have no traffic of their own
			"DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.1", "DCGM_FI_PROF_DRAM_ACTIVE": "0.19",
			"DCGM_FI_PROF_PIPE_FP16_ACTIVE": "0.22",
		}
		if diff := cmp.Diff(want, only(got, "GPU instance 109 of GPU 1")); diff != "" {
			t.Errorf("GPU instance 109 (-want +got):\n%s", diff)
		}
		world.Play(t, append([]string{"fail nvmlGpmMetricsGet 999"}, cut...)...)
		time.Sleep(time.Second)
		if v := read(t, s, plan)["GPU 0 DCGM_FI_PROF_DRAM_ACTIVE"]; v != "fault:error" {
			t.Errorf("failed computation: %q, want fault:error", v)
		}
		world.Play(t, append([]string{"fail nvmlGpmSampleGet 4"}, cut...)...)
		time.Sleep(time.Second)
		if v := read(t, s, plan)["GPU 0 DCGM_FI_PROF_DRAM_ACTIVE"]; v != "fault:permission" {
			t.Errorf("rejected sample: %q, want fault:permission", v)
		}
	})
}
