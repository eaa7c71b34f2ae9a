package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

const (
	scrapeInterval = time.Minute
	playedFor      = 40 * time.Minute
)

// Of a simulated node under a scenario, with the health counters, exactly these alerts ring at the end: the name, and the
// GPU where it is about one. Of the trays of a rack the last has the faults; then the host follows; - for none.
var played = []struct {
	name, node, faults string
	rack               int
	rings              []string
}{
	{name: "a healthy HGX H100", node: "h100x8"},
	{name: "a healthy HGX B200", node: "b200"},
	{name: "a healthy tray of GB200", node: "gb200"},
	{name: "a bad link of NVLink 4", node: "h100x8", rings: []string{"GPUNVLinkErrors 3"}, faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL], value: 0, rate: 0.01}
`},
	{name: "a bad link of NVLink 5", node: "b200", rings: []string{"GPUNVLink5Errors 3"}, faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS], value: 0, rate: 20}
`},
	{name: "a link of a rack that recovers", node: "gb200", rings: []string{"GPUNVLink5Errors 2"}, faults: `
  - {fault: set, at: 5m, devices: ["2"], fields: [DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS], value: 0, rate: 0.01}
`},
	{name: "a tray in a clique of its own", node: "gb300", rack: 18, rings: []string{"RackFabricDisagrees  tray-17"}, faults: `
  - {fault: set, at: 5m, fields: [DCGM_FI_DEV_FABRIC_CLIQUE_ID], value: 12}
`},
	{name: "a tray whose GPU lost its routes", node: "gb300", rack: 3, rings: []string{"GPUFabricDegraded 2 tray-2", "RackFabricDisagrees  tray-2"}, faults: `
  - {fault: set, at: 5m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x519a}
`},
	{name: "a tray of insufficient resources", node: "gb300", rack: 3, rings: []string{"GPUFabricFailed 1 tray-2"}, faults: `
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 4}
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_CLIQUE_ID], value: 0}
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID], text: 00000000-0000-0000-0000-000000000000}
`},
	{name: "a GPU without a cluster", node: "gb300", rack: 3, rings: []string{"GPUFabricMisconfigured 1 tray-2"}, faults: `
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID], text: 00000000-0000-0000-0000-000000000000}
`},
	{name: "a tray that never registered", node: "gb300", rack: 3, rings: []string{"GPUFabricNotReady 0 tray-2"}, faults: `
  - {fault: set, at: 0s, devices: ["0"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 0}
  - {fault: set, at: 0s, devices: ["0"], fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID], text: 00000000-0000-0000-0000-000000000000}
`},
	{name: "profiling that reads 0", node: "h100x8", rings: []string{"DCGMExporterProfilingContradicted 3 -"}, faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: ["DCGM_FI_PROF_*"], value: 0}
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_GPU_UTIL], value: 97}
`},
	{name: "an XID of NVLink 5", node: "gb200", rings: []string{"GPUXIDHardware 0", "GPUXIDNVLink 0"}, faults: `
  - {fault: xid, at: 5m, devices: ["0"], xids: [149], text: "NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)"}
  - {fault: xid, at: 5m, devices: ["0"], xids: [154], text: GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)}
`},
	{name: "an SXID", node: "nvswitch", rings: []string{"NVSwitchFailed"}, faults: `
  - {fault: sxid, at: 35m, devices: ["nvswitch 1/3"], xids: [20034]}
  - {fault: sxid, at: 36m, devices: ["nvswitch 2/3"], xids: [22013], result: warn}
