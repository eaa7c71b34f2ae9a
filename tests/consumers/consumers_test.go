package consumers

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

var update = flag.Bool("update", false, "write the tables of docs/consumers.md")

// source is a file in a public repository.
type source struct{ Repository, Path, Commit string }

func (s source) link(text string) string {
	return fmt.Sprintf("[%s](https://github.com/%s/blob/%s/%s)", text, s.Repository, s.Commit, s.Path)
}

// use is an entry of queries.yaml: what a consumer reads from the exporter.
type use struct {
	Reads  string
	Source source
	Also   []source
	Scrape string
	Per    string
	By     []string
	AddsUp string `yaml:"adds_up"`
	Kinds  []string
	Names  []string
	Query  []string `yaml:"queries"`
}

func uses(t *testing.T) (list []use) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(folder.Read(t, "queries.yaml")), &list); err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		for _, s := range append(u.Also, u.Source) {
			if s.Repository == "" || s.Path == "" || len(s.Commit) != 40 {
				t.Errorf("%s: source %+v is incomplete", u.Reads, s)
			}
		}
	}
	return list
}

func (u *use) asksOf(k *kind) bool { return len(u.Kinds) == 0 || slices.Contains(u.Kinds, k.name) }

// remedy is a change that fixes queries that fail by default: a setting of the exporter or a file of recording rules.
type remedy struct {
	name, arg, rules string
}

var remedies = []remedy{
	{name: "`--hostname-label=both`", arg: "--hostname-label=both"},
	{name: "lines in the counters file", arg: withLines},
	{name: "`--vocabulary=both`", arg: "--vocabulary=both"},
	{name: "[opencost.yml](../deployment/rules/compat/opencost.yml)", rules: "opencost.yml"},
	{name: "[jobstats.yml](../deployment/rules/compat/jobstats.yml)", rules: "jobstats.yml"},
	{name: "[autoscalers.yml](../deployment/rules/compat/autoscalers.yml)", rules: "autoscalers.yml"},
	{name: "`--kubernetes-virtual-gpus`", arg: "--kubernetes-virtual-gpus"},
}

// withLines selects the counters file that moreLines returns.
const withLines = "--collectors=lines.csv"

// rig caches the pages and the world of each kind of node and setting.
type rig struct {
	t      *testing.T
	pages  map[string][]scraped
	worlds map[string]*world
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, pages: map[string][]scraped{}, worlds: map[string]*world{}}
}

// world returns the Prometheus data for a kind of node, scraped in the given way, with the given remedies.
func (r *rig) world(k *kind, way string, with ...remedy) *world {
	r.t.Helper()
	var args, rules []string
	for _, m := range with {
		if m.arg != "" {
			args = append(args, m.arg)
		}
		if m.rules != "" {
			rules = append(rules, m.rules)
		}
	}
	key := k.name + " " + strings.Join(args, " ")
	if r.pages[key] == nil {
		r.pages[key] = serve(r.t, k, args...)
	}
	of := key + way + strings.Join(rules, " ")
	if r.worlds[of] == nil {
		r.worlds[of] = scrape(r.t, k, r.pages[key], way)
		for _, file := range rules {
			r.worlds[of].record(r.t, file)
		}
	}
	return r.worlds[of]
}

// answered reports whether the world answers all queries of a use. A query must have a result for each owner or device
// of the node, and none for an owner that holds no device. If AddsUp is set, the results must add up to the values of
// the devices. If Per is "name", each of the Names must have a series. plain is the world without remedies.
func (w *world) answered(t *testing.T, u *use, plain *world) bool {
	if u.Per == "name" {
		got := keys(w.Vector(t, `{__name__=~"`+strings.Join(u.Names, "|")+`"}`, w.now()), []string{"__name__"})
		return len(got) == len(u.Names)
	}
	for _, query := range u.Query {
		answers := []promql.Vector{}
		for _, q := range w.filled(query) {
			answer := w.Vector(t, q, w.now())
			if len(answer) == 0 {
				return false
			}
			answers = append(answers, answer)
		}
		got := keys(answers[0], u.By)
		for key := range plain.expected(t, u) {
			if !got[key] {
				return false
			}
			delete(got, key)
		}
		for key := range got { // a result for an owner that holds no device is wrong
			if u.Per == "owner" && strings.Trim(key, " ") != "" {
				return false
			}
		}
		if u.AddsUp != "" && !w.addsUp(t, u, answers[0], plain, strings.Contains(query, "_over_time")) {
			return false
		}
	}
	return true
}

// filled returns the query once for each pod, with the labels of the pod filled in. It lists equal queries once.
func (w *world) filled(query string) (list []string) {
	for _, o := range w.kind.owners {
		if o["pod"] == "" {
			continue
		}
		q := query
		for name, value := range o {
			q = strings.ReplaceAll(q, `"$`+name+`"`, `"`+value+`"`)
		}
		if !slices.Contains(list, q) {
			list = append(list, q)
		}
	}
	return list
}

