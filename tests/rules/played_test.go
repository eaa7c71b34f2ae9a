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

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	helm "helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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

// played lists scenarios of a simulated node with the chart's default settings, and the alerts that fire at the end. No
// other alert may fire. An entry in fires has the alert, and the GPU, host and NVLink if the alert names them. The
// default host is the node. In a rack, the last tray has the faults.
var played = []struct {
	name, node, faults string
	log                bool   // kernelLog.enabled is set
	rack               int    // number of trays, or 0 for a single node
	more               string // counters in addition to those of the health file
	fires              []string
}{
	{name: "a healthy HGX H100", node: "h100x8"},
	{name: "a healthy HGX B200", node: "b200"},
	{name: "a healthy tray of GB200", node: "gb200"},
	{name: "healthy GPUs in MIG mode", node: "a100-mig"},
	{name: "GPUs at their power and software thermal limits", node: "h100x8", faults: `
  - {fault: throttle, at: 2m, devices: ["0", "1", "2", "3"], reasons: [sw_power_cap]}
  - {fault: throttle, at: 2m, devices: ["4", "5", "6", "7"], reasons: [sw_power_cap, sw_thermal]}
`},
	{name: "a bad link of NVLink 4", node: "h100x8", fires: []string{"GPUNVLinkErrors 3", "GPUNVLinkRecoveries 3"},
		faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL], value: 0, rate: 0.01}
`},
	{name: "a bad NVLink 5 link", node: "b200", fires: []string{"GPUNVLink5Errors 3"}, faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_NVLINK_COUNT_RX_SYMBOL_ERRORS], value: 0, rate: 20}
`},
	{name: "a bad link of NVLink 5, with counters by link", node: "b200", more: byLink,
		fires: []string{"GPUNVLink5Errors 3  5", "GPUNVLinkRecoveries 3  5"},
		faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS], value: 0,
     rate: 0.01}
  - {fault: set, at: 5m, devices: ["nvlink 3/5"], fields: [DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS],
     value: 0, rate: 0.01}
`},
	{name: "a link of a rack that recovers", node: "gb200",
		fires: []string{"GPUNVLink5Errors 2", "GPUNVLinkRecoveries 2"},
		faults: `
  - {fault: set, at: 5m, devices: ["2"], fields: [DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS],
     value: 0, rate: 0.01}
`},
	{name: "a tray in a separate clique", node: "gb300", rack: 18, fires: []string{"RackFabricDisagrees  tray-17"},
		faults: `
  - {fault: set, at: 5m, fields: [DCGM_FI_DEV_FABRIC_CLIQUE_ID], value: 12}
`},
	{name: "a tray whose GPU lost its routes", node: "gb300", rack: 3,
		fires: []string{"GPUFabricDegraded 2 tray-2", "RackFabricDisagrees  tray-2"},
		faults: `
  - {fault: set, at: 5m, devices: ["2"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x519a}
`},
	{name: "a tray with insufficient resources", node: "gb300", rack: 3, fires: []string{"GPUFabricFailed 1 tray-2"},
		faults: `
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 4}
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_CLIQUE_ID], value: 0}
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID],
     text: 00000000-0000-0000-0000-000000000000}
`},
	{name: "a GPU without a cluster", node: "gb300", rack: 3, fires: []string{"GPUFabricMisconfigured 1 tray-2"},
		faults: `
  - {fault: set, at: 5m, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID],
     text: 00000000-0000-0000-0000-000000000000}
`},
	{name: "a tray that never registered", node: "gb300", rack: 3, fires: []string{"GPUFabricNotReady 0 tray-2"},
		faults: `
  - {fault: set, at: 0s, devices: ["0"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 0}
  - {fault: set, at: 0s, devices: ["0"], fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID],
     text: 00000000-0000-0000-0000-000000000000}
`},
	{name: "profiling fields that read 0", node: "h100x8", fires: []string{"DCGMExporterProfilingContradicted 3"},
		faults: `
  - {fault: set, at: 5m, devices: ["3"], fields: ["DCGM_FI_PROF_*"], value: 0}
  - {fault: set, at: 5m, devices: ["3"], fields: [DCGM_FI_DEV_GPU_UTIL], value: 97}
`},
	{name: "an XID of NVLink 5", node: "gb200",
		fires: []string{"GPURecoveryActionRequired 0", "GPUXIDHardware 0", "GPUXIDNVLink 0"},
		faults: `
  - {fault: xid, at: 5m, devices: ["0"], xids: [149],
     text: "NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000)"}
  - {fault: xid, at: 5m, devices: ["0"], xids: [154],
     text: GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)}
  - {fault: set, at: 5m, devices: ["0"], fields: [DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION], value: 1}
