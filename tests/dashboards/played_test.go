package dashboards

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A played node is a simulated one that was scraped for hours, on the clock of a bubble.
type played struct {
	host, node string // its host name, and the simulated node
	cluster    string // the label of that name that Prometheus puts on its series; "" for none
	vocabulary catalog.Vocabulary
	reloads    bool          // whether its configuration is read again halfway
	defaults   bool          // whether it has the default counters, not those of a fleet
	silent     time.Duration // how long before the end its last scrape is; 0 for none
	scenario   string

	series  map[string]*history
	scrapes []int64 // in Unix milliseconds
}

// A history is a series.
type history struct {
	metric  labels.Labels
	samples []sample
}

type sample struct {
	at int64
	v  float64
}

// scrapeEvery is how often the played nodes are scraped and collect.
const scrapeEvery = time.Minute

// fleetNodes are the nodes of the fleet: every way to share a GPU, both vocabularies, and troubles,
// of which each panel that shows troubles has one. length is how long they are played.
func fleetNodes(length time.Duration) []*played {
	ago := func(d time.Duration) string { return (length - d).String() }
	return []*played{
		{host: "gpu-a-01", cluster: "east", node: "demo", vocabulary: catalog.Classic, reloads: true, scenario: `faults:
  - {fault: xid, at: ` + ago(95*time.Minute) + `, devices: ["3"], xids: [31]}
  - {fault: xid, at: ` + ago(20*time.Minute+20*time.Second) + `, devices: ["1"], xids: [62, 45]}
  - {fault: throttle, at: ` + ago(40*time.Minute) + `, devices: ["2"], reasons: [sw_thermal]}
  - {fault: set, at: ` + ago(35*time.Minute) + `, devices: ["2"], fields: [DCGM_FI_DEV_GPU_TEMP], value: 88}
  - {fault: set, at: ` + ago(35*time.Minute) + `, devices: ["2"], fields: [DCGM_FI_PROF_GR_ENGINE_ACTIVE], value: 0.21}
  - {fault: set, at: ` + ago(35*time.Minute) + `, devices: ["2"], fields: [DCGM_FI_DEV_GPU_UTIL], value: 21}
  - {fault: no-permission, at: 0s, devices: ["5"], fields: [DCGM_FI_PROF_DRAM_ACTIVE]}
  - {fault: spike, at: ` + ago(30*time.Minute) + `, for: 10m, devices: ["5"], fields: [DCGM_FI_DEV_GPU_UTIL], value: 808334905}
`},
		{host: "gpu-a-02", cluster: "east", node: "h100x8", vocabulary: catalog.Classic, scenario: `faults:
  - {fault: gpu-lost, at: ` + ago(25*time.Minute) + `, devices: ["5"]}
  - {fault: xid, at: ` + ago(27*time.Minute+10*time.Second) + `, devices: ["5"], xids: [79]}
  - {fault: repartition, at: ` + ago(50*time.Minute) + `, for: 20m, devices: ["6"], mig: [4g.40gb, 3g.40gb]}
`},
		{host: "gpu-b-01", node: "shared", vocabulary: catalog.Current},
		{host: "gpu-b-02", node: "nvswitch", vocabulary: catalog.Both, scenario: `faults:
  - {fault: set, at: ` + ago(45*time.Minute) + `, devices: ["1"], fields: [DCGM_FI_DEV_ROW_REMAP_PENDING, DCGM_FI_DEV_RETIRED_PENDING], value: 1}
  - {fault: set, at: ` + ago(45*time.Minute) + `, devices: ["1"], fields: [DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION], value: 1}
  - {fault: set, at: ` + ago(45*time.Minute) + `, devices: ["1"], fields: [DCGM_FI_DEV_ECC_DBE_VOL_TOTAL], value: 2}
  - {fault: set, at: ` + ago(45*time.Minute) + `, devices: ["1"], fields: [DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS], value: 3}
  - {fault: set, at: ` + ago(90*time.Minute) + `, for: 30m, devices: ["2"], fields: [DCGM_FI_DEV_ECC_SBE_VOL_TOTAL], value: 40}
  - {fault: set, at: ` + ago(60*time.Minute) + `, devices: ["2"], fields: [DCGM_FI_DEV_ECC_SBE_VOL_TOTAL], value: 190}
  - {fault: set, at: ` + ago(60*time.Minute) + `, devices: ["2"], fields: [DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS], value: 5}
  - {fault: set, at: ` + ago(30*time.Minute) + `, devices: ["6"], fields: [DCGM_FI_DEV_ROW_REMAP_FAILURE], value: 1}
  - {fault: set, at: ` + ago(15*time.Minute) + `, devices: ["4"], fields: [DCGM_FI_DEV_FABRIC_MANAGER_STATUS], value: 4}
  - {fault: set, at: ` + ago(15*time.Minute) + `, devices: ["4"], fields: [DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY], value: 2}
  - {fault: set, at: ` + ago(70*time.Minute) + `, devices: ["3"], fields: [DCGM_FI_DEV_PCIE_LINK_WIDTH], value: 8}
  - {fault: set, at: ` + ago(70*time.Minute) + `, devices: ["3"], fields: [DCGM_FI_DEV_PCIE_REPLAY_COUNTER], value: 600}
  - {fault: set, at: ` + ago(10*time.Minute) + `, devices: ["0"], fields: [DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL], value: 240}
  - {fault: link-down, at: ` + ago(12*time.Minute) + `, devices: [nvlink 0/4, nvlink 0/5]}
  - {fault: health, at: ` + ago(12*time.Minute) + `, devices: ["0"], watches: [NVLINK], code: DCGM_FR_NVLINK_DOWN}
  - {fault: throttle, at: ` + ago(55*time.Minute) + `, for: 30m, devices: ["7"], reasons: [hw_slowdown, hw_thermal]}
`},
		{host: "gpu-c-01", node: "t4", vocabulary: catalog.Classic, scenario: `faults:
  - {fault: engine-down, at: ` + ago(6*time.Minute) + `}
  - {fault: driver-absent, at: ` + ago(6*time.Minute) + `}
`},
		{host: "gpu-d-01", node: "single", vocabulary: catalog.Classic, defaults: true, scenario: `faults:
  - {fault: xid, at: ` + ago(110*time.Minute) + `, devices: ["0"], xids: [31]}
`},
		{host: "gpu-c-02", node: "mig8x7", vocabulary: catalog.Current, silent: 12 * time.Minute},
	}
}