// expected returns the keys that the results of a use must have: one for each owner or device of the node. Owners that
// lack a label in u.By are left out.
func (w *world) expected(t *testing.T, u *use) map[string]bool {
	switch u.Per {
	case "owner":
		all, by := map[string]bool{}, []string{}
		for _, name := range u.By {
			by = append(by, strings.TrimPrefix(name, "exported_"))
		}
		for _, o := range w.kind.owners {
			if slices.ContainsFunc(by, func(name string) bool { return o[name] == "" }) {
				continue
			}
			all[key(labels.FromMap(o), by)] = true
		}
		return all
	case "device":
		devices := `label_replace(DCGM_FI_DEV_GPU_TEMP, "Hostname", "$1", "hostname", "(.+)")`
		if slices.Contains(u.By, "GPU_I_ID") {
			devices = `DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID!=""}`
		}
		return keys(w.Vector(t, devices, w.now()), u.By)
	}
	return nil
}

// addsUp reports whether the results add up to the values of the devices. If there is one result for each owner,
// unattributed utilization is left out of both sums. If mean is true, the expected value is the average of the last
// five minutes.
func (w *world) addsUp(t *testing.T, u *use, answers promql.Vector, plain *world, mean bool) bool {
	of := u.AddsUp
	if u.Per == "owner" {
		of += ` and on (UUID, GPU_I_ID) dcgm_pod_gpu_info{pod!=""}`
		rest := `sum by (UUID, GPU_I_ID) (dcgm_gpu_unattributed_utilization_ratio)`
		busy := `(` + rest + ` + sum by (UUID, GPU_I_ID) (dcgm_pod_gpu_utilization_ratio) > 0)`
		of = `sum by (UUID, GPU_I_ID) (` + of + `)`
		of = of + ` - (` + of + ` * ` + rest + ` / ` + busy + ` or 0 * ` + of + `)`
	}
	if mean {
		of = `avg_over_time((` + of + `)[5m:30s])`
	}
	want := plain.Vector(t, `sum(`+of+`)`, w.now())
	var sum float64
	for _, x := range answers {
		if u.Per != "owner" || x.Metric.Get("pod") != "" {
			sum += x.F
		}
	}
	// the tolerance allows for values that are written with six decimals
	return len(want) == 1 && want[0].F > 0 && math.Abs(sum-want[0].F) < 1e-5*want[0].F
}

func key(l labels.Labels, by []string) string {
	var parts []string
	for _, name := range by {
		parts = append(parts, l.Get(name))
	}
	return strings.Join(parts, " ")
}

func keys(vector promql.Vector, by []string) map[string]bool {
	all := map[string]bool{}
	for _, x := range vector {
		all[key(x.Metric, by)] = true
	}
	return all
}

// modes lists the exporter settings that the second table compares.
var modes = []struct{ name, arg string }{
	{"default", ""}, {"`--compatibility=strict`", "--compatibility=strict"},
	{"`--vocabulary=current`", "--vocabulary=current"}, {"`--vocabulary=both`", "--vocabulary=both"},
	{"`--owner-labels=info`", "--owner-labels=info"},
}

// TestConsumers checks that the generated tables in the docs match the results of the queries.
func TestConsumers(t *testing.T) {
	r := newRig(t)
	var need, found strings.Builder
	need.WriteString("| what is read | whole GPU | time-sliced | two containers | MIG | DRA claim of two pods |\n")
	need.WriteString("|---|---|---|---|---|---|\n")
	found.WriteString("| what is read |")
	for _, m := range modes {
		found.WriteString(" " + m.name + " |")
	}
	found.WriteString("\n|---|" + strings.Repeat("---|", len(modes)) + "\n")
	for _, u := range uses(t) {
		need.WriteString("| " + u.Source.link(u.Reads))
		for _, s := range u.Also {
			need.WriteString(", " + s.link(s.Repository))
		}
		need.WriteString(" |")
		for i := range kinds {
			need.WriteString(" " + r.cell(&u, &kinds[i]) + " |")
		}
		need.WriteString("\n")
		fmt.Fprintf(&found, "| %s |", u.Reads)
		for _, m := range modes {
			found.WriteString(" " + r.kindsOf(&u, m.arg) + " |")
		}
		found.WriteString("\n")
	}
	written(t, "needs", need.String())
	written(t, "modes", found.String())
}

// TestOpenCostOfUnknownShares covers pods that share a MIG instance, where the driver does not report which process
// uses it. With the recording rules, OpenCost's bill must add up to the value of the instance.
func TestOpenCostOfUnknownShares(t *testing.T) {
	const gpu = "sharing: time-slicing, replicas: 2, mig: [3g.40gb]"
	k := twoPods("replicas of an instance", gpu, "0/1", "0/1")
	r, u := newRig(t), &uses(t)[0]
	plain := r.world(&k, u.Scrape)
	if plain.answered(t, u, plain) {
		t.Errorf("%s: queries are answered without recording rules, want no complete answer", u.Reads)
	}
	if !r.world(&k, u.Scrape, remedy{rules: "opencost.yml"}).answered(t, u, plain) {
		t.Errorf("%s: queries are not answered with the recording rules, want a complete answer", u.Reads)
	}
}