`},
	{name: "XIDs of a completed reset and of corrected C2C errors", node: "gb200",
		fires: []string{"GPUXIDMemoryRepair 1"},
		faults: `
  - {fault: xid, at: 30m, devices: ["0"], xids: [154],
     text: GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)}
  - {fault: xid, at: 30m, devices: ["1"], xids: [121]}
`},
	{name: "an SXID", node: "nvswitch", fires: []string{"NVSwitchFailed"}, faults: sxids},
	{name: "an SXID in the kernel log", node: "nvswitch", log: true, fires: []string{"NVSwitchFailed"},
		faults: sxids + `
  - {fault: absent, fields: [DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS]}
`},
	{name: "an XID that only the kernel reports", node: "single", faults: kernelXID},
	{name: "an XID in the kernel log that only the kernel reports", node: "single", log: true,
		fires:  []string{"GPUXIDHardware 0"},
		faults: kernelXID},
	{name: "a GPU that is bound to another driver", node: "h100x8", fires: []string{"GPUMissing"}, faults: `
  - {fault: unbound, at: 11m, devices: ["3"]}
`},
	{name: "the engine stops", node: "single", fires: []string{"DCGMExporterEngineUnavailable"}, faults: `
  - {fault: engine-down, at: 11m}
`},
	{name: "driver calls hang", node: "single", fires: []string{"DCGMExporterWedged"}, faults: `
  - {fault: hang, at: 11m}
`},
	{name: "a GPU is lost", node: "h100x8", fires: []string{"GPULost 3"}, faults: `
  - {fault: gpu-lost, at: 35m, devices: ["3"]}
`},
	{name: "heat", node: "single", fires: []string{"GPUThermalThrottling 0"}, faults: `
  - {fault: throttle, at: 5m, devices: ["0"], reasons: [hw_slowdown, hw_thermal]}
`},
	{name: "fields without values", node: "single",
		fires: []string{"DCGMExporterFieldsDenied", "DCGMExporterStaleSamples"},
		faults: `
  - {fault: absent, at: 5m, reason: permission, fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL]}
  - {fault: absent, at: 5m, reason: stale, fields: [DCGM_FI_DEV_GPU_TEMP]}
  - {fault: absent, at: 5m, reason: not_supported, fields: [DCGM_FI_DEV_POWER_USAGE]}
