package consumers

import (
	"bytes"
	"cmp"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

const (
	compat         = "../../deployment/rules/compat/"
	nodeName       = "node-1"
	scrapeInterval = 30 * time.Second
	scrapes        = 14 // enough to cover the five-minute range of the queries
)

// owner is a holder of a device, given by its labels: a container of a pod, or a job.
type owner map[string]string

func container(pod, name string) owner {
	return owner{"namespace": "serving", "pod": pod, "container": name}
}

// kind is a way of assigning GPUs to owners.
type kind struct {
	name, node string
	owners     []owner
	faults     string // faults of the simulator, if any
}

var kinds = []kind{
	{"whole", `
gpus: [{board: H100-SXM5-80GB, count: 3}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["0"]}
  - {pod: fold, host: true, job: "4711", workload: training, devices: ["1"]}
`, []owner{container("chat-0", "vllm"), {"jobid": "4711"}}, ""},
	{"time-sliced", `
gpus: [{board: H100-SXM5-80GB, sharing: time-slicing, replicas: 4}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["0"]}
  - {namespace: serving, pod: etl-0, container: rapids, workload: batch, devices: ["0"]}
  - {pod: burn-in, host: true, workload: notebook, devices: ["0"]}
`, []owner{container("chat-0", "vllm"), container("etl-0", "rapids")}, ""},
	{"two containers", `
gpus: [{board: H100-SXM5-80GB}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["0"]}
  - {namespace: serving, pod: chat-0, container: draft, workload: batch, devices: ["0"]}
`, []owner{container("chat-0", "vllm"), container("chat-0", "draft")}, ""},
	{"MIG", `
gpus: [{board: H100-SXM5-80GB, mig: [3g.40gb, 3g.40gb]}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["0/1"]}
  - {namespace: serving, pod: etl-0, container: rapids, workload: batch, devices: ["0/2"]}
`, []owner{container("chat-0", "vllm"), container("etl-0", "rapids")}, ""},
	{"DRA", `
gpus: [{board: H100-SXM5-80GB, sharing: dra}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["0"]}
  - {namespace: serving, pod: etl-0, container: rapids, workload: batch, devices: ["0"]}
`, []owner{container("chat-0", "vllm"), container("etl-0", "rapids")}, ""},
}

// world is a Prometheus server that has scraped a node.
type world struct {
	*prom.Storage
	kind *kind
	ends []time.Time // times of the scrapes
}

func (w *world) now() time.Time { return w.ends[len(w.ends)-1] }

// scraped returns the pages of a node under the given settings, and the times of the scrapes.
func scraped(t *testing.T, k *kind, args ...string) (list [][]byte, times []time.Time) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		machine, err := sim.ParseNode([]byte("name: x\ndriver: 570.124.06\ncuda: 12080\n"+k.node), k.name)
		if err != nil {
			t.Fatal(err)
		}
		faults := simulated.Scenario(t, cmp.Or(k.faults, "faults: []"))
		source, err := sim.New(sim.Options{Model: machine, Seed: 7, Scenario: faults})
		if err != nil {
			t.Fatal(err)
		}
		run := pages.Run{Source: source, Args: args, Host: nodeName, Counters: etc.Default(), Interval: scrapeInterval}
		if slices.Contains(args, withLines) {
			run.Counters = moreLines(t)
		}
		run.Each(t, func(s *gpu.Snapshot, page []byte) bool {
			if s.Topology != nil {
				list, times = append(list, bytes.Clone(page)), append(times, time.Now())
			}
			return len(list) < scrapes
		})
	})
	return list, times
}

// moreLines returns the default counters file, with a line for each other DCGM metric that queries.yaml or a rule file
// names. It skips names that have another name in the classic vocabulary.
func moreLines(t *testing.T) []byte {
	t.Helper()
	content := string(etc.Default())
	for _, path := range append(folder.Files(t, compat+"*.yml"), "queries.yaml") {
		for _, name := range regexp.MustCompile(`\bDCGM_(?:FI|EXP)_\w+`).FindAllString(folder.Read(t, path), -1) {
			_, current, ok := catalog.Rename(name, catalog.Classic)
			if !strings.Contains(content, "\n"+name+",") && !(ok && current.Name != name) {
				content += name + ", gauge, Selected.\n"
			}
		}
	}
	return []byte(content)
}

// labels of the exporter's pod, and of the target
var (
	exporterPod = map[string]string{"namespace": "gpu", "pod": "dcgm-exporter-x", "container": "exporter"}
	target      = map[string]string{"job": "dcgm-exporter", "instance": "10.0.0.1:9400", "node": nodeName}
)

// scrape returns the world after the pages were scraped. If way is "renamed", the labels of the exporter's pod replace
// those of the owners, which are renamed to exported_*. The world also has the series of kube-state-metrics that some
// queries join.
func scrape(t *testing.T, k *kind, pages [][]byte, times []time.Time, way string) *world {
	w := &world{Storage: prom.NewStorage(), kind: k, ends: times}
	for i, page := range pages {
		for s := range prom.Samples(t, page) {
			w.Append(string(s.Series), func() labels.Labels {
				b := labels.NewBuilder(s.Labels.Copy())
				for name, value := range target {
					b.Set(name, value)
				}
				for name, value := range exporterPod {
					if way != "renamed" {
						continue
					}
					if had := s.Labels.Get(name); had != "" {
						b.Set("exported_"+name, had)
					}
					b.Set(name, value)
				}
				return b.Labels()
			}, times[i], s.Value)
		}
		for _, o := range k.owners {
			if o["pod"] == "" {
				continue
			}
			of := labels.FromMap(o)
			for _, name := range []string{"kube_pod_status_phase", "kube_pod_container_resource_requests"} {
				w.Append(name+of.String(), func() labels.Labels {
					return labels.NewBuilder(of).Set("__name__", name).Set("resource", "nvidia_com_gpu").Set("node",
						nodeName).Labels()
				}, times[i], 1)
			}
		}
	}
	return w
}

// record evaluates the rules of a file at the time of each scrape.
func (w *world) record(t *testing.T, file string) {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	groups, errs := rulefmt.ParseFile(compat+file, false, model.LegacyValidation, p, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, at := range w.ends {
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				for _, x := range w.Vector(t, r.Expr, at) {
					metric := labels.NewBuilder(x.Metric).Set("__name__", r.Record).Labels()
					w.Append(metric.String(), func() labels.Labels { return metric }, at, x.F)
				}
			}
		}
	}
}
