package sim_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// findingsOf returns the findings about a GPU in the latest Read.
func findingsOf(r *rig, row int) (found []string) {
	for _, h := range r.b.Health {
		if h.Row == row && h.Result > 0 {
			word := map[int64]string{10: "warn", 20: "fail"}[h.Result]
			found = append(found, h.Watch+" "+strings.TrimPrefix(h.Code, "DCGM_FR_")+" "+word)
		}
	}
	slices.Sort(found)
	return found
}

// healthPlanOf returns a plan with the fields and the health of GPUs.
func healthPlanOf(fields ...gpu.FieldID) *gpu.Plan {
	plan := simulated.Plan(fields...)
	plan.Health = gpu.KindsOf(gpu.KindGPU)
	return plan
}

// Watch POWER warns if the counter of power violations grew within the last minute, like the real engine's.
func TestPowerWatchFollowsItsCounter(t *testing.T) {
	const powerViolation = 240
	r := faults(t, "h100x8", healthPlanOf(powerViolation), `
faults:
  - {fault: throttle, at: 5m, for: 30s, devices: ["3"], reasons: [sw_power_cap]}`)
	gpus := r.rows(gpu.KindGPU)
	const step = 5 * time.Second
	var history [][]float64
	warned, passed := 0, 0
	for at := step; at <= 10*time.Minute; at += step {
		r.At(at)
		v := r.read()
		var now []float64
		for _, row := range gpus {
			now = append(now, v.num(row, powerViolation))
		}
		history = append(history, now)
		if len(history) <= int(time.Minute/step) {
			continue
		}
		ago := history[len(history)-1-int(time.Minute/step)]
		for i, row := range gpus {
			warns := slices.Contains(findingsOf(r, row), "POWER CLOCK_THROTTLE_POWER warn")
			if grew := now[i] > ago[i]; warns != grew {
				t.Fatalf("GPU %d at %v: watch warns = %t, counter grew in the last minute = %t; want the same",
					row, at, warns, grew)
			} else if grew {
				warned++
			} else {
				passed++
			}
		}
		if at > 5*time.Minute+step && at < 6*time.Minute && now[3] == ago[3] {
			t.Errorf("GPU 3 at %v: power violation did not grow in the last minute, want it to grow", at)
		}
	}
	if warned == 0 || passed == 0 {
		t.Errorf("reads that warn = %d, reads that pass = %d, want at least one of each", warned, passed)
	}
}

// Health checks behave like the real engine's. They warn of heat for a minute, keep each XID, and fail while an error
// counter is above 0. A restart of the engine clears this state.
func TestHealthHasQuirksOfDCGM(t *testing.T) {
	const dbe, mask = 311, 174
	r := faults(t, "gb200", healthPlanOf(dbe, mask), `
faults:
  - {fault: throttle, at: 10s, for: 5s, devices: ["0"], reasons: [sw_thermal]}
  - {fault: xid, at: 10s, devices: ["1"], xids: [31, 74, 13]}
  - {fault: xid, at: 10s, devices: ["1"], xids: [79], reported-by: [kernel]}
  - {fault: set, at: 10s, devices: ["2"], fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL], value: 1}
  - {fault: set, at: 10s, devices: ["3"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a9}
  - {fault: health, at: 10s, devices: ["3"], watches: [POWER], code: DCGM_FR_CLOCKS_EVENT_POWER, result: warn}
  - {fault: engine-down, at: 2h, for: 1m}`)
	look := func(at time.Duration) (found [4][]string) {
		r.At(at)
		r.read()
		for row := range found {
			found[row] = slices.DeleteFunc(findingsOf(r, row), func(s string) bool {
				return row < 3 && strings.HasPrefix(s, "POWER") // these GPUs run at their power limit
			})
		}
		return found
	}
	xids := []string{"ALL XID_ERROR fail", "MEM XID_ERROR warn"}
	memory := []string{"MEM VOLATILE_DBE_DETECTED fail"}
	fabric := []string{"NVLINK FIELD_VIOLATION fail", "POWER CLOCK_THROTTLE_POWER warn"}
	for _, tt := range []struct {
		at   time.Duration
		want [4][]string
	}{
		{70 * time.Second, [4][]string{{"THERMAL CLOCK_THROTTLE_THERMAL warn"}, xids, memory, fabric}},
		{80 * time.Second, [4][]string{nil, xids, memory, fabric}},
		{90 * time.Minute, [4][]string{nil, xids, memory, fabric}},
		{2*time.Hour + 2*time.Minute, [4][]string{nil, nil, memory, fabric}},
	} {
		r.At(tt.at)
		r.open() // the engine keeps state, not the session
		if diff := cmp.Diff(tt.want, look(tt.at), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", tt.at, diff)
		}
	}
}
