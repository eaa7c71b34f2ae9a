//go:build linux && cgo

package rules

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

func TestMain(m *testing.M) { os.Exit(fakedcgm.Main(m)) }

// engine returns the script of a DCGM engine with GPUs of a model, each with active links.
func engine(version, model string, gpus, links int, more ...string) []string {
	script := []string{"library 4.6.0", "engine " + version, "driver 580.95.05", "nvml 13.580.95.05"}
	for i := range gpus {
		bus := fmt.Sprintf("00000000:%02X:00.0", 0x1b+0x11*i)
		script = append(script,
			fmt.Sprintf("gpu %[1]d uuid=GPU-%[1]d name=%[2]q bus=%[3]s index=%[1]d minor=%[1]d links=%[4]d",
				i, model, bus, links))
	}
	return append(script, more...)
}

// hgx returns the script of a DCGM engine with eight H100, which are in no clique.
func hgx(more ...string) []string {
	return engine("4.6.0", "NVIDIA H100 80GB HBM3", 8, 18, append(more, noClique)...)
}

// gb300 returns the script of a DCGM engine with four GB300 in a clique, and the states of the IMEX domain and daemon.
func gb300(version, domain string, daemon int, more ...string) []string {
	state := []string{inClique, "value any:* 1502 text " + domain, fmt.Sprint("value any:* 1503 int ", daemon)}
	return engine(version, "NVIDIA GB300", 4, 18, append(state, more...)...)
}

// linksDown returns the lines of a script for links of GPU 0 that are down, and for DCGM's findings about them.
func linksDown(links ...int) (lines []string) {
	for _, link := range links {
		lines = append(lines, fmt.Sprintf("link gpu:0:%d state=down", link), "incident gpu:0 0x2 20 14")
	}
	return lines
}

// linkNames returns the names of the first n links of GPU 0 in a scenario.
func linkNames(n int) string {
	var names []string
	for link := range n {
		names = append(names, fmt.Sprint("nvlink 0/", link))
	}
	return strings.Join(names, ", ")
}

// all has the indices of the links of an A100.
var all = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}

const (
	inClique = "value any:* 173 int 7"
	noClique = "value any:* 173 int 0"
	noIMEX   = `{fault: health, watches: [IMEX]}`
)

func imex(domain, daemon string) string {
	return noIMEX + `, {fault: set, fields: [DCGM_FI_IMEX_DOMAIN_STATUS], text: ` + domain + `}` +
		`, {fault: set, fields: [DCGM_FI_IMEX_DAEMON_STATUS], value: ` + daemon + `}`
}

// oneLinkDown are the findings about a GPU with at least one link that is down.
var oneLinkDown = []string{"gpu ALL DCGM_FR_NVLINK_DOWN  20", "gpu NVLINK DCGM_FR_NVLINK_DOWN  20"}