// TestOpenCostOfOwnersApart checks that with --owner-labels=info, the recording rules give OpenCost a bill that adds up
// to the values of the devices.
func TestOpenCostOfOwnersApart(t *testing.T) {
	r, u, apart := newRig(t), &uses(t)[0], remedy{arg: "--owner-labels=info", rules: "opencost.yml"}
	for i := range kinds {
		k := &kinds[i]
		if !r.world(k, u.Scrape, apart).answered(t, u, r.world(k, u.Scrape)) {
			t.Errorf("%s: queries are not answered with --owner-labels=info for %s, want a complete answer", u.Reads,
				k.name)
		}
	}
}

// cell formats the smallest set of remedies with which a use works for a kind of node as a table cell. Ties go to
// earlier remedies. Sets of more than two remedies are not tried.
func (r *rig) cell(u *use, k *kind) string {
	if !u.asksOf(k) {
		return ""
	}
	sets := [][]remedy{nil}
	for _, m := range remedies {
		sets = append(sets, []remedy{m})
	}
	for i, m := range remedies {
		for _, n := range remedies[i+1:] {
			sets = append(sets, []remedy{m, n})
		}
	}
	for _, with := range sets {
		if !r.world(k, u.Scrape, with...).answered(r.t, u, r.world(k, u.Scrape)) {
			continue
		}
		var names []string
		for _, m := range with {
			names = append(names, m.name)
		}
		return cmp.Or(strings.Join(names, " and "), "yes")
	}
	return "no"
}

// kindsOf formats the kinds of nodes for which a use works with a setting as a table cell.
func (r *rig) kindsOf(u *use, arg string) string {
	var have, lack []string
	for i := range kinds {
		if k := &kinds[i]; u.asksOf(k) {
			if r.world(k, u.Scrape, remedy{arg: arg}).answered(r.t, u, r.world(k, u.Scrape)) {
				have = append(have, k.name)
			} else {
				lack = append(lack, k.name)
			}
		}
	}
	switch {
	case len(have) == 0:
		return "none"
	case len(lack) == 0:
		return "all"
	case len(lack) == 1 && len(have) > 1:
		return "all but " + lack[0]
	}
	return strings.Join(have, ", ")
}

// written compares the part of docs/consumers.md between two marks with want. With -update, it replaces the part.
func written(t *testing.T, mark, want string) {
	t.Helper()
	const page = "../../docs/consumers.md"
	first, last := "<!-- begin "+mark+" -->\n\n", "\n<!-- end "+mark+" -->"
	before, rest, ok := strings.Cut(folder.Read(t, page), first)
	got, after, end := strings.Cut(rest, last)
	switch {
	case !ok || !end:
		t.Fatalf("docs/consumers.md lacks the markers of %s", mark)
	case got == want:
	case !*update:
		t.Errorf("docs/consumers.md is out of date: go test ./tests/consumers -update\nwant\n%s\ngot\n%s", want, got)
	default:
		folder.Write(t, page, before+first+want+last+after)
	}
}

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
	twoPods("time-sliced", "sharing: time-slicing, replicas: 4", "0", "0",
		"  - {pod: burn-in, host: true, workload: notebook, devices: [\"0\"]}\n"),
	{"two containers", `
gpus: [{board: H100-SXM5-80GB}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: ["0"]}
  - {namespace: serving, pod: chat-0, container: draft, workload: batch, devices: ["0"]}
`, []owner{container("chat-0", "vllm"), container("chat-0", "draft")}, ""},
	twoPods("MIG", "mig: [3g.40gb, 3g.40gb]", "0/1", "0/2"),
	twoPods("DRA", "sharing: dra", "0", "0"),
}

// twoPods returns a kind with one GPU and two pods, each with its device. more has further pods of the node.
func twoPods(name, gpu, first, second string, more ...string) kind {
	node := fmt.Sprintf(`
gpus: [{board: H100-SXM5-80GB, %s}]
pods:
  - {namespace: serving, pod: chat-0, container: vllm, workload: inference, devices: [%q]}
  - {namespace: serving, pod: etl-0, container: rapids, workload: batch, devices: [%q]}
`, gpu, first, second)
	owners := []owner{container("chat-0", "vllm"), container("etl-0", "rapids")}
	return kind{name, node + strings.Join(more, ""), owners, ""}
}

// world is a Prometheus server that has scraped a node.
type world struct {
	*prom.Storage
	kind *kind
	ends []time.Time // times of the scrapes
}

func (w *world) now() time.Time { return w.ends[len(w.ends)-1] }

// scraped is a page, and the time of its scrape.
type scraped struct {
	page []byte
	at   time.Time
}

// serve returns the pages of a node under the given settings.
func serve(t *testing.T, k *kind, args ...string) (list []scraped) {
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
				list = append(list, scraped{bytes.Clone(page), time.Now()})
			}
			return len(list) < scrapes
		})
	})
	return list
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
func scrape(t *testing.T, k *kind, pages []scraped, way string) *world {
	w := &world{Storage: prom.NewStorage(), kind: k}
	for _, p := range pages {
		w.ends = append(w.ends, p.at)
		for s := range prom.Samples(t, p.page) {
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
			}, p.at, s.Value)
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
				}, p.at, 1)
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
