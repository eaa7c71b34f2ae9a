package verdict

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// states are scripts of changes on GPU 0 and the resulting verdicts. Each step has the minute, the change, and the
// verdict at that reading. The rig reads every minute. A change is "field NAME=N", "field NAME=-" (missing), "xid
// CODE", "finding N" (the worst active result), "lost", "permission", "timeout", "back", "clock ±DURATION", "engine"
// (restarts), "exporter" (restarts), or "-".
var states = []struct{ name, script string }{
	{"nothing", "0 - ok; 600 - ok"},

	{"finding in one reading", "0 - ok; 1 finding 20 ok; 2 finding 0 ok; 60 - ok"},
	{"finding for the required time", "0 - ok; 1 finding 20 ok; 5 - ok; 6 - drain health_failed; 7 finding 0 ok"},
	{"warning for the required time", "0 - ok; 1 finding 10 ok; 15 - ok; 16 - watch health_warning; 17 finding 0 ok"},
	{"finding, exporter restart", "0 - ok; 1 finding 20 ok; 6 - drain health_failed; 7 exporter ok; 12 - drain health_failed"},
	{"finding, engine restart", "0 - ok; 1 finding 20 ok; 6 - drain health_failed; 7 engine drain health_failed"},
	{"finding, lost", "0 - ok; 1 finding 20 ok; 6 - drain health_failed; 7 lost drain health_failed; 60 back drain lost"},
	{"finding, missing", "0 - ok; 1 finding 20 ok; 3 finding - ok; 8 finding 20 drain health_failed"},
	{"finding that is missing when the required time has passed", "0 - ok; 1 finding 20 ok; 3 finding - ok; 30 - ok; 31 finding 0 ok"},
	{"finding, clock step", "0 - ok; 1 finding 20 ok; 2 clock +1h ok; 5 - ok; 6 clock -1h drain health_failed"},

	{"XID of hardware", "0 - ok; 1 xid 79 drain xid_hardware; 1440 - drain xid_hardware; 1441 - ok"},
	{"XID of the GSP", "0 - ok; 1 xid 119 drain xid_gsp; 60 - drain xid_gsp; 61 - ok"},
	{"XID of a link", "0 - ok; 1 xid 74 watch xid_nvlink; 60 - watch xid_nvlink; 61 - ok"},
	{"XID of an application", "0 - ok; 1 xid 31 ok; 2 xid 13 ok; 3 xid 43 ok"},
	{"XID of a newer driver", "0 - ok; 1 xid 400 watch xid_unclassified; 61 - ok"},
	{"XID, exporter restart", "0 - ok; 1 xid 79 drain xid_hardware; 720 exporter drain xid_hardware; 1440 - drain xid_hardware; 1441 - ok"},
	{"XID, engine restart", "0 - ok; 1 xid 79 drain xid_hardware; 2 engine drain xid_hardware; 1441 - ok"},
	{"XID, lost", "0 - ok; 1 xid 74 watch xid_nvlink; 2 lost unknown lost; 3 - drain lost"},
	{"XID of hardware, lost", "0 - ok; 1 xid 79 drain xid_hardware; 2 lost drain xid_hardware; 30 back drain lost"},
	{"XID, clock set back", "0 - ok; 1 xid 79 drain xid_hardware; 11 clock -1h drain xid_hardware; 1440 - drain xid_hardware; 1441 - ok"},
	{"XID, clock set forward", "0 - ok; 1 xid 119 drain xid_gsp; 2 clock +1h drain xid_gsp; 60 - drain xid_gsp; 61 - ok"},
	{"XID, clock a year ahead", "0 clock +8760h ok; 1 xid 79 drain xid_hardware; 2 clock -8760h drain xid_hardware; 1441 - ok"},
	{"XID again after a clock step", "0 - ok; 1 xid 119 drain xid_gsp; 30 clock -1h drain xid_gsp; 31 xid 119 drain xid_gsp; 90 - drain xid_gsp; 91 - ok"},

	{"field in one reading", "0 - ok; 1 field ROW_REMAP_FAILURE=1 ok; 2 field ROW_REMAP_FAILURE=0 ok"},
	{"field for the required time", "0 - ok; 1 field ROW_REMAP_FAILURE=1 ok; 2 - replace row_remap_failed; 3 field ROW_REMAP_FAILURE=0 ok"},
	{"field, exporter restart", "0 - ok; 1 field ROW_REMAP_FAILURE=1 ok; 2 - replace row_remap_failed; 3 exporter replace row_remap_failed"},
	{"field, engine restart", "0 - ok; 1 field ROW_REMAP_FAILURE=1 ok; 2 - replace row_remap_failed; 3 engine replace row_remap_failed"},
	{"field, lost", "0 - ok; 1 field ROW_REMAP_FAILURE=1 ok; 2 - replace row_remap_failed; 3 lost replace row_remap_failed; " +
		"240 - replace row_remap_failed; 241 back replace row_remap_failed"},
	{"field, timeout", "0 - ok; 1 field ROW_REMAP_FAILURE=1 ok; 2 - replace row_remap_failed; 3 timeout replace row_remap_failed"},
	{"field, missing", "0 - ok; 1 field GET_GPU_RECOVERY_ACTION=1 ok; 4 field GET_GPU_RECOVERY_ACTION=- ok; " +
		"7 field GET_GPU_RECOVERY_ACTION=1 drain recovery_action; 8 field GET_GPU_RECOVERY_ACTION=- drain recovery_action; " +
		"90 field GET_GPU_RECOVERY_ACTION=0 ok"},
	{"field, clock step", "0 - ok; 1 field GET_GPU_RECOVERY_ACTION=1 ok; 2 clock +1h ok; 3 clock -2h ok; 6 - drain recovery_action"},
	{"one of two summed fields is missing", "0 - ok; 1 field RETIRED_SBE=40 ok; 2 field RETIRED_DBE=30 ok; 7 - replace retired_pages; " +
		"8 field RETIRED_DBE=- replace retired_pages; 9 field RETIRED_DBE=1 ok"},
	{"counter that grows once, and the memory", "0 field ECC_DBE_VOL_TOTAL=3 ok; 1 field ECC_DBE_VOL_TOTAL=4 watch ecc_uncorrected; " +
		"1440 - watch ecc_uncorrected; 1441 - ok"},
	{"counter, exporter restart", "0 field ECC_DBE_VOL_TOTAL=3 ok; 1 field ECC_DBE_VOL_TOTAL=4 watch ecc_uncorrected; 2 exporter ok"},
	{"counter, engine restart", "0 field ECC_DBE_VOL_TOTAL=3 ok; 1 engine ok; 2 field ECC_DBE_VOL_TOTAL=4 watch ecc_uncorrected"},
	{"counter that is reset", "0 field ECC_DBE_VOL_TOTAL=3 ok; 1 field ECC_DBE_VOL_TOTAL=0 ok; 2 field ECC_DBE_VOL_TOTAL=1 watch ecc_uncorrected"},
	{"counter that grows over a gap", "0 field ECC_DBE_VOL_TOTAL=3 ok; 1 field ECC_DBE_VOL_TOTAL=- ok; 9 field ECC_DBE_VOL_TOTAL=4 watch ecc_uncorrected"},
	{"counter that is missing and returns", "0 field ECC_DBE_VOL_TOTAL=3 ok; 1 field ECC_DBE_VOL_TOTAL=- ok; 9 field ECC_DBE_VOL_TOTAL=3 ok"},
	{"recoveries of a link, hours apart", "0 field NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS=7 ok; " +
		"1 field NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS=8 watch nvlink5_recovery; 600 - watch nvlink5_recovery; " +
		"601 field NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS=9 watch nvlink5_recovery; 2040 - watch nvlink5_recovery; 2041 - ok"},
	{"contained error", "0 field ECC_DBE_VOL_TOTAL=0 ok; 1 field ECC_DBE_VOL_TOTAL=1 watch ecc_uncorrected; 2 xid 94 watch ecc_uncorrected; " +
		"3 xid 63 watch ecc_uncorrected; 1441 - watch xid_memory; 1443 - ok"},
	{"C2C links down", "0 field C2C_LINK_COUNT=10 ok; 1 field C2C_LINK_STATUS=0 ok; 6 - drain c2c_down; 7 field C2C_LINK_STATUS=1 ok"},
	{"no C2C links", "0 field C2C_LINK_COUNT=0 ok; 1 field C2C_LINK_STATUS=0 ok; 60 - ok"},
	{"unknown number of C2C links", "0 field C2C_LINK_STATUS=0 ok; 60 - ok"},

	{"lost in one reading", "0 - ok; 1 lost unknown lost; 2 back watch was_lost; 60 - watch was_lost; 61 - ok"},
	{"lost for the required time, and the memory", "0 - ok; 1 lost unknown lost; 2 - drain lost; 600 back drain lost; 658 - drain lost; 660 - ok"},
	{"lost repeatedly", "0 - ok; 1 lost unknown lost; 2 back watch was_lost; 30 lost unknown lost; 31 back watch was_lost; 89 - watch was_lost; 90 - ok"},
	{"lost, exporter restart", "0 - ok; 1 lost unknown lost; 2 - drain lost; 3 exporter unknown lost; 4 - drain lost"},
	{"lost, engine restart", "0 - ok; 1 lost unknown lost; 2 - drain lost; 3 engine drain lost"},
	{"lost, clock step", "0 - ok; 1 lost unknown lost; 2 clock -1h drain lost; 3 clock +2h drain lost"},
	{"permission", "0 - ok; 1 permission unknown permission; 600 - unknown permission; 601 back ok"},
	{"timeout", "0 - ok; 1 timeout unknown timeout; 2 back ok"},
	{"lost, then unknown", "0 - ok; 1 lost unknown lost; 2 - drain lost; 3 timeout drain lost; 200 - drain lost; 201 back drain lost"},
	{"verdict watch, then GPU not read", "0 field ECC_DBE_VOL_TOTAL=0 ok; 1 field ECC_DBE_VOL_TOTAL=1 watch ecc_uncorrected; " +
		"2 timeout unknown timeout; 3 back watch ecc_uncorrected"},
}

