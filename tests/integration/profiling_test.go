package integration

import (
	"net/http"
	"testing"
)

// Profiling is left to another tool and taken back, on a simulated node too; the rest of the page
// goes on.
func TestPauseOfProfiling(t *testing.T) {
	t.Parallel()
	e := start(t, sim(t, "h100x8", "", "--collectors", "../../etc/fleet-counters.csv", "--web-enable-lifecycle")...)
	e.collected()
	order := func(path string) {
		t.Helper()
		client := http.Client{Timeout: patience}
		resp, err := client.Post(e.url+path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("POST %s: %d, %v", path, resp.StatusCode, err)
		}
	}
	const field = "DCGM_FI_PROF_DRAM_ACTIVE"
	profiled := func(p page) int { return len(p.families[field].GetMetric()) }
	const paused = field + "/unavailable"
	order("/-/profiling/pause")
	p := e.until("profiling paused, and temperatures", func(p page) bool {
		return profiled(p) == 0 && len(p.series("DCGM_FI_DEV_GPU_TEMP", "gpu")) == 8
	})
	if p.series("dcgm_exporter_field_unavailable", "field", "reason")[paused] != 1 {
		t.Errorf("the page of a pause:\n%s", p.text)
	}
	order("/-/profiling/resume")
	p = e.until("profiling resumed", func(p page) bool { return profiled(p) > 0 })
	if _, still := p.series("dcgm_exporter_field_unavailable", "field", "reason")[paused]; still {
		t.Errorf("still unavailable:\n%s", p.text)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
}
