package rules

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A play is what Prometheus scrapes of a simulated node.
type play struct {
	node, faults string
	model        *sim.Node // played instead of the node of that name, where it is set
	counters     []byte
	vocabulary   catalog.Vocabulary
	step         time.Duration // between two scrapes, and between two cycles
	scrapes      int
	wanted       map[string]bool // the families to keep; all where it is nil
}

// A recording is what was scraped, by series.
type recording struct {
	series map[string]*samples
	bytes  int // of the last page
}

// samples are the values of a series from the scrape first on.
type samples struct {
	name, labels string
	first        int
	values       []float64 // no number where the scrape has none
}

// scraped plays a node on the clock of a bubble.
func (p play) scraped(t *testing.T) recording {
	t.Helper()
	rec := recording{series: map[string]*samples{}}
	synctest.Test(t, func(t *testing.T) {
		script, err := sim.ParseScenario(strings.NewReader(p.faults), "faults.yaml")
		if err != nil {
			t.Fatal(err)
		}
		src, err := sim.New(sim.Options{Node: p.node, Model: p.model, Seed: 5, Scenario: script})
		if err != nil {
			t.Fatal(err)
		}
		requests, problems, err := counters.Parse(bytes.NewReader(p.counters), "counters.csv")
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		registry := prometheus.NewRegistry()
		encoder := exposition.NewEncoder(exposition.Options{
			Hostname: p.node, Trailer: func(dst []byte) []byte { return loop.AppendGathered(t, dst, registry) },
		})
		log := kernellog.New(kernellog.Options{
			Path: "simulated", Registerer: registry, Log: slog.New(slog.DiscardHandler),
			Open:  func() (kernellog.Device, error) { return src.KernelLog(), nil },
			PodOf: src.PodOf,
		})
		all := gpu.Selector{Flex: true}
		var pages exposition.Pages
		l := loop.New(loop.Options{PodOf: src.PodOf, KernelLog: log, Options: collector.Options{
			Source: collector.SourceOf(src.Open), Attributors: []collector.Attributor{src},
			Plan: counters.NewPlan(counters.Translate(requests, p.vocabulary, true), counters.PlanOptions{
				Interval: p.step, Devices: all, Switches: all, CPUs: all,
			}),
			Registerer: registry, MaxBackoff: p.step / 2, HangLimit: 24 * time.Hour,
			Publish: func(s *gpu.Snapshot) { pages.Publish(encoder.Encode(s)) },
		}})
		begin := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() {
			reading := make(chan struct{})
			go func() { defer close(reading); log.Run(ctx) }()
			err := l.Run(ctx)
			<-reading
			over <- err
		}()
		for i := range p.scrapes {
			time.Sleep(time.Until(begin.Add(time.Duration(i)*p.step + time.Second)))
			synctest.Wait()
			page := pages.Acquire()
			if page == nil {
				t.Fatalf("no page at scrape %d", i)
			}
			rec.bytes = len(page.Bytes())
			rec.add(t, page.Bytes(), i, begin, p.wanted)
			page.Release()
		}
		src.Release()
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
	})
	return rec
}

// add adds a page. Times count from begin on, since promtool's clock begins at zero.
func (r *recording) add(t *testing.T, page []byte, at int, begin time.Time, wanted map[string]bool) {
	for sample := range prom.Samples(t, page) {
		text, v := sample.Series, sample.Value
		name := text
		if i := bytes.IndexByte(text, '{'); i >= 0 {
			name = text[:i]
		}
		if wanted != nil && !wanted[string(name)] {
			continue
		}
		s, ok := r.series[string(text)]
		if !ok {
			s = &samples{name: string(name), labels: sample.Labels.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String(), first: at}
			r.series[string(text)] = s
		}
		for s.first+len(s.values) < at {
			s.values = append(s.values, math.NaN())
		}
		if strings.HasSuffix(strings.ToLower(s.name), "_timestamp_seconds") {
			v -= float64(begin.Unix())
		}
		s.values = append(s.values, v)
	}
}

// inputs returns the series as promtool reads them, with the labels that a ServiceMonitor puts on
// them, a cluster of their own, since pods of several nodes are called alike, and up.
func (r recording) inputs(node string, scrapes int) []input {
	target := `cluster="of-` + node + `",job="dcgm-exporter",instance="` + node + `:9400",node="` + node + `"`
	list := []input{{`up{` + target + `}`, "1x" + strconv.Itoa(scrapes-1)}}
	for _, key := range slices.Sorted(maps.Keys(r.series)) {
		s := r.series[key]
		inner := strings.TrimSuffix(strings.TrimPrefix(s.labels, "{"), "}")
		if inner != "" {
			inner += ","
		}
		list = append(list, input{s.name + "{" + inner + target + "}", s.notation(scrapes)})
	}
	return list
}

// notation returns the values in promtool's notation: runs of one value are short, and a series
// that ends is stale, as Prometheus marks it.
func (s *samples) notation(scrapes int) string {
	var b []byte
	if s.first > 0 {
		b = append(b, '_', 'x')
		b = strconv.AppendInt(b, int64(s.first), 10)
		b = append(b, ' ')
	}
	for i := 0; i < len(s.values); {
		n := 1
		for i+n < len(s.values) && same(s.values[i], s.values[i+n]) {
			n++
		}
		if math.IsNaN(s.values[i]) {
			b = append(b, "stale "...)
			if n > 1 {
				b = append(b, "_x"...)
				b = append(strconv.AppendInt(b, int64(n-1), 10), ' ')
			}
		} else {
			b = strconv.AppendFloat(b, s.values[i], 'g', -1, 64)
			if n > 1 {
				b = append(b, 'x')
				b = strconv.AppendInt(b, int64(n-1), 10)
			}
			b = append(b, ' ')
		}
		i += n
	}
	if end := s.first + len(s.values); end < scrapes {
		b = append(b, "stale"...)
	}
	return strings.TrimSpace(string(b))
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// families returns the names that the rules select, in every vocabulary.
func families(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, r := range allRules(t) {
		for _, name := range selected(r.expr) {
			names[name] = true
		}
	}
	return names
}
