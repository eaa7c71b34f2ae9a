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
	"strconv"
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
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
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
	evaluate(t, "1m", u)
}

// Strict mode does not correct findings, and unknown codes become DCGM_FR_UNRECOGNIZED. Health series exist only for
// GPUs. The families about the fabric and the verdict are left out.
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

// healthRequests returns the requests of the health file.
func healthRequests(t *testing.T) []counters.Request {
	t.Helper()
	requests, _, err := counters.Parse(bytes.NewReader(shipped(t, etc.HealthName)), etc.HealthName)
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// served returns a page for an engine, collected in real time. It returns the third page, because the first one has no
// samples of newly watched fields.
func served(t *testing.T, host string, script []string, o loop.Options) []byte {
	t.Helper()
	fakedcgm.New(t, script...)
	requests := healthRequests(t)
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

// machine returns an NVML script with GPUs of a model. The GPUs in down have no active links.
func machine(gpus int, model string, down ...int) []string {
	script := []string{fmt.Sprint("gpus ", gpus)}
	for i := range gpus {
		script = append(script, fmt.Sprintf("gpu %d set name %s", i, model))
		for link := range 18 {
			if slices.Contains(down, i) {
				script = append(script, fmt.Sprintf("gpu %d set nvlink.%d down", i, link))
			}
		}
	}
	return script
}

const (
	sxm  = "NVIDIA H100 80GB HBM3"
	pcie = "NVIDIA A100-PCIE-40GB" // has NVLinks only with a bridge
)

// linkCases are machines as NVML reports them. After ten minutes, later replaces script if it is not nil.
var linkCases = []struct {
	name          string
	script, later []string
	watched       []string // GPUs that get the verdict watch with the reason links_down, and fire GPUNVLinksDown
}{
	{name: "all links of one GPU are down", script: machine(8, sxm), later: machine(8, sxm, 3), watched: []string{"3"}},
	{name: "all links of one GPU are down from the start", script: machine(8, sxm, 3), watched: []string{"3"}},
	{name: "all links of two GPUs are down", script: machine(8, sxm, 3, 5), watched: []string{"3", "5"}},
	{name: "links of a GPU come up", script: machine(8, sxm, 3), later: machine(8, sxm)},
	{name: "one link is down", script: append(machine(8, sxm), "gpu 3 set nvlink.5 down")},
	{name: "all links of all GPUs are down", script: machine(4, sxm, 0, 1, 2, 3)},
	{name: "no bridge", script: machine(4, pcie, 0, 1, 2, 3)},
	{name: "one of two pairs has a bridge", script: machine(4, pcie, 2, 3)},
	{name: "one of two bridges fails", script: machine(4, pcie), later: machine(4, pcie, 2, 3),
		watched: []string{"2", "3"}},
	{name: "one bridged GPU has no link", script: machine(4, pcie, 2), watched: []string{"2"}},
	{name: "MIG mode", script: append(machine(4, sxm, 1), "gpu 1 mig", "gpu 1 instance 9 0 1g.10gb 9984")},
	{name: "a GPU that has no links", script: append(machine(4, sxm), "gpu 1 set nvlinks 0")},
	{name: "a GPU whose links cannot be read", script: machine(4, sxm),
		later: append(machine(4, sxm, 1), "fail nvmlDeviceGetNvLinkState 999 1")},
}

// Only the GPUs in watched get the verdict watch with the reason links_down, and fire GPUNVLinksDown.
func TestLinksDownUnderNVML(t *testing.T) {
	const minutes = 30
	library, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	const fired = `group by (alertname, node, gpu) (` +
		`ALERTS{alertstate="firing",alertname=~"GPUNVLink.*|GPUFabric.*|RackFabric.*"})`
	u := unitTest{Name: "links", Interval: "1m", Exprs: []query{{Expr: fired, EvalTime: fmt.Sprint(minutes-1, "m")}}}
	for _, c := range linkCases {
		t.Run(c.name, func(t *testing.T) {
			var watched []string
			series := map[string][]string{}
			linkPages(t, library, c.script, c.later, minutes, func(minute int, page []byte) {
				for s := range prom.Samples(t, page) {
					name, labels := s.Labels.Get("__name__"), &s.Labels
					if name == "dcgm_exporter_gpu_verdict" && minute == minutes-1 &&
						labels.Get("reason") == "links_down" {
						watched = append(watched, labels.Get("gpu"))
						if v := labels.Get("verdict"); v != verdict.Watch {
							t.Errorf("GPU %s: verdict = %s, want watch", labels.Get("gpu"), v)
						}
					}
					if name == "DCGM_EXP_FABRIC_STATE" {
						key := strings.Replace(string(s.Series), "{", fmt.Sprintf("{node=%q,", c.name), 1)
						missed := slices.Repeat([]string{"_"}, minute-len(series[key]))
						series[key] = append(append(series[key], missed...), strconv.FormatFloat(s.Value, 'g', -1, 64))
					}
				}
			})
			if d := diff.Diff(c.watched, watched); d != "" {
				t.Errorf("GPUs with verdict watch (-want +got):\n%s", d)
			}
			for s, values := range series {
				u.Input = append(u.Input, input{Series: s, Values: strings.Join(values, " ")})
			}
			for _, id := range c.watched {
				labels := fmt.Sprintf(`{alertname="GPUNVLinksDown",node=%q,gpu=%q}`, c.name, id)
				u.Exprs[0].Samples = append(u.Exprs[0].Samples, map[string]any{"labels": labels, "value": 1})
			}
		})
	}
	evaluate(t, "1m", u)
}

// linkPages calls f with one page for each minute. The fake NVML library plays script. If later is not nil, the library
// plays it from minute 10.
func linkPages(t *testing.T, library string, script, later []string, minutes int, f func(minute int, page []byte)) {
	t.Helper()
	world := fakenvml.NewWorld(t, script...)
	plan := counters.NewPlan(healthRequests(t), gpu.Plan{Interval: time.Minute, Devices: gpu.Selector{Flex: true}})
	s, err := nvml.New(library).Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	builder := snapshot.NewBuilder(s.Topology(), plan, []snapshot.Deriver{&snapshot.Facts{}, &verdict.Judge{}})
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "node"})
	batch, begin := &gpu.Batch{}, time.Now()
	for minute := range minutes {
		if minute == 10 && later != nil {
			world.Play(t, later...)
		}
		batch.Reset()
		if err := s.Read(t.Context(), gpu.ReadRequest{}, batch); err != nil {
			t.Fatal(err)
		}
		elapsed := time.Duration(minute) * time.Minute
		now := begin.Add(elapsed)
		for i := range batch.Samples {
			batch.Samples[i].Time = now.UnixNano()
		}
		reading := snapshot.Reading{Batch: batch, Begin: now, Now: now, Elapsed: elapsed}
		f(minute, encoder.Encode(builder.Build(reading)).Bytes())
	}
}
