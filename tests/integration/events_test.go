package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// XIDs that come within one interval are all counted, with the pod of their time. The gauge shows
// the last one.
func TestXIDsWithTheirOwner(t *testing.T) {
	t.Parallel()
	counters := write(t, "counters.csv", `
DCGM_FI_DEV_GPU_TEMP, gauge, temperature
DCGM_FI_DEV_XID_ERRORS, gauge, the last XID
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs
DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS, gauge, when
`)
	totals := func(p page) map[string]float64 {
		seen := map[string]float64{}
		for key, n := range p.series("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid", "pod") {
			if n > 0 {
				seen[key] = n
			}
		}
		return seen
	}

	// Late enough for a start on a busy machine: what happens before the first cycle has no owner.
	e := start(t, sim(t, "demo", faults("fault: xid, at: 5s, devices: [\"0\"], xids: [62, 45, 62]"), "--collectors", counters)...)
	p := e.collected()
	if n, ok := p.series("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid")["3/79"]; !ok || n != 0 {
		t.Errorf("no zero for XID 79 of GPU 3:\n%s", p.text)
	}
	pod := ""
	for key := range p.series("DCGM_FI_DEV_GPU_TEMP", "gpu", "pod") {
		if key[:2] == "0/" {
			pod = key[2:]
		}
	}
	want := map[string]float64{"0/62/" + pod: 2, "0/45/" + pod: 1}
	p = e.until("the XIDs", func(p page) bool { return len(totals(p)) > 0 })
	if diff := cmp.Diff(want, totals(p)); diff != "" || pod == "" {
		t.Errorf("counted for pod %q (-want +got)\n%s", pod, diff)
	}
	if got := p.series("DCGM_FI_DEV_XID_ERRORS", "gpu", "err_code")["0/62"]; got != 62 {
		t.Errorf("the gauge shows %v:\n%s", got, p.text)
	}
	last := p.series("DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", "gpu", "xid", "pod")
	if len(last) != 2 || last["0/62/"+pod] < last["0/45/"+pod] || last["0/45/"+pod] == 0 {
		t.Errorf("last seen %v", last)
	}
	if err := e.stop(); err != nil {
		t.Fatal(err)
	}
}