`},
	{name: "profiling without DCGM", node: "single", fires: []string{"DCGMExporterProfilingUnavailable"}, faults: `
  - {fault: absent, at: 5m, reason: needs_dcgm, fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
`},
	{name: "a GPU that is partitioned", node: "h100x8", faults: `
  - {fault: repartition, at: 5m, devices: ["6"], mig: [4g.40gb, 3g.40gb]}
`},
	{name: "rows with a pending remap", node: "single",
		fires: []string{"GPURecoveryActionRequired 0", "GPURowRemapPending 0"},
		faults: `
  - {fault: set, at: 5m, fields: [DCGM_FI_DEV_ROW_REMAP_PENDING, DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION], value: 1}
`},
}

const (
	sxids = `
  - {fault: sxid, at: 35m, devices: ["nvswitch 1/3"], xids: [20034]}
  - {fault: sxid, at: 36m, devices: ["nvswitch 2/3"], xids: [22013], result: warn}
`
	kernelXID = `
  - {fault: xid, at: 35m, devices: ["0"], xids: [79], reported-by: [kernel]}
`
)

// byLink has the NVLink counters by link, which the health file leaves out.
const byLink = `DCGM_EXP_NVLINK_SYMBOL_ERRORS_TOTAL, counter, Errors.
DCGM_EXP_NVLINK_EFFECTIVE_BER, gauge, Rate.
`

func TestSimulatedFaultsFireAlerts(t *testing.T) {
	const firingNow = `count by (alertname, gpu, hostname, nvlink) (ALERTS{alertstate="firing"})`
	file := testFile{RuleFiles: []string{"alerts-gpu.yml", "alerts-exporter.yml"}, Evaluation: "2m"}
	for _, p := range played {
		u := unitTest{Name: p.name, Interval: "1m"}
		add := func(host string, seed uint64, faults string) {
			for series, values := range play(t, p.node, host, seed, "faults: "+cmp.Or(faults, "[]"),
				setting{log: p.log, more: p.more}) {
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
		q := query{Expr: firingNow, EvalTime: playedFor.String()}
		for _, entry := range p.fires {
			alert, where, _ := strings.Cut(entry, " ")
			index, rest, _ := strings.Cut(where, " ")
			host, link, _ := strings.Cut(rest, " ")
			labels := fmt.Sprintf("{alertname=%q,hostname=%q", alert, cmp.Or(host, p.node))
			if index != "" {
				labels += fmt.Sprintf(",gpu=%q", index)
			}
			if link != "" {
				labels += fmt.Sprintf(",nvlink=%q", link)
			}
			q.Samples = append(q.Samples, map[string]any{"labels": labels + "}", "value": 1})
		}
		u.Exprs = []query{q}
		file.Tests = append(file.Tests, u)
	}
	file.RuleFiles = file.rules(t, nil)
	promtool(t, "test", "rules", writeYAML(t, file))
}

// TestHealthCountersAreFew checks the number of series with the health file: at most 700 on an HGX H100, and 900 on an
// HGX B200, which also has counters by link. Links that can be read have no dcgm_exporter_ series.
func TestHealthCountersAreFew(t *testing.T) {
	for node, most := range map[string]int{"h100x8": 700, "b200": 900} {
		var page, failure bytes.Buffer
		code := command.Run(t.Context(), "once", command.Process{
			Args: []string{"--source=sim", "--sim-node=" + node, "-f", filepath.Join(root, "etc", etc.HealthName)},
			Env:  func(string) (string, bool) { return "", false }, ReadFile: os.ReadFile, Out: &page, Err: &failure,
		})
		series := 0
		for s := range prom.Samples(t, page.Bytes()) {
			series++
			if name := s.Labels.Get("__name__"); strings.HasPrefix(name, "dcgm_exporter_") &&
				s.Labels.Get("nvlink") != "" {
				t.Errorf("%s: exporter series has an nvlink label, want none: %s", node, s.Series)
			}
		}
		if code != command.OK || series < 500 || series > most {
			t.Errorf("%s: exit code = %d, series = %d; want 0 and 500 to %d; error output:\n%s", node, code, series,
				most, failure.String())
		}
	}
}

// setting has the options of a simulated run.
type setting struct {
	log   bool                     // the kernel log is read
	boots bool                     // the machine boots at the start of the run
	more  string                   // counters in addition to those of the health file
	look  func(n int, page []byte) // called with each page and its number, if not nil
}

// install has the exporter's settings from the rendered chart.
type install struct {
	args     []string
	env      map[string]string
	counters []byte
}

// installed renders the chart with values and returns the exporter's settings. The values {} mean the defaults.
func installed(t *testing.T, values string) install {
	t.Helper()
	c, err := loader.Load(filepath.Join(root, "deployment", "chart"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	if v, err = chartutil.ToRenderValues(c, v,
		chartutil.ReleaseOptions{Name: "dcgm-exporter", Namespace: "gpus", IsInstall: true}, nil); err != nil {
		t.Fatal(err)
	}
	files, err := helm.Render(c, v)
	if err != nil {
		t.Fatal(err)
	}
	var set apps.DaemonSet
	var counters core.ConfigMap
	for file, into := range map[string]any{"daemonset.yaml": &set, "counters.yaml": &counters} {
		if err := yaml.UnmarshalStrict([]byte(files["dcgm-exporter/templates/"+file]), into); err != nil {
			t.Fatal(err)
		}
	}
	container := set.Spec.Template.Spec.Containers[0]
	i := install{args: container.Args, env: map[string]string{}, counters: []byte(counters.Data["metrics"])}
	for _, e := range container.Env {
		if e.ValueFrom == nil {
			i.env[e.Name] = e.Value
		}
	}
	return i
}

// play scrapes a simulated node every minute, with the settings of the chart. It returns the values of all series that
// a rule selects. Timestamps are relative to the start.
func play(t *testing.T, node, host string, seed uint64, faults string, set setting) map[string][]string {
	t.Helper()
	wanted := map[string]bool{}
	for _, r := range allRules(t) {
		for _, name := range selected(r.expr) {
			wanted[name] = true
		}
	}
	values := "{}"
	if set.log {
		values = "kernelLog: {enabled: true}"
	}
	install := installed(t, values)
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
			list := series[string(s.Series)]
			list = append(list, slices.Repeat([]string{"_"}, n-len(list))...)
			series[string(s.Series)] = append(list, strconv.FormatFloat(s.Value, 'g', -1, 64))
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
			Source: src, Host: host, Args: append(install.args, "--source=sim", "--sim-node="+node), Env: install.env,
			Counters: append(slices.Clone(install.counters), set.more...),
		}
		if set.boots {
			run.Booted = begin
		}
		run.Each(t, func(_ *gpu.Snapshot, page []byte) bool {
			// the page stays the same until the next collection
			for time.Since(begin) >= time.Duration(n)*scrapeInterval {
				take(page, begin)
			}
			return time.Since(begin) < playedFor
		})
	})
	return series
}
