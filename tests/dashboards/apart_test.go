package dashboards

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// passing returns a function that assigns owners to devices. After each life, new owners replace all of them. Two pods
// share GPU 1, and every other GPU and instance has one pod. A batch job runs inside the pod of GPU 0.
func passing(life time.Duration) func(*gpu.Topology) *gpu.Owners {
	return func(t *gpu.Topology) *gpu.Owners {
		generation := time.Now().Unix() / int64(life/time.Second)
		pod := func(row, n int) gpu.Owner {
			name := fmt.Sprintf("pod-%d-%d-%d", generation, row, n)
			return gpu.Owner{Namespace: "ns", Pod: name, Container: "c", PodUID: "u-" + name,
				Labels: []gpu.Label{{Name: "app", Value: name}}}
		}
		uses := make([]gpu.Use, len(t.Devices))
		for row := range uses {
			if k := t.Devices[row].Entity.Kind; k == gpu.KindGPU || k == gpu.KindGPUInstance {
				uses[row].Owners = []gpu.Owner{pod(row, 0)}
			}
		}
		uses[1] = gpu.Use{Sharing: gpu.SharingTimeSlicing, Replicas: 2, Owners: []gpu.Owner{pod(1, 0), pod(1, 1)}}
		owners := &gpu.Owners{Uses: uses, Labels: attribution.ExclusiveLabels(t, uses, (*gpu.Owner).AllLabels)}
		job := gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: fmt.Sprint(generation)}}}
		uses[0].Owners = append(uses[0].Owners, job)
		owners.Labels[0] = append(owners.Labels[0], job.Labels...)
		return owners
	}
}

// busy returns a machine whose pods are all replaced at intervals of life. Three of its GPUs have XIDs every four
// minutes.
func busy(t *testing.T, minutes int, life time.Duration) machine {
	var faults strings.Builder
	for at := 3; at < minutes; at += 4 {
		fmt.Fprintf(&faults, "  - {fault: xid, at: %dm, devices: [\"0\", \"1\", \"2\"], xids: [31]}\n", at)
		fmt.Fprintf(&faults, "  - {fault: xid, at: %dm30s, devices: [\"2\"], xids: [94]}\n", at)
	}
	return machine{host: "gpu-e", node: "h100x8", file: shipped(t, "fleet"), scenario: "faults:\n" + faults.String(),
		tenants: passing(life)}
}

// both plays machines twice: first with owner labels on device series, then with --owner-labels=info.
func both(t *testing.T, length time.Duration, machines ...machine) (on, apart *world) {
	on = play(t, length, machines...)
	for i := range machines {
		machines[i].apart = true
	}
	return on, play(t, length, machines...)
}

// ofDevices returns the labels of each device series. The names of device series begin with DCGM_, and those of series
// about owners with dcgm_.
func (w *world) ofDevices() (all []labels.Labels) {
	for _, s := range w.Series {
		if strings.HasPrefix(s.Metric.Get("__name__"), "DCGM_") {
			all = append(all, s.Metric)
		}
	}
	return all
}

// TestPodsComeAndGoApart replaces the pods every minute. With --owner-labels=info, the number of device series must not
// grow, and no device series may name an owner. Queries about XIDs must have the same results as with owner labels on
// device series.
func TestPodsComeAndGoApart(t *testing.T) {
	const minutes = 80
	few, fewApart := both(t, 20*time.Minute, busy(t, minutes, time.Minute))
	many, manyApart := both(t, minutes*time.Minute, busy(t, minutes, time.Minute))
	if a, b := len(fewApart.ofDevices()), len(manyApart.ofDevices()); a != b {
		t.Errorf("--owner-labels=info: device series = %d after %d minutes, want %d as after 20", b, minutes, a)
	}
	if a, b := len(few.ofDevices()), len(many.ofDevices()); b < 3*a {
		t.Errorf("owner labels on device series: %d series after %d minutes, want at least three times the %d after 20",
			b, minutes, a)
	}
	for _, l := range manyApart.ofDevices() {
		for _, name := range []string{"pod", "namespace", "container", "app", "hpc_job"} {
			if l.Has(name) {
				t.Fatalf("device series %s has the owner label %s", l, name)
			}
		}
	}
	if pods := manyApart.query(t, `count(count by (pod) (last_over_time(dcgm_pod_gpu_info{pod!=""}[1d])))`,
		many.end)[""]; pods < 1000 {
		t.Errorf("pods = %v, want at least 1000", pods)
	}
	for _, owner := range []string{`{hpc_job!="", gpu="0"}`, `{pod!="", app!="", gpu="0"}`} {
		if got := manyApart.query(t, "count(dcgm_pod_gpu_info"+owner+")", many.end)[""]; got != 1 {
			t.Errorf("dcgm_pod_gpu_info%s has %v series, want 1", owner, got)
		}
	}
	const xids = `sum by (gpu, xid) (DCGM_EXP_XID_ERRORS_TOTAL > 0)`
	near(t, "XIDs", many.query(t, xids, many.end, "gpu", "xid"), manyApart.query(t, xids, many.end, "gpu", "xid"), 0)
	t.Logf("device series with owner labels: %d, then %d; with --owner-labels=info: %d, then %d", len(few.ofDevices()),
		len(many.ofDevices()), len(fewApart.ofDevices()), len(manyApart.ofDevices()))
	few.agrees(t, fewApart, regexp.MustCompile(`(?i)xid`))
}

