package integration

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// While the kernel's log is read it is the witness: an XID of its is counted once, also of a GPU that
// is lost to the engine, and what the engine alone reports is not.
func TestXIDsOfTheKernelsLog(t *testing.T) {
	t.Parallel()
	counters := write(t, "counters.csv", `
DCGM_FI_DEV_GPU_TEMP, gauge, temperature
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs
`)
	e := start(t, sim(t, "demo", faults(
		`fault: xid, at: 3s, devices: ["0", "2"], xids: [62]`,
		`fault: xid, at: 3100ms, devices: ["0"], xids: [62], reported-by: [engine]`,
		`fault: gpu-lost, at: 3200ms, devices: ["3"]`,
		`fault: xid, at: 3300ms, devices: ["3"], xids: [79], reported-by: [kernel]`,
		`fault: xid, at: 4s, devices: ["2"], xids: [31]`,
	), "--collectors", counters, "--xid-kernel-log=/dev/kmsg")...)
	job := ""
	for key := range e.collected().series("DCGM_FI_DEV_GPU_TEMP", "gpu", "hpc_job") {
		if gpu, held, _ := strings.Cut(key, "/"); gpu == "3" {
			job = held
		}
	}
	totals := func(p page) map[string]float64 {
		seen := map[string]float64{}
		for key, n := range p.series("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid", "hpc_job") {
			if n > 0 {
				seen[key] = n
			}
		}
		return seen
	}
	want := map[string]float64{"0/62/": 1, "2/62/": 1, "2/31/": 1, "3/79/" + job: 1}
	p := e.until("the last XID", func(p page) bool { return totals(p)["2/31/"] > 0 })
	for range 10 { // what comes late is not counted again
		n := p.value("dcgm_exporter_collect_last_success_timestamp_seconds")
		p = e.until("another cycle", func(p page) bool {
			return p.value("dcgm_exporter_collect_last_success_timestamp_seconds") > n
		})
		if diff := cmp.Diff(want, totals(p)); diff != "" {
			t.Fatalf("counted, with GPU 3 of job %q (-want +got)\n%s", job, diff)
		}
	}
	if p.value("dcgm_exporter_kernel_log_up") != 1 || job == "" {
		t.Errorf("the log is not read, or GPU 3 has no job: %q", job)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
}