// healthCases are machines with their health findings, correct and false ones. A machine is an engine script, a
// simulator scenario, or both. A finding has the entity, the watch, the error code, the corrected or treatment label,
// and the result. Watches without a finding pass.
var healthCases = []struct {
	name         string
	engine       []string
	node, faults string
	boots        bool // the machine has just booted
	noCheck      bool // the engine has no IMEX watch
	findings     []string
	alerts       []string
}{
	{
		name:   "idle GB300 in a healthy domain",
		engine: gb300("4.6.1", "UP", 5),
		node:   "gb300",
	},
	{
		name:   "idle GB300 with the daemon only in pods",
		engine: gb300("4.6.1", "UNAVAILABLE", -3, "incident none:0 0x2000 20 122"),
		node:   "gb300", faults: imex("UNAVAILABLE", "-3"),
		findings: []string{"machine IMEX DCGM_FR_IMEX_UNHEALTHY no_daemon 0"},
	},
	{
		name: "the machine's own daemon stops",
		node: "gb300", faults: `{fault: health, at: 5m, watches: [IMEX]}, ` +
			`{fault: set, at: 5m, fields: [DCGM_FI_IMEX_DOMAIN_STATUS], text: UNAVAILABLE}, ` +
			`{fault: set, at: 5m, fields: [DCGM_FI_IMEX_DAEMON_STATUS], value: -3}`,
		alerts: []string{"GPUNodeHealthFailed"},
	},
	{
		name:   "the domain is DEGRADED, engine 4.6.1",
		engine: gb300("4.6.1", "DEGRADED", 5, "incident none:0 0x2000 20 122"),
		node:   "gb300", faults: imex("DEGRADED", "5"),
		findings: []string{"machine IMEX DCGM_FR_IMEX_UNHEALTHY  20"}, alerts: []string{"GPUNodeHealthFailed"},
	},
	{
		name:   "the domain is DOWN and the daemon stopped",
		engine: gb300("4.6.1", "DOWN", -3, "incident none:0 0x2000 20 122", "incident none:0 0x2000 20 122"),
		node:   "gb300", faults: imex("DOWN", "-3"),
		findings: []string{"machine IMEX DCGM_FR_IMEX_UNHEALTHY  20"}, alerts: []string{"GPUNodeHealthFailed"},
	},
	{
		name:   "the daemon is not READY, engine 4.6.0",
		engine: gb300("4.6.0", "UP", 2, "incident none:0 0x2 20 122"),
		node:   "gb300", faults: imex("UP", "2"),
		findings: []string{"machine IMEX DCGM_FR_IMEX_UNHEALTHY  20"}, alerts: []string{"GPUNodeHealthFailed"},
	},
	{
		name: "HGX without IMEX",
		engine: hgx("value any:* 1503 int 0", "switch 0 links=36",
			"incident none:0 0x2 20 122"),
		node: "nvswitch", faults: noIMEX,
		findings: []string{"machine IMEX DCGM_FR_IMEX_UNHEALTHY no_domain 0"},
	},
	{
		name:   "A100 PCIe without a bridge, engine 4.4",
		engine: engine("4.4.2", "NVIDIA A100-PCIE-40GB", 1, 12, linksDown(all...)...), noCheck: true,
		node: "a100-mig", faults: `{fault: repartition, devices: ["2"]}, ` +
			`{fault: health, devices: ["2"], watches: [NVLINK]}`,
		findings: []string{"gpu NVLINK DCGM_FR_NVLINK_DOWN no_bridge 0"},
	},
	{
		name:     "A30X without a bridge",
		engine:   engine("4.6.0", "NVIDIA A30X", 1, 12, append(linksDown(all...), noClique)...),
		findings: []string{"gpu NVLINK DCGM_FR_NVLINK_DOWN no_bridge 0"},
	},
	{
		name:   "A100 PCIe with a bridge and one link down",
		engine: engine("4.4.2", "NVIDIA A100-PCIE-40GB", 2, 12, linksDown(3)...), noCheck: true,
		findings: oneLinkDown, alerts: []string{"GPUNVLinkDown"},
	},
	{
		name:   "A100 SXM with all links down",
		engine: engine("4.4.2", "NVIDIA A100-SXM4-80GB", 2, 12, linksDown(all...)...), noCheck: true,
		findings: oneLinkDown, alerts: []string{"GPUNVLinkDown"},
	},
	{
		name:   "one of 18 links down on H100",
		engine: hgx(linksDown(5)...),
		node:   "h100x8", faults: `{fault: health, devices: ["0"], watches: [NVLINK]}, ` +
			`{fault: link-down, devices: [nvlink 0/5]}`,
		findings: oneLinkDown, alerts: []string{"GPUNVLinkDown"},
	},
	{
		name: "boot with links down for 3 minutes", engine: hgx(linksDown(5)...),
		node: "h100x8", faults: `{fault: health, for: 3m, devices: ["0"], watches: [NVLINK]}`, boots: true,
		findings: []string{"gpu NVLINK DCGM_FR_NVLINK_DOWN boot 0"},
	},
	{
		name: "boot with links of a switch down for 3 minutes",
		node: "nvswitch",
		faults: `{fault: health, for: 3m, devices: [nvswitch 2], watches: [NVSWITCH_FATAL], ` +
			`code: DCGM_FR_NVLINK_DOWN}`,
		boots:    true,
		findings: []string{"nvswitch NVSWITCH_FATAL DCGM_FR_NVLINK_DOWN boot 0"},
	},
	{
		name: "a link stays down after boot",
		node: "h100x8", faults: `{fault: health, devices: ["0"], watches: [NVLINK]}`, boots: true,
		findings: []string{"gpu NVLINK DCGM_FR_NVLINK_DOWN boot 0"}, alerts: []string{"GPUNVLinkDown"},
	},
	{
		name:     "a link of an NVSwitch is down",
		engine:   hgx("switch 1 links=36", "incident switch:1 0x800 20 14"),
		node:     "nvswitch",
		faults:   `{fault: health, devices: [nvswitch 1], watches: [NVSWITCH_FATAL], code: DCGM_FR_NVLINK_DOWN}`,
		findings: []string{"nvswitch NVSWITCH_FATAL DCGM_FR_NVLINK_DOWN  20"}, alerts: []string{"GPUNVLinkDown"},
	},
	{
		name:   "fatal error of an NVSwitch",
		engine: hgx("switch 0 links=36", "switch 1 links=36", "incident switch:1 0x800 20 15"),
		node:   "nvswitch", faults: `{fault: health, devices: [nvswitch 1], watches: [NVSWITCH_FATAL]}`,
		findings: []string{"nvswitch NVSWITCH_FATAL DCGM_FR_NVSWITCH_FATAL_ERROR  20"},
		alerts:   []string{"NVSwitchFailed"},
	},
	{
		name:     "nonfatal error of an NVSwitch",
		engine:   hgx("switch 0 links=36", "switch 1 links=36", "incident switch:1 0x400 10 16"),
		node:     "nvswitch",
		faults:   `{fault: health, devices: [nvswitch 1], watches: [NVSWITCH_NONFATAL], result: warn}`,
		findings: []string{"nvswitch NVSWITCH_NONFATAL DCGM_FR_NVSWITCH_NON_FATAL_ERROR  10"},
		alerts:   []string{"NVSwitchWarning"},
	},
	{
		name: "ConnectX",
		engine: engine("4.6.0", "NVIDIA GB200", 4, 18, inClique, "connectx 1", "connectx 5",
			"incident connectx:5 0x1000 20 33"),
		node: "everything", faults: `{fault: health, devices: [connectx 1], watches: [CONNECTX]}, ` +
			`{fault: set, devices: [connectx 2], fields: [DCGM_FI_DEV_CONNECTX_ACTIVE_PCIE_LINK_WIDTH], value: 16}`,
		findings: []string{"connectx CONNECTX DCGM_FR_FIELD_VIOLATION  20"}, alerts: []string{"NetworkCardUnhealthy"},
	},
	{
		name:   "a GPU fell off the bus",
		engine: hgx("incident gpu:1 0xffffffff 20 120"),
		node:   "h100x8", faults: `{fault: health, devices: ["1"], watches: [ALL]}`,
		findings: []string{"gpu ALL DCGM_FR_FALLEN_OFF_BUS superseded 20"},
	},
	{
		name: "a GPU at its power and thermal limits",
		engine: hgx("value gpu:3 240 int 7 1000", "value gpu:3 241 int 7 1000",
			"value gpu:3 1420-1421 int 7"),
		node: "h100x8", faults: `{fault: throttle, devices: ["3"], reasons: [sw_power_cap, sw_thermal]}`,
	},
	{
		name:     "a page fault of a program in the engine's history",
		engine:   hgx("incident gpu:1 0x10 10 101"),
		findings: []string{"gpu ALL DCGM_FR_XID_ERROR superseded 10", "gpu MEM DCGM_FR_XID_ERROR superseded 10"},
	},
	{
		name: "a page fault of a program",
		node: "h100x8", faults: `{fault: xid, at: 10s, devices: ["1"], xids: [31]}`,
		findings: []string{"gpu ALL DCGM_FR_XID_ERROR superseded 10", "gpu MEM DCGM_FR_XID_ERROR superseded 10"},
	},
	{
		name: "two findings about the GPU and a worse one about its links", // series must not be repeated
		engine: hgx("incident gpu:1 0xffffffff 10 131",
			"incident gpu:1 0xffffffff 10 101", "incident gpu:1 0x2 20 70"),
		findings: []string{"gpu ALL DCGM_FR_CONTAINED_ERROR superseded 10", "gpu ALL DCGM_FR_XID_ERROR superseded 10",
			"gpu NVLINK DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD  20"},
		alerts: []string{"GPUHealthFailed"},
	},
	{
		name: "a slow fabric",
		engine: engine("4.6.0", "NVIDIA GB200", 4, 18, inClique, "incident gpu:1 0x2 20 33",
			"value gpu:1 174 int 20905"),
		node:   "gb200",
		faults: `{fault: set, devices: ["1"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_MASK], value: 0x51a9}`,
		findings: []string{"gpu ALL DCGM_FR_FIELD_VIOLATION superseded 20",
			"gpu NVLINK DCGM_FR_FIELD_VIOLATION superseded 20"},
		alerts: []string{"GPUFabricDegraded"},
	},
	{
		name:   "an uncorrected error since the driver was loaded",
		engine: hgx("incident gpu:2 0x10 20 4", "value gpu:2 311 int 1"),
		findings: []string{"gpu ALL DCGM_FR_VOLATILE_DBE_DETECTED superseded 20",
			"gpu MEM DCGM_FR_VOLATILE_DBE_DETECTED superseded 20"},
	},
	{
		name: "a GPU is lost",
		node: "h100x8", faults: `{fault: gpu-lost, devices: ["1"]}`,
		alerts: []string{"GPULost"},
	},
	{
		name: "all links of a bridge fail after they were up",
		node: "a100-mig", faults: `{fault: repartition, devices: ["0", "1"]}, ` +
			`{fault: health, at: 5m, devices: ["0"], watches: [NVLINK]}, ` +
			`{fault: link-down, at: 5m, devices: [` + linkNames(12) + `]}`,
		alerts: []string{"GPUNVLinkDown"},
	},
	{
		name:    "links in MIG mode, engine 4.4",
		engine:  engine("4.4.2", "NVIDIA A100-SXM4-80GB", 2, 12, append(linksDown(all...), "value gpu:0 67 int 1")...),
		noCheck: true,
		node:    "a100-mig", faults: `{fault: health, devices: ["0"], watches: [NVLINK]}`,
		findings: []string{"gpu NVLINK DCGM_FR_NVLINK_DOWN mig 0"},
	},
	{
		name: "findings of a newer engine",
		engine: engine("4.9.0", "NVIDIA H100 80GB HBM3", 8, 18, noClique, "incident gpu:0 0x4000 20 4000",
			"incident none:0 0x8000 20 4001"),
		findings: []string{"gpu 0x4000 4000  20", "gpu ALL 4000  20", "machine 0x8000 4001  20"},
		alerts:   []string{"GPUHealthFailed", "GPUNodeHealthFailed"},
	},
}

