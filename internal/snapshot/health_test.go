package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Each case has findings about a GPU as DCGM reports them (watch, code, result). The expected series are those that
// do not pass: watch, code, severity, category, treatment and value.
func TestFindingTreatment(t *testing.T) {
	const (
		health = "DCGM_EXP_GPU_HEALTH_STATUS, gauge,\n"
		xids   = health + "DCGM_EXP_XID_ERRORS_TOTAL, counter,\n"
		fabric = health + "DCGM_EXP_FABRIC_STATE, gauge,\n"
		dbe    = health + "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter,\n"
	)
	asReported := snapshot.Facts{AsReported: true}
	for _, tt := range []struct {
		name, counters string
		facts          snapshot.Facts
		found, want    string
	}{
		{"an XID", xids, snapshot.Facts{}, "MEM XID_ERROR 10, ALL OK 0",
			"MEM XID_ERROR TRIAGE SOFTWARE_XID superseded 10, ALL XID_ERROR TRIAGE SOFTWARE_XID superseded 10"},
		{"an XID without a counter of XIDs", health, snapshot.Facts{}, "ALL XID_ERROR 20", "ALL XID_ERROR TRIAGE SOFTWARE_XID - 20"},
		{"an XID in the raw field", health + "DCGM_FI_DEV_XID_ERRORS, gauge,", snapshot.Facts{}, "ALL FALLEN_OFF_BUS 20",
			"ALL FALLEN_OFF_BUS ISOLATE HARDWARE_OTHER superseded 20"},
		{"the power limit", health, snapshot.Facts{}, "POWER CLOCK_THROTTLE_POWER 10, ALL OK 0",
			"POWER CLOCK_THROTTLE_POWER MONITOR HARDWARE_POWER informational 10, " +
				"ALL CLOCK_THROTTLE_POWER MONITOR HARDWARE_POWER informational 10"},
		{"the power limit with the current code name", health, snapshot.Facts{}, "POWER CLOCKS_EVENT_POWER 10",
			"POWER CLOCK_THROTTLE_POWER MONITOR HARDWARE_POWER informational 10"},
		{"the fabric", fabric, snapshot.Facts{}, "NVLINK FIELD_VIOLATION 20",
			"NVLINK FIELD_VIOLATION ISOLATE HARDWARE_OTHER superseded 20"},
		{"the fabric without its family", health, snapshot.Facts{}, "NVLINK FIELD_VIOLATION 20",
			"NVLINK FIELD_VIOLATION ISOLATE HARDWARE_OTHER - 20"},
		{"a field violation in another watch", fabric, snapshot.Facts{}, "MCU FIELD_VIOLATION 20",
			"MCU FIELD_VIOLATION ISOLATE HARDWARE_OTHER - 20"},
		{"an uncorrected error", dbe, snapshot.Facts{}, "MEM VOLATILE_DBE_DETECTED 20",
			"MEM VOLATILE_DBE_DETECTED ISOLATE HARDWARE_MEMORY superseded 20"},
		{"an uncorrected error without its counter", health, snapshot.Facts{}, "MEM VOLATILE_DBE_DETECTED 20",
			"MEM VOLATILE_DBE_DETECTED ISOLATE HARDWARE_MEMORY - 20"},
		{"a code of a newer engine", xids, snapshot.Facts{}, "SM 4000 20", "SM 4000 UNKNOWN UNKNOWN - 20"},
		{"an ignored code", health, snapshot.Facts{IgnoredHealth: []string{"DCGM_FR_CORRUPT_INFOROM", "4000"}},
			"INFOROM CORRUPT_INFOROM 10, SM 4000 20, SM 4001 20",
			"INFOROM CORRUPT_INFOROM TRIAGE HARDWARE_OTHER informational 10, SM 4000 UNKNOWN UNKNOWN informational 20, " +
				"SM 4001 UNKNOWN UNKNOWN - 20"},
		{"ALL together with a worse watch", xids, snapshot.Facts{}, "NVLINK NVLINK_CRC_ERROR_THRESHOLD 20, ALL CONTAINED_ERROR 10, ALL XID_ERROR 20",
			"NVLINK NVLINK_CRC_ERROR_THRESHOLD ISOLATE HARDWARE_NVLINK - 20, " +
				"ALL CONTAINED_ERROR MONITOR SOFTWARE_XID superseded 10, ALL XID_ERROR TRIAGE SOFTWARE_XID superseded 20"},
		{"ALL with equally bad watches", xids, snapshot.Facts{}, "MEM XID_ERROR 10, PCIE PCI_REPLAY_RATE 10, ALL OK 0",
			"MEM XID_ERROR TRIAGE SOFTWARE_XID superseded 10, PCIE PCI_REPLAY_RATE ISOLATE HARDWARE_PCIE - 10, " +
				"ALL PCI_REPLAY_RATE ISOLATE HARDWARE_PCIE - 10"},
		{"as reported", xids, asReported, "MEM XID_ERROR 10, POWER CLOCK_THROTTLE_POWER 10, ALL OK 0",
			"MEM XID_ERROR TRIAGE SOFTWARE_XID - 10, POWER CLOCK_THROTTLE_POWER MONITOR HARDWARE_POWER - 10"},
		{"two codes of a newer engine, as reported", health, asReported, "SM 4000 10, SM 4001 20",
			"SM UNRECOGNIZED UNKNOWN UNKNOWN - 20"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, healthOf(t, tt.counters, &tt.facts, tt.found)); diff != "" {
				t.Errorf("series that do not pass (-want +got):\n%s", diff)
			}
		})
	}
}

// healthOf returns the health series of a GPU that do not pass. Series that pass must have no labels of findings.
func healthOf(t *testing.T, file string, facts *snapshot.Facts, found string) string {
	t.Helper()
	requests, _, err := counters.Parse(strings.NewReader(file), "f")
	if err != nil {
		t.Fatal(err)
	}
	plan := counters.NewPlan(requests, counters.PlanOptions{Interval: time.Second, Devices: gpu.Selector{Flex: true}})
	batch, now := &gpu.Batch{}, time.Unix(1_800_000_000, 0)
	for word := range strings.SplitSeq(found, ", ") {
		h := gpu.HealthCheck{}
		if _, err := fmt.Sscan(word, &h.Watch, &h.Code, &h.Result); err != nil {
			t.Fatal(err)
		}
		if h.Code == "OK" {
			h.Code = ""
		} else if h.Code[0] > '9' {
			h.Code = "DCGM_FR_" + h.Code
		}
		batch.Health = append(batch.Health, h)
	}
	devices := []gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}}}
	s := snapshot.NewBuilder(gpu.NewTopology(devices), plan, []snapshot.Deriver{facts}).
		Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
	var got []string
	for _, f := range s.Families {
		if f.Name != "DCGM_EXP_GPU_HEALTH_STATUS" {
			continue
		}
		for _, x := range f.Series {
			labels := map[string]string{"treatment": "-"}
			for _, l := range x.Labels {
				labels[l.Name] = strings.TrimPrefix(l.Value, "DCGM_FR_")
			}
			severity, category := labels["health_error_severity"], labels["health_error_category"]
			if n, _ := x.Value.Int64(); n == 0 {
				if severity != "NONE" || category != "NONE" || labels["health_error_code"] != "OK" {
					t.Errorf("labels of a passing watch = %v, want severity and category NONE and code OK", labels)
				}
				continue
			}
			got = append(got, fmt.Sprintf("%s %s %s %s %s %v",
				labels["health_watch"], labels["health_error_code"], severity, category, labels["treatment"], x.Value))
		}
	}
	return strings.Join(got, ", ")
}