// TestStates runs every script.
func TestStates(t *testing.T) {
	if len(states) < 40 {
		t.Fatalf("scripts = %d, want at least 40", len(states))
	}
	for _, s := range states {
		t.Run(s.name, func(t *testing.T) {
			r, minute := newRig(t), 0
			for _, line := range strings.Split(s.script, "; ") {
				words := strings.Fields(line)
				at, err := strconv.Atoi(words[0])
				if err != nil {
					t.Fatal(err)
				}
				for ; minute < at; minute++ {
					r.at(time.Duration(minute) * time.Minute)
				}
				n := r.change(words[1:], time.Duration(at)*time.Minute)
				want := strings.Join(words[1+n:], " ")
				if got := strings.TrimSpace(r.at(time.Duration(at) * time.Minute)[0]); got != want {
					t.Errorf("minute %d, %v: verdict = %q, want %q", at, words[1:1+n], got, want)
				}
				minute = at + 1
			}
		})
	}
}

// change applies the change at the start of words, and returns the number of its words.
func (r *rig) change(words []string, at time.Duration) int {
	r.Helper()
	switch words[0] {
	case "-":
	case "lost", "permission", "timeout", "back":
		r.down = map[string]error{"lost": gpu.ErrLost, "permission": gpu.ErrPermission, "timeout": gpu.ErrTimeout}[words[0]]
	case "engine":
		r.open()
	case "exporter":
		r.judge = Judge{}
		r.open()
	case "clock":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			r.Fatal(err)
		}
		r.step += d
		return 2
	case "xid":
		r.setSeries(catalog.XIDLastSeen, "xid", words[1], float64(begin.Add(at+r.step).Unix()))
		return 2
	case "finding":
		r.families = nil
		if n, err := strconv.ParseFloat(words[1], 64); err == nil {
			r.setSeries(catalog.GPUHealthStatus, "health_watch", "MEM", n)
		}
		return 2
	case "field":
		name, value, _ := strings.Cut(words[1], "=")
		field, ok := catalog.Lookup("DCGM_FI_DEV_" + name)
		if !ok {
			r.Fatalf("unknown field %s", name)
		}
		delete(r.values, field.Entry.ID)
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			r.values[field.Entry.ID] = n
		}
		return 2
	default:
		r.Fatalf("unknown change %q", words)
	}
	return 1
}