var promQL = regexp.MustCompile("(?s)```promql\n(.*?)```")

// questions returns the queries of the dashboards, the documentation and the rules by their location. It also records
// the series of the recording rules in the world.
func (w *world) questions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for file, d := range dashboards(t) {
		for i, q := range d.queries() {
			all[fmt.Sprint(file, " ", q.where, " ", i)] = filled(q.Expr, ".*")
		}
	}
	for _, path := range folder.Files(t, root, "docs", "*.md") {
		for i, m := range promQL.FindAllStringSubmatch(folder.Read(t, path), -1) {
			all[fmt.Sprint(path, " ", i)] = m[1]
		}
	}
	for _, path := range folder.Files(t, root, "deployment", "rules", "*.yml") {
		var rules struct {
			Groups []struct {
				Rules []struct{ Record, Alert, Expr string }
			}
		}
		if err := yaml.Unmarshal([]byte(folder.Read(t, path)), &rules); err != nil {
			t.Fatal(path, err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				all[path+" "+r.Record+r.Alert] = r.Expr
				if r.Record == "" {
					continue
				}
				for _, s := range w.over(t, r.Expr, scrapeInterval) { // rules further down in the file read this series
					s.Metric = labels.NewBuilder(s.Metric).Set("__name__", r.Record).Labels()
					s.Floats = withStaleMarkers(s.Floats, w.end)
					w.Series[s.Metric.String()] = &s
				}
			}
		}
	}
	return all
}

// withStaleMarkers returns the points of a recorded series. If no point follows a point one scrape interval later, it
// adds the marker that Prometheus writes when a series disappears.
func withStaleMarkers(points []promql.FPoint, end time.Time) []promql.FPoint {
	step := scrapeInterval.Milliseconds()
	var out []promql.FPoint
	for i, p := range points {
		out = append(out, p)
		next := end.UnixMilli()
		if i+1 < len(points) {
			next = points[i+1].T
		}
		if p.T+step < next {
			out = append(out, promql.FPoint{T: p.T + step, F: math.Float64frombits(value.StaleNaN)})
		}
	}
	return out
}

// ofPages matches queries about the size of pages, which depends on --owner-labels.
var ofPages = regexp.MustCompile("scrape_samples_scraped")

// agrees runs queries in both worlds and checks that the results are equal. It runs those that match the regular
// expression, except queries about the size of pages. It returns the number of queries with a result.
func (w *world) agrees(t *testing.T, other *world, which *regexp.Regexp) (answered int) {
	t.Helper()
	other.questions(t)
	for where, query := range w.questions(t) {
		if !which.MatchString(query) || ofPages.MatchString(query) {
			continue
		}
		want, got := w.over(t, query, 3*time.Minute), other.over(t, query, 3*time.Minute)
		answered += min(len(want), 1)
		if diff := cmp.Diff(plain(want), plain(got), cmpopts.EquateApprox(1e-9, 0), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%s: %s: result (-owner labels on device series +--owner-labels=info):\n%s", where, query, diff)
		}
	}
	return answered
}

// TestOwnersApartGiveTheSameAnswers checks that all panels, rules, alerts and documented queries have the same results
// with --owner-labels=info.
func TestOwnersApartGiveTheSameAnswers(t *testing.T) {
	const length = 30
	dishonored := busy(t, length, 24*time.Hour)
	dishonored.host, dishonored.pod = "gpu-f", "exporter-x"
	machines := append(fleet(t), busy(t, length, 24*time.Hour), dishonored)
	machines[1].scenario = "faults: [{fault: xid, at: 9m, devices: [\"2\", \"3\"], xids: [31]}]\n"
	on, apart := both(t, length*time.Minute, machines...)
	if n := on.agrees(t, apart, regexp.MustCompile("")); n < 150 {
		t.Errorf("queries with a result = %d, want at least 150", n)
	}
	for _, w := range []*world{on, apart} {
		for _, host := range []string{"gpu-e", "gpu-f"} {
			if got := w.query(t, `count(gpu:xids:recent{pod=~"pod-.*", hostname="`+host+`"})`, w.end)[""]; got < 3 {
				t.Errorf("%s: XIDs of pods = %v, want at least 3", host, got)
			}
		}
	}
}

func plain(m promql.Matrix) map[string][]promql.FPoint {
	all := map[string][]promql.FPoint{}
	for _, s := range m {
		all[s.Metric.String()] = s.Floats
	}
	return all
}