// Each machine has exactly the findings of its case, and fires exactly its alerts. All other watches pass. The cases
// omit alerts with severity info.
func TestHealthFindings(t *testing.T) {
	// Prometheus evaluates all pages together, as if they came from one cluster. Alerts with severity info are ignored.
	const fired = `group by (alertname, instance) (label_replace(` +
		`count_over_time(ALERTS{alertstate="firing",severity!="info"}[1h]), "instance", "$1", "hostname", "(.+)"))`
	file := testFile{RuleFiles: []string{"alerts-gpu.yml", "alerts-exporter.yml"}, Evaluation: "1m"}
	u := unitTest{Name: "health", Interval: "1m", Exprs: []query{{Expr: fired, EvalTime: "25m"}}}
	for _, c := range healthCases {
		check := func(t *testing.T, page []byte, noCheck bool) {
			t.Helper()
			findings, without := healthOf(t, page, noCheck)
			if d := diff.Diff(c.findings, findings); d != "" || without != 0 {
				t.Errorf("%d watches without a result, want 0; findings (-want +got):\n%s", without, d)
			}
		}
		add := func(host string, series map[string][]string) {
			for s, values := range series {
				name, labels, _ := strings.Cut(s, "{")
				s = fmt.Sprintf("%s{instance=%q,%s", name, host, cmp.Or(labels, "}"))
				u.Input = append(u.Input, input{Series: s, Values: strings.Join(values, " ")})
			}
			for _, alert := range c.alerts {
				labels := fmt.Sprintf("{alertname=%q,instance=%q}", alert, host)
				u.Exprs[0].Samples = append(u.Exprs[0].Samples, map[string]any{"labels": labels, "value": 1})
			}
		}
		if c.engine != nil {
			t.Run(c.name+"/engine", func(t *testing.T) {
				var o loop.Options
				if c.boots {
					o.Booted = time.Now()
				}
				host := c.name + "/engine"
				page := served(t, host, c.engine, o)
				check(t, page, c.noCheck)
				series := map[string][]string{}
				for s := range prom.Samples(t, page) {
					series[string(s.Series)] = []string{fmt.Sprintf("%vx%d", s.Value, playedFor/scrapeInterval)}
				}
				add(host, series)
			})
		}
		if c.node != "" {
			t.Run(c.name+"/simulated", func(t *testing.T) {
				host := c.name + "/simulated"
				add(host, play(t, c.node, host, 11, "faults: ["+c.faults+"]",
					setting{boots: c.boots, look: func(n int, page []byte) {
						if n == 2 {
							check(t, page, false)
						}
					}}))
			})
		}
	}
	file.Tests, file.RuleFiles = []unitTest{u}, file.rules(t, nil)
	promtool(t, "test", "rules", writeYAML(t, file))
}

