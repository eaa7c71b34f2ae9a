package snapshot_test

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// planOf returns the plan of a counters file.
func planOf(t *testing.T, file string) *gpu.Plan {
	t.Helper()
	requests, _, err := counters.Parse(strings.NewReader(file), "f")
	if err != nil {
		t.Fatal(err)
	}
	return counters.NewPlan(requests, gpu.Plan{Interval: time.Second, Devices: gpu.Selector{Flex: true}})
}

// buildFacts returns the snapshot of a Read in a new session.
func buildFacts(facts *snapshot.Facts, devices []gpu.Device, plan *gpu.Plan, batch *gpu.Batch) *gpu.Snapshot {
	return build(snapshot.NewBuilder(gpu.NewTopology(devices), plan, []snapshot.Deriver{facts}), batch)
}

// TestFabricIsAbsent checks the reasons why a GPU has no fabric condition.
func TestFabricIsAbsent(t *testing.T) {
	plan := planOf(t, "DCGM_EXP_FABRIC_STATE, gauge,\nDCGM_EXP_FABRIC_INFO, gauge,")
	if plan.Fields[0].ID != catalog.FabricManagerStatus {
		t.Fatalf("first field of the plan = %v, want the fabric manager's status", plan.Fields[0])
	}
	const noInfo = ", DCGM_EXP_FABRIC_INFO not_supported"
	const noState = "DCGM_EXP_FABRIC_STATE "
	for name, tt := range map[string]struct {
		model string
		gpus  int
		state int64
		fault error
		want  string
	}{
		"a board without fabric":            {gpus: 2, want: noState + "not_supported" + noInfo},
		"an NVML without the function":      {gpus: 2, state: 6, want: noState + "version" + noInfo},
		"an unknown state":                  {gpus: 2, state: 5, want: noState + "not_supported" + noInfo},
		"no permission":                     {gpus: 2, fault: gpu.ErrPermission, want: noState + "permission" + noInfo},
		"a registration in progress":        {gpus: 2, state: 2, want: "not_completed 1" + noInfo},
		"the only GPU of a virtual machine": {model: "NVIDIA GB200", gpus: 1, want: noState + "not_supported" + noInfo},
		"GPUs of a rack without a fabric":   {model: "NVIDIA GB200", gpus: 2, want: "not_completed 1" + noInfo},
	} {
		t.Run(name, func(t *testing.T) {
			batch := &gpu.Batch{}
			for i := range tt.gpus {
				batch.Add(i, 2, gpu.Int(0), now) // the clique, which shows that the GPU can be read
				if tt.fault != nil {
					batch.Fail(i, 0, tt.fault)
				} else {
					batch.Add(i, 0, gpu.Int(tt.state), now)
				}
			}
			s := buildFacts(new(snapshot.Facts), gpus(tt.gpus, tt.model), plan, batch)
			var got []string
			for _, f := range s.Families {
				for _, x := range f.Series {
					if x.Row == 0 {
						got = append(got, x.Labels[0].Value+" "+x.Value.String())
					}
				}
			}
			for _, u := range s.Health.Unavailable {
				got = append(got, u.Field+" "+u.Reason)
			}
			if diff := gocmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}

//go:embed testdata/findings.csv
var findings string

// TestFindingTreatment checks the series of the findings in each line of the file.
func TestFindingTreatment(t *testing.T) {
	table := csv.NewReader(strings.NewReader(findings))
	table.Comment = '#'
	lines, err := table.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines[1:] {
		family, mode, found, want := line[1], line[2], line[3], line[4]
		t.Run(line[0], func(t *testing.T) {
			file := "DCGM_EXP_GPU_HEALTH_STATUS, gauge,\n"
			if family != "" {
				file += family + ", gauge,\n"
			}
			facts := snapshot.Facts{AsReported: mode == "as reported"}
			if mode == "ignored" {
				facts.IgnoredHealth = []string{"DCGM_FR_CORRUPT_INFOROM", "4000"}
			}
			if diff := gocmp.Diff(want, healthOf(t, file, &facts, found)); diff != "" {
				t.Errorf("series that do not pass (-want +got):\n%s", diff)
			}
		})
	}
}

// healthOf returns the health series of a GPU that do not pass. Series that pass must have no labels of findings.
func healthOf(t *testing.T, file string, facts *snapshot.Facts, found string) string {
	t.Helper()
	plan := planOf(t, file)
	batch := &gpu.Batch{}
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
	s := buildFacts(facts, gpus(1, ""), plan, batch)
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

// TestIMEXCorrections checks when DCGM's finding that IMEX is unhealthy is corrected. Each GPU is "lost", or the values
// of its clique, daemon and domain, with "-" for an unknown one and "n/a" for one that the GPU does not support.
func TestIMEXCorrections(t *testing.T) {
	for name, tt := range map[string]struct {
		model, code string
		gpus        string
		want        string // the label corrected
		passes      bool   // the watch has no finding
	}{
		"all GPUs without a clique":                            {gpus: "0 0 -, n/a 0 -", want: "no_domain"},
		"one GPU is lost, the other without a clique":          {gpus: "lost, 0 0 -", want: "no_domain"},
		"all GPUs are lost":                                    {gpus: "lost, lost"},
		"a clique is unknown":                                  {gpus: "0 0 -, - 0 -"},
		"one GPU is in a clique":                               {gpus: "0 0 -, 7 0 -"},
		"a board of a rack":                                    {model: "NVIDIA GB200", gpus: "0 0 -"},
		"GPU in a clique without a daemon, domain unavailable": {gpus: "7 -3 UNAVAILABLE", want: "no_daemon"},
		"GPU in a clique without a daemon, domain down":        {gpus: "7 -3 DOWN"},
		"GPU in a clique without a daemon, domain degraded":    {gpus: "7 -3 DEGRADED"},
		"a watch that passes":                                  {passes: true, gpus: "0 0 -"},
		"another finding about the machine":                    {code: "DCGM_FR_UNKNOWN", gpus: "0 0 -"},
		"only the lost GPU is in the clique":                   {gpus: "lost, 7 -3 UP", want: "no_daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			h := gpu.HealthCheck{Watch: "IMEX", Code: cmp.Or(tt.code, "DCGM_FR_IMEX_UNHEALTHY"), Result: 20}
			if tt.passes {
				h.Code, h.Result = "", 0
			}
			var facts snapshot.Facts
			if got := imex(t, &facts, tt.model, h, strings.Split(tt.gpus, ", ")...); got != tt.want {
				t.Errorf("corrected = %q, want %q", got, tt.want)
			}
		})
	}
}

// A daemon that was once ready belongs to the machine. If it stops, that is a fault.
func TestIMEXDaemonThatWasReady(t *testing.T) {
	var facts snapshot.Facts
	passes := gpu.HealthCheck{Row: 0, Watch: "IMEX"}
	fails := gpu.HealthCheck{Row: 0, Watch: "IMEX", Code: "DCGM_FR_IMEX_UNHEALTHY", Result: 20}
	for i, step := range []struct {
		check gpu.HealthCheck
		gpu   string
		want  string
	}{
		{fails, "7 -3 UNAVAILABLE", "no_daemon"}, {passes, "7 5 UP", ""}, {fails, "7 -3 UNAVAILABLE", ""},
	} {
		if got := imex(t, &facts, "", step.check, step.gpu); got != step.want {
			t.Errorf("step %d: corrected = %q, want %q", i, got, step.want)
		}
	}
}

// imex returns the value of the label corrected after a health check of the machine. The machine has the given GPUs, in
// the notation of TestIMEXCorrections.
func imex(t *testing.T, facts *snapshot.Facts, model string, h gpu.HealthCheck, states ...string) (corrected string) {
	t.Helper()
	plan := planOf(t, "DCGM_EXP_NODE_HEALTH_STATUS, gauge,")
	devices := append([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindNode}}}, gpus(len(states), model)...)
	places := map[gpu.FieldID]int{catalog.FabricCliqueID: 0, catalog.IMEXDaemonStatus: 1, catalog.IMEXDomainStatus: 2}
	batch := &gpu.Batch{Health: []gpu.HealthCheck{h}}
	for i, state := range states {
		row := i + 1
		if state == "lost" {
			batch.FailPart(row, gpu.PartEntity, gpu.ErrLost)
			continue
		}
		values := strings.Fields(state)
		for field := range plan.Fields {
			value := values[places[plan.Fields[field].ID]]
			var n int64
			switch _, err := fmt.Sscan(value, &n); {
			case value == "-":
			case value == "n/a":
				batch.Fail(row, field, gpu.ErrNotSupported)
			case err != nil:
				batch.Add(row, field, gpu.Text(value), now)
			default:
				batch.Add(row, field, gpu.Int(n), now)
			}
		}
	}
	s := buildFacts(facts, devices, plan, batch)
	found := false
	for _, f := range s.Families {
		for _, x := range f.Series {
			for _, l := range x.Labels {
				if l.Name == "corrected" {
					corrected = l.Value
				}
			}
			found = found || x.Row == 0
		}
	}
	if !found {
		t.Error("no health series of the machine, want one")
	}
	return corrected
}

// The condition links_down comes from NVML during a fallback. After the return to DCGM it is absent while DCGM's NVLink
// watch fails, and 0 once the watch passes.
func TestLinksDownAfterFallback(t *testing.T) {
	plan := planOf(t, "DCGM_EXP_FABRIC_STATE, gauge,\nDCGM_EXP_GPU_HEALTH_STATUS, gauge,")
	if !plan.Links {
		t.Fatal("plan requests link states: false, want true")
	}
	nvml := &gpu.Batch{Links: []gpu.LinkState{{Row: 0, Up: true}, {Row: 1}}}
	first := gpu.HealthCheck{Row: 0, Watch: "NVLINK", Code: "DCGM_FR_OK"}
	second := gpu.HealthCheck{Row: 1, Watch: "NVLINK", Code: "DCGM_FR_OK"}
	passes := &gpu.Batch{Health: []gpu.HealthCheck{first, second}}
	second.Code, second.Result = "DCGM_FR_NVLINK_DOWN", 20
	fails := &gpu.Batch{Health: []gpu.HealthCheck{first, second}}
	var facts snapshot.Facts
	for i, step := range []struct {
		batch *gpu.Batch
		want  string
	}{
		{passes, ""}, {fails, ""}, {nvml, "0:0 1:1"}, {fails, ""}, {passes, "1:0"}, {nvml, "0:0 1:1"},
	} {
		s := buildFacts(&facts, gpus(2, ""), plan, step.batch)
		var got []string
		for _, f := range s.Families {
			for _, x := range f.Series {
				if x.Labels[0].Value == "links_down" {
					got = append(got, fmt.Sprintf("%d:%s", x.Row, x.Value))
				}
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("step %d: links_down = %q, want %q", i, got, step.want)
		}
	}
}
