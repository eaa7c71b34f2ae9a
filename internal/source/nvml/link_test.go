//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// DCGM's NVLink bandwidth is a rate: KiB per second divided by 1,000.
func TestLinkRate(t *testing.T) {
	at := func(second int, rx, tx uint64) []string {
		return []string{
			"gpus 1",
			fmt.Sprintf("gpu 0 set field-time %d", 1_700_000_000_000_000+second*1_000_000),
			fmt.Sprintf("gpu 0 set field.139 %d", rx), fmt.Sprintf("gpu 0 set field.138 %d", tx),
			fmt.Sprintf("gpu 0 set field.139.7 %d", rx/2), fmt.Sprintf("gpu 0 set field.138.7 %d", tx/2),
		}
	}
	first := at(0, 1_000_000, 2_000_000)
	r := start(t, planOf(449, 476), first...)
	for _, tt := range []struct {
		name       string
		script     []string
		total, one string
	}{
		{"first reading", first, "", ""},
		{"two seconds later", at(2, 5_000_000, 8_000_000), "5000", "2500"},
		{"idle", at(3, 5_000_000, 8_000_000), "0", "0"},
		{"no time passed", at(3, 6_000_000, 8_000_000), "", ""},
		{"counters went back", at(4, 10, 10), "", ""},
		{"and continues after that", at(5, 10, 2_000_010), "2000", "1000"},
	} {
		r.play(tt.script...)
		got := r.read()
		const rate = "GPU 0 DCGM_FI_DEV_NVLINK_BANDWIDTH_"
		if got[rate+"TOTAL"] != tt.total || got[rate+"L7"] != tt.one {
			t.Errorf("%s: rates = %v, want %q over all links and %q for link 7", tt.name, got, tt.total, tt.one)
		}
	}
}

// NVLink 5 counters have a field ID for each link, and one for the total. A link that is down has a row. A link that
// does not exist has none.
func TestCountersByLink(t *testing.T) {
	plan := planOf(1212, 1212, 1218)
	for i := 1; i < 3; i++ {
		plan.Fields[i].Name, plan.Fields[i].Levels = fmt.Sprint("link ", plan.Fields[i].ID), onLinks
	}
	// mantissa 3 and exponent 12, packed as by NVML (nvml.h, NVML_NVLINK_BER_*)
	r := start(t, plan, "gpus 1", "gpu 0 set nvlinks 3", "gpu 0 set nvlink.2 down",
		"gpu 0 set field.214.all 7", "gpu 0 set field.214.0 0", "gpu 0 set field.214.1 7", "gpu 0 set field.214.2 -",
		fmt.Sprintf("gpu 0 set field.220.1 %d", 3<<8|12))
	r.want("three links", "GPU 0 NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS 7",
		"NVLink 0 of GPU 0 link 1212 0", "NVLink 0 of GPU 0 link 1218 fault:not_supported",
		"NVLink 1 of GPU 0 link 1212 7", "NVLink 1 of GPU 0 link 1218 3e-12",
		"NVLink 2 of GPU 0 link 1212 fault:not_supported", "NVLink 2 of GPU 0 link 1218 fault:not_supported")
	r.play("gpus 1", "gpu 0 lost")
	if err := r.Read(t.Context(), gpu.ReadRequest{}, &gpu.Batch{}); err == nil {
		t.Error("Read after the only GPU was lost succeeded, want an error")
	}
}

// If no GPU has a field, there is a single fault and no row.
func TestFieldsOfLinksAndSwitches(t *testing.T) {
	plan := planOf(1508, 780, 858)
	r := start(t, plan, "gpus 2", "gpu 0 set nvlinks 2")
	var want []string
	for _, f := range plan.Fields {
		want = append(want, "all "+f.Name[len("DCGM_FI_DEV_"):]+" fault:not_supported")
	}
	r.want("fields without a GPU", want...)
	if n := len(r.Topology().Devices); n != 2 {
		t.Errorf("rows = %d, want 2", n)
	}
}