// instance is what the node is scraped as: an address, which says nothing.
func (p *played) instance() string { return p.host[len("gpu-"):] + ".gpu.test:9400" }

// play scrapes the node for a while.
func (p *played) play(t *testing.T, length time.Duration) {
	t.Helper()
	p.series = map[string]*history{}
	synctest.Test(t, func(t *testing.T) {
		if p.scenario == "" {
			p.scenario = "faults: []\n"
		}
		faults, err := sim.ParseScenario(strings.NewReader(p.scenario), p.host+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		source, err := sim.New(sim.Options{Node: p.node, Seed: uint64(len(p.node)), Scenario: faults})
		if err != nil {
			t.Fatal(err)
		}
		file := shipped(t, "fleet")
		if p.defaults {
			file = shipped(t, "default")
		}
		requests, _, err := counters.Parse(bytes.NewReader(file), "counters.csv")
		if err != nil {
			t.Fatal(err)
		}
		requests = counters.Translate(requests, p.vocabulary, true)
		own := promclient.NewRegistry()
		// What app registers, which is not in a Loop; TestPrometheusAnswersEveryQuery asks app itself.
		for name, with := range map[string]promclient.Labels{
			"dcgm_exporter_build_info": {"version": "v0.1.0"}, "dcgm_exporter_config_last_reload_successful": nil, "dcgm_exporter_source_fallback": nil,
		} {
			g := promclient.NewGauge(promclient.GaugeOpts{Name: name, ConstLabels: with, Help: name})
			if name != "dcgm_exporter_source_fallback" {
				g.Set(1)
			}
			own.MustRegister(g)
		}
		loaded := time.Now()
		own.MustRegister(promclient.NewGaugeFunc(promclient.GaugeOpts{Name: "dcgm_exporter_config_last_reload_success_timestamp_seconds", Help: "x"}, func() float64 {
			if p.reloads && time.Since(loaded) >= length/2 {
				return float64(loaded.Add(length / 2).Unix())
			}
			return float64(loaded.Unix())
		}))
		encoder := exposition.NewEncoder(exposition.Options{Hostname: p.host, Trailer: func(dst []byte) []byte {
			families, err := own.Gather()
			if err != nil {
				t.Error(err)
			}
			w := bytes.NewBuffer(dst)
			enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
			for _, f := range families {
				if err := enc.Encode(f); err != nil {
					t.Error(err)
				}
			}
			return w.Bytes()
		}})
		began := time.Now()
		var mu sync.Mutex
		var page []byte
		l := loop.New(loop.Options{PodOf: source.PodOf, Options: collector.Options{
			Source:      collector.SourceOf(source.Open),
			Plan:        counters.NewPlan(requests, counters.PlanOptions{Interval: scrapeEvery, Devices: gpu.Selector{Flex: true}}),
			Attributors: []collector.Attributor{source},
			Registerer:  own,
			Publish: func(s *gpu.Snapshot) {
				encoded := encoder.Encode(s)
				defer encoded.Release()
				mu.Lock()
				defer mu.Unlock()
				page = bytes.Clone(encoded.Bytes())
			},
		}})
		ctx, cancel := context.WithTimeout(t.Context(), length+2*time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Second) // behind the collection, whose interval is the same
			for tick := time.NewTicker(scrapeEvery); ; {
				select {
				case now := <-tick.C:
					if now.Sub(began) <= length-p.silent+time.Second {
						mu.Lock()
						p.scrape(t, page, now.UnixMilli())
						mu.Unlock()
					}
				case <-ctx.Done():
					return
				}
			}
		}()
		if err := l.Run(ctx); err != nil {
			t.Errorf("%s: %v", p.host, err)
		}
	})
}