// setSeries sets a series of GPU 0.
func (r *rig) setSeries(family, label, value string, n float64) {
	s := gpu.Series{Row: 0, Labels: []gpu.Label{{Name: label, Value: value}}, Value: gpu.Float(n)}
	for i := range r.families {
		f := &r.families[i]
		if f.Name != family {
			continue
		}
		for k := range f.Series {
			if f.Series[k].Labels[0].Value == value {
				f.Series[k] = s
				return
			}
		}
		f.Series = append(f.Series, s)
		return
	}
	r.families = append(r.families, gpu.Family{Name: family, Series: []gpu.Series{s}})
}

// Without its counters the verdict is unknown, unless a GPU must be drained or replaced.
func TestVerdictWithoutCounters(t *testing.T) {
	for _, name := range Families() {
		r := newRig(t)
		for i := range r.plan.Derived {
			if r.plan.Derived[i].Name == name {
				r.plan.Derived[i].Name = "another"
			}
		}
		r.open()
		if got := r.at(0); got != [2]string{"unknown no_counters", "unknown no_counters"} {
			t.Errorf("without %s: verdicts = %q, want unknown no_counters", name, got)
		}
		r.values[catalog.RowRemapFailure] = 1
		r.at(time.Minute)
		if got := r.at(2 * time.Minute)[0]; got != "replace row_remap_failed" {
			t.Errorf("without %s, with a failed row remap: verdict = %q, want replace row_remap_failed", name, got)
		}
	}
}

// The state of a GPU that is missing for a long time is deleted, and the number of GPUs is limited.
func TestForgetting(t *testing.T) {
	r := newRig(t)
	r.at(0)
	r.judge.past["GPU-gone"] = &past{}
	r.open()
	r.at(forgetAfter)
	if r.judge.past["GPU-gone"] == nil {
		t.Error("state of a missing GPU was deleted after exactly forgetAfter, want it kept")
	}
	r.at(forgetAfter + time.Second)
	if len(r.judge.past) != 2 {
		t.Errorf("GPUs with state = %d, want 2", len(r.judge.past))
	}
	for i := range 2 * maxGPUs {
		r.judge.Bind(gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: fmt.Sprint("GPU-", i)}}), r.plan)
	}
	if n := len(r.judge.past); n != maxGPUs {
		t.Errorf("GPUs with state = %d, want %d", n, maxGPUs)
	}
}