// In strict mode, findings are not corrected, and unknown codes become DCGM_FR_UNRECOGNIZED. Health series exist only
// for GPUs. The families about the fabric and the verdict are left out.
func TestHealthInStrictMode(t *testing.T) {
	script := engine("4.6.0", "NVIDIA A100-PCIE-40GB", 1, 12, append(linksDown(all...), noClique, "switch 0 links=2",
		"incident none:0 0x2 20 122", "incident switch:0 0x800 20 15", "incident gpu:0 0x10 20 4000",
		"incident gpu:0 0x10 10 4001")...)
	page := served(t, "strict", script, loop.Options{Strict: true, Booted: time.Now()})
	findings, _ := healthOf(t, page, true)
	want := []string{"gpu MEM DCGM_FR_UNRECOGNIZED  20", "gpu NVLINK DCGM_FR_NVLINK_DOWN  20"}
	if d := diff.Diff(want, findings); d != "" {
		t.Errorf("findings (-want +got):\n%s\n%s", d, page)
	}
	for _, series := range []string{
		`health_watch="SM",health_error_code="DCGM_FR_OK",health_error_severity="NONE",health_error_category="NONE"}`,
		`health_error_code="DCGM_FR_NVLINK_DOWN",health_error_severity="TRIAGE",` +
			`health_error_category="HARDWARE_NVLINK"}`,
		`health_error_code="DCGM_FR_UNRECOGNIZED",health_error_severity="UNKNOWN",health_error_category="UNKNOWN"}`,
	} {
		if !bytes.Contains(page, []byte(series)) {
			t.Errorf("no series ends with %s:\n%s", series, page)
		}
	}
	for _, family := range []string{nodeHealth, switchHealth, "DCGM_EXP_FABRIC_STATE", "dcgm_exporter_gpu_verdict"} {
		if bytes.Contains(page, []byte(family)) {
			t.Errorf("strict page has the family %s, want it absent", family)
		}
	}
}

