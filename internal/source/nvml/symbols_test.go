//go:build linux && cgo

package nvml_test

import (
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

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// child reads twice with the library at path, and prints the results.
func child(path string) {
	plan := planOf(1, 53, 100, 140, 155, 202, 203, 230, 250, 252, 253, 526, 1001, 170)
	for i := range plan.Fields {
		plan.Fields[i].Levels |= onGPU
	}
	plan.Placement, plan.Peers, plan.Links = true, true, true
	s, err := nvml.New(path).Open(context.Background(), plan)
	if err != nil {
		fmt.Printf("open %s: %v\n", gpu.Reason(err), err)
		return
	}
	defer s.Close()
	var b gpu.Batch
	for range 2 {
		b.Reset()
		if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err != nil {
			fmt.Printf("read %s: %v\n", gpu.Reason(err), err)
			return
		}
	}
	for key, value := range results(s.Topology(), plan, &b) {
		fmt.Printf("%s = %s\n", key, value)
	}
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
	for line := range strings.Lines(string(out)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
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
	for name, tt := range map[string]struct{ without, declined string }{
		"R470: no reserved memory, no GPM, no license query with the new layout": {
			"nvmlDeviceGetMemoryInfo_v2 nvmlGpmQueryDeviceSupport nvmlGpmSampleAlloc nvmlGpmSampleFree " +
				"nvmlGpmSampleGet nvmlGpmMigSampleGet nvmlGpmMetricsGet nvmlDeviceGetGridLicensableFeatures_v4",
			"DEV_FB_USED DEV_FB_RESERVED PROF_GR_ENGINE_ACTIVE DEV_VGPU_LICENSE_STATUS"},
		"R418: no MIG, and only the first versions of the event and PCI calls": {
			"nvmlDeviceGetMigMode nvmlDeviceGetMaxMigDeviceCount nvmlDeviceGetMigDeviceHandleByIndex " +
				"nvmlDeviceGetGpuInstanceId nvmlDeviceGetComputeInstanceId nvmlEventSetWait_v2 nvmlDeviceGetPciInfo_v3",
			"DEV_XID_ERRORS"},
		"no field values, no serial, no driver version, no events": {
			"nvmlDeviceGetFieldValues nvmlDeviceGetSerial nvmlSystemGetDriverVersion nvmlEventSetCreate",
			"DEV_MEMORY_TEMP DEV_SERIAL DRIVER_VERSION DEV_XID_ERRORS"},
	} {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(base)
			for field := range strings.FieldsSeq(tt.declined) {
				want["GPU 0 DCGM_FI_"+field] = "fault:not_supported"
			}
			got, _ := runOld(t, world, strings.Fields(tt.without)...)
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
	r := start(t, planOf(1001), "gpus 6",
		"gpu 0 set gpm 0", "gpu 0 set architecture 7", // Ampere
		"gpu 1 set gpm 0", "gpu 1 set architecture 4", // Pascal
		"gpu 2 set gpm 0", "gpu 2 set architecture 8", "gpu 2 set brand 5", // GeForce
		"gpu 3 set gpm 0", "gpu 3 set architecture 5", // Volta
		"gpu 4 set gpm 0", "gpu 4 set architecture 9", // Hopper
		"gpu 5 set gpm 0", "gpu 5 set architecture 4294967295") // unknown
	r.want("GPUs without GPM", "GPU 0 GR_ENGINE_ACTIVE fault:needs_dcgm", "GPU 1 GR_ENGINE_ACTIVE fault:not_supported",
		"GPU 2 GR_ENGINE_ACTIVE fault:not_supported", "GPU 3 GR_ENGINE_ACTIVE fault:needs_dcgm",
		"GPU 4 GR_ENGINE_ACTIVE fault:not_supported", "GPU 5 GR_ENGINE_ACTIVE fault:not_supported")
}

// Profiling needs two samples 100 ms apart. Values have DCGM's units.
func TestProfiling(t *testing.T) {
	script := []string{"gpu 0 set gpm.20 2.5", "gpu 0 set gpm.30 -", "gpu 0 set gpm.13 nan", "gpu 2 set gpm 0"}
	synctest.Test(t, func(t *testing.T) {
		r := start(t, planOf(1001, 1005, 1008, 1009, 1012, 1017), append(script, cut...)...)
		var unsupported []string
		for _, f := range r.plan.Fields {
			field := strings.TrimPrefix(f.Name, "DCGM_FI_PROF_")
			unsupported = append(unsupported, "GPU 2 "+field+" fault:not_supported")
		}
		time.Sleep(10 * time.Millisecond)
		r.want("values 10 ms after the first sample", unsupported...)
		time.Sleep(time.Second)
		r.want("values", append(unsupported,
			"GPU 0 GR_ENGINE_ACTIVE 0.01", "GPU 0 DRAM_ACTIVE 0.1", "GPU 0 PIPE_FP16_ACTIVE fault:unavailable",
			"GPU 0 PCIE_TX_BYTES 2621440", "GPU 0 NVLINK_RX_BYTES 62914560", "GPU 0 NVDEC0_ACTIVE fault:not_supported",
			"GPU 1 GR_ENGINE_ACTIVE 0.01", "GPU 1 DRAM_ACTIVE 0.1", "GPU 1 PIPE_FP16_ACTIVE 0.13",
			"GPU 1 PCIE_TX_BYTES 20971520", "GPU 1 NVLINK_RX_BYTES 62914560", "GPU 1 NVDEC0_ACTIVE 0.3",
			// instances have no traffic of their own
			"GPU instance 102 of GPU 1 GR_ENGINE_ACTIVE 0.03", "GPU instance 102 of GPU 1 DRAM_ACTIVE 0.12",
			"GPU instance 102 of GPU 1 PIPE_FP16_ACTIVE 0.15",
			"GPU instance 109 of GPU 1 GR_ENGINE_ACTIVE 0.1", "GPU instance 109 of GPU 1 DRAM_ACTIVE 0.19",
			"GPU instance 109 of GPU 1 PIPE_FP16_ACTIVE 0.22")...)
		fails := func(call, want string) {
			t.Helper()
			r.play(append([]string{"fail " + call}, cut...)...)
			time.Sleep(time.Second)
			if v := r.read()["GPU 0 DCGM_FI_PROF_DRAM_ACTIVE"]; v != want {
				t.Errorf("%s fails: memory activity of GPU 0 = %q, want %s", call, v, want)
			}
		}
		fails("nvmlGpmMetricsGet 3", "fault:not_supported")
		fails("nvmlGpmMetricsGet 999", "fault:error") // the metrics are requested again
		fails("nvmlGpmSampleGet 4", "fault:permission")
	})
}