// shipped returns a counters file that is shipped.
func shipped(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "etc", name+"-counters.csv"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// scrape appends a page as Prometheus does: with the labels of the target, and with a marker where
// a series ends.
func (p *played) scrape(t *testing.T, page []byte, at int64) {
	read := 0
	for s := range prom.Samples(t, page) {
		read++
		p.add(string(s.Series), at, s.Value, func() labels.Labels {
			return p.of(s.Labels)
		})
	}
	of := func(name string) func() labels.Labels {
		return func() labels.Labels {
			return p.of(labels.FromStrings("__name__", name))
		}
	}
	p.add("up", at, 1, of("up"))
	p.add("scrape_samples_scraped", at, float64(read), of("scrape_samples_scraped"))
	p.end(at)
	p.scrapes = append(p.scrapes, at)
}

// of adds the labels of the scrape.
func (p *played) of(l labels.Labels) labels.Labels {
	return labels.NewBuilder(l).Set("instance", p.instance()).Set("job", "gpu").Set("cluster", p.cluster).Labels()
}

func (p *played) add(key string, at int64, v float64, metric func() labels.Labels) {
	h, ok := p.series[key]
	if !ok {
		h = &history{metric: metric().Copy()}
		p.series[key] = h
	}
	h.samples = append(h.samples, sample{at, v})
}

// end marks the series that the scrape at that time did not have.
func (p *played) end(at int64) {
	for _, h := range p.series {
		if last := h.samples[len(h.samples)-1]; last.at < at && !value.IsStaleNaN(last.v) {
			h.samples = append(h.samples, sample{at, math.Float64frombits(value.StaleNaN)})
		}
	}
}

// A world is a fleet, and a Prometheus that scraped it.
type world struct {
	t      *testing.T
	nodes  []*played
	end    time.Time // of the latest scrape
	length time.Duration
	url    string
	rate   string // $__rate_interval: four scrapes
}

// playFleet plays the nodes and starts a Prometheus over what it would have scraped.
func playFleet(t *testing.T, length time.Duration, nodes ...*played) *world {
	t.Helper()
	w := &world{t: t, nodes: nodes, length: length, rate: "4m"}
	for _, p := range nodes {
		p.play(t, length)
		w.end = maxTime(w.end, time.UnixMilli(p.scrapes[len(p.scrapes)-1]))
	}
	for _, p := range nodes {
		last := p.scrapes[len(p.scrapes)-1]
		of := p.of(labels.FromStrings("__name__", "up"))
		for at := last + scrapeEvery.Milliseconds(); at <= w.end.UnixMilli(); at += scrapeEvery.Milliseconds() {
			p.add("up", at, 0, func() labels.Labels { return of })
			p.end(at)
		}
	}
	server := prom.Start(t, t.TempDir(), "global: {}\n", "--web.enable-remote-write-receiver")
	w.url = server.URL
	var all []*prom.Series
	for _, p := range nodes {
		all = append(all, p.all()...)
	}
	for from := w.end.Add(-length - scrapeEvery); !from.After(w.end); from = from.Add(30 * time.Minute) {
		server.Write(all, from.UnixMilli(), from.Add(30*time.Minute).UnixMilli())
	}
	return w
}

// all are the series as the server takes them.
func (p *played) all() []*prom.Series {
	var all []*prom.Series
	for _, h := range p.series {
		x := &prom.Series{Metric: h.metric}
		for _, s := range h.samples {
			x.Points = append(x.Points, prom.Point{At: s.at, V: s.v})
		}
		all = append(all, x)
	}
	return all
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A point is a series of an answer with its values.
type point struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

func (p point) value(t *testing.T) float64 {
	t.Helper()
	return numberOf(t, p.Value)
}

func numberOf(t *testing.T, v [2]any) float64 {
	t.Helper()
	text, _ := v[1].(string)
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// instant asks a query at a time.
func (w *world) instant(expr string, at time.Time) []point {
	w.t.Helper()
	return w.get("/api/v1/query", url.Values{"query": {expr}, "time": {unix(at)}})
}

// ranged asks a query from a time until the end.
func (w *world) ranged(expr string, from time.Time, step time.Duration) []point {
	w.t.Helper()
	return w.get("/api/v1/query_range", url.Values{"query": {expr}, "start": {unix(from)}, "end": {unix(w.end)}, "step": {strconv.Itoa(int(step.Seconds()))}})
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func (w *world) get(path string, v url.Values) []point {
	w.t.Helper()
	resp, err := http.PostForm(w.url+path, v)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []point }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		w.t.Fatal(err)
	}
	if answer.Status != "success" {
		w.t.Errorf("%s: %s\n%s", resp.Status, answer.Error, v.Get("query"))
	}
	return answer.Data.Result
}

// filledFor returns a query as Grafana asks it of the played world, with values for variables.
func (w *world) filledFor(expr string, values map[string]string) string {
	all := []string{"$__rate_interval", w.rate, "$__range", strconv.Itoa(int(w.length.Seconds())) + "s"}
	for _, name := range []string{"cluster", "instance", "gpu", "namespace", "pod"} {
		v := values[name]
		if v == "" {
			v = ".*"
		}
		all = append(all, "$"+name, v)
	}
	return strings.NewReplacer(all...).Replace(expr)
}

// served are the series of a family at a time, as the nodes served them.
func (w *world) served(at time.Time, names ...string) []raw {
	var all []raw
	for _, p := range w.nodes {
		for _, h := range p.series {
			if !slices.Contains(names, h.metric.Get("__name__")) {
				continue
			}
			i, found := slices.BinarySearchFunc(h.samples, at.UnixMilli(), func(s sample, at int64) int { return int(s.at - at) })
			if found && !value.IsStaleNaN(h.samples[i].v) {
				all = append(all, raw{h.metric, h.samples[i].v})
			}
		}
	}
	return all
}

// A raw is a series with a value.
type raw struct {
	labels.Labels
	v float64
}