`},
}

func TestPlayed(t *testing.T) {
	const ringing = `count by (alertname, gpu, hostname) (ALERTS{alertstate="firing"})`
	file := testFile{RuleFiles: []string{"alerts-gpu.yml", "alerts-exporter.yml"}, Evaluation: "1m"}
	for _, p := range played {
		u := unitTest{Name: p.name, Interval: "1m"}
		add := func(host string, seed uint64, faults string) {
			for series, values := range play(t, p.node, host, seed, "faults: "+cmp.Or(faults, "[]"), setting{}) {
				u.Input = append(u.Input, input{Series: series, Values: strings.Join(values, " ")})
			}
		}
		for tray := range p.rack - 1 {
			add(fmt.Sprint("tray-", tray), uint64(tray), "")
		}
		if p.rack == 0 {
			add(p.node, 11, p.faults)
		} else {
			add(fmt.Sprint("tray-", p.rack-1), uint64(p.rack-1), p.faults)
		}
		q := query{Expr: ringing, EvalTime: playedFor.String()}
		for _, ring := range p.rings {
			alert, where, _ := strings.Cut(ring, " ")
			index, host, _ := strings.Cut(where, " ")
			labels := fmt.Sprintf("{alertname=%q", alert)
			if host != "-" {
				labels += fmt.Sprintf(",hostname=%q", cmp.Or(host, p.node))
			}
			if index != "" {
				labels += fmt.Sprintf(",gpu=%q", index)
			}
			q.Samples = append(q.Samples, map[string]any{"labels": labels + "}", "value": 1})
		}
		u.Exprs = []query{q}
		file.Tests = append(file.Tests, u)
	}
	file.RuleFiles = file.rules(t, nil)
	promtool(t, "test", "rules", writeYAML(t, file))
}

// The page of an HGX H100 with the health counters has at most 700 series, those about the exporter among them.
func TestHealthCountersAreFew(t *testing.T) {
	var page, failure bytes.Buffer
	code := command.Run(t.Context(), "once", command.Process{
		Args: []string{"--source=sim", "--sim-node=h100x8", "-f", filepath.Join(root, "etc", etc.HealthName)},
		Env:  func(string) (string, bool) { return "", false }, ReadFile: os.ReadFile, Out: &page, Err: &failure,
	})
	series := 0
	for range prom.Samples(t, page.Bytes()) {
		series++
	}
	if code != command.OK || series < 500 || series > 700 {
		t.Errorf("exit code %d, %d series, want 500 to 700: %s", code, series, failure.String())
	}
}

// A setting is what else happens in a play.
type setting struct {
	boots bool                     // the machine starts with it
	look  func(n int, page []byte) // is called with each page and its number; nil for none
}

// play scrapes a simulated node as the exporter serves it with the health counters, and returns the values of each series
// that a rule selects. Times count from the beginning.
func play(t *testing.T, node, host string, seed uint64, faults string, set setting) map[string][]string {
	t.Helper()
	wanted := map[string]bool{}
	for _, r := range allRules(t) {
		for _, name := range selected(r.expr) {
			wanted[name] = true
		}
	}
	series, n := map[string][]string{}, 0
	take := func(page []byte, begin time.Time) {
		for s := range prom.Samples(t, page) {
			name := s.Labels.Get("__name__")
			if !wanted[name] {
				continue
			}
			if strings.HasSuffix(strings.ToLower(name), "_timestamp_seconds") {
				s.Value -= float64(begin.Unix())
			}
			values := series[string(s.Series)]
			values = append(values, slices.Repeat([]string{"_"}, n-len(values))...)
			series[string(s.Series)] = append(values, strconv.FormatFloat(s.Value, 'g', -1, 64))
		}
		if set.look != nil {
			set.look(n, page)
		}
		n++
	}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		src, err := sim.New(sim.Options{Node: node, Seed: seed, Scenario: simulated.Scenario(t, faults)})
		if err != nil {
			t.Fatal(err)
		}
		run := pages.Run{
			Source: src, Host: host, Counters: shipped(t, etc.HealthName), Interval: scrapeInterval, KernelLog: true,
		}
		if set.boots {
			run.Booted = begin
		}
		run.Each(t, func(_ *gpu.Snapshot, page []byte) bool {
			take(page, begin)
			return time.Since(begin) < playedFor
		})
	})
	return series
}
