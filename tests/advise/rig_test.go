package advise

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cli"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const root = "../.."

// A scene is a simulated node that is scraped for a while.
type scene struct {
	name string
	node string // as data of the simulator
	// builtin is the name of a simulated node, in place of node.
	builtin string
	// length is how long it is played, every how often it is scraped.
	length, every time.Duration
	vocabulary    catalog.Vocabulary
	// counters are lines of the counters file beside those of activity and memory.
	counters string
	// without are beginnings of names that the exporter does not serve, such as those which NVIDIA's
	// does not have.
	without string
	// renamed says that Prometheus keeps its own labels (honor_labels: false).
	renamed bool

	series map[string]*prom.Series
	page   []byte // the last
	end    time.Time
}

// basic are the counters of NVIDIA's default file that matter here.
const basic = `DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, x
DCGM_FI_DEV_GPU_UTIL, gauge, x
DCGM_FI_DEV_FB_USED, gauge, x
DCGM_FI_DEV_FB_FREE, gauge, x
DCGM_FI_DEV_FB_RESERVED, gauge, x
DCGM_FI_PROF_DRAM_ACTIVE, gauge, x
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, x
`

// profiled are those that a person adds for better advice.
const profiled = `DCGM_FI_PROF_SM_ACTIVE, gauge, x
DCGM_FI_PROF_SM_OCCUPANCY, gauge, x
`

// play scrapes the node, on the clock of a bubble.
func (s *scene) play(t *testing.T) {
	t.Helper()
	s.series = map[string]*prom.Series{}
	synctest.Test(t, func(t *testing.T) {
		options := sim.Options{Node: s.builtin, Seed: 11}
		if s.builtin == "" {
			model, err := sim.ParseNode(strings.NewReader(s.node), s.name+".yaml")
			if err != nil {
				t.Fatal(err)
			}
			options.Model = model
		}
		source, err := sim.New(options)
		if err != nil {
			t.Fatal(err)
		}
		requests, _, err := counters.Parse(strings.NewReader(basic+s.counters), "counters.csv")
		if err != nil {
			t.Fatal(err)
		}
		encoder := exposition.NewEncoder(exposition.Options{Hostname: s.name + "-node"})
		l := loop.New(loop.Options{PodOf: source.PodOf, Options: collector.Options{
			Source:      collector.SourceOf(source.Open),
			Plan:        counters.NewPlan(counters.Translate(requests, s.vocabulary, true), counters.PlanOptions{Interval: s.every, Devices: gpu.Selector{Flex: true}}),
			Attributors: []collector.Attributor{source},
			Registerer:  promclient.NewRegistry(),
			Publish: func(snap *gpu.Snapshot) {
				if snap.Topology == nil {
					return
				}
				page := encoder.Encode(snap)
				defer page.Release()
				s.scrape(t, page.Bytes(), snap.Time)
			},
		}})
		ctx, cancel := context.WithTimeout(t.Context(), s.length+time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	})
}

// scrape appends a page as Prometheus does.
func (s *scene) scrape(t *testing.T, page []byte, at time.Time) {
	s.page, s.end = bytes.Clone(page), at
	for x := range prom.Samples(t, page) {
		if s.without != "" && strings.HasPrefix(string(x.Series), s.without) {
			continue
		}
		series, ok := s.series[string(x.Series)]
		if !ok {
			series = &prom.Series{Metric: s.target(x.Labels)}
			s.series[string(x.Series)] = series
		}
		series.Points = append(series.Points, prom.Point{At: at.UnixMilli(), V: x.Value})
	}
	for _, series := range s.series {
		if last := series.Points[len(series.Points)-1]; last.At < at.UnixMilli() && !value.IsStaleNaN(last.V) {
			series.Points = append(series.Points, prom.Point{At: at.UnixMilli(), V: math.Float64frombits(value.StaleNaN)})
		}
	}
}

// until is the time that advise looks back from: after the last scrape, as a range of Prometheus 2
// has the sample at its begin, and one of Prometheus 3 does not.
func (s *scene) until() string { return s.end.Add(time.Second).UTC().Format(time.RFC3339) }

// target adds the labels of the scrape. Where they are kept, the exporter's own pod has the plain
// names.
func (s *scene) target(l labels.Labels) labels.Labels {
	b := labels.NewBuilder(l).Set("instance", s.name+":9400").Set("job", "gpu").Set("cluster", s.name)
	if s.renamed {
		for name, own := range map[string]string{"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x2x4v", "container": "nvidia-dcgm-exporter"} {
			if theirs := l.Get(name); theirs != "" {
				b.Set("exported_"+name, theirs)
			}
			b.Set(name, own)
		}
	}
	return b.Labels()
}

// served plays the scenes and starts a Prometheus that has scraped them.
func served(t *testing.T, scenes ...*scene) *prom.Server {
	t.Helper()
	prom.Program(t, "prometheus") // before minutes are played
	var all []*prom.Series
	first, last := int64(math.MaxInt64), int64(0)
	for _, s := range scenes {
		s.play(t)
		for _, series := range s.series {
			all = append(all, series)
			first = min(first, series.Points[0].At)
		}
		last = max(last, s.end.UnixMilli())
	}
	p := prom.Start(t, t.TempDir(), "global: {}\n", "--web.enable-remote-write-receiver")
	half := (30 * time.Minute).Milliseconds()
	for from := first; from <= last; from += half {
		p.Write(all, from, from+half)
	}
	return p
}

// gpuop runs gpuop.
func gpuop(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Run(t.Context(), append([]string{"gpuop"}, args...), "v0.0.0-test", cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// The answer of advise -o json, as far as tests read it.
type advice struct {
	Result struct {
		Warnings []string
		Models   []struct {
			Product                   string
			GPUs, Used, Needed, Freed int
			Exposed                   []string
			Recommendations           []recommendation
		}
		Configurations []struct {
			Name, File string
			Checks     []string
		}
	}
}

type recommendation struct {
	Mode         string
	Change       bool
	Rules        []string
	Used, Needed int
	Replicas     int
	Geometry     []string
	Confidence   string
	Samples      int
	Missing      []string
	Risks        []struct{ ID, Text string }
	NotChosen    []struct{ ID, Text string }
	Workloads    []struct {
		Namespace, Name, Rule, Shape, Now string
		Pods, GPUs                        int
		Measured                          bool
		Active                            struct{ Samples, Mean, P95, Max float64 }
	}
}

// advised returns the advice about a scene.
func advised(t *testing.T, p *prom.Server, s *scene, args ...string) (code int, a advice) {
	t.Helper()
	args = append([]string{"advise", "--prometheus", p.URL, "--selector", `cluster="` + s.name + `"`, "--until", s.until(), "--window", "1d", "-o", "json"}, args...)
	if i := slices.Index(args[10:], "--window"); i >= 0 {
		args = slices.Delete(args, 7, 9)
	}
	code, out, errOut := gpuop(t, args...)
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("gpuop %s: exit %d: %v\n%s%s", strings.Join(args, " "), code, err, out, errOut)
	}
	return code, a
}

// file writes a file of the test's own and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
