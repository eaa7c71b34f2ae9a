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

// engine describes a DCGM engine.
type engine struct {
	Version, Model string
	GPUs, Links    int
	Down           []int    // links of GPU 0 that are down, with a finding of DCGM about each
	Lines          []string // the rest of the script
}

// script returns the script of the fake DCGM library.
func (e *engine) script() []string {
	script := []string{"library 4.6.0", "engine " + e.Version, "driver 580.95.05", "nvml 13.580.95.05"}
	for i := range e.GPUs {
		bus := fmt.Sprintf("00000000:%02X:00.0", 0x1b+0x11*i)
		script = append(script,
			fmt.Sprintf("gpu %[1]d uuid=GPU-%[1]d name=%[2]q bus=%[3]s index=%[1]d minor=%[1]d links=%[4]d",
				i, e.Model, bus, e.Links))
	}
	for _, link := range e.Down {
		script = append(script, fmt.Sprintf("link gpu:0:%d state=down", link), "incident gpu:0 0x2 20 14")
	}
	return append(script, e.Lines...)
}

// healthCase is a machine in testdata/health.yaml.
type healthCase struct {
	Name             string
	Engine           *engine
	Node             string
	Faults           []any
	Boots            bool // the machine has just booted
	NoCheck          bool // the engine has no IMEX watch
	Findings, Alerts []string
}

// Each machine has exactly the findings of its case, and fires exactly its alerts. All other watches pass. The cases
// omit alerts with severity info.
func TestHealthFindings(t *testing.T) {
	// Prometheus evaluates all pages together, as if they came from one cluster. Alerts with severity info are ignored.
	const fired = `group by (alertname, instance) (label_replace(` +
		`count_over_time(ALERTS{alertstate="firing",severity!="info"}[1h]), "instance", "$1", "hostname", "(.+)"))`
	file := testFile{RuleFiles: []string{"alerts-gpu.yml", "alerts-exporter.yml"}, Evaluation: "1m"}
	u := unitTest{Name: "health", Interval: "1m", Exprs: []query{{Expr: fired, EvalTime: "25m"}}}
	for _, c := range load[healthCase](t, "health.yaml") {
		check := func(t *testing.T, page []byte, noCheck bool) {
			t.Helper()
			findings, without := healthOf(t, page, noCheck)
			if d := diff.Diff(c.Findings, findings); d != "" || without != 0 {
				t.Errorf("%d watches without a result, want 0; findings (-want +got):\n%s", without, d)
			}
		}
		add := func(host string, series map[string][]string) {
			for s, values := range series {
				name, labels, _ := strings.Cut(s, "{")
				s = fmt.Sprintf("%s{instance=%q,%s", name, host, cmp.Or(labels, "}"))
				u.Input = append(u.Input, input{Series: s, Values: strings.Join(values, " ")})
			}
			for _, alert := range c.Alerts {
				labels := fmt.Sprintf("{alertname=%q,instance=%q}", alert, host)
				u.Exprs[0].Samples = append(u.Exprs[0].Samples, map[string]any{"labels": labels, "value": 1})
			}
		}
		if c.Engine != nil {
			t.Run(c.Name+"/engine", func(t *testing.T) {
				var o loop.Options
				if c.Boots {
					o.Booted = time.Now()
				}
				host := c.Name + "/engine"
				page := served(t, host, c.Engine.script(), o)
				check(t, page, c.NoCheck)
				series := map[string][]string{}
				for s := range prom.Samples(t, page) {
					series[string(s.Series)] = []string{fmt.Sprintf("%vx%d", s.Value, playedFor/scrapeInterval)}
				}
				add(host, series)
			})
		}
		if c.Node != "" {
			t.Run(c.Name+"/simulated", func(t *testing.T) {
				host := c.Name + "/simulated"
				add(host, play(t, c.Node, host, 11, c.Faults,
					setting{boots: c.Boots, look: func(n int, page []byte) {
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
	e := engine{
		Version: "4.6.0", Model: "NVIDIA A100-PCIE-40GB", GPUs: 1, Links: 12,
		Down: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
		Lines: []string{"value any:* 173 int 0", "switch 0 links=2", "incident none:0 0x2 20 122",
			"incident switch:0 0x800 20 15", "incident gpu:0 0x10 20 4000", "incident gpu:0 0x10 10 4001"},
	}
	page := served(t, "strict", e.script(), loop.Options{Strict: true, Booted: time.Now()})
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
