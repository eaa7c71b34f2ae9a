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
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

const (
	scrapeInterval = time.Minute
	playedFor      = 40 * time.Minute
)

// scenario is an entry of testdata/played.yaml.
type scenario struct {
	Name, Node string
	Faults     []any
	Log        bool   // kernelLog.enabled is set
	Rack       int    // number of trays, or 0 for a single node
	More       string // counters in addition to those of the health file
	Fires      []string
}

// load reads the cases in a file of testdata.
func load[T any](t *testing.T, name string) (cases []T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(folder.Read(t, "testdata", name)), &cases); err != nil {
		t.Fatal(name, err)
	}
	return cases
}

func TestSimulatedFaultsFireAlerts(t *testing.T) {
	const firingNow = `count by (alertname, gpu, hostname, nvlink) (ALERTS{alertstate="firing"})`
	var tests []unitTest
	for _, p := range load[scenario](t, "played.yaml") {
		u := unitTest{Name: p.Name, Interval: "1m"}
		add := func(host string, seed uint64, faults []any) {
			for series, values := range play(t, p.Node, host, seed, faults, setting{log: p.Log, more: p.More}) {
				u.Input = append(u.Input, input{Series: series, Values: strings.Join(values, " ")})
			}
		}
		for tray := range p.Rack - 1 {
			add(fmt.Sprint("tray-", tray), uint64(tray), nil)
		}
		if p.Rack == 0 {
			add(p.Node, 11, p.Faults)
		} else {
			add(fmt.Sprint("tray-", p.Rack-1), uint64(p.Rack-1), p.Faults)
		}
		q := query{Expr: firingNow, EvalTime: playedFor.String()}
		for _, entry := range p.Fires {
			alert, where, _ := strings.Cut(entry, " ")
			index, rest, _ := strings.Cut(where, " ")
			host, link, _ := strings.Cut(rest, " ")
			labels := fmt.Sprintf("{alertname=%q,hostname=%q", alert, cmp.Or(host, p.Node))
			if index != "" {
				labels += fmt.Sprintf(",gpu=%q", index)
			}
			if link != "" {
				labels += fmt.Sprintf(",nvlink=%q", link)
			}
			q.Samples = append(q.Samples, map[string]any{"labels": labels + "}", "value": 1})
		}
		u.Exprs = []query{q}
		tests = append(tests, u)
	}
	evaluate(t, "2m", tests...)
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
func play(t *testing.T, node, host string, seed uint64, faults []any, set setting) map[string][]string {
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
	text, err := yaml.Marshal(map[string]any{"faults": append([]any{}, faults...)})
	if err != nil {
		t.Fatal(err)
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
		src, err := sim.New(sim.Options{Node: node, Seed: seed, Scenario: simulated.Scenario(t, string(text))})
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
