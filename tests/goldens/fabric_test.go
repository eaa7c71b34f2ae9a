package goldens

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const fabricCounters = "DCGM_EXP_FABRIC_STATE, gauge,\nDCGM_EXP_FABRIC_INFO, gauge,\n"

// fabricCases lists what drivers report about the fabric of a GPU, and the expected series. NVML reports state and
// status. dcgm is the state that DCGM derives from them. Without cluster, the cluster UUID is all zeros. want has the
// clique ID if there is an info series, the conditions whose series is 0, and those whose series is 1.
var fabricCases = []struct {
	name, model         string
	state, status, dcgm int
	cluster             bool
	clique, mask        int
	old                 bool // the driver has no summary of the fabric's health
	want                string
}{
	{name: "a tray of a rack", model: "NVIDIA GB300", state: 3, dcgm: 3, cluster: true, clique: 32766, mask: 0x51aa,
		want: "info: 32766, 0: access_timeout_recovery degraded_bandwidth failed incompatible_firmware " +
			"incorrect_chassis_serial incorrect_system_guid insufficient_nvlinks invalid_gpu_state invalid_location " +
			"manager_disconnected no_clique no_cluster no_partition not_completed partition_unassigned " +
			"route_recovery route_unhealthy"},
	// github.com/leptonai/gpud/pull/1106
	{name: "a driver without fabric health", model: "NVIDIA GB200", state: 3, dcgm: 3, cluster: true, clique: 4026,
		old:  true,
		want: "info: 4026, 0: failed no_clique no_cluster not_completed"},
	// github.com/leptonai/gpud/pull/1108
	{name: "a tray that never registered", model: "NVIDIA GB200", want: "1: not_completed"},
	// github.com/Azure/azhpc-images/pull/506
	{name: "insufficient resources", model: "NVIDIA GB200", state: 3, status: 23, dcgm: 4,
		want: "0: not_completed, 1: failed no_clique no_cluster"},
	// github.com/meta-pytorch/torchcomms/pull/1385
	{name: "an HGX board, which has no cluster", model: "NVIDIA H100 80GB HBM3", state: 3, dcgm: 3, mask: 2,
		want: "0: degraded_bandwidth failed not_completed"},
	// github.com/NVIDIA/NVSentinel/issues/883
	{name: "an unknown error", model: "NVIDIA H100 80GB HBM3", state: 3, status: 999, dcgm: 4,
		want: "0: not_completed, 1: failed"},
	{name: "not started", model: "NVIDIA H100 80GB HBM3", state: 1, dcgm: 1, want: "1: not_completed"},
	{name: "in progress", model: "NVIDIA GB300", state: 2, dcgm: 2, want: "1: not_completed"},
	{name: "a board that does not register", model: "NVIDIA A100-SXM4-80GB"},
	{name: "everything is wrong", model: "NVIDIA H100 80GB HBM3", state: 3, dcgm: 3, mask: 0xa355,
		want: "0: failed incompatible_firmware incorrect_system_guid insufficient_nvlinks invalid_gpu_state " +
			"invalid_location no_partition not_completed, 1: access_timeout_recovery degraded_bandwidth " +
			"incorrect_chassis_serial manager_disconnected partition_unassigned route_recovery route_unhealthy"},
	// DCGM reports a state that it does not know as -1
	{name: "unknown states", model: "NVIDIA H100 80GB HBM3", state: 9, dcgm: -1, mask: 0xf9ff},
}

// TestFabric checks that DCGM's fields and NVML's structs produce the same series, except for the condition links_down.
// NVML serves this condition, but DCGM reports it as a health finding.
func TestFabric(t *testing.T) {
	library, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	engine, driver := []string{"library 4.6.1", "engine 4.6.1"}, []string{fmt.Sprint("gpus ", len(fabricCases))}
	for i, c := range fabricCases {
		uuid, factor := "00000000-0000-0000-0000-000000000000", 0
		if c.cluster {
			uuid, factor = "00112233-4455-6677-8899-aabbccddeeff", 17
		}
		engine = append(engine,
			fmt.Sprintf("gpu %d uuid=GPU-%d name=%s bus=00000000:%02X:00.0 index=%d status=ok prof=none", i, i,
				strings.ReplaceAll(c.model, " ", "+"), i+1, i),
			fmt.Sprintf("value gpu:%d 170 int %d", i, c.dcgm), fmt.Sprintf("value gpu:%d 172 text %s", i, uuid),
			fmt.Sprintf("value gpu:%d 173 int %d", i, c.clique), fmt.Sprintf("value gpu:%d 174 int %d", i, c.mask))
		for key, value := range map[string]any{
			"name": c.model, "fabric-state": c.state, "fabric-status": c.status, "fabric-uuid": factor,
			"fabric-clique": c.clique, "fabric-mask": c.mask,
		} {
			driver = append(driver, fmt.Sprintf("gpu %d set %s %v", i, key, value))
		}
		if c.old {
			driver = append(driver, fmt.Sprintf("gpu %d set fabric-v2 1", i))
		}
	}
	fakedcgm.New(t, engine...)
	fakenvml.NewWorld(t, driver...)
	for name, source := range map[string]collector.Source{
		"dcgm": collector.SourceOf(dcgm.New(dcgm.Options{}).Open),
		"nvml": collector.SourceOf(nvml.New(library).Open),
	} {
		page := settled(t, pages.Run{Other: source, Counters: []byte(fabricCounters), Args: []string{noMetrics}})
		got := map[string][]string{}
		for s := range prom.Samples(t, bytes.ReplaceAll(page, []byte(" MASKED"), []byte(" 0"))) {
			index, value := s.Labels.Get("gpu"), fmt.Sprint(s.Value)
			switch s.Labels.Get("__name__") {
			case "DCGM_EXP_FABRIC_STATE":
				if s.Labels.Get("condition") == "links_down" && name == "nvml" {
					continue // DCGM reports this as a health finding
				}
				got[index+" "+value] = append(got[index+" "+value], s.Labels.Get("condition"))
			case "DCGM_EXP_FABRIC_INFO":
				if id := s.Labels.Get("cluster_uuid"); id != "00112233-4455-6677-8899-aabbccddeeff" {
					t.Errorf("%s: cluster_uuid of GPU %s = %q, want that of the machine", name, index, id)
				}
				got[index+" info"] = []string{s.Labels.Get("clique_id")}
			}
		}
		for i, c := range fabricCases {
			var parts []string
			for _, part := range []string{"info", "0", "1"} {
				if list := got[fmt.Sprint(i, " ", part)]; list != nil {
					slices.Sort(list)
					parts = append(parts, part+": "+strings.Join(list, " "))
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(parts, ", ")); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, c.name, diff)
			}
		}
	}
}