// served returns a page for an engine, collected in real time. It returns the third page, because the first one has no
// samples of newly watched fields.
func served(t *testing.T, host string, script []string, o loop.Options) []byte {
	t.Helper()
	fakedcgm.New(t, script...)
	requests, _, err := counters.Parse(bytes.NewReader(shipped(t, etc.HealthName)), etc.HealthName)
	if err != nil {
		t.Fatal(err)
	}
	flex := gpu.Selector{Flex: true}
	like := compat.Options{Strict: o.Strict, Devices: flex}
	requests = slices.DeleteFunc(requests, func(r counters.Request) bool { return like.Omits(r.Family) })
	rewriter := compat.New(like)
	encoder := exposition.NewEncoder(exposition.Options{Hostname: host})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var page []byte
	pages := 0
	plan := counters.NewPlan(requests, gpu.Plan{
		Interval: 50 * time.Millisecond, Devices: flex, Switches: flex, CPUs: flex, KeepContradicted: o.Strict,
	})
	o.Options = collector.Options{
		Settings:   collector.Settings{Source: collector.SourceOf(dcgm.New(dcgm.Options{}).Open), Plan: plan},
		Registerer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Publish: func(s *gpu.Snapshot) {
			if s.Topology == nil || pages == 3 {
				return
			}
			page = slices.Clone(encoder.Encode(rewriter.Rewrite(s)).Bytes())
			if pages++; pages == 3 {
				cancel()
			}
		},
	}
	if err := loop.New(o).Run(ctx); err != nil || pages < 3 {
		t.Fatalf("pages = %d, want at least 3 (error %v)", pages, err)
	}
	return page
}

