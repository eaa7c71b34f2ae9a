package rules

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

const (
	scrapeInterval = time.Minute
	playedFor      = 40 * time.Minute
)

// Of a simulated node under a scenario, with the health counters, exactly these alerts ring at the end: the name, and the
// GPU where it is about one.
var played = []struct {
	name, node, faults string
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
}

func TestPlayed(t *testing.T) {
	const ringing = `count by (alertname, gpu) (ALERTS{alertstate="firing"})`
	file := testFile{RuleFiles: []string{"alerts-gpu.yml", "alerts-exporter.yml"}, Evaluation: "1m"}
	for _, p := range played {
		u := unitTest{Name: p.name, Interval: "1m"}
		for series, values := range play(t, p.node, "faults: "+cmp.Or(p.faults, "[]")) {
			u.Input = append(u.Input, input{Series: series, Values: strings.Join(values, " ")})
		}
		q := query{Expr: ringing, EvalTime: playedFor.String()}
		for _, ring := range p.rings {
			alert, index, _ := strings.Cut(ring, " ")
			q.Samples = append(q.Samples, map[string]any{"labels": fmt.Sprintf("{alertname=%q,gpu=%q}", alert, index), "value": 1})
		}
		u.Exprs = []query{q}
		file.Tests = append(file.Tests, u)
	}
	file.RuleFiles = file.rules(t, nil)
	promtool(t, "test", "rules", writeYAML(t, file))
}

// play scrapes a simulated node as the exporter serves it with the health counters, and returns the values of each series
// that a rule selects. Times count from the beginning.
func play(t *testing.T, node, faults string) map[string][]string {
	t.Helper()
	wanted := map[string]bool{}
	for _, r := range allRules(t) {
		for _, name := range selected(r.expr) {
			wanted[name] = true
		}
	}
	series, pages := map[string][]string{}, 0
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
			values = append(values, slices.Repeat([]string{"_"}, pages-len(values))...)
			series[string(s.Series)] = append(values, strconv.FormatFloat(s.Value, 'g', -1, 64))
		}
		pages++
	}
	synctest.Test(t, func(t *testing.T) {
		src, err := sim.New(sim.Options{Node: node, Seed: 11, Scenario: simulated.Scenario(t, faults)})
		if err != nil {
			t.Fatal(err)
		}
		requests, _, err := counters.Parse(bytes.NewReader(shipped(t, etc.HealthName)), etc.HealthName)
		if err != nil {
			t.Fatal(err)
		}
		begin, registry := time.Now(), prometheus.NewRegistry()
		encoder := exposition.NewEncoder(exposition.Options{
			Hostname: node, Trailer: func(dst []byte) []byte { return loop.AppendGathered(t, dst, registry) },
		})
		all := gpu.Selector{Flex: true}
		l := loop.New(loop.Options{PodOf: src.PodOf, Options: collector.Options{
			Source: collector.SourceOf(src.Open), Attributors: []collector.Attributor{src}, Registerer: registry,
			Plan:    counters.NewPlan(requests, counters.PlanOptions{Interval: scrapeInterval, Devices: all, Switches: all, CPUs: all}),
			Publish: func(s *gpu.Snapshot) { take(encoder.Encode(s).Bytes(), begin) },
		}})
		ctx, cancel := context.WithTimeout(t.Context(), playedFor+time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return series
}