const (
	switchHealth = "DCGM_EXP_NVSWITCH_HEALTH_STATUS"
	nodeHealth   = "DCGM_EXP_NODE_HEALTH_STATUS"
)

// healthOf returns the findings on a page, except informational ones. without counts watches that lack a result, and
// watches of lost entities that have one.
func healthOf(t *testing.T, page []byte, noCheck bool) (findings []string, without int) {
	t.Helper()
	kinds := map[string][]string{"DCGM_EXP_GPU_HEALTH_STATUS": {"gpu"}, switchHealth: {"nvswitch"},
		nodeHealth: {"connectx", ""}}
	watches := map[string][]string{
		"gpu":      {"PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL"},
		"nvswitch": {"NVSWITCH_NONFATAL", "NVSWITCH_FATAL"}, "connectx": {"CONNECTX"},
	}
	expected, results := map[string]bool{"IMEX": !noCheck}, map[string]bool{}
	for s := range prom.Samples(t, page) {
		name := s.Labels.Get("__name__")
		for kind, list := range watches {
			if id := s.Labels.Get(kind); id != "" && name == "dcgm_exporter_entity_up" && s.Labels.Get("nvlink") == "" {
				for _, watch := range list {
					expected[kind+id+watch] = s.Labels.Get("reason") != "lost"
				}
			}
		}
		if kinds[name] == nil {
			continue
		}
		kind := kinds[name][0]
		if s.Labels.Get(kind) == "" {
			kind = kinds[name][len(kinds[name])-1]
		}
		watch, code, why := s.Labels.Get("health_watch"), s.Labels.Get("health_error_code"), s.Labels.Get("corrected")
		results[kind+s.Labels.Get(kind)+watch] = true
		treatment := s.Labels.Get("treatment")
		if treatment == "informational" { // simulated GPUs run at their power limit
			continue
		}
		if s.Value > 0 || why != "" || code != "DCGM_FR_OK" {
			findings = append(findings,
				fmt.Sprintf("%s %s %s %s %v", cmp.Or(kind, "machine"), watch, code, why+treatment, s.Value))
		}
	}
	slices.Sort(findings)
	for key, is := range expected {
		if is != results[key] {
			without++
		}
	}
	return findings, without
}
